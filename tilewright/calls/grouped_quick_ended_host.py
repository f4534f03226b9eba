"""Multiplies plain lists of NumPy's arrays at once where results are there, or a bias or relu
follows, without checks and plans of its own.

    one        into a result: NumPy's own question whether it lies apart
    others     read in machine code (backends/host/lists.py), then multiplied by a loop, or there,
               too, where that ends first
    without    into results alone: a few attributes of each array. Those that own their memory
               cannot share it, so that whose memory it is replaces where it lies

Columns of addresses, their overlap and a plan found again take 0.4 ms a call, in which NumPy
multiplies several hundred small products. To read them takes 0.8 us and 0.04 a product, and
`a.dot(b, out)` 0.6 us less than `numpy.matmul`.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any

import numpy as np

from tilewright import settings
from tilewright.arrays.array import NDArray
from tilewright.arrays.views import is_compiling
from tilewright.backends.host.backend import NO_ROOM
from tilewright.backends.host.lists import ZEROS, Held, Lists, ended
from tilewright.calls.grouped_quick_host import (
    COMPLEX,
    REAL,
    is_left_to_a_plan,
    is_worth_planning,
    lists_for,
    missed,
)
from tilewright.errors import DeviceMemoryError
from tilewright.inputs.as_tuple import as_tuple
from tilewright.planning.host_part import ZEROED
from tilewright.settings import DEVICE, VARIABLES

_PLAIN = np.ndarray
_KINDS = (*REAL, *COMPLEX)
_FEW = 6  # so many are a loop's
_ENDS, _LISTS, _OR_NONE = ("none", "relu"), (list, tuple), (list, tuple, type(None))
# Without a look at the operands' own ways of answering: 0.09 us instead of 0.21.
_may_share: Any = getattr(np.may_share_memory, "_implementation", np.may_share_memory)


def is_dot(x: Any, y: Any, z: Any) -> bool:
    """Whether NumPy's `dot` wrote this product, which it refuses where `z` is not what it would
    make; whether that lies apart is asked here."""
    if not type(x) is type(y) is type(z) is _PLAIN or is_compiling():
        return False
    kind = x.dtype
    if kind not in _KINDS or y.dtype is not kind or not x.ndim == y.ndim == 2:
        return False
    if z.size >= ZEROED or _may_share(z, x) or _may_share(z, y):
        return False
    try:
        x.dot(y, z)
    except ValueError:
        return False
    except MemoryError:
        raise DeviceMemoryError(NO_ROOM) from None
    return True


def ended_at_once(a: Any, b: Any, out: Any, bias: Any, activation: Any) -> Any:
    """Every a[i] @ b[i], ended, in `out` where that is given; None where nothing was written, and
    the batch is to be checked and planned like any other. `a` is a list or tuple, not empty."""
    if type(a[0]) is not _PLAIN or is_compiling():
        return None
    if DEVICE in VARIABLES and settings.device() != "host":
        return None
    if len(a) <= _FEW:
        if out is None:
            return few_ended(a, b, bias, activation)
        if bias is activation is None and type(b) is type(out) is list and _are_dots(a, b, out):
            return out
    if type(b) not in _LISTS or type(out) not in _OR_NONE or type(bias) not in _OR_NONE:
        return None
    ends = _ends_of(activation)
    if ends is None:
        return None
    # Another thread may change the lists.
    results = None if out is None else as_tuple(out)
    vectors = None if bias is None else as_tuple(bias)
    held: Held = (as_tuple(a), as_tuple(b), results, vectors)
    if not held[0] or type(held[0][0]) is not _PLAIN:
        return None
    kind = held[0][0].dtype
    by = lists_for(kind) if kind in REAL else None
    try:
        if by is None:
            plain = vectors is None and ends == "none" and results is not None
            done = _loop(held, ends, dots=False) if plain and _are_apart(held, kind) else None
        elif len(held[0]) > _FEW:
            done = _by_lists(by, held, ends)
        else:
            dots = by.looked(held, ends)
            done = None if dots is None else _loop(held, ends, dots=dots)
    except MemoryError:
        if out is None:
            return None  # the checks have the words for it
        raise DeviceMemoryError(NO_ROOM) from None
    return done if done is None or out is None else out


def _are_dots(a: Any, b: Any, out: Any) -> bool:
    """Whether NumPy's `dot` wrote these few products, in as few steps of the interpreter as there
    are: asked with all that may be given they take two products 0.4 us more."""
    # As `as_tuple`, of which three calls take 0.2 us.
    lefts, rights, results = (*a,), (*b,), (*out,)
    kind = a[0].dtype
    by = lists_for(kind) if kind in REAL else None
    if by is None or not by.looked((lefts, rights, results, None)):
        return False
    try:
        for x, y, z in zip(lefts, rights, results):  # noqa: B905 (as many as there are)
            x.dot(y, z)
    except MemoryError:
        raise DeviceMemoryError(NO_ROOM) from None
    return True


def _ends_of(activation: Any) -> str | None:
    """Its name, where NumPy has a function for it."""
    if activation is None:
        return "none"
    return activation if type(activation) is str and activation in _ENDS else None


def few_ended(a: Any, b: Any, bias: Any, activation: Any) -> list[NDArray] | None:
    """New results of few products, checked as they are made; None where the checks have the words
    for it."""
    ends = _ends_of(activation)
    if ends is None or type(b) not in _LISTS or type(bias) not in _OR_NONE:
        return None
    made: list[NDArray] = []
    relu, count = ends == "relu", len(a)
    if len(b) != count or (bias is not None and len(bias) != count):
        return None
    try:
        for x, y, shift in zip(a, b, bias or repeat(None)):  # noqa: B905
            if not type(x) is type(y) is _PLAIN or not x.ndim == y.ndim == 2:
                return None
            kind = x.dtype
            if y.dtype is not kind or kind not in REAL or (made and made[0].dtype is not kind):
                return None
            columns = y.shape[1]
            if shift is not None and not (
                type(shift) is _PLAIN and shift.dtype is kind and shift.shape == (columns,)
            ):
                return None
            made.append(_made(x, y, shift, relu, len(x) * columns < ZEROED))
    except (ValueError, MemoryError):
        return None
    return made if len(made) == count else None  # another thread may change the lists


def _by_lists(by: Lists, held: Held, ends: str) -> list[NDArray] | None:
    """What was read in machine code; None where that refuses, or a plan is worth its time."""
    read = by.read(held, ends)
    if read is None:
        return None
    if read.is_uneven and is_worth_planning(len(held[0]), read.flops):
        done = None
    elif read.is_uneven or not read.is_sooner:
        done = _loop(held, ends, dots=read.is_dots)
    else:
        done = read.multiply()
    read.leave()
    return done


def _loop(held: Held, ends: str, *, dots: bool) -> list[NDArray]:
    """Every product by NumPy, whose `dot` takes 0.6 us less than `matmul`, and zeros before the
    product: `dots` where it may make all of them."""
    a, b, out, bias = held
    relu = ends == "relu"
    if out is None:
        return [
            _made(x, y, shift, relu, dots or len(x) * y.shape[1] < ZEROED)
            for x, y, shift in zip(a, b, bias or repeat(None))  # noqa: B905
        ]
    if dots:
        for x, y, z in zip(a, b, out):  # noqa: B905 (as many as there are)
            x.dot(y, z)
    else:
        for x, y, z in zip(a, b, out):  # noqa: B905
            if z.size < ZEROED and z.flags.carray:
                x.dot(y, z)
            else:
                np.matmul(x, y, z)
    if bias is not None or ends != "none":
        for z, shift in zip(out, bias or repeat(None)):  # noqa: B905
            ended(z, shift, ends)
    return list(out)


def _made(x: NDArray, y: NDArray, shift: NDArray | None, relu: bool, is_small: bool) -> NDArray:
    """A product that is ended, in new memory."""
    made: NDArray = x.dot(y) if is_small else x @ y
    if shift is not None:
        # In place takes 0.3 us more, and pages of zeros more than that.
        made = made + shift if is_small else np.add(made, shift, made)
    if relu:
        np.maximum(made, ZEROS[made.dtype], out=made)
    return made


def _are_apart(held: Held, kind: Any) -> bool:
    """Whether, as far as attributes say, all are plain matrices that fit, and results lie for
    certain apart from each other and from the operands; and no plan is worth its time."""
    a, b, out, _ = held
    if kind not in _KINDS or out is None or not len(a) == len(b) == len(out):
        return False
    places = set(map(id, out))
    operations = 0
    for x, y, z in zip(a, b, out):  # noqa: B905 (as many as there are)
        if not type(x) is type(y) is type(z) is _PLAIN or not x.dtype is y.dtype is z.dtype is kind:
            return False
        flags = z.flags
        if x.ndim != 2 or y.ndim != 2 or not (flags.carray and flags.owndata):
            return False
        rows, inner = x.shape
        depth, columns = y.shape
        if inner != depth or z.shape != (rows, columns):
            return False
        for one in (x, y):
            owner = one if one.base is None else one.base
            if type(owner) is not _PLAIN or not owner.flags.owndata or id(owner) in places:
                return False
        operations += rows * inner * columns
    if len(places) != len(out):
        return False
    return kind in COMPLEX or not _is_left(len(out), operations, kind)


def _is_left(count: int, operations: int, kind: Any) -> bool:
    """Whether a plan is worth its time. Machine code that would have been faster by now is compiled
    beside."""
    missed(count, kind)
    return is_left_to_a_plan(count, operations, kind)
