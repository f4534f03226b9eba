"""Turns the windows and pads of ONNX's nodes into ours, in every way that ONNX writes them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.operators.windows import Windows, windows_of
from tilewright.nn.window import Window

_LARGEST_PAD = 1 << 12


def window_of(node: Node, kernel: Sequence[int], size: tuple[int, int]) -> Window:
    """The window of a convolution or a pool over images of `size` (height, width)."""
    get = node.attributes.get
    if get("auto_pad") != "NOTSET":
        if any(get("pads") or ()):
            raise FileError(
                f"auto_pad={get('auto_pad')!r} and pads={get('pads')}; accepted is one of them"
            )
        if get("ceil_mode", 0):
            raise FileError("ceil_mode with auto_pad; accepted is one of them")
    found = windows_of(node.attributes, (int(kernel[0]), int(kernel[1])), size)
    top, left, bottom, right = found.pads if found.whole else _ceiled(found, size)
    return Window(
        (int(kernel[0]), int(kernel[1])),
        (found.strides[0], found.strides[1]),
        (found.dilations[0], found.dilations[1]),
        (top, left, bottom, right),
    )


def _ceiled(found: Windows, size: tuple[int, int]) -> list[int]:
    """Pads with which rounding down gives what rounding up gave; no window begins in a pad."""
    wider = list(found.pads)
    for axis, count in enumerate(found.counts(size)):
        end = (count - 1) * found.strides[axis] + found.reach(axis) - found.pads[axis]
        wider[axis + 2] = max(wider[axis + 2], end - size[axis])
    return wider


def pads_of(node: Node, given: Sequence[NDArray | None]) -> tuple[tuple[int, int, int, int], float]:
    """Top, left, bottom, right of a Pad, and what is put there; `given` are its inputs."""
    amounts, number, axes = given
    if axes is not None:
        raise FileError(f"axes={axes.tolist()}; accepted are pads for every axis")
    get = node.attributes.get
    pads = [int(pad) for pad in (get("pads", ()) if amounts is None else amounts.reshape(-1))]
    if len(pads) != 8 or pads[0] or pads[1] or pads[4] or pads[5] or min(pads) < 0:
        raise FileError(f"pads={pads}; accepted are rows and columns around images")
    if max(pads) > _LARGEST_PAD:
        raise FileError(f"pads={pads}; accepted are up to {_LARGEST_PAD}")
    value = get("value", 0.0) if number is None else float(number.reshape(()))
    return (pads[2], pads[3], pads[6], pads[7]), float(value)
