"""Launches of chain_wgmma.cu: its parameters field by field, scratch between parts, the grid."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.backends.cuda.conv import chain_pack
from tilewright.backends.cuda.conv.chain_plan import MARGIN, Part, defines, grid, strips
from tilewright.backends.cuda.machine import nvrtc
from tilewright.engines.conv import ConvWork

Launch = Callable[[], None]
_STAGES = 9


class Strides(ctypes.Structure):
    """`struct Strides` of kernels/conv/chain_layout.cuh."""

    _fields_ = [(name, ctypes.c_longlong) for name in ("image", "channel", "row", "column")]


class Chain(ctypes.Structure):
    """`struct Chain` there."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "out", "added", "blob")),
        *((name, Strides) for name in ("at_x", "at_out", "at_added")),
        *((name, ctypes.c_longlong) for name in ("rows", "zero_row")),
        *((name, ctypes.c_int) for name in ("height", "width", "strips", "unused")),
        *((name, ctypes.c_float * _STAGES) for name in ("low", "high")),
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Planes:
    """A picture of many channels as the copy engine reads it: [row][8 channels][column][8].

    Columns begin with `MARGIN` zeros and end with as many as the last strip reaches too far; the
    last row is zeros, and stands for those above and below the picture.
    """

    tensor: Any
    height: int
    width: int

    @property
    def strides(self) -> Strides:
        """Elements from an image, plane, row and pixel to the next."""
        row, plane, pixel, _ = self.tensor.stride()
        return Strides(row * self.height, plane, row, pixel)

    @property
    def zero_row(self) -> int:
        """Where the row of zeros begins, in elements."""
        return int((self.tensor.shape[0] - 1) * self.tensor.stride(0))

    def copy_(self, x: Any) -> None:
        """The planes of a tensor [N, C, H, W]."""
        images, channels, height, width = x.shape
        inside = self.tensor[:-1].view(images, height, *self.tensor.shape[1:])
        inside = inside[..., MARGIN : MARGIN + width, :]
        whole = channels // 8
        if whole:
            inside[:, :, :whole] = x[:, : 8 * whole].unflatten(1, (whole, 8)).permute(0, 3, 1, 4, 2)
        if channels % 8:
            inside[:, :, whole, :, : channels % 8] = x[:, 8 * whole :].permute(0, 2, 3, 1)


def planes_shape(work: ConvWork, channels: int, reach: int) -> tuple[int, int, int, int]:
    """Of `Planes`' tensor; `reach`: columns that strips have together."""
    return work.images * work.height + 1, channels // 8, MARGIN + reach + 64, 8


def planes(work: ConvWork, channels: int, reach: int, like: Any) -> Planes:
    """New planes, full of zeros."""
    shape = planes_shape(work, channels, reach)
    return Planes(like.new_zeros(shape), work.height, work.width)


def prepared(part: Part, work: ConvWork, x: Any, out: Any, added: Any, units: int) -> Launch:
    """The part's kernel for these: tensors [N, C, H, W] or `Planes`, as the part says.

    Raises BuildError or DeviceError.
    """
    given = x.tensor if isinstance(x, Planes) else x
    ordinal = given.device.index
    macros = defines(part, work.dtype, pairs=not part.planes and paired(out, part))
    kernel = nvrtc.function("chain_wgmma", macros, ordinal, shared=part.places["SHARED"])
    blob = chain_pack.packed(part, work.dtype).to(given.device)
    parameters = Chain(
        x=given.data_ptr(),
        out=(out.tensor if isinstance(out, Planes) else out).data_ptr(),
        added=None if added is None else added.data_ptr(),
        blob=blob.data_ptr(),
        at_x=_strides(x),
        at_out=_strides(out),
        at_added=Strides() if added is None else _strides(added),
        rows=work.images * work.height * strips(part, work.width),
        zero_row=x.zero_row if isinstance(x, Planes) else 0,
        height=work.height,
        width=work.width,
        strips=strips(part, work.width),
    )
    for i, layer in enumerate(part.layers, 0 if part.inputs else 1):
        parameters.low[i], parameters.high[i] = layer.activation.low, layer.activation.high
    arguments = nvrtc.Arguments((parameters,))
    blocks = grid(part, work, units)

    def launch(keep: Any = (x, out, added, blob)) -> None:
        kernel.launch(blocks, part.threads, arguments)

    return launch


def paired(out: Any, part: Part) -> bool:
    """Whether outputs 2i and 2i + 1 of every pixel share an aligned word of 32 bits."""
    last = part.layers[-1]
    image, channel, row, column = out.stride()
    if last.outputs % 2 or out.data_ptr() % 4 or image % 2 or row % 2:
        return False
    if last.shuffle == 1:
        return bool(channel == 1 and column % 2 == 0)
    return bool(last.shuffle % 2 == 0 and column == 1 and channel % 2 == 0)


def _strides(x: Any) -> Strides:
    return x.strides if isinstance(x, Planes) else Strides(*x.stride())
