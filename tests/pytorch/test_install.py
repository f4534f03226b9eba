"""torch's own grouped_mm while `tilewright.pytorch.install()` holds, and after it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
functional = torch.nn.functional

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import tilewright.pytorch as ours  # noqa: E402
from tilewright import remember  # noqa: E402
from tilewright.backends.host import compiled, ragged  # noqa: E402
from tilewright.errors import OperandError, ShapeError  # noqa: E402
from tilewright.pytorch.install import _followed  # noqa: E402
from tilewright.torch_ops.ragged_tensors import takes  # noqa: E402

OWN = torch._grouped_mm
FORMS = ("rows", "depths", "columns", "batch")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Sizes of m, k, n; the second is of no multiple of 16 bytes anywhere.
SIZES = {"aligned": (24, 16, 32), "odd": (23, 15, 29), "thin": (24, 1, 1)}
ENDS = (5, 5, 20, 24)


pytestmark = pytest.mark.usefixtures("compiled_for_all")


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    ours.install()
    yield
    ours.uninstall()


def operands(form: str, sizes: str, lies: str, dtype: Any, *, wants: bool = False) -> list[Any]:
    """a and b of a form; `lies` is how each lies in memory."""
    m, k, n = SIZES[sizes]
    total, groups = ENDS[-1], len(ENDS)
    shapes = {
        "rows": ((total, k), (groups, k, n)),
        "depths": ((m, total), (total, n)),
        "columns": ((groups, m, k), (k, total)),
        "batch": ((groups, m, k), (groups, k, n)),
    }
    draw = torch.Generator().manual_seed(m + n)
    made = []
    for shape in shapes[form]:
        if lies == "turned":
            value = torch.randn((*shape[:-2], shape[-1], shape[-2]), generator=draw).to(dtype).mT
        elif lies == "apart":
            value = torch.randn((*shape[:-1], 2 * shape[-1]), generator=draw).to(dtype)[..., ::2]
        else:
            value = torch.randn(shape, generator=draw).to(dtype)
        made.append(value.requires_grad_(wants))
    return made


def reference(form: str, a: Any, b: Any, bias: Any = None) -> Any:
    """The same in float64, a product a group."""
    a, b = a.double(), b.double()
    bounds = list(pairwise((0, *ENDS)))
    if form == "rows":
        found = torch.cat([a[i:j] @ b[g] for g, (i, j) in enumerate(bounds)])
        if bias is not None:
            sizes = torch.tensor([j - i for i, j in bounds])
            found = found + bias.double().repeat_interleave(sizes, 0)
        return found
    if form == "depths":
        return torch.stack([a[:, i:j] @ b[i:j] for i, j in bounds])
    if form == "columns":
        return torch.cat([a[g] @ b[:, i:j] for g, (i, j) in enumerate(bounds)], 1)
    return a @ b if bias is None else a @ b + bias.double()[:, None]


def ends(form: str, dtype: Any = torch.int32) -> Any:
    return None if form == "batch" else torch.tensor(ENDS, dtype=dtype)


def near(found: Any, right: Any, dtype: Any) -> None:
    bound = 2e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-5
    torch.testing.assert_close(found.double(), right, rtol=bound, atol=4 * bound)


@pytest.mark.parametrize("lies", ["plain", "turned", "apart"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_dtype_and_layout_is_multiplied(form: str, sizes: str, lies: str) -> None:
    for dtype in DTYPES:
        a, b = operands(form, sizes, lies, dtype)
        for count in (torch.int32, torch.int64):
            for _ in range(2):  # as lies anything, and as something has lain before
                found = functional.grouped_mm(a, b, offs=ends(form, count))
                assert found.dtype == dtype
                assert found.is_contiguous() or sizes == "thin"
                near(found, reference(form, a, b), dtype)


@pytest.mark.parametrize("lies", ["plain", "turned"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_the_products_whatever_comes_back(
    form: str, sizes: str, lies: str
) -> None:
    """Of a sum comes one number, spread, which torch's own gradients refuse."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        a, b = operands(form, sizes, lies, dtype, wants=True)
        # bfloat16 rounds the product, and with it what a square gives back.
        squares = [] if dtype == torch.bfloat16 else [lambda y: y.square().sum()]
        for end in (torch.sum, *squares):
            right = torch.autograd.grad(end(reference(form, a, b)), (a, b))
            found = torch.autograd.grad(end(torch._grouped_mm(a, b, offs=ends(form))), (a, b))
            for mine, theirs in zip(found, right, strict=True):
                bound = 1e-1 if dtype == torch.bfloat16 else 1e-4
                torch.testing.assert_close(mine, theirs, rtol=bound, atol=bound)


