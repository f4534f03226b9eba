"""vendor: cuBLAS or hipBLASLt, through torch, for one product or a batch of equal ones.

What the vendor tunes for years is not worth doing again: a dense product, or equal products at
equal distances, goes there when the prediction says so. Torch runs it on its current stream, with
its settings for tf32 and for half-precision sums set to what was asked for, and put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from tilewright.backends.cuda.engine import ITEMSIZE, Columns, Launch, Proposal, Work
from tilewright.backends.cuda.portable.shapes import H200_UNITS
from tilewright.device import Device

# Flops a second of large products, and bytes a second, of an H200 (cuBLAS 13.0, torch 2.11).
_RATE = {
    ("float16", "ieee"): 770e12,
    ("bfloat16", "ieee"): 780e12,
    ("float32", "ieee"): 51e12,
    ("float32", "tf32"): 400e12,
    ("float64", "ieee"): 60e12,
}
_BANDWIDTH = 4.0e12
# cuBLAS falls to a fifth where half-precision rows are no multiples of 16 bytes (150 of 790).
_UNALIGNED = 0.19
_START = 6e-6  # a call's own time on the device, tails of its few tiles included


class VendorBlas:
    """torch.mm, torch.addmm, torch.bmm or torch.baddbmm."""

    name = "vendor"

    def propose(self, work: Work, device: Device) -> Proposal | str:
        """Takes equal products whose rows or columns are dense, without an epilogue of ours."""
        why = _why_not(work)
        if why is not None:
            return why
        return Proposal(self.name, _seconds(work, device), 0, _words(work), partial(_bind, work))


def _why_not(work: Work) -> str | None:
    if work.ordinal < 0:
        return "runs on a GPU only"
    if (work.dtype, work.precision) not in _RATE and work.precision != "tf32":
        return f"has no {work.precision} for {work.dtype}"
    if work.activation == "gelu" or (work.bias is not None and work.bias.address.any()):
        return "bias and gelu would be passes of their own"
    sizes = (work.m, work.n, work.k, work.alpha, work.beta)
    if any((column != column[0]).any() for column in sizes):
        return "problems differ"
    if work.k[0] == 0 or work.alpha[0] == 0:
        return "nothing to multiply"
    for part, rows, cols in _operands(work):
        if not _is_dense(part, rows, cols):
            return "a matrix has neither dense rows nor dense columns"
        if len(np.unique(np.diff(part.address))) > 1:
            return "problems lie at unequal distances"
        if len(work.m) > 1 and _distance(part, work) < 0:
            return "problems lie backwards"
    return None


def _operands(work: Work) -> Iterator[tuple[Columns, int, int]]:
    m, n, k = int(work.m[0]), int(work.n[0]), int(work.k[0])
    yield work.a, m, k
    yield work.b, k, n
    yield work.c, m, n


def _is_dense(part: Columns, rows: int, cols: int) -> bool:
    """One step is 1, the other at least as long as what it passes, the same in every problem."""
    row, col = part.row, part.col
    if (row != row[0]).any() or (col != col[0]).any():
        return False
    along = (cols <= 1 or col[0] == 1) and (rows <= 1 or row[0] >= cols)
    across = (rows <= 1 or row[0] == 1) and (cols <= 1 or col[0] >= rows)
    return bool(along or across)


def _distance(part: Columns, work: Work) -> int:
    """Elements from one problem to the next; -1 where that is no whole number."""
    if len(part.address) < 2:
        return 0
    step = int(part.address[1] - part.address[0])
    return step // ITEMSIZE[work.dtype] if step % ITEMSIZE[work.dtype] == 0 else -1


def _seconds(work: Work, device: Device) -> float:
    flops = 2.0 * float(np.sum(work.m.astype(float) * work.n * work.k))
    elements = work.m * work.k + work.k * work.n + work.m * work.n
    moved = float(np.sum(elements.astype(float))) * ITEMSIZE[work.dtype]
    rate = _RATE.get((work.dtype, work.precision)) or _RATE[work.dtype, "ieee"]
    if ITEMSIZE[work.dtype] == 2 and not _is_aligned(work):
        rate *= _UNALIGNED
    share = device.compute_units / H200_UNITS
    tiles = float(np.sum(-(-work.m // 128) * -(-work.n // 128)))
    waves = max(1.0, np.ceil(tiles / device.compute_units) * device.compute_units / tiles)
    seconds = max(flops / rate * waves / share, moved / (_BANDWIDTH * share)) + _START
    return float(seconds if work.activation == "none" else seconds + _START)


def _is_aligned(work: Work) -> bool:
    for part, rows, cols in _operands(work):
        step = max(int(part.row[0]) if rows > 1 else 0, int(part.col[0]) if cols > 1 else 0)
        if step % 8 or (part.address % 16).any():
            return False
    return True


def _words(work: Work) -> str:
    return "one product" if len(work.m) == 1 else f"{len(work.m)} equal products"


def _bind(work: Work) -> Launch:
    """Views of the operands as torch tensors, and the call that suits alpha and beta."""
    import torch

    a, b, c = (_tensor(torch, part, rows, cols, work) for part, rows, cols in _operands(work))
    alpha, beta = float(work.alpha[0]), float(work.beta[0])
    batched = len(work.m) > 1
    if alpha == 1 and beta == 0:
        product = partial(torch.bmm if batched else torch.mm, a, b, out=c)
    else:
        add = torch.baddbmm if batched else torch.addmm
        product = partial(add, c, a, b, alpha=alpha, beta=beta, out=c)
    relu = work.activation == "relu"
    set_for = partial(_settings, torch, work.dtype, work.precision)

    def launch(keep: Any = work.keep) -> None:
        with set_for():
            product()
            if relu:
                torch.relu_(c)

    return launch


class _Memory:
    """Memory of a GPU as torch.as_tensor takes it (the CUDA array interface, version 3)."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], kind: str, at: int):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "strides": strides,
            "typestr": kind,
            "data": (at, False),
            "version": 3,
        }


