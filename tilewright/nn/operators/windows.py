"""Windows over pictures of any number of dimensions: pads, how many fit, and what each meets.

    |pad| x0 x1 x2 x3 x4 |pad|        kernel 3, stride 2, dilation 1: windows begin at 0, 2, 4
     [------]
           [------]
                 [------]

Convolutions and pools share these; attributes are those of ONNX's Conv, MaxPool, AveragePool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tilewright.errors import ShapeError
from tilewright.nn.graph import Shape


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along every spatial dimension.

    pads   begin of each dimension, then end of each, as ONNX has them
    whole  a window that sticks out at the end is left out (ceil_mode is 0)
    """

    kernel: Shape
    strides: Shape
    dilations: Shape
    pads: Shape
    whole: bool = True

    def reach(self, at: int) -> int:
        """Elements from a window's first to its last."""
        return self.dilations[at] * (self.kernel[at] - 1) + 1

    def counts(self, sizes: Shape) -> Shape:
        """How many windows there are along each dimension. Raises ShapeError where there is none.

        A window that begins in the pad at the end is none, as in torch and onnxruntime; a first one
        that is larger than all of the picture sticks out at the end like others.
        """
        rank = len(self.kernel)
        found = []
        for at, size in enumerate(sizes):
            begin, end = self.pads[at], self.pads[at + rank]
            room = size + begin + end - self.reach(at)
            count = (room if self.whole else room + self.strides[at] - 1) // self.strides[at] + 1
            if count < 1 or (self.whole and room < 0):
                raise ShapeError(
                    f"a window of {self.reach(at)} on {size} elements padded by {begin} and {end};"
                    " accepted are windows that fit"
                )
            if not self.whole and (count - 1) * self.strides[at] >= size + begin:
                count -= 1
            found.append(count)
        return tuple(found)

    def padded(self, shape: Shape) -> Shape:
        """Sizes of a picture [N, C, ...] with its pads."""
        rank = len(self.kernel)
        inner = zip(self.pads[:rank], shape[2:], self.pads[rank:], strict=True)
        return (*shape[:2], *map(sum, inner))

    def taps(self, counts: Shape) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """For each element of the window its place there, and what of a padded picture it meets."""
        for place in product(*map(range, self.kernel)):
            starts = [p * d for p, d in zip(place, self.dilations, strict=True)]
            yield (
                place,
                tuple(
                    slice(start, start + (count - 1) * stride + 1, stride)
                    for start, count, stride in zip(starts, counts, self.strides, strict=True)
                ),
            )


def windows_of(attributes: Mapping[str, Any], kernel: Shape, sizes: Shape) -> Windows:
    """The windows that a node's attributes describe, on a picture of these sizes.

    Raises ShapeError for attributes of another rank, or numbers below what is possible.
    """
    rank = len(sizes)
    strides = _numbers(attributes, "strides", rank, 1, 1)
    dilations = _numbers(attributes, "dilations", rank, 1, 1)
    pads = _numbers(attributes, "pads", 2 * rank, 0, 0)
    if len(kernel) != rank:
        raise ShapeError(f"kernel {list(kernel)} on {rank} dimensions; accepted are as many")
    if min(kernel, default=1) < 1:
        raise ShapeError(f"kernel {list(kernel)}; accepted are sizes of 1 and more")
    mode = attributes.get("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = (0,) * (2 * rank)
    elif mode != "NOTSET":
        pads = _same(mode, kernel, strides, dilations, sizes)
    return Windows(kernel, strides, dilations, pads, not attributes.get("ceil_mode", 0))


def _numbers(
    attributes: Mapping[str, Any], name: str, count: int, default: int, least: int
) -> Shape:
    found = tuple(attributes.get(name) or (default,) * count)
    if len(found) != count or min(found, default=least) < least:
        raise ShapeError(f"{name}={list(found)}: accepted are {count} numbers from {least}")
    return found


def _same(mode: str, kernel: Shape, strides: Shape, dilations: Shape, sizes: Shape) -> Shape:
    """Pads such that a picture gives as many windows as it has elements, divided by the stride."""
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise ShapeError(
            f"auto_pad={mode!r}: accepted are NOTSET, SAME_UPPER, SAME_LOWER and VALID"
        )
    begins, ends = [], []
    for k, stride, dilation, size in zip(kernel, strides, dilations, sizes, strict=True):
        count = -(-size // stride)
        total = max(0, (count - 1) * stride + dilation * (k - 1) + 1 - size)
        small, large = total // 2, total - total // 2
        begins.append(large if mode == "SAME_LOWER" else small)
        ends.append(small if mode == "SAME_LOWER" else large)
    return (*begins, *ends)


def padded(xp: Any, x: Any, pads: Shape, value: float) -> Any:
    """x [N, C, ...] with `value` around its spatial dimensions, in the order that x has in memory.

    One array is made and x copied into it: by parts put together, 17 times as slow in NumPy.
    """
    rank = len(pads) // 2
    if not any(pads):
        return x
    sizes = tuple(x.shape)
    begins, ends = pads[:rank], pads[rank:]
    inner = zip(begins, sizes[-rank:], ends, strict=True)
    made = filled(xp, x, (*sizes[:-rank], *(sum(part) for part in inner)), value)
    kept = (slice(b, b + size) for b, size in zip(begins, sizes[-rank:], strict=True))
    made[(..., *kept)] = x
    return made


def filled(xp: Any, like: Any, shape: Shape, value: float) -> Any:
    """An array of `value`, of the type, the device and in NumPy the order in memory of another."""
    if xp is np:
        return np.full_like(like, value, shape=shape)
    return xp.full(shape, value, dtype=like.dtype, device=like.device)