@pytest.mark.parametrize("lies", ["plain", "turned"])
@pytest.mark.parametrize("form", ["rows", "depths"])
def test_gradients_are_right_where_torchs_own_were_sooner_before(form: str, lies: str) -> None:
    """Which is by the clock: here they are asked for, of all that they take."""
    taken = 0
    for sizes, dtype in product(SIZES, (torch.float32, torch.bfloat16)):
        a, b = operands(form, sizes, lies, dtype, wants=True)
        if not takes(a, b, ends(form)):
            continue
        taken += 1
        weight = torch.randn(
            reference(form, a, b).shape, generator=torch.Generator().manual_seed(1)
        )
        for weights in (weight.to(dtype), torch.ones(()).to(dtype)):  # the latter spread
            right = torch.autograd.grad((weights * reference(form, a, b)).sum(), (a, b))
            found = torch.autograd.grad((weights * _followed(a, b, ends(form))).sum(), (a, b))
            for mine, theirs in zip(found, right, strict=True):
                near(mine, theirs.double(), dtype)
    assert taken


@pytest.mark.parametrize("form", ["rows", "batch"])
def test_a_bias_of_each_group_is_added(form: str) -> None:
    for dtype in DTYPES:
        a, b = operands(form, "aligned", "plain", dtype)
        bias = torch.randn(len(ENDS), b.shape[2]).to(dtype).requires_grad_()
        found = functional.grouped_mm(a, b, offs=ends(form), bias=bias)
        near(found, reference(form, a, b, bias), dtype)
        found.sum().backward()
        right = torch.autograd.grad(reference(form, a, b, bias).sum(), bias)[0]
        torch.testing.assert_close(bias.grad, right, rtol=1e-2, atol=1e-2)


def test_second_derivatives_are_right() -> None:
    a, b = operands("rows", "odd", "plain", torch.float64, wants=True)
    assert torch.autograd.gradgradcheck(
        lambda a, b: functional.grouped_mm(a, b, offs=ends("rows")), (a[:, :3], b[:, :3, :2])
    )


def test_rows_that_no_group_has_are_zero_where_the_product_is_made_here() -> None:
    a, b = operands("rows", "odd", "plain", torch.float32)
    found = functional.grouped_mm(a, b, offs=torch.tensor([0, 0, 3, 20], dtype=torch.int32))
    assert not found[20:].any()


def test_offsets_that_decrease_are_refused_where_the_product_is_made_here() -> None:
    a, b = operands("rows", "odd", "plain", torch.float32)
    with pytest.raises(ShapeError, match="group 1"):
        functional.grouped_mm(a, b, offs=torch.tensor([9, 3, 20, 24], dtype=torch.int32))


@pytest.mark.parametrize(
    "change",
    [
        lambda a, b, o: (a.to(torch.int32), b.to(torch.int32), o),
        lambda a, b, o: (a, b.double(), o),
        lambda a, b, o: (a, b, None),
        lambda a, b, o: (a, b, o[:2]),
        lambda a, b, o: (a, b, o.to(torch.int16)),
        lambda a, b, o: (a[:, :-1], b, o),
        lambda a, b, o: (a[0], b, o),
        lambda a, b, o: (a.to_sparse(), b, o),
        lambda a, b, o: (a.cfloat(), b.cfloat(), o),
    ],
)
def test_what_torch_alone_understands_gets_the_words_of_torch(change: Any) -> None:
    given = change(*operands("rows", "odd", "plain", torch.float32), ends("rows"))
    with pytest.raises(Exception) as own:  # noqa: PT011
        OWN(*given[:2], offs=given[2])
    with pytest.raises(type(own.value)) as found:
        functional.grouped_mm(*given[:2], offs=given[2])
    assert str(found.value) == str(own.value)


