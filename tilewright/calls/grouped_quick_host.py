"""Multiplies plain lists of NumPy's arrays at once, without checks and plans of their own.

    up to six    one after another, checked as they are made
    more         read in machine code (backends/host/lists.py), then multiplied there, what is large
                 by NumPy's BLAS, or all by a loop where that ends first; None where threads would
                 wait for one that cannot be cut along k: a plan cuts it

Checked columns, tables and a launch of buffers that the driver has not seen take about 1.3 ms and
1 µs a product more than a bound plan's launch, a product of NumPy's 0.5 µs where it is asked as
`a.dot(b)` (0.8 as `a @ b`). What a kernel saves beside that is a part of each operation's time
(planning/host_part.py). One product takes 1.4 µs, so what is asked of a few is asked in as few
steps of the interpreter as there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import settings
from tilewright.arrays.addresses import Column
from tilewright.arrays.array import NDArray
from tilewright.arrays.views import is_compiling, loaded_torch
from tilewright.backends.host.compiled import available
from tilewright.backends.host.grouped import is_compiled
from tilewright.backends.host.lists import DTYPES, Lists, are_uneven, lists_of
from tilewright.calls.grouped_engines import is_ready
from tilewright.facts.device import Device
from tilewright.inputs.as_tuple import as_tuple
from tilewright.inputs.devices import host, resolve
from tilewright.planning.host_part import (
    SIDE_OF_LISTS,
    SMALL,
    ZEROED,
    large,
    saved,
    saved_by_lists,
)
from tilewright.remember import forgets
from tilewright.settings import DEVICE, VARIABLES

_PLAIN = np.ndarray
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
REAL = (_SINGLE, _DOUBLE)
COMPLEX = (np.dtype(np.complex64), np.dtype(np.complex128))  # of these none but NumPy has kernels
_FIXED = 1.5e-3
_PRODUCT = 1e-6  # a product's share of columns and tables beyond that of a call of NumPy's
_lists: dict[Any, Lists] = {}  # by dtype, as devices are looked for in 5 µs
forgets(_lists.clear)
_WORTH_COMPILING = 2e-4  # seconds a call that machine code saves
# Seconds that checks of each array take longer a product than to read it in machine code; how many
# of them over all calls are worth compiling it.
_CHECKED, _WORTH_IN_ALL = 7e-7, 0.1
_lost = 0.0
_NAMES = {_SINGLE: "float32", _DOUBLE: "float64"}  # to ask a dtype takes 1 us
_FEW = 6  # of these BLAS's own threads make the most


def at_once(a: Any, b: Any) -> list[NDArray] | None:
    """Every a[i] @ b[i], or None where the batch is to be checked and planned like any other.

    Takes lists or tuples that are not empty. Few products are checked as they are made.
    """
    count = len(a)
    if (type(b) is not list and type(b) is not tuple) or len(b) != count:
        return None
    if count > _FEW:
        return _many(a, b)
    found: list[NDArray] = []
    dtype: Any = _SINGLE
    try:
        for x, y in zip(a, b):  # noqa: B905 (naming `strict` takes 0.2 µs)
            if type(x) is not _PLAIN or type(y) is not _PLAIN or x.ndim != 2:
                return None
            kind = x.dtype
            if kind is not dtype:
                if found or (kind is not _DOUBLE and kind not in COMPLEX):
                    return None
                dtype = kind
            if y.dtype is not kind:
                return None
            _, columns = y.shape  # a ValueError where there are not two
            found.append(x.dot(y) if len(x) * columns < ZEROED else x @ y)
    except (ValueError, MemoryError):
        return None  # the checks have the words for it
    return found if len(found) == count else None  # another thread may change the lists


def is_host_anyway(device: Any, a: Any) -> bool:
    """Whether a name means the host, and these first operands, where none is named, are its, too:
    they lie there, and TILEWRIGHT_DEVICE says nothing else."""
    if not (
        device == "host" if type(device) is str else type(device) is Device and _is_host(device)
    ):
        return False
    if DEVICE in VARIABLES and settings.device() not in (None, "host"):
        return False
    if (type(a) is not list and type(a) is not tuple) or not a:
        return False
    first = a[0]
    if type(first) is _PLAIN:
        return True
    torch = loaded_torch()
    return torch is not None and isinstance(first, torch.Tensor) and first.is_cpu


def _is_host(device: Device) -> bool:
    """To ask every fact of a device takes 1 us."""
    own = host()
    return device is own or device == own


# What multiplies other plain lists at once, by the type of the first matrix.
WAYS: dict[type, Callable[[Any, Any], list[Any] | None]] = {_PLAIN: at_once}


def first_met(a: Any, b: Any) -> list[Any] | None:
    """Lists of which no way is known: torch's tensors have one, which is noted down with the first.

    None for any others, and where a compiler looks on.
    """
    torch = loaded_torch()
    if torch is None:
        return None
    if type(a[0]) not in (torch.Tensor, torch.nn.Parameter) or torch.compiler.is_compiling():
        return None
    from tilewright.calls import grouped_quick_tensors as tensors

    tensors.join(WAYS)
    return tensors.few(a, b)


def _many(a: Any, b: Any) -> list[NDArray] | None:
    """More than a few: read in machine code where it is there, and multiplied by it where a loop
    would end later."""
    held = as_tuple(a), as_tuple(b)  # another thread may change the lists
    if len(held[0]) != len(held[1]) or not held[0] or type(held[0][0]) is not _PLAIN:
        return None
    if is_compiling():
        return None  # a compiler would follow every step
    kind = held[0][0].dtype
    if kind in COMPLEX:
        return _looped(*held, kind)
    if kind is not _SINGLE and kind is not _DOUBLE:
        return None
    by = lists_for(kind)
    read = None if by is None else by.read((*held, None, None))
    if read is None:
        return _looped(*held, kind)
    if read.is_uneven and is_worth_planning(len(held[0]), read.flops):
        found = None
    elif read.is_uneven or not read.is_sooner:
        found = _loop(*held, dots=read.is_dots)
    else:
        found = read.multiply()
    read.leave()
    return found


def lists_for(kind: Any) -> Lists | None:
    """What multiplies lists in machine code, where that is there and no other device is meant."""
    if DEVICE in VARIABLES and settings.device() != "host":
        return None
    return _lists.get(kind) or _first_lists(kind)


def _first_lists(kind: Any) -> Lists | None:
    name = _NAMES[kind]
    if not is_compiled(name) or resolve(None).kind != "cpu":
        return None
    found = lists_of(host(), name)
    if found is not None:
        _lists[kind] = found
    return found


def _looped(a: tuple[Any, ...], b: tuple[Any, ...], kind: Any) -> list[NDArray] | None:
    """Every product by a loop, None where one is not of plain matrices of a kind, or a plan is
    worth its time. Machine code that would be faster is compiled beside."""
    operations = largest = 0
    for x, y in zip(a, b):  # noqa: B905 (as many as there are)
        if type(x) is not _PLAIN or type(y) is not _PLAIN or x.ndim != 2 or y.ndim != 2:
            return None
        if not x.dtype is y.dtype is kind:
            return None
        columns = y.shape[1]
        operations += x.size * columns
        made = len(x) * columns
        if made > largest:
            largest = made
    # Where there is no kernel a plan would be this loop. Asking takes as long as some products.
    if kind not in COMPLEX:
        if is_left_to_a_plan(len(a), operations, kind):
            return None
        if saved(len(a), 2.0 * operations) > _WORTH_COMPILING:
            is_ready(resolve(None), kind.name)  # compiles beside
        missed(len(a), kind)
    return _loop(a, b, dots=largest < ZEROED)


def missed(count: int, kind: Any) -> None:
    """So many products were looked at without machine code, which is compiled beside once that has
    taken as long as is worth it."""
    global _lost
    _lost += _CHECKED * count
    if _lost > _WORTH_IN_ALL:
        _lost = 0.0
        is_ready(resolve(None), kind.name)


def _loop(a: tuple[Any, ...], b: tuple[Any, ...], *, dots: bool) -> list[NDArray] | None:
    """`dots`: whether NumPy's `dot` may make all of them. None where the checks have the words."""
    pairs = zip(a, b)  # noqa: B905 (as many as there are)
    try:
        if dots:
            return [x.dot(y) for x, y in pairs]
        return [x.dot(y) if len(x) * y.shape[1] < ZEROED else x @ y for x, y in pairs]
    except (ValueError, MemoryError):
        return None


