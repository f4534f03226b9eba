"""Products that torch.compile and torch.jit.trace write down: any sizes, out=, what learns.

On a processor here; the same tests run on a GPU where there is one (marker gpu).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tilewright as tw  # noqa: E402
from tests.support.tensor_products import PRODUCTS, operands  # noqa: E402
from tests.support.torch_places import DEVICES  # noqa: E402
from tilewright.errors import ArgumentError  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("name", ["batch", "list", "rows"])
def test_compiled_products_of_unknown_sizes_are_compiled_once_or_twice(
    name: str, where: str
) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    graphs = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(PRODUCTS[name], fullgraph=True, dynamic=True, backend=graphs)
    for scale in (1, 2, 3):
        a, b, bias = (torch.cat([value] * scale, -1) for value in operands(where))
        given = (a, torch.cat([b] * scale), bias)
        torch.testing.assert_close(compiled(*given), PRODUCTS[name](*given))
    assert graphs.frame_count <= 2


WRITTEN: dict[str, Any] = {
    "matmul": lambda a, b, ends, out: tw.matmul(a, b, out=out, beta=2.0),
    "list": lambda a, b, ends, out: tw.grouped_matmul([a], [b], out=[out], beta=0.5),
    "rows": lambda a, b, ends, out: tw.ragged_matmul(a, torch.stack([b, b]), ends, out=out),
    "depths": lambda a, b, ends, out: tw.ragged_matmul(a, b, ends[:1], out=out[None]),
}


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize(
    ("name", "offsets", "dynamic"),
    [
        ("matmul", [0], False),
        ("matmul", [0], True),
        ("list", [0], True),
        ("depths", [2], True),
        ("rows", [2, 4], False),
        ("rows", [1, 2, 3], True),
    ],
    ids=str,
)
def test_a_compiled_product_may_write_into_out(
    name: str, offsets: list[int], dynamic: bool, where: str
) -> None:
    a, b, _ = operands(where)
    given = (a, b, torch.tensor(offsets, device=where))
    found, wanted = torch.ones(2, 6, 5, device=where)
    WRITTEN[name](*given, wanted)
    compiled = torch.compile(WRITTEN[name], fullgraph=True, dynamic=dynamic, backend="aot_eager")
    compiled(*given, found)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("kind", [list, tuple])
def test_sums_of_products_are_one_graph(kind: Any) -> None:
    def function(a: Any, b: Any, bias: Any, into: Any) -> Any:
        return tw.grouped_matmul([a, 2 * a, a], [b] * 3, into=into, bias=[bias, None])

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for into in ([0, 0, 1], [1, 0, 1]):
        given = (*operands("cpu"), kind(into))
        torch.testing.assert_close(compiled(*given), function(*given))


@pytest.mark.parametrize("into", [[0, 2, 0], [0, 1], [0, 0.0, 1], [0, -1, 1]], ids=str)
def test_a_compiled_sum_into_no_result_raises_what_it_raises(into: Any) -> None:
    def function(a: Any, b: Any) -> Any:
        return tw.grouped_matmul([a] * 3, [b] * 3, into=into)

    with pytest.raises(ArgumentError, match="into"):
        torch.compile(function, backend="aot_eager")(*operands("cpu")[:2])


TRACED: dict[str, Any] = {
    **PRODUCTS,
    "experts": lambda a, b, bias: tw.moe(
        a.t(),  # [4, 6]
        torch.stack([a[:, :2], a[:, 2:]]),
        torch.stack([a.t()[:1], b.sum() * a.t()[1:2]]),
        torch.tensor([[0], [1], [1], [0]], device=a.device),
        bias[:4, None],
        activation="swiglu",
    ),
}


@pytest.mark.filterwarnings("ignore")  # torch's, that it has a newer exporter, and of each constant
@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("name", TRACED)
def test_traced_products_have_the_same_results_and_gradients(
    name: str, learn: bool, where: str
) -> None:
    given = operands(where, learn=learn)
    traced = torch.jit.trace(TRACED[name], given)
    given = tuple((value.detach() * 2).requires_grad_(learn) for value in given)
    found, wanted = (function(*given) for function in (traced, TRACED[name]))
    torch.testing.assert_close(found, wanted)
    if learn:
        sums = [
            sum(one.sin().sum() for one in (made if isinstance(made, list) else [made]))
            for made in (found, wanted)
        ]
        gradients = [torch.autograd.grad(one, given, allow_unused=True) for one in sums]
        torch.testing.assert_close(*gradients)


A, B = (np.random.default_rng(seed).standard_normal((9, 9)).astype(np.float32) for seed in (0, 1))
NUMPYS: dict[str, Any] = {
    "matmul": lambda: tw.matmul(A, B),
    "alpha": lambda: tw.matmul(A, B, alpha=2.0, bias=A[0]),
    "out": lambda: tw.matmul(A, B, out=np.empty_like(A)),
    "few": lambda: tw.grouped_matmul([A] * 3, [B] * 3)[2],
    "list": lambda: tw.grouped_matmul([A] * 9, [B] * 9)[8],
    "list, alpha": lambda: tw.grouped_matmul([A] * 9, [B] * 9, alpha=2.0)[8],
    "list, out": lambda: tw.grouped_matmul([A] * 9, [B] * 9, out=[A + i for i in range(9)])[8],
    "rows": lambda: tw.ragged_matmul(A, np.stack([B, A]), np.array([3, 9])),
}


@pytest.mark.parametrize("name", NUMPYS)
def test_a_compiler_does_not_follow_products_of_numpys_arrays(name: str) -> None:
    """Steps of plans and caches were frames of their own, 165 of a list."""
    product = NUMPYS[name]
    right = product()
    compiled = torch.compile(lambda x: (x + 1, product()), backend="eager")
    torch._dynamo.utils.counters.clear()
    for _ in range(2):
        _, found = compiled(torch.ones(3))
        np.testing.assert_allclose(found, right, atol=1e-5)
    assert torch._dynamo.utils.counters["frames"]["total"] <= 12


BITS, OTHERS = (tw.onebit.pack(x) for x in (A, B))
IMAGES = tw.onebit.pack(np.ones((5, 5, 64), np.float32))
WINDOWS = tw.onebit.Conv2d(np.ones((3, 2, 2, 64), np.float32))
OF_BITS: dict[str, Any] = {
    "matmul": lambda: tw.onebit.matmul(BITS, OTHERS),
    "list": lambda: tw.onebit.grouped_matmul([BITS] * 3, [OTHERS] * 3)[2],
    "packed": lambda: tw.onebit.matmul(tw.onebit.pack(A), OTHERS),
    "packed of tensors": lambda: tw.onebit.matmul(
        *(tw.onebit.pack(torch.from_numpy(x)) for x in (A, B))
    ),
    "unpacked": lambda: tw.onebit.unpack(tw.onebit.matmul(BITS, OTHERS, threshold=1)),
    "windows": lambda: WINDOWS(IMAGES),
    "explained": lambda: len(tw.onebit.explain(BITS, OTHERS)),
}


@pytest.mark.parametrize("name", OF_BITS)
def test_a_compiler_does_not_follow_products_of_bits(name: str) -> None:
    """Engines and their caches were 90 frames, a second of compiling, and packing failed."""
    product = OF_BITS[name]
    right = np.asarray(product())
    compiled = torch.compile(lambda x: (x + 1, product()), backend="eager")
    torch._dynamo.utils.counters.clear()
    for _ in range(3):
        more, found = compiled(torch.ones(3))
        assert np.array_equal(np.asarray(found), right)
        assert torch.equal(more, torch.full((3,), 2.0))
    assert torch._dynamo.utils.counters["frames"]["total"] <= 16


def test_products_of_bits_without_a_compiler_are_called_straight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To keep one away takes 2 us."""
    from tilewright.arrays import untraced

    monkeypatch.delattr(untraced, "call")
    assert np.array_equal(tw.onebit.matmul(BITS, OTHERS), tw.onebit.matmul(BITS, OTHERS))


def test_a_compiler_that_is_to_leave_nothing_out_says_why_a_transformed_product_is() -> None:
    """Which of the two, a transform or a compiled whole, is given up is the user's to say."""
    w, ends = torch.randn(2, 4, 5), torch.tensor([2, 6])
    learn = torch.func.grad(lambda x: tw.ragged_matmul(x, w, ends).sum())
    compiled = torch.compile(lambda x: learn(x), fullgraph=True, backend="eager")
    with pytest.raises(RuntimeError, match=r"reason: tilewright runs .* torch\.func"):
        compiled(torch.randn(6, 4))