@pytest.mark.parametrize("is_installed", [True, False])
@pytest.mark.parametrize("name", ["_grouped_mm", "functional.grouped_mm"])
def test_arguments_have_the_names_and_places_that_torch_gives_them(
    name: str, *, is_installed: bool
) -> None:
    if not is_installed:
        ours.uninstall()
    (a, b), offs = operands("rows", "aligned", "plain", torch.float32), ends("rows")
    own = name == "_grouped_mm"
    call = torch._grouped_mm if own else functional.grouped_mm
    first, second = ("input", "mat2") if own else ("mat_a", "mat_b")
    ways = [
        ((), {first: a, second: b, "offs": offs}),
        ((a,), {second: b, "offs": offs, "bias": None, "out_dtype": None}),
        ((a, b), {"offs": offs, "out_dtype": torch.float32}),
    ]
    if own:
        ways += [((a, b, offs), {}), ((a, b, offs, None, torch.float32), {})]
    for given, named in ways:
        near(call(*given, **named), reference("rows", a, b), torch.float32)


def test_a_tensor_that_is_more_than_memory_goes_to_torch() -> None:
    class Counted(torch.Tensor):
        seen: list[Any] = []  # noqa: RUF012

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            cls.seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    a, b = operands("rows", "aligned", "plain", torch.float32)
    functional.grouped_mm(a.as_subclass(Counted), b, offs=ends("rows"))
    assert OWN in Counted.seen


def test_autocast_casts_nothing_as_it_casts_nothing_of_torchs() -> None:
    for sizes in SIZES:
        a, b = operands("rows", sizes, "plain", torch.float32, wants=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = functional.grouped_mm(a, b, offs=ends("rows"))
        assert found.dtype == torch.float32
        near(found, reference("rows", a, b), torch.float32)


@pytest.mark.parametrize("form", FORMS)
def test_fake_and_meta_tensors_have_sizes_and_dtypes(form: str) -> None:
    a, b = operands(form, "odd", "plain", torch.float16)
    right = reference(form, a, b).shape
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(one) for one in (a, b)]
        offs = None if form == "batch" else mode.from_tensor(ends(form))
        assert functional.grouped_mm(*fakes, offs=offs).shape == right
    offs = None if form == "batch" else ends(form).to("meta")
    found = functional.grouped_mm(a.to("meta"), b.to("meta"), offs=offs)
    assert (found.shape, found.dtype) == (right, torch.float16)


@pytest.mark.parametrize("sizes", SIZES)
def test_transforms_of_torch_func_see_a_product(sizes: str) -> None:
    a, b = operands("rows", sizes, "plain", torch.float32)

    def product(a: Any, b: Any) -> Any:
        return functional.grouped_mm(a, b, offs=ends("rows"))

    def loop(a: Any, b: Any) -> Any:
        return torch.cat([a[i:j] @ b[g] for g, (i, j) in enumerate(pairwise((0, *ENDS)))])

    many = torch.stack([a, 2 * a])
    for change in (
        lambda f: torch.func.vmap(f, (0, None))(many, b),
        lambda f: torch.func.jvp(f, (a, b), (torch.ones_like(a), torch.ones_like(b)))[1],
        lambda f: torch.func.grad(lambda a: f(a, b).sum())(a),
    ):
        torch.testing.assert_close(change(product), change(loop), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["torch._grouped_mm", "functional.grouped_mm", "kept before"])
