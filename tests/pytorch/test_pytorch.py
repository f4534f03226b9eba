"""PyTorch's ways in: module, twins and operators give torch's own results, gradients and graphs.

On a processor here; the same tests run on a GPU where there is one (marker gpu).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.support.torch_places import DEVICES, HAS_GPU  # noqa: E402
from tilewright import ragged_matmul  # noqa: E402
from tilewright.errors import ArgumentError, DtypeError, OperandError, OverlapError, ShapeError  # noqa: E402
from tilewright.pytorch import GroupedLinear, grouped_matmul, grouped_mm, segment_matmul  # noqa: E402
from tilewright.torch_ops import lists  # noqa: E402
from tilewright.torch_ops import ragged as ops  # noqa: E402
from tilewright.torch_ops.eager import is_eager  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_grouped.py"
pytestmark = pytest.mark.usefixtures("compiled_for_all")
SIZES = [[3, 0, 70, 1, 5], [0, 0, 0], [130], [64, 64, 1], [0, 257, 0]]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 6e-5, torch.bfloat16: 0.2, torch.float16: 0.03}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def bounds(sizes: list[int], first: int = 0) -> list[tuple[int, int]]:
    found, at = [], first
    for size in sizes:
        found.append((at, at + size))
        at += size
    return found


def offsets_of(sizes: list[int], device: str, *, dtype: Any = torch.int32) -> Any:
    return torch.tensor(sizes, dtype=torch.int64).cumsum(0).to(dtype).to(device)


def random(*shape: int, dtype: Any, device: str) -> Any:
    return torch.randn(*shape, dtype=torch.float64).to(dtype).to(device)


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_group_of_rows_meets_its_own_matrix(sizes: list[int], dtype: Any, where: str) -> None:
    groups, t, k, n = len(sizes), sum(sizes) + 6, 37, 45
    x = random(t, k, dtype=dtype, device=where)
    w = random(groups, n, k, dtype=dtype, device=where).transpose(1, 2)
    bias = random(groups, n, dtype=dtype, device=where)
    wanted = torch.zeros(t, n, dtype=torch.float64, device=where)
    for group, (begin, end) in enumerate(bounds(sizes)):
        wanted[begin:end] = x[begin:end].double() @ w[group].double() + bias[group].double()
    found = ragged_matmul(x, w, offsets_of(sizes, where), bias=bias)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_group_of_columns_meets_its_own_rows(
    sizes: list[int], dtype: Any, where: str
) -> None:
    t = sum(sizes) + 6
    x = random(t, 41, dtype=dtype, device=where).t()
    y = random(t, 33, dtype=dtype, device=where)
    pairs = [x[:, begin:end].double() @ y[begin:end].double() for begin, end in bounds(sizes)]
    found = ragged_matmul(x, y, offsets_of(sizes, where, dtype=torch.int64))
    torch.testing.assert_close(found.double(), torch.stack(pairs), rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("where", DEVICES)
def test_rows_past_the_last_offset_are_untouched_in_out(where: str) -> None:
    x = random(9, 4, dtype=torch.float32, device=where)
    w = random(2, 4, 3, dtype=torch.float32, device=where)
    out = torch.full((9, 3), float("nan"), device=where)
    assert ragged_matmul(x, w, offsets_of([2, 3], where), out=out) is out
    assert not out[:5].isnan().any()
    assert out[5:].isnan().all()


@pytest.mark.parametrize("where", DEVICES)
def test_offsets_may_begin_past_the_first_row(where: str) -> None:
    x = random(9, 4, dtype=torch.float32, device=where)
    w = random(2, 4, 3, dtype=torch.float32, device=where)
    found = ragged_matmul(x, w, torch.tensor([2, 3, 7], device=where))
    wanted = torch.zeros(9, 3, device=where)
    wanted[2:3], wanted[3:7] = x[2:3] @ w[0], x[3:7] @ w[1]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("leading", [False, True])
def test_gradients_are_those_of_finite_differences(where: str, leading: bool) -> None:
    x = random(8, 3, dtype=torch.float64, device=where).requires_grad_()
    w = random(3, 3, 2, dtype=torch.float64, device=where).requires_grad_()
    y = random(8, 2, dtype=torch.float64, device=where).requires_grad_()
    bias = random(3, 2, dtype=torch.float64, device=where).requires_grad_()
    ends = torch.tensor([1, 3, 3, 7] if leading else [3, 3, 7], device=where)
    rows = lambda x, w, bias: ragged_matmul(x, w, ends, bias=bias)  # noqa: E731
    assert torch.autograd.gradcheck(rows, (x, w, bias), nondet_tol=0.0)
    assert torch.autograd.gradgradcheck(rows, (x, w, bias))
    if not leading:
        depths = lambda x, y: ragged_matmul(x.t(), y, ends)  # noqa: E731
        assert torch.autograd.gradcheck(depths, (x, y))


@pytest.mark.parametrize("where", DEVICES)
def test_gradients_of_lists_are_those_of_finite_differences(where: str) -> None:
    sizes = [(2, 3, 1), (1, 1, 4), (3, 2, 2)]
    make = lambda *shape: random(*shape, dtype=torch.float64, device=where).requires_grad_()  # noqa: E731
    a = [make(m, k) for m, n, k in sizes]
    b = [make(k, n) for m, n, k in sizes]
    bias = [make(n) for m, n, k in sizes]

    def flat(*tensors: Any) -> tuple[Any, ...]:
        return tuple(grouped_matmul(tensors[:3], tensors[3:6], tensors[6:]))

    assert torch.autograd.gradcheck(flat, (*a, *b, *bias))


def test_gradients_that_nobody_wants_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = torch.randn(4, 3), torch.randn(3, 2).requires_grad_()
    (found,) = lists.products([a], [b])
    made: list[Any] = []
    real = lists.products
    monkeypatch.setattr(lists, "products", lambda *given: made.append(given) or real(*given))
    found.sum().backward()
    assert len(made) == 1
    torch.testing.assert_close(b.grad, a.t() @ torch.ones(4, 2))


@pytest.mark.parametrize("where", DEVICES)
def test_operators_keep_the_rules_of_custom_operators(where: str) -> None:
    x = random(8, 3, dtype=torch.float32, device=where).requires_grad_()
    w = random(3, 3, 2, dtype=torch.float32, device=where).requires_grad_()
    ends = torch.tensor([3, 3, 7], device=where)
    torch.library.opcheck(torch.ops.tilewright.ragged_rows, (x, w, ends, None, "ieee"))
    torch.library.opcheck(torch.ops.tilewright.ragged_depths, (x.detach().t(), x, ends, "ieee"))


@pytest.mark.parametrize("where", DEVICES)
def test_a_compiled_layer_is_one_graph_with_the_same_results(where: str) -> None:
    layer = GroupedLinear(3, 8, 5, device=where)
    x = random(20, 8, dtype=torch.float32, device=where)
    ends = offsets_of([4, 0, 16], where)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, ends), layer(x, ends))
    compiled(x, ends).sum().backward()
    assert layer.weight.grad is not None
    assert bool((layer.weight.grad[1] == 0).all())


@pytest.mark.parametrize("where", DEVICES)
def test_autocast_computes_in_its_dtype(where: str) -> None:
    layer = GroupedLinear(2, 8, 5, device=where)
    x = random(6, 8, dtype=torch.float32, device=where)
    with torch.autocast(where, torch.bfloat16):
        assert layer(x, offsets_of([2, 4], where)).dtype is torch.bfloat16
        assert grouped_matmul([x], [x.t()])[0].dtype is torch.bfloat16


def test_autocast_takes_what_the_layer_before_gave_and_leaves_float64_alone() -> None:
    first, second = (GroupedLinear(2, 8, 8, precision="tf32") for _ in range(2))
    ends = offsets_of([2, 4], "cpu")
    x = random(6, 8, dtype=torch.float32, device="cpu")
    with torch.autocast("cpu", torch.bfloat16):
        result = second(first(x, ends), ends)
        assert result.dtype is torch.bfloat16
        double = ragged_matmul(x.double(), first.weight.double(), ends)
        assert double.dtype is torch.float64
        with pytest.raises(DtypeError, match=r"x\.dtype='int32'"):
            ragged_matmul(x.int(), first.weight.int(), ends)
    result.float().sum().backward()
    assert first.weight.grad.dtype is torch.float32


def test_what_autocast_made_alike_is_refused_without_it() -> None:
    narrow, ends = torch.bfloat16, offsets_of([2, 4], "cpu")
    x, w, bias = torch.randn(6, 7), torch.randn(2, 7, 9), torch.randn(2, 9)
    mixed = [
        (x, w.to(narrow), None, DtypeError),
        (x.to(narrow), w, None, DtypeError),
        (x.to(narrow), w.to(narrow), bias, ShapeError),
    ]
    for x, w, bias, error in mixed:
        with torch.autocast("cpu", narrow):
            assert ragged_matmul(x, w, ends, bias=bias).dtype is narrow
        with pytest.raises(error, match="bfloat16"):
            ragged_matmul(x, w, ends, bias=bias)


def test_autocast_leaves_tf32_also_where_only_the_rows_were_float32() -> None:
    x, w, ends = torch.randn(6, 5), torch.randn(2, 5, 3).bfloat16(), offsets_of([2, 4], "cpu")
    with torch.autocast("cpu", torch.bfloat16):
        assert ragged_matmul(x, w, ends, precision="tf32").dtype is torch.bfloat16


def test_what_is_no_tensor_is_named_before_a_gpu_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Far:
        is_cuda = True

    monkeypatch.setattr(ops, "repeated", None)  # calling it would fail
    for w, ends in ((None, torch.ones(2)), (torch.ones(2, 2, 2), None)):
        with pytest.raises(OperandError):
            ragged_matmul(Far(), w, ends)


def test_a_tensor_whose_memory_has_the_negative_goes_through_the_operator() -> None:
    x = torch.randn(6, 5, dtype=torch.complex64)
    assert is_eager(x.imag)
    assert not is_eager(x.imag, x.conj().imag)


class Elsewhere(torch.Tensor):
    """A wrapper, as quantised and distributed tensors are: its own memory is none."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inner = [one.inner if isinstance(one, Elsewhere) else one for one in args]
        return func(*inner, **(kwargs or {}))


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("name", ["x", "w", "offsets", "bias", "out"])
def test_a_wrapper_is_unwrapped_or_with_out_refused(name: str, where: str) -> None:
    given = {
        "x": random(9, 4, dtype=torch.float32, device=where),
        "w": random(2, 4, 3, dtype=torch.float32, device=where),
        "offsets": offsets_of([2, 7], where),
        "bias": random(2, 3, dtype=torch.float32, device=where),
    }
    wanted = ragged_matmul(**given)
    given["out"] = torch.full_like(wanted, float("nan"))
    out, given[name] = given["out"], Elsewhere(given[name])
    with pytest.raises(OperandError, match=f"{name}=Elsewhere: keeps its elements elsewhere"):
        ragged_matmul(**given)
    assert bool(out.isnan().all())
    if name != "out":
        torch.testing.assert_close(ragged_matmul(**{**given, "out": None}), wanted)


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("name", ["x", "w", "bias"])
def test_what_reads_as_the_negative_of_its_memory_is_multiplied_as_it_reads(
    name: str, where: str
) -> None:
    given = {
        "x": random(9, 4, dtype=torch.float32, device=where),
        "w": random(2, 4, 3, dtype=torch.float32, device=where),
        "bias": random(2, 3, dtype=torch.float32, device=where),
    }
    ends = offsets_of([2, 7], where)
    wanted = ragged_matmul(**{**given, name: -given[name]}, offsets=ends)
    given[name] = torch._neg_view(given[name])
    out = torch.full_like(wanted, float("nan"))
    torch.testing.assert_close(ragged_matmul(**given, offsets=ends), wanted)
    torch.testing.assert_close(ragged_matmul(**given, offsets=ends, out=out), wanted)
    with pytest.raises(OperandError, match="out: its memory has the negative"):
        ragged_matmul(**given, offsets=ends, out=torch._neg_view(out))