def _tensor(torch: Any, part: Columns, rows: int, cols: int, work: Work) -> Any:
    """The matrices of an operand as one tensor, [m, n] or [problems, m, n], without a copy."""
    item = ITEMSIZE[work.dtype]
    row, col = _steps(part, rows, cols)
    shape: tuple[int, ...] = (rows, cols)
    strides: tuple[int, ...] = (row * item, col * item)
    if len(part.address) > 1:
        shape = (len(part.address), *shape)
        strides = (_distance(part, work) * item, *strides)
    kind = "<i2" if work.dtype == "bfloat16" else f"<f{item}"
    at = int(part.address[0])
    tensor = torch.as_tensor(
        _Memory(shape, strides, kind, at), device=torch.device("cuda", work.ordinal)
    )
    return tensor.view(torch.bfloat16) if work.dtype == "bfloat16" else tensor


def _steps(part: Columns, rows: int, cols: int) -> tuple[int, int]:
    """Strides that torch's BLAS takes as they are: those of a dimension of one mean nothing."""
    row, col = int(part.row[0]), int(part.col[0])
    if rows <= 1:
        row = cols if col == 1 else 1
    if cols <= 1:
        col = 1 if rows <= 1 or row != 1 else rows
    return max(row, 1), max(col, 1)


@contextmanager
def _settings(torch: Any, dtype: str, precision: str) -> Iterator[None]:
    """Torch's switches as this product wants them, while it is enqueued."""
    switches = torch.backends.cuda.matmul
    wanted: str | bool
    if dtype == "float32":
        name, wanted = "fp32_precision", "tf32" if precision == "tf32" else "ieee"
    elif dtype == "float64":
        yield
        return
    else:
        half = "fp16" if dtype == "float16" else "bf16"
        name, wanted = f"allow_{half}_reduced_precision_reduction", False
    before = getattr(switches, name)
    if before == wanted:
        yield
        return
    setattr(switches, name, wanted)
    try:
        yield
    finally:
        setattr(switches, name, before)