def is_worth_planning(count: int, flops: float) -> bool:
    """Whether a kernel saves more than it costs to reach it, plan and kernel found again."""
    return count > _FEW and saved(count, flops) > _FIXED + _PRODUCT * count


def is_left_to_a_plan(count: int, operations: int, kind: Any) -> bool:
    """Whether that is worth it for so many multiplications, and the kernel is compiled by now."""
    return is_worth_planning(count, 2.0 * operations) and is_ready(resolve(None), kind.name)


def unbound(device: Device, dtype: str, sizes: tuple[Column, Column, Column]) -> str:
    """What `at_once` does with NumPy's matrices of these sizes once all is compiled: "lists",
    "loop", or "plan", which is what it leaves to one."""
    m, n, k = sizes
    flops = 2.0 * m.astype(float) * n * k
    count, total = len(m), float(flops.sum())
    planned = "plan" if is_worth_planning(count, total) else "loop"
    has_lists = dtype in DTYPES and device.kind == "cpu" and available()
    if count <= _FEW or not has_lists:
        return planned
    if are_uneven(host(), dtype, sizes):
        return planned
    others = ~large(m, n, k, SIDE_OF_LISTS)
    listed = float(np.minimum(flops[others], SMALL).sum())
    return "lists" if saved_by_lists(int(others.sum()), listed) > 0 else "loop"
