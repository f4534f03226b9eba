"""Machine code that multiplies lists of torch's tensors takes plain matrices of one kind alone,
keeps what Python counts, and is there once it is worth its compiler."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright  # noqa: E402
from tests.pytorch.test_lists_guarded import SPOILT, lists  # noqa: E402
from tilewright.backends.host import compiled, grouped  # noqa: E402
from tilewright.calls import grouped_listed_tensors as listed  # noqa: E402
from tilewright.calls import grouped_quick_tensors as quick  # noqa: E402
from tilewright.calls.grouped_quick_host import WAYS  # noqa: E402
from tilewright.inputs.tensors import WITH_COMPLEX  # noqa: E402

pytestmark = pytest.mark.skipif(not compiled.available(), reason="needs Numba")


class Named(torch.Tensor):  # type: ignore[misc]
    """A subclass."""


def products(multiply: Any = torch.mm) -> Any:
    found = listed.products_by(multiply)
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", sorted(map(str, WITH_COMPLEX)))
@pytest.mark.parametrize("make", [list, tuple])
def test_matrices_are_multiplied_however_they_lie(make: Any, dtype: str) -> None:
    kind = getattr(torch, dtype.removeprefix("torch."))
    a, b = lists(9)
    a = [*a, a[0].T.contiguous().T, torch.randn(9, 20)[::2, 3:11:2], a[0][:0], a[0], a[0]]
    b = [*b, b[0], torch.randn(4, 3), b[0], b[0], torch.nn.Parameter(b[0].clone())]
    a, b = [one.to(kind) for one in a], [one.to(kind) for one in b]
    found = products()(make(a), make(b))
    assert type(found) is list
    assert len(found) == len(a)
    for x, y, z in zip(a, b, found, strict=True):
        assert torch.equal(z, torch.mm(x, y))


UNLIKE = SPOILT | {
    "of a subclass": lambda x: x.as_subclass(Named),
    "negated when it is read": torch._neg_view,
    "without a storage": lambda x: x.to_mkldnn(),
    "an array": lambda x: x.numpy(),
    "a list": lambda x: x.tolist(),
    "zeros that are nowhere": lambda x: torch._efficientzerotensor(x.shape),
    "in a storage that has shrunk": lambda x: shrunk(x),
}
UNLIKE.pop("of another size")  # torch says so


def shrunk(value: Any) -> Any:
    value = value.clone()
    value.untyped_storage().resize_(value.nbytes - 4)
    return value


@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("unlike", UNLIKE)
def test_whatever_else_stands_anywhere_is_not_multiplied(
    unlike: str, side: int, count: int
) -> None:
    made: list[Any] = []
    for at in {0, count - 1}:
        given = lists(count)
        given[side][at] = UNLIKE[unlike](given[side][at])
        assert products(lambda *pair: made.append(pair))(*given) is None
    assert not made


def test_lists_that_are_none_or_do_not_fit_are_not_multiplied() -> None:
    made: list[Any] = []
    by = products(lambda *pair: made.append(pair))
    a, b = lists(3)
    several = (
        ([], []),
        ((), ()),
        ([], ()),
        (a, b[:2]),
        (a[:2], b),
        (a[:1], b),
        (a[:1], ()),
        (a, iter(b)),
        (a, None),
        (dict(enumerate(a)), b),
    )
    for given in (*several, (a,), (a, b, b), ()):
        assert by(*given) is None
    assert not made


def test_whole_numbers_and_other_devices_of_all_are_not_multiplied() -> None:
    a, b = lists(3)
    for change in (torch.Tensor.int, lambda x: x.to("meta"), lambda x: x.to(torch.int8)):
        assert products()([*map(change, a)], [*map(change, b)]) is None


def counts(*parts: Any) -> list[int]:
    return [sys.getrefcount(one) for part in parts for one in part]


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("make", [list, tuple])
def test_what_python_counts_is_as_it_was(make: Any, count: int) -> None:
    """Of operands and lists, where products are made, refused, or raise."""
    a, b = (make(part) for part in lists(count))
    odd = make([*b[:-1], None])
    ill = make([*b[:-1], torch.ones(41, 43)])
    by = products()
    before = counts(a, b, (a, b, odd, ill, by))
    gc.disable()  # what others left may hold None thousands of times
    try:
        nothing = sys.getrefcount(None)
        for _ in range(2000):
            found = by(a, b)
            assert by(a, odd) is None
            with pytest.raises(RuntimeError):
                by(a, ill)
        more = sys.getrefcount(None) - nothing
    finally:
        gc.enable()
    assert counts(found) == counts([torch.ones(1) for _ in found])
    assert counts(a, b, (a, b, odd, ill, by)) == before
    assert abs(more) < 1000


def test_what_is_raised_goes_on_and_no_product_is_kept() -> None:
    made: list[Any] = []

    def multiply(x: Any, y: Any) -> Any:
        if len(made) == 3:
            raise KeyboardInterrupt("in between")
        made.append(torch.mm(x, y))
        return made[-1]

    with pytest.raises(KeyboardInterrupt, match="in between"):
        products(multiply)(*lists(5))
    assert counts(made) == counts([torch.ones(1) for _ in made])


@pytest.mark.parametrize("count", [1, 2, 77])
def test_no_list_is_found_before_all_its_products_are_there(count: int) -> None:
    """What goes through all objects while torch multiplies would end the process at an item that
    is not there yet."""
    a, b = lists(count)

    def found() -> set[int]:
        return {id(one) for one in gc.get_objects() if type(one) is list and len(one) == count}

    def multiply(x: Any, y: Any) -> Any:
        strange.extend(found() - known)
        return torch.mm(x, y)

    strange: list[int] = []
    by = products(multiply)
    known = found()
    made = by(a, b)
    assert not strange
    assert gc.is_tracked(made)
    assert all(map(torch.equal, made, map(torch.mm, a, b)))


def test_what_multiplies_lives_as_long_as_the_machine_code_that_calls_it() -> None:
    def multiply(x: Any, y: Any) -> Any:
        return torch.mm(x, y)

    by, kept = products(multiply), weakref.ref(multiply)
    del multiply
    gc.collect()
    assert kept() is not None
    a, b = lists(2)
    assert all(map(torch.equal, by(a, b), map(torch.mm, a, b)))


def test_a_function_of_pythons_is_made_without_setting_what_others_call() -> None:
    shared = ctypes.pythonapi.PyCFunction_NewEx
    before = shared.restype, shared.argtypes
    products()
    assert (shared.restype, shared.argtypes) == before


def begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code is compiled, and nobody has looked for it."""
    compiled.code_of_tensors()
    monkeypatch.setattr(grouped, "_compiled", {listed.NAME})
    monkeypatch.setattr(quick, "_products", quick._not_yet)
    monkeypatch.setattr(quick, "_since", 0)
    monkeypatch.setattr(quick, "_ways", WAYS)
    for kind in (torch.Tensor, torch.nn.Parameter):
        monkeypatch.setitem(WAYS, kind, quick.few)


