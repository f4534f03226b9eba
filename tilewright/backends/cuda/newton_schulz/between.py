"""Launches what lies between the products: norms divided by, multiples of I added, halves copied.

Four small Triton kernels over all matrices at once; their tables are made once and stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.backends.cuda.machine.triton_launch import Task, reusable
from tilewright.planning.newton_schulz import TILE, Flat, Ints, mirrored

_CHUNK = 4096  # elements that a program reads
_PARTS = 256  # sums that it adds at a time
_Launch = Callable[[int], None]


def normalising(x: Any, layout: Flat, eps: float, ordinal: int) -> _Launch:
    """Each matrix of x, bf16 on a GPU, divided by its norm in place; launches on a stream."""
    import torch

    from tilewright.backends.cuda.kernels.triton import newton_schulz as kernels

    owner, begin = layout.pieces(_CHUNK)
    first = np.searchsorted(owner, owner, "left")
    last = np.searchsorted(owner, owner, "right")
    pieces = _table(x, begin, layout.ends(owner), first, last)
    sums = torch.empty(len(owner), dtype=torch.float32, device=x.device)
    tensors, count = (x, pieces, sums), len(owner)
    least = float(torch.tensor(eps, dtype=torch.bfloat16, device="cpu"))
    square = _ready(kernels.square, tensors, {"CHUNK": _CHUNK}, count, ordinal)
    constants = {"EPS": least, "CHUNK": _CHUNK, "PARTS": _PARTS}
    divide = _ready(kernels.divide, tensors, constants, count, ordinal)

    def launch(stream: int) -> None:
        square(stream, count, *tensors)
        divide(stream, count, *tensors)

    return launch


def shifting(g: Any, h: Any, layout: Flat, keep: float, add: float, ordinal: int) -> _Launch:
    """h = keep g + add I for each square matrix, bf16 on a GPU; launches on a stream."""
    from tilewright.backends.cuda.kernels.triton import newton_schulz as kernels

    owner, begin = layout.pieces(_CHUNK)
    pieces = _table(g, begin, layout.ends(owner), layout.begin[owner], layout.step[owner])
    tensors, count = (g, h, pieces), len(owner)
    constants = {"KEEP": keep, "ADD": add, "CHUNK": _CHUNK}
    shift = _ready(kernels.shift, tensors, constants, count, ordinal)
    return lambda stream: shift(stream, count, *tensors)


def mirroring(g: Any, layout: Flat, ordinal: int) -> _Launch:
    """What lies above the diagonal blocks of symmetric matrices, bf16 on a GPU, from below them."""
    from tilewright.backends.cuda.kernels.triton import newton_schulz as kernels

    tensors = g, _table(g, *mirrored(layout))
    count = len(tensors[1])
    mirror = _ready(kernels.mirror, tensors, {"TILE": TILE}, count, ordinal)
    return lambda stream: mirror(stream, count, *tensors)


def _ready(
    kernel: Any, tensors: tuple[Any, ...], constants: dict[str, Any], count: int, ordinal: int
) -> Callable[..., None]:
    if not count:
        return lambda *_: None
    return reusable(Task(kernel, 1, tensors, constants, {}), ordinal)


def _table(near: Any, *columns: Ints) -> Any:
    """Columns side by side, on the device where `near` lies."""
    import torch

    return torch.from_numpy(np.stack(columns, axis=1).astype(np.int64)).to(near.device)
