"""Plain lists on a processor are multiplied at once; nothing else among them is ever taken."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
from tilewright.errors import OperandError, TilewrightError

torch = pytest.importorskip("torch")

from tilewright.backends.host import compiled  # noqa: E402
from tilewright.calls import grouped_listed_tensors as listed  # noqa: E402
from tilewright.calls import grouped_quick_tensors as quick  # noqa: E402
from tilewright.calls.grouped_quick_host import WAYS  # noqa: E402

COUNTS = (1, 2, 3, 8, 9, 17, 60, 300)


def lists(count: int, dtype: Any = None) -> tuple[list[Any], list[Any]]:
    # The host's generator alone: to tell every kind of GPU takes half a millisecond of each call.
    torch.default_generator.manual_seed(count)
    sizes = torch.randint(1, 9, (count, 3)).tolist()
    a = [torch.randn(m, k).to(dtype or torch.float32) for m, k, _ in sizes]
    return a, [torch.randn(k, n).to(dtype or torch.float32) for _, k, n in sizes]


@pytest.fixture(autouse=True, params=["guards", "machine code"])
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Lists like these were met before: their guards are made, or machine code is compiled."""
    way: str = request.param
    if way == "machine code" and not compiled.available():
        pytest.skip("needs Numba")
    monkeypatch.setattr(quick, "_look", lambda a: None)
    if way == "machine code":
        monkeypatch.setattr(quick, "_products", listed.products_by(torch.mm))
    for kind in (torch.Tensor, torch.nn.Parameter):
        monkeypatch.setitem(WAYS, kind, quick.few if way == "guards" else quick.listed)
    for dtype in (torch.float32, torch.float64):
        tilewright.grouped_matmul(*lists(2, dtype))
    return way


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("count", COUNTS)
def test_plain_lists_of_any_length_are_torchs_own_products(count: int, dtype: str) -> None:
    a, b = lists(count, getattr(torch, dtype))
    for _ in range(2):
        made = tilewright.grouped_matmul(a, b)
        for found, x, y in zip(made, a, b, strict=True):
            assert torch.equal(found, x @ y)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_gradient_of_the_last_is_kept(side: str, count: int) -> None:
    a, b = lists(count)
    last = (a if side == "a" else b)[-1].requires_grad_()
    tilewright.grouped_matmul(a, b)[-1].sum().backward()
    made = last.grad.clone()
    last.grad = None
    (a[-1] @ b[-1]).sum().backward()
    torch.testing.assert_close(made, last.grad)


