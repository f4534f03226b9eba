"""The engine `cuda_grouped`: as `triton_grouped`, but its large tiles run kernels in CUDA C++.

float32   grouped_single.cu: Triton reads A out of shared memory a number at a time; a thread of
          that kernel four at once, and holds 8 x 8 sums; half of a tile, where no more exists,
          takes half the multiplications; small tiles may stay Triton's
float64   grouped_double.cu, on sm_90: products of 16 x 8 x 16 on tensor cores, Triton's are of
          8 x 8 x 4; at edges fragments that do not exist are not multiplied, and no tile is small:
          10 to 17 % less time, sizes of 1 to 128 as well as 256 to 2048 (H200)

These tiles of a batch are one launch, however matrices lie, and parts of those that are cut along k
are added in it (joined.py). Both take matrices whose rows lie element by element.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Columns
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.machine.placing import At, Launch, Step, in_order
from tilewright.backends.cuda.tile_seconds import TileShape
from tilewright.backends.cuda.tiled.layouts import Group
from tilewright.backends.cuda.work import Work
from tilewright.facts.device import Device
from tilewright.facts.dtypes import ITEMSIZE
from tilewright.facts.problem import ACTIVATIONS

# Bytes of a step in grouped_double.cu: rows of A, 16 and 4 numbers long, and of B, 64 and 4.
_DOUBLE_STAGE = 8 * (64 * 20 + 16 * 68)
_LARGE = 48  # rows and columns from which on tiles of 64 x 64 are worth planning for


def why_no_tiles(dtype: str, precision: str | None, device: Device) -> str | None:
    """Why a device has no tiles of single.cuh for a dtype, wherever its matrices lie."""
    if dtype != "float32" or precision == "tf32":
        return f"computes float32 in IEEE arithmetic, not {dtype} in {precision}"
    return why_no_ampere(device) or nvrtc.missing()


def why_no_ampere(device: Device) -> str | None:
    """Why a device cannot copy into shared memory beside other work, if so."""
    if not device.version.startswith("sm_") or int(device.version[3:].rstrip("af")) < 80:
        return "needs an NVIDIA GPU of compute capability 8.0"
    return None


def why_not(work: Work, device: Device) -> str | None:
    """Why the kernel cannot run this batch here, if so."""
    if (nothing := _why_no_kernel(work, device)) is not None:
        return nothing
    return why_no_rows(work, (work.c, work.n > 1)) or _why_no_size(work)


def why_no_rows(work: Work, *others: tuple[Columns, npt.NDArray[np.bool_]]) -> str | None:
    """Why A, B or others, each with whether it has several columns, cannot be read along rows."""
    for part, many in (
        (work.a, work.k > 1),
        (work.b, (work.k > 0) & (work.n > 1)),
        *others,
    ):
        if ((part.col != ITEMSIZE[work.dtype]) & many).any():
            return "a matrix's rows do not lie element by element"
    return None


def _why_no_kernel(work: Work, device: Device) -> str | None:
    if work.dtype != "float64":
        return why_no_tiles(work.dtype, work.precision, device)
    if device.version.rstrip("af") != "sm_90":
        return "needs, of float64, an NVIDIA GPU of compute capability 9.0"
    return nvrtc.missing()


def _why_no_size(work: Work) -> str | None:
    flops = work.m.astype(np.float64) * work.n * work.k
    if 2 * flops[np.minimum(work.m, work.n) >= _LARGE].sum() < flops.sum():
        return "most of the work is in small products"
    return None


def product(
    work: Work,
    shape: TileShape,
    group: Group,
    table_at: int,
    tiles_at: int,
    pieces_at: tuple[int, int],
    *,
    plain: bool,
) -> Launch:
    """The launch of one group of tiles. `plain`: C is the product and nothing else."""
    general = not plain
    macros = (
        ("STAGES", shape.stages),
        ("GENERAL", int(general)),
        ("ACTIVATION", ACTIVATIONS.index(work.activation) if general else 0),
        ("PARTS", int(group.parts)),
    )
    if work.dtype == "float64":
        shared = shape.stages * _DOUBLE_STAGE
        kernel = nvrtc.function("grouped_double", macros, work.ordinal, shared=shared)
    else:
        kernel = nvrtc.function("grouped_single", macros, work.ordinal)
    scratch = At(0, scratch=True) if group.parts else At(table_at)  # there is none: not looked at
    lists = (At(table_at), At(tiles_at + 16 * group.first))
    values = (*lists, *map(At, pieces_at), scratch)
    return in_order([Step(kernel, group.count, 32 * shape.warps, values)])