def test_a_compiled_function_is_one_graph_and_is_compiled_anew_when_torch_has_it_back(
    name: str,
) -> None:
    kept = functional.grouped_mm
    calls = {
        "torch._grouped_mm": lambda a, b, offs: torch._grouped_mm(a, b, offs=offs),
        "functional.grouped_mm": lambda a, b, offs: functional.grouped_mm(a, b, offs=offs),
        "kept before": lambda a, b, offs: kept(a, b, offs=offs),
    }
    torch._dynamo.reset()
    compiled = torch.compile(calls[name], fullgraph=True, backend="aot_eager")
    for dtype in (torch.float32, torch.bfloat16):
        for sizes in ("odd", "aligned"):
            a, b = operands("rows", sizes, "plain", dtype, wants=True)
            found = compiled(a, b, ends("rows"))
            near(found, reference("rows", a, b), dtype)
            found.sum().backward()
            right = torch.autograd.grad(reference("rows", a, b).sum(), (a, b))
            torch.testing.assert_close(a.grad, right[0], rtol=1e-1, atol=1e-1)
    ours.uninstall()
    a, b = operands("rows", "odd", "plain", torch.float32)
    if name != "kept before":
        with pytest.raises(Exception, match="BF16"):
            compiled(a, b, ends("rows"))


@pytest.mark.parametrize("first", ["grouped", "installed"])
def test_a_compiler_knows_both_functions_whenever_processes_become_a_group(first: str) -> None:
    rules = torch._dynamo.trace_rules
    if first == "grouped":
        ours.uninstall()
    rules.clear_lru_cache()  # as torch.distributed.init_process_group does
    ours.install()
    compiled = torch.compile(
        lambda a, b, offs: torch._grouped_mm(a, b, offs=offs), fullgraph=True, backend="eager"
    )
    a, b = operands("rows", "odd", "plain", torch.float32)
    near(compiled(a, b, ends("rows")), reference("rows", a, b), torch.float32)
    ours.uninstall()
    with pytest.raises(Exception, match="BF16"):
        compiled(a, b, ends("rows"))


def test_twice_is_once_and_torch_gets_its_names_back() -> None:
    ours.install()
    assert torch._grouped_mm is not OWN
    held = torch._grouped_mm
    for _ in range(2):
        ours.uninstall()
        assert torch._grouped_mm is OWN
        a, b = operands("rows", "odd", "plain", torch.float32)
        for call in (held, functional.grouped_mm, torch._grouped_mm):
            with pytest.raises(RuntimeError, match="16 bytes"):
                call(a, b, offs=ends("rows"))


def test_what_somebody_else_put_there_stays() -> None:
    def theirs(*_: Any, **__: Any) -> str:
        return "theirs"

    before = functional.grouped_mm
    functional.grouped_mm = theirs
    try:
        ours.uninstall()
        assert functional.grouped_mm is theirs
    finally:
        functional.grouped_mm = before
        ours.install()
        ours.uninstall()


def test_threads_may_install_and_multiply_at_once() -> None:
    a, b = operands("rows", "odd", "plain", torch.float32)
    right, wrong = reference("rows", a, b), []

    def work() -> None:
        try:
            for _ in range(20):
                ours.install()
                near(functional.grouped_mm(a, b, offs=ends("rows")), right, torch.float32)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("offs", [[4, 8], (4, 8), 8, "8"])
def test_offsets_that_are_no_tensor_are_named(offs: Any) -> None:
    x, w = torch.randn(8, 16), torch.randn(2, 16, 16)
    for call in (functional.grouped_mm, torch._grouped_mm):
        with pytest.raises(OperandError, match=r"offs=.*: accepted is a tensor of int32 or int64"):
            call(x, w, offs=offs)