@pytest.mark.parametrize("where", DEVICES)
def test_offsets_may_lie_with_a_step(where: str) -> None:
    """A column of a table, a slice with a step, one number for all: forms, gradients, both ints."""
    sizes = [3, 0, 7, 1]
    w = random(4, 5, 6, dtype=torch.float64, device=where)
    for dtype in (torch.int32, torch.int64):
        dense = offsets_of(sizes, where, dtype=dtype)
        column = torch.stack((dense - 1, dense, -dense), 1)[:, 1]
        slice_of = dense.repeat_interleave(3)[::3]
        found = []
        for ends in (dense, column, slice_of):
            x = random(12, 5, dtype=torch.float64, device=where).fill_(1).cumsum(0)
            x, mine = x.requires_grad_(), w.clone().requires_grad_()
            out = ragged_matmul(x, mine, ends)
            out.square().sum().backward()
            deep = ragged_matmul(x.detach().t(), out.detach(), ends)
            found.append((out, deep, x.grad, mine.grad))
        for other in found[1:]:
            for one, two in zip(found[0], other, strict=True):
                assert torch.equal(one, two)
    once = torch.tensor([12], device=where).expand(4)
    x = random(12, 5, dtype=torch.float64, device=where)
    torch.testing.assert_close(ragged_matmul(x, w, once), x @ w[0])


