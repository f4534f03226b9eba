"""The arrays of a case on a GPU, laid out there as they are on the host, and the results back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.cases import Operands
from tilewright.backends.cuda.machine import driver

NDArray = Any


def why_no_gpu() -> str | None:
    """The reason to skip, or None where torch reaches a GPU."""
    return driver.missing()


@dataclass(frozen=True)
class OnGpu:
    """A case's operands as torch tensors, or as CuPy arrays where `kind` says so."""

    given: Operands
    a: Any
    b: Any
    out: Any
    bias: Any
    base: Any

    def fetch(self) -> Operands:
        """The case with what `out` and the memory around it hold now."""
        self.given.base[...] = self.base.cpu().numpy().reshape(self.given.base.shape)
        return self.given

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `tilewright.matmul`, without `out`."""
        return {**self.given.options, "bias": self.bias}


def send(given: Operands, kind: str = "torch") -> OnGpu:
    """The operands of a case on the GPU; CuPy alone can lay them out backwards."""
    import torch

    def whole(array: NDArray) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array).reshape(-1)).cuda()

    base = whole(given.base)
    a, b = (_view(whole(_root(x)), x, kind) for x in (given.a, given.b))
    out = _view(base, given.out, kind)
    bias = None
    if given.bias is not None:
        bias = _view(whole(given.bias), given.bias, kind)
    return OnGpu(given, a, b, out, bias, base)


def _root(array: NDArray) -> NDArray:
    """The array whose memory this is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _view(flat: Any, array: NDArray, kind: str) -> Any:
    root = _root(array)
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    if kind == "torch":
        steps = [step // array.itemsize for step in array.strides]
        return flat.as_strided(array.shape, steps, start // array.itemsize)
    import cupy

    held = cupy.from_dlpack(flat)
    return cupy.ndarray(array.shape, array.dtype, memptr=held.data + start, strides=array.strides)