@pytest.mark.parametrize(("owner", "name"), [(torch, "mm"), (quick, "_multiply")])
def test_what_stands_for_torchs_product_meanwhile_is_not_taken_for_it(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program's test may put something in its place for a while, which then is no more."""
    begin(monkeypatch)
    a, b = lists(60)
    with monkeypatch.context() as replaced:
        replaced.setattr(owner, name, lambda x, y: None)
        for _ in range(4):
            tilewright.grouped_matmul(a, b)
    assert quick._products is not quick._not_yet
    assert all(map(torch.equal, tilewright.grouped_matmul(a, b), map(torch.mm, a, b)))


def test_a_mode_sees_nothing_of_how_machine_code_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may give anything for what is made meanwhile."""
    seen: set[str] = set()

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, function: Any, types: Any, given: Any = (), named: Any = None
        ) -> Any:
            name = getattr(function, "__name__", "")
            seen.add(name)
            return 5 if name == "empty" else function(*given, **(named or {}))

    begin(monkeypatch)
    a, b = lists(60)
    tilewright.grouped_matmul(a[:2], b[:2])
    quick._since = quick._SOME
    with Mode():
        for _ in range(4):
            tilewright.grouped_matmul(a, b)
    assert quick._products is not quick._not_yet
    assert "mm" in seen
    assert "empty" not in seen


def test_what_another_thread_puts_into_a_list_meanwhile_is_not_multiplied() -> None:
    a, b = lists(4)
    whole = list(a), list(b)

    def multiply(x: Any, y: Any) -> Any:
        a.clear()
        b[:] = [None] * 9
        return torch.mm(x, y)

    found = products(multiply)(a, b)
    assert all(map(torch.equal, found, map(torch.mm, *whole)))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="collects garbage between two lines alone")
def test_what_the_collector_of_garbage_puts_into_a_list_meanwhile_is_not_left_out() -> None:
    """It may run as a tuple of the first list is made, once lengths were compared."""
    a, b = lists(30)
    by, before = products(), gc.get_threshold()

    def more(*_: Any) -> None:
        b.append(b[0])

    gc.callbacks.append(more)
    gc.set_threshold(1)
    try:
        found = by(a, b)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(more)
    assert len(b) > len(a)
    assert found is None


def test_it_is_looked_for_now_and_then_and_compiled_once_it_is_worth_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(grouped, "why_not_yet", lambda device, name: asked.append(name))
    monkeypatch.setattr(grouped, "_compiled", set())
    monkeypatch.setattr(listed, "_made", 0)
    monkeypatch.setattr(listed, "_WORTH", 1000)
    monkeypatch.setattr(quick, "_products", quick._not_yet)
    monkeypatch.setattr(quick, "_since", 0)
    monkeypatch.setattr(quick, "_ways", WAYS)
    for kind in (torch.Tensor, torch.nn.Parameter):
        monkeypatch.setitem(WAYS, kind, quick.few)
    a, b = lists(60)
    for _ in range(15):
        tilewright.grouped_matmul(a, b)
    assert not asked
    for _ in range(3):
        tilewright.grouped_matmul(a, b)
    assert asked == [listed.NAME]
    monkeypatch.setattr(grouped, "_compiled", {listed.NAME})
    for _ in range(4):
        made = tilewright.grouped_matmul(a, b)
        assert all(map(torch.equal, made, map(torch.mm, a, b)))
    assert quick._products is not quick._not_yet
    assert WAYS[torch.Tensor] is WAYS[torch.nn.Parameter] is quick.listed


def test_whoever_binds_a_plan_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(compiled, "code_of_tensors", lambda: told.append(1))
    compiled.compile_lists()
    assert told


def test_records_that_lie_otherwise_are_left_to_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed.addresses, "_layout", lambda where: None)
    assert listed.products_by(torch.mm) is None
