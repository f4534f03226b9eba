"""Launches of the kernels that make 8-bit floats and int8."""

from __future__ import annotations

from typing import Any

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.fp8.triton import NATIVE
from tilewright.backends.cuda.fp8.work import BLOCK
from tilewright.backends.cuda.machine import driver, faults
from tilewright.backends.cuda.ragged.plan import ordinal_of

_ROWS, _STRIPS = (4, 1024), 32  # rows and k of a program's tile; rows where 128 of k share a scale
_SEARCHED = 1024  # groups at a time that are padded


def write(x: Any, values: Any, scales: Any, scale: str, groups: tuple[Any, Any] | None) -> None:
    """Quantise x [batch, rows, k] into bytes [batch, rows, pitch] and scales.

    Scales are [batch, rows], or with two or three dimensions [batch, rows or blocks, blocks of k].
    `groups` are ends in k, and memory for those once padded. Raises DeviceError, BuildError.
    """
    if not x.is_cuda:
        _launch(x, values, scales, scale, groups, native=False)
        return
    torch, ordinal = driver.need(), x.device.index
    if private.current_device(torch)() != ordinal:
        with torch.cuda.device(ordinal):
            write(x, values, scales, scale, groups)
        return
    capable = torch.version.hip is None and torch.cuda.get_device_capability(ordinal) >= NATIVE
    _launch(x, values, scales, scale, groups, native=capable)


def _launch(
    x: Any, values: Any, scales: Any, scale: str, groups: tuple[Any, Any] | None, *, native: bool
) -> None:
    import torch

    from tilewright.backends.cuda.kernels.triton import fp8_quantise as kernels

    batch, rows, k = x.shape
    common = {"E5M2": values.dtype == torch.float8_e5m2, "NATIVE": native}
    bytes_ = values.view(torch.uint8)
    lies = (*x.stride(), *values.stride()[:2])
    if scale == "row":
        tile, along = _ROWS
        if batch * rows:
            kernels.quantise_rows[(batch * -(-rows // tile),)](
                x, bytes_, scales, rows, k, *lies, **common, INT8=values.dtype == torch.int8,
                TILE_R=tile, TILE_K=along, num_warps=4,
            )  # fmt: skip
        return
    ends, padded = groups or (scales, scales)
    count, step = (ends.shape[0], ends.stride(0)) if groups else (0, 0)
    if groups and count:
        flag = faults.flag(ordinal_of(x))
        kernels.pad_groups[(1,)](ends, padded, flag, k, count, step, BLOCK=_SEARCHED)
    square, blocks = scale == "128x128", scales.shape[2]
    tile = BLOCK if square else _STRIPS
    wide = tile * x.stride(1) + BLOCK * x.stride(2) >= 2**31
    programs = batch * -(-rows // tile) * blocks
    if programs:
        kernels.quantise_blocks[(programs,)](
            x, bytes_, scales, ends, padded, rows, k, values.shape[2], blocks, count, step, *lies,
            *scales.stride(), SCALE=2 if square else 1, PADDED=groups is not None, **common,
            TILE_R=tile, WIDE=wide, num_warps=16 if square else 8,
        )  # fmt: skip