SPOILT = {
    "of another dtype": lambda x: x.double(),
    "of whole numbers": lambda x: x.int(),
    "sparse": lambda x: x.to_sparse(),
    "without memory": lambda x: x.to("meta"),
    "a vector": lambda x: x[0],
    "a batch": lambda x: x[None],
    "no tensor": lambda x: None,
    "of another size": lambda x: torch.zeros(41, 43),
    "nested": lambda x: torch.nested.nested_tensor([x]),
    "nested, jagged": lambda x: torch.nested.nested_tensor([x], layout=torch.jagged),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("spoilt", SPOILT)
def test_one_that_does_not_fit_is_refused_wherever_it_stands(
    spoilt: str, side: str, count: int
) -> None:
    a, b = lists(count)
    some = a if side == "a" else b
    some[-1] = SPOILT[spoilt](some[-1])
    if count == 1 and spoilt == "of another dtype":
        b[-1] = b[-1].double() if side == "a" else b[-1]
        a[-1] = a[-1].int() if side == "b" else a[-1].half()
    with pytest.raises(TilewrightError):
        tilewright.grouped_matmul(a, b)


@pytest.mark.parametrize("count", COUNTS)
def test_lists_that_do_not_fit_each_other_are_refused(count: int) -> None:
    a, b = lists(count)
    with pytest.raises(TilewrightError):
        tilewright.grouped_matmul(a, b[:-1])
    with pytest.raises(TilewrightError):
        tilewright.grouped_matmul(a, [*b, b[0]])


def test_what_changes_torch_changes_the_products_too() -> None:
    a, b = lists(3)
    with torch.inference_mode():
        assert tilewright.grouped_matmul(a, b)[0].is_inference()
    with torch.autocast("cpu", torch.bfloat16):
        assert tilewright.grouped_matmul(a, b)[0].dtype is torch.bfloat16
    same = tilewright.grouped_matmul([a[0]] * 3, [b[0]] * 3)
    assert all(torch.equal(one, a[0] @ b[0]) for one in same)
    turned = tilewright.grouped_matmul([torch._neg_view(a[0])], [b[0]])
    torch.testing.assert_close(turned[0], -(a[0] @ b[0]))
    mapped = torch.func.vmap(lambda x: tilewright.grouped_matmul([x], [b[0]])[0])(a[0][None])
    torch.testing.assert_close(mapped[0], a[0] @ b[0])


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_each_product_is_made_once_where_a_mode_looks_on(count: int, dtype: str) -> None:
    """Few are multiplied before anything is asked of them."""
    from torch.utils.flop_counter import FlopCounterMode

    a, b = lists(count, getattr(torch, dtype))
    with FlopCounterMode(display=False) as counter:
        made = tilewright.grouped_matmul(a, b)
    wanted = sum(2 * x.shape[0] * y.numel() for x, y in zip(a, b, strict=True))
    assert counter.get_total_flops() == wanted
    assert all(torch.equal(z, x @ y) for x, y, z in zip(a, b, made, strict=True))


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("left", [0, 1])
def test_an_operand_of_a_long_list_whose_storage_has_shrunk_is_named(name: str, left: int) -> None:
    a, b = lists(300)
    a[171], b[171] = torch.ones(8, 9)[:, :7], torch.ones(9, 8)[:, :7].T
    a[171], b[171] = a[171][:, :5], b[171][2:]
    said, operand = "", a[171] if name == "a" else b[171]
    operand.untyped_storage().resize_(4 * 40 * left)
    try:
        tilewright.grouped_matmul(a, b)
    except OperandError as error:
        said = str(error)
    del a, b, operand  # a report of a failure would print them, and with them whatever lies there
    assert said.startswith(f"{name} of shape")


@pytest.mark.parametrize("name", ["a", "b", "bias"])
@pytest.mark.parametrize("listed", [False, True])
def test_an_operand_whose_storage_was_freed_is_named(name: str, listed: bool) -> None:
    a, b, bias = torch.randn(5, 7), torch.randn(7, 3), torch.randn(3)
    {"a": a, "b": b, "bias": bias}[name].untyped_storage().resize_(0)
    said = ""
    try:
        if listed:
            tilewright.grouped_matmul([a], [b], bias=[bias])
        else:
            tilewright.matmul(a, b, bias=bias)
    except OperandError as error:
        said = str(error)
    del a, b, bias  # a report of a failure would print them, and with them whatever lies there
    assert said.startswith(f"{name} of shape")
    assert "a storage that holds 0" in said


@pytest.mark.parametrize("name", ["a", "b", "bias", "out"])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("kernel", [None, "native"])
def test_memory_of_other_types_that_was_given_back_is_named(
    name: str, dtype: str, kernel: str | None
) -> None:
    kind = getattr(torch, dtype)
    sums = torch.int32 if dtype == "int8" else kind
    given = {"a": torch.ones(5, 7), "b": torch.ones(7, 3)}
    lists = {key: [one.to(kind)] for key, one in given.items()}
    lists |= {"bias": [torch.ones(3).to(sums)], "out": [torch.ones(5, 3).to(sums)]}
    lists[name][0].untyped_storage().resize_(0)
    said = ""
    try:
        tilewright.grouped_matmul(**lists, kernel=kernel)
    except OperandError as error:
        said = str(error)
    del lists  # a report of a failure would print them, and with them whatever lies there
    assert said.startswith(f"{name}[0] of shape")
    assert "has no memory" in said


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_a_result_whose_memory_was_given_back_is_named(dtype: str) -> None:
    kind = getattr(torch, dtype)
    out = torch.ones(5, 3, dtype=torch.int32 if dtype == "int8" else kind)
    out.untyped_storage().resize_(0)
    said = ""
    try:
        tilewright.matmul(torch.ones(5, 7).to(kind), torch.ones(7, 3).to(kind), out=out)
    except OperandError as error:
        said = str(error)
    del out
    assert said.startswith("out of shape")


KINDS: dict[str, Any] = {
    "plain": lambda x: x,
    "wanting a gradient": lambda x: x.requires_grad_(),
    "a parameter": lambda x: torch.nn.Parameter(x),
    "a parameter that is frozen": lambda x: torch.nn.Parameter(x, requires_grad=False),
    "another's result": lambda x: x.requires_grad_() * 2,
}


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_kinds_that_alternate_keep_their_gradients_and_their_want_of_them(count: int) -> None:
    for _ in range(3):
        for left in KINDS.values():
            for right in KINDS.values():
                a, b = lists(count)
                a, b = list(map(left, a)), list(map(right, b))
                made = tilewright.grouped_matmul(a, b)
                for found, x, y in zip(made, a, b, strict=True):
                    assert torch.equal(found, x @ y)
                    assert found.requires_grad is (x.requires_grad or y.requires_grad)
                with torch.no_grad():
                    quiet = tilewright.grouped_matmul(a, b)
                assert not any(one.requires_grad for one in quiet)


def test_options_named_with_their_defaults_change_nothing_and_others_are_heard() -> None:
    a, b = lists(2)
    named = tilewright.grouped_matmul(a, b, alpha=1.0, beta=0.0, transpose_a=False, order="auto")
    twice = tilewright.grouped_matmul(a, b, alpha=2.0, beta=0.0)
    for x, y, one, two in zip(a, b, named, twice, strict=True):
        assert torch.equal(one, x @ y)
        torch.testing.assert_close(two, 2 * (x @ y))
    for wrong in ({"order": None}, {"transpose_a": 0.0}, {"activation": "none such"}):
        with pytest.raises(TilewrightError):
            tilewright.grouped_matmul(a, b, **wrong)
    with pytest.raises(TypeError, match=r"grouped_matmul\(\) got an unexpected .*'gamma'"):
        tilewright.grouped_matmul(a, b, gamma=1.0)


@pytest.mark.parametrize("count", [3, 8, 9, 60])
def test_what_another_thread_puts_into_a_list_meanwhile_is_not_among_the_results(
    count: int, known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands there while products are made, and is gone before guards are asked."""
    a, b = lists(count)
    whole = list(a), list(b)
    calls: list[int] = []

    def multiply(x: Any, y: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            a[1], b[1] = whole[0][1].to("meta"), whole[1][1].to("meta")
        elif len(calls) == 2:
            a[1], b[1] = whole[0][1], whole[1][1]
        return torch.mm(x, y)

    monkeypatch.setattr(quick, "_multiply", multiply)
    if known == "machine code":
        monkeypatch.setattr(quick, "_products", listed.products_by(multiply))
    for found, x, y in zip(tilewright.grouped_matmul(a, b), *whole, strict=True):
        assert torch.equal(found, x @ y)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("at", [0, -1])
def test_nested_tensors_end_no_process_where_a_mode_multiplies_them(at: int, count: int) -> None:
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, _: Any, args: Any = (), options: Any = None):  # type: ignore[no-untyped-def]
            if function is torch.mm and any(x.is_nested for x in args):
                return torch.zeros(1, 1)
            return function(*args, **(options or {}))

    a, b = lists(count)
    b[at] = torch.nested.nested_tensor([b[at]])
    with Mode():
        made = tilewright.grouped_matmul(a, b)
    assert torch.equal(made[at], torch.zeros(1, 1))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("at", [0, -1])
def test_nested_tensors_end_no_process_where_a_transform_maps_over_them(
    at: int, count: int
) -> None:
    a, b = lists(count)
    k = a[at].shape[1]
    parts = [torch.randn(2, k), torch.randn(3, k)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)

    def product(one: Any) -> Any:
        left = list(a)
        left[at] = one
        return tilewright.grouped_matmul(left, b)[at]

    try:
        made = torch.func.vmap(product)(x)
    except (TilewrightError, RuntimeError):
        return
    for found, part in zip(made.unbind(), parts, strict=True):
        torch.testing.assert_close(found, part @ b[at])