def test_rows_that_change_are_checked_once_and_wrong_ones_each_time() -> None:
    from tilewright.torch_ops import ragged_call as device_sizes

    device_sizes._passed.clear()
    w, y = torch.ones(2, 3, 4), torch.ones(50, 4)
    for t in range(5, 40):
        ends = torch.tensor([2, t])
        assert ragged_matmul(torch.ones(t, 3), w, ends).shape == (t, 4)
        assert ragged_matmul(torch.ones(t, 3).t(), y[:t], ends).shape == (2, 3, 4)
    # None where the processor's own kernels are compiled: such tensors are known by their guards.
    assert len(device_sizes._passed) in (0, 2)
    with pytest.raises(ShapeError, match="must have 7 rows"):
        ragged_matmul(torch.ones(7, 3).t(), y[:8], torch.tensor([2, 7]))
    with pytest.raises(ShapeError, match="must have 2 rows"):
        ragged_matmul(torch.ones(7, 2), w, torch.tensor([2, 7]))


def test_without_groups_every_row_is_without_one() -> None:
    from tilewright.backends.cuda.ragged import engine

    x, w, ends = torch.ones(200, 4), torch.ones(0, 4, 3), torch.ones(0, dtype=torch.int32)
    for clear in (True, False):
        out = torch.full((200, 3), float("nan"))
        engine.rows(x, w, ends, None, out, "ieee", clear=clear)
        assert bool((out == 0).all() if clear else out.isnan().all())
    assert bool((ragged_matmul(x, w, ends) == 0).all())


