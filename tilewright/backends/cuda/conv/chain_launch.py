"""Launches of chain_wgmma.cu: its parameters field by field, scratch between parts, the grid."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from tilewright.backends.cuda.conv import chain_pack, chain_whole
from tilewright.backends.cuda.conv.chain_plan import Part, counted, defines, grid, strips
from tilewright.backends.cuda.machine import nvrtc
from tilewright.engines.conv import ConvWork

Call = tuple[nvrtc.Function, int, int, nvrtc.Arguments]
_STAGES = 9


class Strides(ctypes.Structure):
    """`struct Strides` of kernels/conv/chain_layout.cuh."""

    _fields_ = [(name, ctypes.c_longlong) for name in ("image", "channel", "row", "column")]


class Chain(ctypes.Structure):
    """`struct Chain` there."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "out", "added", "blob")),
        *((name, Strides) for name in ("at_x", "at_out", "at_added")),
        ("counted", ctypes.c_longlong),
        *((name, ctypes.c_int) for name in ("height", "width", "strips", "unused")),
        *((name, ctypes.c_float * _STAGES) for name in ("low", "high", "step", "inverse")),
        *((name, ctypes.c_float) for name in ("taken", "least", "most")),
        *((name, ctypes.c_int) for name in ("zero", "shift")),
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Planes:
    """A picture of many channels between two kernels: [images, rows, channels / 8, columns, 8]."""

    tensor: Any

    @property
    def strides(self) -> Strides:
        """Elements from an image, plane, row and pixel to the next."""
        image, row, plane, pixel, _ = self.tensor.stride()
        return Strides(image, plane, row, pixel)

    def copy_(self, x: Any) -> None:
        """The planes of a tensor [N, C, H, W]; channels beyond its own keep what they hold."""
        whole = x.shape[1] // 8
        tensor = self.tensor
        if whole:
            given = x[:, : 8 * whole].unflatten(1, (whole, 8))
            tensor[:, :, :whole] = given.permute(0, 3, 1, 4, 2)
        if x.shape[1] % 8:
            rest = x[:, 8 * whole :].permute(0, 2, 3, 1)
            tensor[:, :, whole, :, : x.shape[1] % 8] = rest


def planes_shape(work: ConvWork, channels: int) -> tuple[int, int, int, int, int]:
    """Of `Planes`' tensor."""
    return work.images, work.height, -(-channels // 8), work.width, 8


def planes(work: ConvWork, channels: int, like: Any) -> Planes:
    """New planes, full of zeros: halves, of whole numbers too."""
    import torch

    kind = like.dtype if work.layers[0].whole is None else torch.float16
    return Planes(like.new_zeros(planes_shape(work, channels), dtype=kind))


def readable(x: Any) -> bool:
    """Whether a part can read a tensor [N, C, H, W] of many channels as it lies: by 16 bytes."""
    images, channels, rows, columns = x.stride()
    steps = (images, rows, columns, x.shape[1])
    return bool(channels == 1 and x.data_ptr() % 16 == 0 and not any(s % 8 for s in steps))


def prepared(
    name: str, part: Part, work: ConvWork, x: Any, out: Any, added: Any, units: int
) -> tuple[Call, Any]:
    """The part's kernel `name` for these: tensors [N, C, H, W] or `Planes`, as the part says.

    What a launch needs, and what must live as long.

    Raises BuildError or DeviceError.
    """
    given = x.tensor if isinstance(x, Planes) else x
    ordinal = given.device.index
    macros = defines(part, work.dtype, pairs=part.planes or paired(out, part))
    kernel = nvrtc.function(name, macros, ordinal, shared=part.places["SHARED"])
    blob = chain_pack.packed(part, work.dtype).to(given.device)
    parameters = Chain(
        x=given.data_ptr(),
        out=(out.tensor if isinstance(out, Planes) else out).data_ptr(),
        added=None if added is None else added.data_ptr(),
        blob=blob.data_ptr(),
        at_x=_strides(x, by_eight=not part.inputs),
        at_out=_strides(out),
        at_added=Strides() if added is None else _strides(added),
        counted=counted(part, work),
        height=work.height,
        width=work.width,
        strips=strips(part, work.width),
    )
    for i, layer in part.stages:
        parameters.low[i], parameters.high[i] = layer.activation.low, layer.activation.high
        if layer.whole is not None:
            chain_whole.fill(parameters, i, layer.whole)
    if part.layers[0].whole is not None:
        chain_whole.fill_source(parameters, part.layers[0].whole)
    arguments = nvrtc.Arguments((parameters,))
    return (kernel, grid(part, work, units), part.threads, arguments), (x, out, added, blob)


def paired(out: Any, part: Part) -> bool:
    """Whether outputs 2i and 2i + 1 of every pixel share an aligned word of 32 bits."""
    last = part.layers[-1]
    image, channel, row, column = out.stride()
    if last.outputs % 2 or out.data_ptr() % (2 * out.element_size()) or image % 2 or row % 2:
        return False
    if last.shuffle == 1:
        return bool(channel == 1 and column % 2 == 0)
    return bool(last.shuffle % 2 == 0 and column == 1 and channel % 2 == 0)


def _strides(x: Any, *, by_eight: bool = False) -> Strides:
    if isinstance(x, Planes):
        return x.strides
    image, channel, row, column = x.stride()
    return Strides(image, 8 * channel if by_eight else channel, row, column)
