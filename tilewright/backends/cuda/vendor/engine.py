"""The engine `vendor`: one product, equal ones, or a few unlike ones, by cuBLAS or hipBLASLt.

What the vendor tunes for years is not worth doing again: a dense product, or equal products at
equal distances, goes there in one call when the prediction says so; a few unlike products, each of
which fills the device, in a call each. They run on torch's current stream. cuBLAS is called by name
(cublas.py), so torch's switches for tf32 and half-precision sums are neither followed nor touched.
On ROCm torch itself is called: there they change nothing, but float32 where an environment variable
of hipBLASLt lets them, and this engine then leaves float32 to others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Columns
from tilewright.backends.cuda.machine import driver
from tilewright.backends.cuda.vendor import cublas
from tilewright.backends.cuda.vendor.cublas import Matrix, Product
from tilewright.backends.cuda.work import Ints, Moving, Prepared, Work
from tilewright.facts.device import Device
from tilewright.facts.dtypes import ITEMSIZE, PARTS
from tilewright.facts.measured import h200
from tilewright.facts.measured.scale import scale
from tilewright.facts.verdict import Proposal

# Unlike products in a call each: of more than this the host's 8 µs a call would show.
_MOST_CALLS = 32
# Of complex ones there is no kernel of ours that comes near the library's on large products.
_MOST_COMPLEX = 4096
_HOST_CALL = 16e-6  # of lists of complex ones: measured, an H200's host


class VendorBlas:
    """cuBLAS's gemm, plain or batched; on ROCm torch.mm and its kin."""

    name = "vendor"
    effort = 0

    def why_not(self, work: Work, device: Device) -> str | None:
        """Takes products whose rows or columns are dense, without an epilogue of ours.

        Equal ones at equal distances are one call; of unlike ones it takes a few, a call each.
        """
        most = _MOST_COMPLEX if work.dtype in PARTS else _MOST_CALLS
        if len(work.m) > most and (apart := _why_apart(work)):  # found soonest: asked first
            return f"{apart}, and a call each for more than {most} keeps the host busy"
        return _why_untaken(work) or _why_not_here(work, device)

    def least(self, work: Work, device: Device) -> float:
        """Proposing is as quick."""
        return 0.0

    def propose(self, work: Work, device: Device) -> Proposal:
        """One call for all, or a call each: that alone is decided."""
        together = _why_apart(work) is None
        seconds, reason = _seconds(work, device, together=together), _words(work, together=together)
        if not together and work.dtype in PARTS:
            seconds = max(seconds, _HOST_CALL * len(work.m))
        return Proposal(self.name, device, seconds, reason, decisions=together)

    def bind(self, proposal: Proposal, work: Work) -> Prepared:
        """The calls that suit alpha and beta, at these addresses."""
        import torch

        with torch.inference_mode(False):  # tensors that are usable in that mode and out of it
            calls = [call for one in _in_calls(proposal, work) for call in _calls(torch, one)]

        def enqueue(stream: int, keep: Any = work.keep) -> None:
            for call in calls:
                call()

        return Prepared(enqueue, 0)

    def move(self, proposal: Proposal, work: Work) -> Moving | None:
        """cuBLAS's calls, which take addresses as they come; None where tensors are made anew."""
        if proposal.device.platform == "ROCm" or not (work.k * work.alpha).all():
            return None
        return _move(_in_calls(proposal, work), len(work.m))


def _why_untaken(work: Work) -> str | None:
    """Why no call of the library computes what is asked for, if so."""
    if work.ordinal < 0:
        return "runs on a GPU only"
    known = (work.dtype, work.precision) in (*h200.LIBRARY, ("float32", "fp32x"))
    if not known and work.precision != "tf32":
        return f"has no {work.precision} for {work.dtype}"
    if work.activation == "gelu" or (work.bias is not None and work.bias.address.any()):
        return "bias and gelu would be passes of their own"
    if not (work.k * work.alpha).any():
        return "nothing to multiply"
    if not all(_is_dense(*operand, work).all() for operand in _operands(work)):
        return "a matrix has neither dense rows nor dense columns"
    return None