@pytest.mark.parametrize("where", DEVICES)
def test_the_twin_of_grouped_mm_takes_every_form(where: str) -> None:
    a, b = random(9, 4, dtype=torch.float32, device=where), None
    stack = random(2, 4, 3, dtype=torch.float32, device=where)
    ends = offsets_of([2, 7], where)
    torch.testing.assert_close(
        grouped_mm(a, stack, offs=ends), torch.cat([a[:2] @ stack[0], a[2:] @ stack[1]])
    )
    b = random(9, 3, dtype=torch.float32, device=where)
    torch.testing.assert_close(
        grouped_mm(a.t(), b, offs=ends), torch.stack([a[:2].t() @ b[:2], a[2:].t() @ b[2:]])
    )
    wide, left = b.t(), random(2, 6, 3, dtype=torch.float32, device=where)
    torch.testing.assert_close(
        grouped_mm(left, wide, offs=ends),
        torch.cat([left[0] @ wide[:, :2], left[1] @ wide[:, 2:]], 1),
    )
    torch.testing.assert_close(
        grouped_mm(left, stack.transpose(1, 2)), left @ stack.transpose(1, 2)
    )


@pytest.mark.parametrize("where", DEVICES)
def test_the_twin_of_segment_matmul_takes_pointers(where: str) -> None:
    x = random(9, 4, dtype=torch.float32, device=where)
    w = random(2, 4, 3, dtype=torch.float32, device=where)
    bias = random(2, 3, dtype=torch.float32, device=where)
    found = segment_matmul(x, torch.tensor([0, 4, 9], device=where), w, bias)
    wanted = torch.cat([x[:4] @ w[0] + bias[0], x[4:] @ w[1] + bias[1]])
    torch.testing.assert_close(found, wanted)
    with pytest.raises(ShapeError, match=r"other.shape=\(4, 3\)"):
        segment_matmul(x, torch.tensor([0, 1, 2, 4, 9], device=where), w[0])


def test_offsets_on_a_processor_are_checked_before_anything_is_written() -> None:
    x, w = torch.ones(6, 2), torch.ones(2, 2, 3)
    out = torch.full((6, 3), float("nan"))
    for wrong in ([4, 3], [4, 7], [-1, 3]):
        with pytest.raises(ShapeError, match=r"offsets\[group \d\]"):
            ragged_matmul(x, w, torch.tensor(wrong), out=out)
    assert out.isnan().all()


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no GPU that torch reaches")
def test_offsets_on_a_gpu_raise_at_the_next_synchronising_call() -> None:
    import tilewright

    x, w = torch.ones(6, 2, device="cuda"), torch.ones(3, 2, 3, device="cuda")
    out = torch.full((6, 3), float("nan"), device="cuda")
    ragged_matmul(x, w, torch.tensor([2, 1, 6], device="cuda"), out=out)
    with pytest.raises(ShapeError, match="group 1"):
        tilewright.synchronize()
    assert not out[:2].isnan().any()
    assert out[2:].isnan().all()
    tilewright.synchronize()


