"""Products of tensors that something in torch looks at: compilers, modes, subclasses, contexts.

On a processor here; the same tests run on a GPU where there is one (marker gpu).
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tilewright as tw  # noqa: E402
from tests.support.tensor_products import PRODUCTS, ends, operands  # noqa: E402
from tests.support.torch_places import DEVICES, HAS_GPU  # noqa: E402
from tilewright.errors import (  # noqa: E402
    ArgumentError,
    DtypeError,
    OperandError,
    OverlapError,
    ShapeError,
    TilewrightError,
)
from tilewright.inputs import tensor_lists  # noqa: E402
from tilewright.inputs.ragged_batch import RaggedBatch  # noqa: E402
from tilewright.pytorch import GroupedLinear, grouped_matmul  # noqa: E402
from tilewright.torch_ops import lists  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_compiled_products_are_one_graph_with_the_same_gradients(
    name: str, learn: bool, where: str
) -> None:
    product, given = PRODUCTS[name], operands(where, learn=learn)

    def loss(*given: Any) -> Any:
        found = product(*given)
        return sum(one.sin().sum() for one in (found if isinstance(found, list) else [found]))

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), loss(*given))
    if learn:
        used = [value for value in given if name != "transposed" or value.dim() == 2]
        found = torch.autograd.grad(compiled(*given), used)
        torch.testing.assert_close(found, torch.autograd.grad(loss(*given), used))


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("name", ["matmul", "list", "rows"])
def test_transforms_within_a_compiled_function_are_not_lost(name: str, where: str) -> None:
    from torch.func import grad, jvp

    a, b, bias = operands(where)
    tangent = torch.randn_like(a)

    def loss(a: Any) -> Any:
        found = PRODUCTS[name](a, b, bias)
        return found[0].sum() if isinstance(found, list) else found.sum()

    def derivatives(a: Any, tangent: Any) -> Any:
        return grad(loss)(a), jvp(loss, (a,), (tangent,))[1]

    found = torch.compile(derivatives, backend="aot_eager")(a, tangent)
    torch.testing.assert_close(found, derivatives(a, tangent))
    assert bool(found[0].any())
    assert bool(found[1].any())


@pytest.mark.parametrize("name", PRODUCTS)
def test_fake_tensors_have_the_shapes_of_the_results_and_their_gradients(name: str) -> None:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    real = PRODUCTS[name](*operands("cpu"))
    with FakeTensorMode():
        given = [torch.empty(*shape, requires_grad=True) for shape in ((6, 4), (4, 5), (5,))]
        found = PRODUCTS[name](*given)
        found, real = (one if isinstance(one, list) else [one] for one in (found, real))
        assert [one.shape for one in found] == [one.shape for one in real]
        assert all(isinstance(one, FakeTensor) and one.requires_grad for one in found)
        found[0].sum().backward()
        assert isinstance(given[0].grad, FakeTensor)


class Named(torch.Tensor):  # type: ignore[misc]
    """A subclass that only has a name."""


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_subclasses_of_tensors_give_their_own_kind(name: str, where: str) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    given, product = operands(where), PRODUCTS[name]
    plain = product(*given)
    plain = plain if isinstance(plain, list) else [plain]
    found = product(*[value.as_subclass(Named) for value in given])
    for one, wanted in zip(found if isinstance(found, list) else [found], plain, strict=True):
        assert type(one) is Named
        torch.testing.assert_close(one.as_subclass(torch.Tensor), wanted)
    if name != "rows":  # whose offsets would have to be two as well
        found = product(*[TwoTensor(value, value) for value in given])
        for one, wanted in zip(found if isinstance(found, list) else [found], plain, strict=True):
            assert type(one) is TwoTensor
            torch.testing.assert_close(one.b, wanted)


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_inference_checkpoints_hooks_and_threads_leave_gradients_right(
    name: str, where: str
) -> None:
    from torch.utils.checkpoint import checkpoint

    given, product = operands(where, learn=True), PRODUCTS[name]

    def loss(*given: Any) -> Any:
        found = product(*given)
        return sum(one.cos().sum() for one in (found if isinstance(found, list) else [found]))

    def gradient(loss: Any) -> Any:
        return torch.autograd.grad(loss, given[:2])

    with torch.inference_mode():
        assert loss(*given).is_inference()
    wanted = gradient(loss(*given))
    torch.testing.assert_close(gradient(checkpoint(loss, *given, use_reentrant=False)), wanted)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.cpu(), lambda x: x.to(where)):
        kept = loss(*given)
    torch.testing.assert_close(gradient(kept), wanted)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(gradient(loss(*given)))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    for one in found:
        torch.testing.assert_close(one, wanted)


@pytest.mark.parametrize("where", DEVICES)
def test_defaults_of_torch_change_no_product(where: str) -> None:
    given = operands(where)
    wanted = [product(*given) for product in PRODUCTS.values()]
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            found = [PRODUCTS[name](*given) for name in PRODUCTS if name != "rows"]
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, wanted[: len(found)])


@pytest.mark.parametrize("where", DEVICES)
def test_views_of_any_kind_multiply_and_learn(where: str) -> None:
    a, b, _ = operands(where, learn=True)
    negative = torch.randn(6, 4, dtype=torch.complex64, device=where).conj().imag
    views = [a[::2], a.t()[1:].t()[:, :], a[:1].expand(3, 4), negative, a[2:2]]
    for view in views:
        other = b[: view.shape[1]] if view.shape[1] == 4 else b[1:]
        for product in (
            lambda x, y: tw.matmul(x, y),
            lambda x, y: tw.grouped_matmul([x], [y])[0],
            lambda x, y: lists.products([x], [y])[0],
        ):
            found = product(view, other)
            torch.testing.assert_close(found, view @ other)
            inputs = (a, b) if view.requires_grad else (b,)
            torch.testing.assert_close(
                torch.autograd.grad(found.sum(), inputs),
                torch.autograd.grad((view @ other).sum(), inputs),
            )


ONE, TWO = torch.ones(6, 4), torch.ones(4, 5)
REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda: tw.matmul(ONE.to_sparse(), TWO), OperandError, "a.layout=torch.sparse_coo"),
    (lambda: tw.grouped_matmul([ONE.to_sparse()], [TWO]), OperandError, r"a\[0\].layout=torch.sp"),
    (lambda: tw.matmul(ONE, torch.nested.nested_tensor([TWO])), OperandError, "b.layout=nested"),
    (lambda: tw.matmul(ONE.int(), TWO.int()), DtypeError, "a.dtype='int32'"),
    (lambda: tw.matmul(ONE.chalf(), TWO.chalf()), DtypeError, "complex32.*complex64"),
    (lambda: tw.grouped_matmul([ONE.chalf()], [TWO.chalf()]), DtypeError, "complex32.*complex64"),
    (
        lambda: tw.matmul(ONE, TWO.double()),
        DtypeError,
        "b.dtype='float64': must equal a",
    ),
    (lambda: tw.matmul(ONE, ONE), ShapeError, "its 6 rows must equal the 4 columns"),
    (lambda: tw.matmul(ONE.expand(2, 6, 4), TWO.expand(3, 4, 5)), ShapeError, "do not broadcast"),
    (lambda: tw.matmul(ONE, TWO, bias=TWO), ShapeError, r"bias.shape=\(4, 5\): must be \(5,\)"),
    (lambda: tw.matmul(ONE, TWO, beta=1.0), ArgumentError, "beta=1.0: needs out="),
    (lambda: tw.matmul(ONE, TWO, precision="tf32"), ArgumentError, "precision='tf32'"),
    (lambda: tw.matmul(ONE, TWO.to("meta")), OperandError, "b.device='meta': a lies on 'cpu'"),
    (lambda: tw.matmul(ONE, TWO, activation="tanh"), ArgumentError, "activation='tanh'"),
    (lambda: tw.matmul(ONE, TWO, transpose_a=1), ArgumentError, "transpose_a=1"),
    (lambda: tw.matmul(ONE, TWO, alpha="2"), ArgumentError, "alpha='2'"),
    (
        lambda: tw.matmul(ONE.bfloat16(), TWO.bfloat16(), device="host"),
        DtypeError,
        "a.dtype='bfloat16': NumPy has none",
    ),
    (
        lambda: tw.matmul(ONE.bfloat16(), TWO.bfloat16(), out=ONE[:1, :1].bfloat16().expand(6, 5)),
        OverlapError,
        r"out.strides=\(0, 0\)",
    ),
    (lambda: tw.grouped_matmul([ONE], [TWO, TWO]), ShapeError, "b: has 2 matrices; must have 1"),
    (lambda: tw.grouped_matmul([ONE, ONE], [TWO, ONE]), ShapeError, r"b\[1\]: has 6 rows"),
    (lambda: tw.grouped_matmul([ONE], [TWO[0]]), ShapeError, r"b\[0\].shape=\(5,\)"),
    (lambda: tw.grouped_matmul([ONE], [TWO], alpha=[1.0, 2.0]), ArgumentError, "alpha: has 2"),
    (lambda: tw.grouped_matmul([ONE], [TWO], bias=[ONE]), ShapeError, r"bias\[0\].shape=\(6, 4\)"),
    (lambda: tw.grouped_matmul([ONE], [TWO], bias=ONE), ArgumentError, "bias=Tensor"),
    (lambda: grouped_matmul([ONE.numpy()], [TWO]), OperandError, r"inputs\[0\]=ndarray"),
    (lambda: grouped_matmul([ONE], [TWO.numpy()]), OperandError, r"others\[0\]=ndarray"),
    (
        lambda: grouped_matmul([ONE.int()], [TWO.int()]),
        DtypeError,
        r"inputs\[0\].dtype='int32'",
    ),
    (lambda: grouped_matmul([ONE], [TWO], [ONE]), ShapeError, r"biases\[0\].shape=\(6, 4\)"),
    (lambda: tw.plan_grouped([1], [1], [1], dtype=torch.int16), DtypeError, "dtype='torch.int16'"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_is_not_taken_is_named_with_what_would_be(
    call: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


UNLIKE: dict[str, tuple[Any, Any]] = {
    "sparse a": (ONE.to_sparse(), TWO),
    "sparse b": (ONE, TWO.to_sparse()),
    "another dtype": (ONE.double(), TWO.double()),
    "another device": (ONE.to("meta"), TWO.to("meta")),
    "a on another device": (ONE.to("meta"), TWO),
    "b on another device": (ONE, TWO.to("meta")),
    "nested b": (ONE, torch.nested.nested_tensor([TWO, TWO[:1]])),
    "whole numbers": (ONE.int(), TWO.int()),
    "vectors": (ONE[0], TWO),
    "other sizes": (ONE, ONE),
}


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("count", [2, 60])
@pytest.mark.parametrize("odd", UNLIKE)
def test_a_later_tensor_is_refused_as_a_first_one_is(odd: str, count: int, biased: bool) -> None:
    a, b = [ONE] * count, [TWO] * count
    a[count - 1], b[count - 1] = UNLIKE[odd]
    with pytest.raises(TilewrightError, match=rf"[ab]\[{count - 1}\]"):
        tw.grouped_matmul(a, b, bias=[TWO[0]] * count if biased else None)


@pytest.mark.parametrize("odd", ["sparse b", "a on another device", "b on another device"])
def test_an_only_pair_of_tensors_is_alike_or_refused(odd: str) -> None:
    tw.grouped_matmul([ONE], [TWO])  # torch's own way is known from here on
    a, b = UNLIKE[odd]
    with pytest.raises(OperandError, match=r"b\[0\]"):
        tw.grouped_matmul([a], [b])


NESTED: dict[str, Any] = {
    "by strides": lambda x: torch.nested.nested_tensor([x]),
    "jagged": lambda x: torch.nested.nested_tensor([x], layout=torch.jagged),
}
MET: dict[str, Any] = {  # calls that torch's guards answer once they are known
    "matmul": lambda a, b: tw.matmul(a, b),
    "one": lambda a, b: tw.grouped_matmul([a], [b]),
    "two": lambda a, b: tw.grouped_matmul([a, ONE.clone()], [b, TWO.clone()]),
    "second": lambda a, b: tw.grouped_matmul([ONE.clone(), a], [TWO.clone(), b]),
    "five": lambda a, b: tw.grouped_matmul(
        [*(ONE.clone() for _ in range(4)), a], [*(TWO.clone() for _ in range(4)), b]
    ),
    "thirty": lambda a, b: tw.grouped_matmul(
        [*(ONE.clone() for _ in range(29)), a], [*(TWO.clone() for _ in range(29)), b]
    ),
    "ragged": lambda a, b: tw.ragged_matmul(a, b[None] if b is TWO else b, torch.tensor([3])),
}


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("call", MET)
def test_a_nested_tensor_is_refused_by_name_where_guards_are_known(
    call: str, kind: str, side: str
) -> None:
    """Guards asked it for strides, which ended the process."""
    for _ in range(3):
        MET[call](ONE, TWO)
    nested = NESTED[kind](ONE if side == "a" else TWO)
    given = (nested, TWO) if side == "a" else (ONE, nested)
    with pytest.raises(OperandError, match="layout=nested: accepted are dense tensors"):
        MET[call](*given)


@pytest.mark.parametrize("count", [2, 7, 300])
def test_a_tensor_of_no_memory_among_numpys_arrays_is_refused(count: int) -> None:
    a, b = [ONE.numpy()] * count, [TWO.numpy()] * count
    b[count - 1] = TWO.to("meta")
    with pytest.raises(OperandError, match=rf"b\[{count - 1}\]"):
        tw.grouped_matmul(a, b)


@pytest.mark.parametrize("count", [1, 3, 60])
@pytest.mark.parametrize("size", [0, 1, 4, 6])
def test_a_bias_of_other_sizes_is_refused_wherever_it_stands(size: int, count: int) -> None:
    """One number is no vector of five, though torch would add it to each column."""
    for at in {0, count - 1}:
        bias = [TWO[0]] * count
        bias[at] = torch.ones(size)
        with pytest.raises(ShapeError, match=rf"bias\[{at}\]"):
            tw.grouped_matmul([ONE] * count, [TWO] * count, bias=bias)
    narrow = tw.grouped_matmul([ONE] * count, [TWO[:, :1]] * count, bias=[torch.ones(1)] * count)
    for made in narrow:
        torch.testing.assert_close(made, torch.full((6, 1), 5.0))


@pytest.mark.parametrize("count", [1, 3, 60])
def test_lists_of_a_processor_are_right_in_any_mixture_torch_takes(count: int) -> None:
    kinds = (lambda x: x, torch.nn.Parameter, lambda x: x.as_subclass(Named))
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        a = [kinds[i % 3](torch.randn(4, i % 5).to(dtype)) for i in range(count)]
        b = [torch.randn(3, i % 5).to(dtype).t() for i in range(count)]
        found = tw.grouped_matmul(a, b)
        for x, y, z in zip(a, b, found, strict=True):
            torch.testing.assert_close(z, x @ y)
    with torch.autocast("cpu", torch.bfloat16):
        for made in tw.grouped_matmul([ONE] * count, [TWO.bfloat16()] * count):
            torch.testing.assert_close(made, torch.full((6, 5), 4.0).bfloat16())


def test_torchs_dtypes_name_those_of_a_plan() -> None:
    plan = tw.plan_grouped([6], [5], [4], dtype=torch.float32, device="host")
    torch.testing.assert_close(plan.bind([ONE], [TWO])(), [ONE @ TWO])


@pytest.mark.parametrize("out", [False, True])
def test_bfloat16_is_multiplied_on_a_processor(out: bool) -> None:
    a, b = torch.randn(6, 4).bfloat16(), torch.randn(4, 5).bfloat16()
    target = torch.full((6, 5), float("nan")).bfloat16() if out else None
    torch.testing.assert_close(tw.matmul(a, b, out=target), a @ b)
    found = tw.grouped_matmul([a], [b], out=None if target is None else [target])
    torch.testing.assert_close(found[0], a @ b)


def test_results_are_tensors_where_the_first_operands_are() -> None:
    a, b = np.ones((6, 4), np.float32), torch.ones(4, 5)
    assert isinstance(tw.matmul(a, b), np.ndarray)
    assert isinstance(tw.matmul(torch.from_numpy(a), b.numpy()), torch.Tensor)
    found = tw.grouped_matmul([a, torch.from_numpy(a)], [b, b.numpy()])
    assert [type(one) for one in found] == [np.ndarray, torch.Tensor]


@pytest.mark.parametrize("where", DEVICES)
def test_a_layer_in_tf32_may_be_cast(where: str) -> None:
    layer = GroupedLinear(2, 8, 6, precision="tf32", device=where)
    x = torch.randn(6, 8, device=where)
    for dtype in (torch.float64, torch.bfloat16):
        found = layer.to(dtype)(x.to(dtype), ends(where))
        assert found.dtype is dtype
        wanted = torch.cat([x[:2] @ layer.weight[0].float(), x[2:] @ layer.weight[1].float()])
        assert (found.float() - wanted).abs().max() < 1.0


def batch_of(flat: Any, shapes: list[tuple[int, int]], starts: list[int]) -> RaggedBatch:
    """A batch of tensors wherever they lie; the public one takes those on a GPU."""
    batch = RaggedBatch.__new__(RaggedBatch)
    batch.flat, batch.offsets = flat, np.array(starts)
    batch.rows, batch.cols = np.array(shapes).T
    return batch


@pytest.mark.parametrize("starts", [[1, 16, 16], [8, 0, 2]], ids=["in order", "crossing"])
def test_the_matrices_of_a_batch_pass_gradients_on(starts: list[int]) -> None:
    flat = torch.arange(30.0).requires_grad_()
    batch = batch_of(flat, [(2, 3), (0, 5), (4, 2)], starts)
    matrices = tensor_lists.unpacked(batch, "a")
    for matrix, (m, n), start in zip(matrices, batch.shapes, starts, strict=True):
        torch.testing.assert_close(matrix, flat[start : start + m * n].view(m, n))
    sum(matrix.sum() for matrix in matrices).backward()
    wanted = torch.zeros(30)
    wanted[starts[0] : starts[0] + 6] += 1
    wanted[starts[2] : starts[2] + 8] += 1
    torch.testing.assert_close(flat.grad, wanted)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no GPU that torch reaches")
def test_a_batch_on_a_gpu_learns() -> None:
    flats = [torch.randn(48, dtype=torch.float64, device="cuda") for _ in range(2)]
    x, y = (flat.requires_grad_() for flat in flats)
    a = RaggedBatch(x, [2, 3], [3, 4], [0, 8])
    b = RaggedBatch(y, [3, 4], [5, 2], [0, 16])
    found = tw.grouped_matmul(a, b, alpha=2.0, activation="gelu")
    assert isinstance(found, RaggedBatch)
    sum(one.sum() for one in found).backward()
    ours = x.grad, y.grad
    x.grad = y.grad = None
    wanted = [torch.nn.functional.gelu(2 * one @ two) for one, two in zip(a, b, strict=True)]
    torch.testing.assert_close(list(found), wanted)
    sum(one.sum() for one in wanted).backward()
    torch.testing.assert_close(ours, (x.grad, y.grad))


def test_asking_who_looks_on_costs_arrays_of_numpy_a_few_steps() -> None:
    import gc
    import sys

    from tilewright.inputs import watched

    array, steps = np.ones((2, 2)), []
    gc.disable()  # what looks on when garbage is collected would be counted
    sys.setprofile(lambda frame, event, value: steps.append(event))
    try:
        watched.is_watched(array, array, None, None)
        watched.are_watched([array], [array], None, None)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert len(steps) < 40


class OnGpu:
    """A tensor of the processor that says it lies on a GPU."""

    is_cuda = True

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


def test_the_short_way_sees_whoever_looks_on() -> None:
    """Where a plan is known nothing else is asked: gradients, modes, transforms, odd tensors."""
    from tilewright.inputs.watched import are_unseen

    plain = torch.ones(2, 2)
    leaf = torch.ones(2, 2, requires_grad=True)
    negative = torch.ones(2, 2, dtype=torch.complex64).conj().imag
    unseen = partial(are_unseen, torch)
    assert unseen(OnGpu(plain), OnGpu(plain))
    assert not unseen(plain, OnGpu(plain))
    assert not unseen(OnGpu(plain), plain)
    for odd in (leaf, negative, plain.to_sparse()):
        assert not unseen(OnGpu(plain), OnGpu(odd))
        assert not unseen(OnGpu(odd), OnGpu(plain))
    with torch.no_grad():
        assert unseen(OnGpu(leaf), OnGpu(leaf))
    with torch.autocast("cpu", torch.bfloat16):
        assert not unseen(OnGpu(plain), OnGpu(plain))
    with torch.autograd.forward_ad.dual_level():
        assert not unseen(OnGpu(plain), OnGpu(plain))
    asked: list[bool] = []
    torch.func.vmap(lambda x: asked.append(unseen(OnGpu(plain), OnGpu(plain))) or x)(plain)
    assert asked == [False]
