"""float32 of a long k is as near to float64 as cuBLAS brings it, on every engine that is IEEE.

Constants are the hard case: a sum that grows rounds each of them the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright
from tilewright.backends.cuda.machine import driver
from tilewright.backends.cuda.tiled import small
from tilewright.errors import KernelError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing())),
]
SIZES = [(64, 64, 2000), (300, 200, 2000), (64, 64, 100_000), (300, 200, 20_000), (700, 500, 9999)]


@pytest.fixture(autouse=True)
def large_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles take products of any size."""
    monkeypatch.setattr(small, "MOST", float("inf"))


def all_rows(a: Any, b: Any) -> Any:
    import torch

    return tilewright.ragged_matmul(a, b[None], torch.tensor([len(a)], device="cuda"))


def all_depths(a: Any, b: Any) -> Any:
    import torch

    return tilewright.ragged_matmul(a, b, torch.tensor([len(b)], device="cuda"))[0]


def by(kernel: str) -> Callable[[Any, Any], Any]:
    def product(a: Any, b: Any) -> Any:
        try:
            return tilewright.matmul(a, b, kernel=kernel)
        except KernelError as error:
            pytest.skip(str(error))

    return product


WAYS = {
    "triton": by("triton_grouped"),
    "cuda": by("cuda_grouped"),
    "small": by("cuda_small"),
    "vendor": by("vendor"),
    "rows": all_rows,
    "depths": all_depths,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_a_long_sum_is_at_most_twice_as_far_off_as_cublas(m: int, n: int, k: int, way: str) -> None:
    import torch

    torch.manual_seed(0)
    constant = torch.full((m, k), 0.1, device="cuda"), torch.full((k, n), 0.3, device="cuda")
    drawn = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
    for a, b in (constant, drawn):
        truth = a.double() @ b.double()
        size = truth.abs() if a is constant[0] else truth.norm() / truth.numel() ** 0.5
        off = [
            float(((found.double() - truth).abs() / size).max())
            for found in (WAYS[way](a, b), a @ b)
        ]
        assert off[0] <= 2 * off[1] + 1e-6


@pytest.mark.parametrize("k", [1, 255, 256, 257, 511, 512, 513, 1025])
@pytest.mark.parametrize("way", WAYS)
def test_no_step_is_lost_or_counted_twice_where_chains_meet(k: int, way: str) -> None:
    import torch

    torch.manual_seed(k)
    a = torch.randint(-8, 9, (1300, k), device="cuda").float()
    b = torch.randint(-8, 9, (k, 1100), device="cuda").float()
    assert torch.equal(WAYS[way](a, b).double(), a.double() @ b.double())


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 5000, 1 << 21])
def test_a_sum_of_rows_loses_nothing_however_many_they_are(rows: int) -> None:
    import torch

    x = torch.full((1, 1), 0.1, device="cuda").expand(1, rows)
    y = torch.full((rows, 70), 0.3, device="cuda")
    found = all_depths(x.t().contiguous().t(), y).double()
    truth = rows * x[0, 0].double() * y[0, 0].double()
    assert float((found / truth - 1).abs().max()) < 1e-6


def test_infinities_and_nans_of_a_sum_of_rows_are_those_of_torch() -> None:
    import torch

    y = torch.zeros(3000, 6, device="cuda")
    y[5, 0], y[6, 1], y[2999, 2] = torch.inf, -torch.inf, torch.inf
    y[7, 3], y[7 + 64, 3], y[9, 4] = torch.inf, -torch.inf, torch.nan
    y[:2, 5] = 3e38
    found = all_depths(torch.ones(1, 3000, device="cuda"), y)[0]
    assert torch.allclose(found, y.sum(0), equal_nan=True)
