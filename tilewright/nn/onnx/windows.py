"""Turns the windows and pads of ONNX's nodes into ours, in every way that ONNX writes them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.onnx.graph import Node
from tilewright.nn.onnx.table import FLAG, list_of, one_of
from tilewright.nn.window import Window

WINDOW = {
    "auto_pad": one_of("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
    "kernel_shape": list_of(2, 1),
    "pads": list_of(4, 0),
    "strides": list_of(2, 1),
}
POOL = {**WINDOW, "ceil_mode": FLAG, "dilations": one_of([1, 1])}
_LARGEST_PAD = 1 << 12


def window_of(node: Node, kernel: Sequence[int], size: tuple[int, int]) -> Window:
    """The window of a convolution or a pool over images of `size` (height, width)."""
    get = node.attributes.get
    if len(kernel) != 2:
        raise FileError(f"a kernel of {len(kernel)} dimensions; accepted are images of two")
    if list(get("kernel_shape") or kernel) != list(kernel):
        raise FileError(f"kernel_shape={get('kernel_shape')}, weights of {list(kernel)}")
    strides, dilations = get("strides") or [1, 1], get("dilations") or [1, 1]
    reach = [dilations[axis] * (kernel[axis] - 1) + 1 for axis in (0, 1)]
    pads = _pads(node, reach, strides, size)
    if get("ceil_mode", 0):
        if get("auto_pad") != "NOTSET":
            raise FileError("ceil_mode with auto_pad; accepted is one of them")
        pads = _ceiled(pads, reach, strides, size)
    return Window(
        (int(kernel[0]), int(kernel[1])),
        (int(strides[0]), int(strides[1])),
        (int(dilations[0]), int(dilations[1])),
        (pads[0], pads[1], pads[2], pads[3]),
    )


def _pads(
    node: Node, reach: Sequence[int], strides: Sequence[int], size: tuple[int, int]
) -> list[int]:
    """Top, left, bottom, right, as given or as `auto_pad` computes them."""
    way, given = node.attributes["auto_pad"], node.attributes.get("pads")
    if way == "NOTSET":
        return list(given or [0] * 4)
    if given is not None and any(given):
        raise FileError(f"auto_pad={way!r} and pads={given}; accepted is one of them")
    pads = [0] * 4
    if way == "VALID":
        return pads
    for axis in (0, 1):
        count = -(-size[axis] // strides[axis])
        total = max(0, (count - 1) * strides[axis] + reach[axis] - size[axis])
        less, more = total // 2, total - total // 2
        pads[axis], pads[axis + 2] = (less, more) if way == "SAME_UPPER" else (more, less)
    return pads


def _ceiled(
    pads: list[int], reach: Sequence[int], strides: Sequence[int], size: Sequence[int]
) -> list[int]:
    """Pads with which rounding down gives what rounding up gave; no window begins in a pad."""
    wider = list(pads)
    for axis in (0, 1):
        room = size[axis] + pads[axis] + pads[axis + 2] - reach[axis]
        count = -(-room // strides[axis]) + 1
        if (count - 1) * strides[axis] >= size[axis] + pads[axis]:
            count -= 1
        needed = (count - 1) * strides[axis] + reach[axis] - size[axis] - pads[axis]
        wider[axis + 2] = max(pads[axis + 2], needed)
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
