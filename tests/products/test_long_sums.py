"""float32 of a long k is as near to float64 as cuBLAS brings it, on every engine that is IEEE.

Constants are the hard case: a sum that grows rounds each of them the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright
from tilewright.backends.cuda.machine import driver
from tilewright.errors import KernelError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing())),
]
SIZES = [(64, 64, 2000), (300, 200, 2000), (64, 64, 100_000), (300, 200, 20_000), (700, 500, 9999)]


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
