"""The rivals of a ladder's kernels: a serial loop, NumPy, PyTorch where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.products import reference

SERIAL, NUMPY, PYTORCH = "serial", "NumPy", "PyTorch"
# A loop without a BLAS takes minutes at large sizes and its rate hardly depends on the size, so it
# is measured at this one and its time scaled by arithmetic.
SCALED_FROM = 512


@dataclass(frozen=True, slots=True)
class Peer:
    """`prepare(a, b, c)` gives a call that computes c = a @ b; `limit` the largest size to run."""

    name: str
    prepare: Callable[[NDArray, NDArray, NDArray], Callable[[], object]]
    limit: int | None = None


def peers(dtype: str) -> tuple[Peer, ...]:
    """The peers that are here."""
    # NumPy has no BLAS for float16 and falls back to a loop of its own.
    found = [
        Peer(SERIAL, _serial, SCALED_FROM),
        Peer(NUMPY, _numpy, SCALED_FROM if dtype == "float16" else None),
    ]
    if has_pytorch():
        found.append(Peer(PYTORCH, _pytorch))
    return tuple(found)


def has_pytorch() -> bool:
    """Whether PyTorch is installed; importing it takes seconds."""
    return find_spec("torch") is not None


def _serial(a: NDArray, b: NDArray, c: NDArray) -> Callable[[], object]:
    return lambda: np.copyto(c, reference.serial(a, b))


def _numpy(a: NDArray, b: NDArray, c: NDArray) -> Callable[[], object]:
    return lambda: np.matmul(a, b, out=c)


def _pytorch(a: NDArray, b: NDArray, c: NDArray) -> Callable[[], object]:
    import torch

    left, right, out = (torch.from_numpy(array) for array in (a, b, c))
    return lambda: torch.matmul(left, right, out=out)