def have_torch_be_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it predicted to be, whatever the product."""
    monkeypatch.setattr(ragged, "THEIRS", dict.fromkeys(ragged.THEIRS, 0.0))
    monkeypatch.setattr(ragged, "_THEIR_SHARE", dict.fromkeys(ragged._THEIR_SHARE, 1e6))
    monkeypatch.setattr(ragged, "_THEIR_READS", dict.fromkeys(ragged._THEIR_READS, 1e6))
    remember.forget()


def test_what_torch_is_sooner_at_is_right_whatever_the_rows_and_who_learns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """About as many rows go there unasked; more of them, fewer, and gradients are met between."""
    if not compiled.available():
        pytest.skip("Numba is not installed")
    have_torch_be_sooner(monkeypatch)
    w = torch.randn(3, 48, 64, generator=torch.Generator().manual_seed(1)).mT
    for total in (160, 160, 165, 158, 40, 160, 320):
        ends = [total // 4, total // 4, total]
        x = torch.randn(total, 64, generator=torch.Generator().manual_seed(total))
        for wants in (False, True, False):
            x.requires_grad_(wants)
            found = functional.grouped_mm(x, w, offs=torch.tensor(ends, dtype=torch.int32))
            parts = [x[i:j] @ w[g] for g, (i, j) in enumerate(pairwise((0, *ends)))]
            torch.testing.assert_close(found, torch.cat(parts), rtol=1e-4, atol=1e-4)
            assert found.requires_grad == wants
    remember.forget()


@pytest.mark.parametrize("number", range(3))
def test_views_of_memory_that_was_given_back_are_refused(number: int) -> None:
    given = [torch.randn(24, 33), torch.randn(4, 33, 48), ends("rows")]
    whole = torch.cat([given[number], given[number]])
    given[number] = whole[len(given[number]) :]
    a, b, offs = given
    for _ in range(3):
        torch.nn.functional.grouped_mm(a, b, offs=offs)
    whole.untyped_storage().resize_(0)
    with pytest.raises(OperandError, match="has no memory"):
        torch.nn.functional.grouped_mm(a, b, offs=offs)


WRONG_ENDS = ([9, 3, 20, 24], [-1, 3, 20, 24], [2, 3, 20, 25], [2, 3, 30, 24])


@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("form", ["rows", "depths"])
def test_offsets_are_read_as_ours_whoever_was_sooner_before(
    form: str, dtype: Any, wants: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch takes any offsets and leaves rows behind the last undefined, in gradients too."""
    if not compiled.available():
        pytest.skip("Numba is not installed")
    have_torch_be_sooner(monkeypatch)
    x = torch.randn(24, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    w = torch.randn(4, 16, 32, generator=torch.Generator().manual_seed(2)).to(dtype)
    a, b = (x, w) if form == "rows" else (x.t().contiguous(), w[:3].reshape(-1, 64)[:24])
    for one in (a, b):
        one.requires_grad_(wants)
    bound = 1e-4 if dtype == torch.float32 else 0.1
    for last in (24, 24, 24, 20, 24, 21, 0):
        offs = torch.tensor([last // 4, last // 4, last // 2, last], dtype=torch.int32)
        cuts = list(pairwise((0, *offs.tolist())))
        if form == "rows":
            parts = [a[i:j] @ b[g] for g, (i, j) in enumerate(cuts)]
            right = torch.cat([*parts, a.new_zeros(24 - last, 32)])
        else:
            right = torch.stack([a[:, i:j] @ b[i:j] for i, j in cuts])
        poison = [torch.full((24, n), torch.nan, dtype=dtype) for n in (16, 16, 32, 32)]
        del poison
        found = torch._grouped_mm(a, b, offs=offs)
        pairs = [(found, right)]
        if wants:
            ones = torch.ones_like(right)
            both = (torch.autograd.grad(one, (a, b), ones) for one in (found, right))
            pairs += zip(*both, strict=True)
        for mine, theirs in pairs:
            torch.testing.assert_close(mine, theirs, rtol=bound, atol=bound)
        for wrong in WRONG_ENDS:
            with pytest.raises(ShapeError, match="group"):
                torch._grouped_mm(a, b, offs=torch.tensor(wrong, dtype=torch.int32))
    remember.forget()