def _why_not_here(work: Work, device: Device) -> str | None:
    """Why the vendor's library cannot be told to compute what was asked for, if so."""
    if device.platform != "ROCm":
        return cublas.missing() if driver.missing() is None else None
    if work.dtype == "float32" and os.environ.get("HIPBLASLT_ALLOW_TF32", "0") != "0":
        return "HIPBLASLT_ALLOW_TF32 is set, so that a switch of torch would round float32"
    return None


def _why_apart(work: Work) -> str | None:
    """Why the batch cannot be one call, if so."""
    if len(work.m) == 1:
        return None
    sizes = (work.m, work.n, work.k, work.alpha, work.beta)
    parts = (work.a, work.b, work.c)
    if any((column != column[:1]).any() for column in sizes):
        return "problems differ"
    for part in parts:
        if (part.row != part.row[0]).any() or (part.col != part.col[0]).any():
            return "problems lie differently"
        if len(np.unique(np.diff(part.address))) > 1:
            return "problems lie at unequal distances"
        if _distance(part) < 0:
            return "problems lie backwards"
    return None


def _operands(work: Work) -> Iterator[tuple[Columns, Ints, Ints]]:
    """A, B and C with their rows and columns."""
    yield work.a, work.m, work.k
    yield work.b, work.k, work.n
    yield work.c, work.m, work.n


def _is_dense(part: Columns, rows: Ints, cols: Ints, work: Work) -> npt.NDArray[np.bool_]:
    """Where one step is an element, the other at least as long as what it passes."""
    row, col, item = part.row, part.col, ITEMSIZE[work.dtype]
    along = ((cols <= 1) | (col == item)) & ((rows <= 1) | (row >= cols * item))
    across = ((rows <= 1) | (row == item)) & ((cols <= 1) | (col >= rows * item))
    dense: npt.NDArray[np.bool_] = along | across
    return dense


def _distance(part: Columns) -> int:
    """Bytes from one problem to the next."""
    return int(part.address[1] - part.address[0]) if len(part.address) > 1 else 0


def _seconds(work: Work, device: Device, *, together: bool) -> float:
    """Of one call, or of a call for every problem."""
    m, n, k = (column.astype(np.float64) for column in (work.m, work.n, work.k))
    flops, moved = 2 * m * n * k, (m * k + k * n + m * n) * ITEMSIZE[work.dtype]
    tiles, known = np.ceil(m / 128) * np.ceil(n / 128), h200.LIBRARY
    rate = np.full(len(m), known.get((work.dtype, work.precision)) or known[work.dtype, "ieee"])
    if ITEMSIZE[work.dtype] == 2:
        rate *= np.where(_is_aligned(work), 1.0, h200.LIBRARY_UNALIGNED)
    if together:
        flops, moved, tiles = (column.sum()[np.newaxis] for column in (flops, moved, tiles))
        rate = rate[:1]
    there = scale(device, work.dtype, work.precision)
    faster, memory = there.share * there.multiply, there.memory or there.share
    waves = np.ceil(tiles / device.compute_units) * device.compute_units / tiles
    waves = np.minimum(waves, h200.LIBRARY_WORST_WAVES)
    busy = np.maximum(flops / rate * waves / faster, moved / h200.LIBRARY_MEMORY / memory)
    down = h200.LIBRARY_DEEP * k[: len(rate)] * 2 * 128**2 * h200.UNITS / rate / there.multiply
    depth = np.where(tiles < device.compute_units, np.minimum(down, h200.LIBRARY_DEEPEST), 0.0)
    seconds = busy + depth + h200.LIBRARY_START
    return float(np.sum(seconds if work.activation == "none" else seconds + h200.LIBRARY_START))


def _is_aligned(work: Work) -> npt.NDArray[np.bool_]:
    """Where every row or column, and every base, is a multiple of 16 bytes of halves."""
    aligned = np.ones(len(work.m), np.bool_)
    for part, rows, cols in _operands(work):
        step = np.maximum(np.where(rows > 1, part.row, 0), np.where(cols > 1, part.col, 0))
        aligned &= (step % 16 == 0) & (part.address % 16 == 0)
    return aligned


def _words(work: Work, *, together: bool) -> str:
    several = "equal products" if together else "products, a call each"
    words = "one product" if len(work.m) == 1 else f"{len(work.m)} {several}"
    return words + ("; in IEEE float32" if work.precision == "fp32x" else "")


