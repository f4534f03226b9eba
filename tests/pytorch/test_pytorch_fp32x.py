"""fp32x of groups: as exact as float32's own product, forward and of both gradients.

On a GPU with fast tensor cores products of rows take three bf16 for a number (thirds.cuh). Errors
are counted against float64, in the Frobenius norm, beside those of torch in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.backends.cuda.machine import driver

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

from tilewright import moe, ragged_matmul  # noqa: E402
from tilewright.errors import ArgumentError  # noqa: E402
from tilewright.pytorch import GroupedLinear  # noqa: E402

on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing())),
]
COUNTS = [70, 0, 300, 129, 64]
FILLS: dict[str, Callable[[Any], Any]] = {
    "normal": lambda x: x.normal_(),
    "uniform": lambda x: x.uniform_(),
    "one number": lambda x: x.fill_(0.1),
    "95 % zeros": lambda x: x.normal_() * (torch.rand_like(x) < 0.05),
    "scaled by 2^-30 to 2^30": lambda x: x.normal_() * torch.exp2(torch.randint_like(x, -30, 31)),
    "tiny": lambda x: x.normal_() * 1e-18,
    "large": lambda x: x.normal_() * 1e17,
}


def drawn(fill: str, *shape: int) -> Any:
    torch.manual_seed(sum(shape))
    return FILLS[fill](torch.empty(*shape, device="cuda"))


def check(found: Any, right: Any, torchs: Any, what: str, slack: float = 2**-23) -> None:
    """At most twice torch's error in float32, and two roundings."""
    size = right.norm()
    off, theirs = ((one.double() - right).norm() / size for one in (found, torchs))
    assert off <= 2 * theirs + slack, (what, float(off), float(theirs))


def each_group(left: Any, right: Any) -> Any:
    """Rows of groups by their matrices."""
    return torch.cat([x @ w for x, w in zip(left.split(COUNTS), right, strict=True)])


def gradients(x: Any, w: Any, pull: Any) -> list[Any]:
    """The product and both gradients, a group at a time."""
    of_w = [a.t() @ b for a, b in zip(x.split(COUNTS), pull.split(COUNTS), strict=True)]
    return [each_group(x, w), each_group(pull, w.mT), torch.stack(of_w)]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize(("k", "n"), [(512, 256), (37, 75), (1, 64), (130, 3)], ids=str)
class TestOnAGpu:
    pytestmark = on_gpu

    def test_a_layer_and_its_gradients_are_as_exact_as_torchs(
        self, k: int, n: int, fill: str
    ) -> None:
        ends = torch.tensor(COUNTS, device="cuda").cumsum(0)
        layer = GroupedLinear(len(COUNTS), k, n, bias=False, precision="fp32x", device="cuda")
        with torch.no_grad():
            layer.weight.copy_(drawn(fill, len(COUNTS), k, n))
        x = drawn(fill, sum(COUNTS), k).requires_grad_()
        pull = drawn(fill, sum(COUNTS), n)
        out = layer(x, ends)
        out.backward(pull)
        w, x, found = layer.weight.detach(), x.detach(), [out.detach(), x.grad, layer.weight.grad]
        rights = gradients(x.double(), w.double(), pull.double())
        for one, right, torchs, what in zip(
            found, rights, gradients(x, w, pull), ("out", "x", "w"), strict=True
        ):
            # Depths are IEEE's everywhere, whose sums of one number depend on how they are cut.
            slack = 1e-6 if (what, fill) == ("w", "one number") else 2**-23
            check(one, right, torchs, what, slack)


@pytest.mark.gpu
@pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing()))
@pytest.mark.parametrize("k", [2_000, 20_000])
@pytest.mark.parametrize("fill", ["one number", "uniform", "95 % zeros", "normal"])
def test_long_sums_are_as_exact_as_torchs(k: int, fill: str) -> None:
    x, w = drawn(fill, 200, k), drawn(fill, k, 130)
    one = torch.tensor([200], device="cuda"), torch.tensor([k], device="cuda")
    right = x.double() @ w.double()
    rows = ragged_matmul(x, w[None], one[0], precision="fp32x")
    depths = ragged_matmul(x, w, one[1], precision="fp32x")[0]
    for found in (rows, depths):
        check(found, right, x @ w, fill)


@pytest.mark.gpu
@pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing()))
def test_infinities_and_nan_are_those_of_torch_and_harm_no_other_row() -> None:
    x, w = drawn("normal", 200, 300), drawn("normal", 1, 300, 70)
    ends = torch.tensor([200], device="cuda")
    plain = ragged_matmul(x, w, ends, precision="fp32x", batch_invariant=True)
    x[3, 5], x[70, 0], x[71, 2], x[140, 299] = torch.inf, -torch.inf, torch.nan, 3e38
    w[0, 299, 3] = 1e30
    found = ragged_matmul(x, w, ends, precision="fp32x", batch_invariant=True)
    right = x @ w[0]
    for of in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(of(found), of(right))
    rows = [row for row in range(200) if row not in (3, 70, 71, 140)]
    columns = [column for column in range(70) if column != 3]
    assert torch.equal(found[rows][:, columns], plain[rows][:, columns])


@pytest.mark.gpu
@pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing()))
def test_operands_may_lie_anyhow() -> None:
    ends = torch.tensor([100, 100, 333], device="cuda")
    base, weights = drawn("normal", 333, 201), drawn("normal", 3, 201, 131)
    rights = [
        base[i:j].double() @ w.double()
        for (i, j), w in zip(((0, 100), (100, 100), (100, 333)), weights, strict=True)
    ]
    wide = torch.zeros(333, 405, device="cuda")
    wide[:, 1:403:2] = base
    for x in (base, base.t().contiguous().t(), wide[:, 1:403:2]):
        for w in (weights, weights.mT.contiguous().mT):
            found = ragged_matmul(x, w, ends, precision="fp32x")
            torch.testing.assert_close(found.double(), torch.cat(rights), rtol=0, atol=3e-5)


@pytest.mark.usefixtures("compiled_for_all")
def test_on_a_processor_it_is_float32s_own() -> None:
    layer = GroupedLinear(2, 8, 6, precision="fp32x")
    x, ends = torch.randn(5, 8), torch.tensor([2, 5])
    plain = ragged_matmul(x, layer.weight, ends, bias=layer.bias)
    assert torch.equal(layer(x, ends), plain)
    assert layer.bfloat16()(x.bfloat16(), ends).dtype is torch.bfloat16


def test_what_is_not_float32_is_refused() -> None:
    x, w, ends = torch.randn(5, 8).double(), torch.randn(2, 8, 6).double(), torch.tensor([2, 5])
    with pytest.raises(ArgumentError, match="'fp32x' for float32"):
        ragged_matmul(x, w, ends, precision="fp32x")
    experts, weights = torch.zeros(5, 1, dtype=torch.int64), torch.ones(5, 1)
    with pytest.raises(ArgumentError, match="'fp32x' for float32"):
        moe(x, w, w.mT, experts, weights, activation="relu", precision="fp32x")
