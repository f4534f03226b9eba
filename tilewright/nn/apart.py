"""Whether arrays that a caller passes lie apart: what is written may share no element with others.

out[0]  |-#-#-#-|        NumPy compares addresses and reads nothing, so that the arrays of any
out[1]   |-#-#-#-|       library stand there as NumPy's, at their own addresses: exact
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.arrays.array import Array, NDArray
from tilewright.arrays.views import is_pyopencl, view
from tilewright.errors import OverlapError
from tilewright.inputs.overlap import overlaps_itself, place
from tilewright.nn.kinds import is_tensor

_HOST = "the host's"
_MOST_WORK: Any = 100_000  # steps of the exact search, which may take exponential time


def check_single(array: Any, name: str) -> None:
    """Raise OverlapError where two elements of what is to be written share a place."""
    found = _standing(array)
    if found is None:
        return
    shape, steps, size = found[1].shape, found[1].strides, found[1].itemsize
    if overlaps_itself((*shape, size), (*steps, 1)):  # in bytes: steps may be no whole elements
        raise OverlapError(
            f"{name}: overlaps itself, in shape {list(shape)} by steps of {list(steps)} bytes;"
            " accepted are strides that give each element its own place"
        )


def check_apart(outs: tuple[Any, ...], given: Mapping[str, Any]) -> None:
    """Of several outputs none may lie where another, or an input, does: one is written first."""
    if len(outs) == 1:
        return
    written = {f"out[{at}]": _standing(one) for at, one in enumerate(outs) if one is not None}
    if not written:
        return
    others = {**written, **{f"input {name!r}": _standing(one) for name, one in given.items()}}
    for name, one in written.items():
        for other, two in others.items():
            if other != name and _share(one, two):
                raise OverlapError(f"{name} shares memory with {other}; accepted are apart")


def _share(one: tuple[object, NDArray] | None, two: tuple[object, NDArray] | None) -> bool:
    if one is None or two is None or one[0] != two[0]:
        return False
    if not np.may_share_memory(one[1], two[1]):
        return False
    try:
        return np.shares_memory(one[1], two[1], max_work=_MOST_WORK)
    except np.exceptions.TooHardError:
        return True


def _standing(array: Any) -> tuple[object, NDArray] | None:
    """Whose memory an array lies in, and a NumPy array of its addresses, never to be read.

    None for a kind that does not say where it lies.
    """
    if isinstance(array, np.ndarray):
        return _HOST, array
    if is_tensor(array):
        size = array.element_size()
        steps = [step * size for step in array.stride()]
        return _HOST, _addresses(array.data_ptr(), tuple(array.shape), steps, size)
    if is_pyopencl(array):
        memory, start = place(array.base_data)
        begin, size = start + array.offset, array.dtype.itemsize
        return memory, _addresses(begin, array.shape, list(array.strides), size)
    if isinstance(array, Array):
        seen = view(array, "out")
        if seen.host:
            return _HOST, seen.memory
        memory, start = place(seen.memory)
        size = seen.dtype.itemsize
        steps = [step * size for step in seen.strides]
        return memory, _addresses(start + seen.offset * size, seen.shape, steps, size)
    if type(array).__module__.partition(".")[0] == "cupy":
        size = array.dtype.itemsize
        return _HOST, _addresses(array.data.ptr, array.shape, list(array.strides), size)
    return None


def _addresses(begin: int, shape: tuple[int, ...], steps: list[int], size: int) -> NDArray:
    """An array that claims to lie there. A GPU's addresses are none of the host's."""
    return np.asarray(_Claim(begin, shape, steps, size))


class _Claim:
    """What NumPy asks of memory that is not its own."""

    def __init__(self, begin: int, shape: tuple[int, ...], steps: list[int], size: int) -> None:
        self.__array_interface__ = {
            "data": (begin, True),
            "shape": tuple(shape),
            "strides": tuple(steps),
            "typestr": f"|V{size}",
            "version": 3,
        }