X, W = torch.ones(6, 2), torch.ones(2, 2, 3)
ENDS = torch.tensor([2, 6])
B = torch.ones(18)[:6].view(2, 3)
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": [1]}, OperandError, "x=list: accepted are torch tensors"),
    ({"w": W.double()}, DtypeError, "w.dtype"),
    ({"x": X.int(), "w": W.int()}, DtypeError, "x.dtype='int32'"),
    ({"w": torch.ones(2, 5, 3)}, ShapeError, "must have 2 rows"),
    ({"x": torch.ones(2)}, ShapeError, r"x.shape=\(2,\)"),
    ({"offsets": ENDS.float()}, DtypeError, "offsets.dtype"),
    ({"offsets": torch.tensor([1, 2, 3, 4])}, ShapeError, r"offsets.shape=\(4,\)"),
    ({"offsets": ENDS.to("meta")}, OperandError, "offsets.device='meta'"),
    ({"bias": torch.ones(3)}, ShapeError, "bias"),
    ({"bias": [1.0]}, OperandError, "bias=list: accepted are torch tensors"),
    ({"out": [1.0]}, OperandError, "out=list: accepted are torch tensors"),
    ({"bias": torch.ones(2, 3, device="meta")}, OperandError, "bias.device='meta'"),
    ({"out": torch.ones(6, 4)}, ShapeError, r"out.shape=\(6, 4\): must be \(6, 3\)"),
    ({"out": torch.ones(6, 3).double()}, DtypeError, "out.dtype"),
    ({"out": torch.ones(1, 3).expand(6, 3)}, OverlapError, r"out.strides=\(0, 1\)"),
    ({"out": torch.ones(20).as_strided((6, 3), (1, 1))}, OverlapError, r"out.strides=\(1, 1\)"),
    ({"bias": B, "out": B.as_strided((6, 3), (3, 1))}, OverlapError, "shares memory with bias"),
    ({"x": X.expand(6, 2), "out": X.as_strided((6, 3), (0, 0))}, OverlapError, r"strides=\(0, 0"),
    ({"w": torch.ones(2, 2, 2), "out": X}, OverlapError, "out: shares memory with x"),
    ({"precision": "fp8"}, ArgumentError, "precision='fp8'"),
]


@pytest.mark.parametrize(("changed", "error", "message"), WRONG, ids=[row[2] for row in WRONG])
def test_every_wrong_argument_is_named(
    changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ragged_matmul(**{"x": X, "w": W, "offsets": ENDS, **changed})


@pytest.mark.parametrize("learns", [False, True])
def test_meta_tensors_have_the_shapes_of_the_results(learns: bool) -> None:
    with torch.device("meta"):
        x = torch.empty(6, 4, requires_grad=learns)
        w, y, ends = torch.empty(2, 4, 3), torch.empty(6, 3), torch.empty(2, dtype=torch.int32)
    rows, depths = grouped_mm(x, w, offs=ends), grouped_mm(x.t(), y, offs=ends)
    lists = grouped_matmul([x, x[:5]], [w[0], w[1]])
    shapes = [tuple(one.shape) for one in (rows, depths, *lists)]
    assert shapes == [(6, 3), (2, 4, 3), (6, 3), (5, 3)]
    assert all(one.is_meta and one.requires_grad == learns for one in (rows, depths, *lists))


def test_fake_tensors_have_the_shapes_of_the_results() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x, w = torch.empty(7, 4), torch.empty(3, 4, 5)
        ends = torch.empty(3, dtype=torch.int64)
        assert ops.product(x, w, ends, None, "ieee").shape == (7, 5)
        assert ops.product(x.t(), x, ends, None, "ieee").shape == (3, 4, 4)
        assert [tuple(c.shape) for c in lists.products([x], [w[0]], [None])] == [(7, 5)]


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_grouped", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("name", ["train_experts", "train_types"])
def test_the_example_learns(name: str, where: str) -> None:
    losses = getattr(example(), name)(where, 60)
    assert losses[-1] < 0.5 * losses[0]