def _in_calls(proposal: Proposal, work: Work) -> list[Work]:
    """The batch, or each of its problems, as one call takes them."""
    if proposal.decisions:
        return [work]
    return [work.take(np.array([i])) for i in range(len(work.m))]


def _move(every: list[Work], count: int) -> Moving:
    """cuBLAS's calls, which take addresses as they come."""
    import torch

    calls = [gemm(one) for one in every]
    results = [replace(one, keep=()) for one in every if one.activation == "relu"]

    def run(stream: int, places: Ints) -> None:
        for i, call in enumerate(calls):
            call(int(places[i]), int(places[count + i]), int(places[2 * count + i]))
        for i, one in enumerate(results):
            first = 2 * count + i
            c = replace(one.c, address=places[first : first + len(one.m)])
            torch.relu_(_tensor(torch, c, int(one.m[0]), int(one.n[0]), one))

    return Moving(run, 4096 * len(calls), None if len(calls) > 1 or results else calls[0])


def _calls(torch: Any, work: Work) -> Iterator[Callable[[], Any]]:
    """The product of equal problems, and their activation."""
    at_c = (work.c, int(work.m[0]), int(work.n[0]), work)
    beta = work.beta[0].item()
    if work.k[0] == 0:
        c = _tensor(torch, *at_c)
        yield partial(c.mul_, beta) if beta else c.zero_
    elif torch.version.hip is None:
        places = (int(part.address[0]) for part in (work.a, work.b, work.c))
        yield partial(gemm(work), *places)
    else:
        yield _by_torch(torch, work)
    if work.activation == "relu":
        yield partial(torch.relu_, _tensor(torch, *at_c))


def gemm(work: Work) -> Product:
    """cuBLAS's call for the products of a batch that are equal and lie alike."""
    m, n, k = (int(column[0]) for column in (work.m, work.n, work.k))
    a, b, c = (
        _lies(part, int(rows[0]), int(cols[0]), work) for part, rows, cols in _operands(work)
    )
    scalars = work.alpha[0].item(), work.beta[0].item()
    decided = (work.dtype, work.precision, (m, n, k), len(work.m), (a, b, c))
    return cublas.product(*decided, *scalars)


def _lies(part: Columns, rows: int, cols: int, work: Work) -> Matrix:
    item = ITEMSIZE[work.dtype]
    row, col = _steps(part, rows, cols, item)
    turned = col != item
    return Matrix(turned, (col if turned else row) // item, _distance(part) // item)


def _by_torch(torch: Any, work: Work) -> Callable[[], Any]:
    a, b, c = (
        _tensor(torch, part, int(rows[0]), int(cols[0]), work)
        for part, rows, cols in _operands(work)
    )
    alpha, beta = work.alpha[0].item(), work.beta[0].item()
    batched = len(work.m) > 1
    if alpha == 1 and beta == 0:
        return partial(torch.bmm if batched else torch.mm, a, b, out=c)
    add = torch.baddbmm if batched else torch.addmm
    return partial(add, c, a, b, alpha=alpha, beta=beta, out=c)


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
    shape: tuple[int, ...] = (rows, cols)
    strides: tuple[int, ...] = _steps(part, rows, cols, item)
    if len(part.address) > 1:
        shape = (len(part.address), *shape)
        strides = (_distance(part), *strides)
    letter = "c" if work.dtype in PARTS else "f"
    kind = "<i2" if work.dtype == "bfloat16" else f"<{letter}{item}"
    at = int(part.address[0])
    tensor = torch.as_tensor(
        _Memory(shape, strides, kind, at), device=torch.device("cuda", work.ordinal)
    )
    return tensor.view(torch.bfloat16) if work.dtype == "bfloat16" else tensor


def _steps(part: Columns, rows: int, cols: int, item: int) -> tuple[int, int]:
    """Strides that torch's BLAS takes as they are: those of a dimension of one mean nothing."""
    row, col = int(part.row[0]), int(part.col[0])
    if rows <= 1:
        row = cols * item if col == item else item
    if cols <= 1:
        col = item if rows <= 1 or row != item else rows * item
    return max(row, item), max(col, item)
