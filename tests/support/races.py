"""Watches programs of Triton's interpreter for races: an address that two of one launch touch.

The interpreter runs the programs of a launch one after another, so what they do to each other stays
unseen there: here every address is noted with the program that wrote or read it, and a launch ends
in RaceError where one program wrote what another wrote or read. Of atomic operations the order is
nobody's, so they count as writes only beside what is not atomic. One address is left out: the flag
of faults.py is one word, in which any program that found something wrong may be the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_Seen = list[tuple[int, Any]]  # a program, and the addresses that it touched


class RaceError(AssertionError):
    """Two programs of one launch touch an address that one of them writes."""


class Watch:
    """What programs of a launch have touched; one at a time, as the interpreter's are."""

    def __init__(self, builder: Any, flag: int) -> None:
        """`builder`: the interpreter's, whose loads and stores are seen from now on.

        `flag`: an address that any program may write.
        """
        self._program, self._flag = 0, flag
        self.clear()
        load, store = builder.create_masked_load, builder.create_masked_store
        rmw, cas = builder.create_atomic_rmw, builder.create_atomic_cas
        place = builder.set_grid_idx

        def next_program(*at: int) -> None:
            self._program += 1
            place(*at)

        def seen_load(ptrs: Any, mask: Any, *more: Any) -> Any:
            self._note(self._reads, ptrs, mask)
            return load(ptrs, mask, *more)

        def seen_store(ptrs: Any, value: Any, mask: Any, *more: Any) -> Any:
            self._note(self._writes, ptrs, mask)
            return store(ptrs, value, mask, *more)

        def seen_rmw(operation: Any, ptr: Any, value: Any, mask: Any, *more: Any) -> Any:
            self._note(self._atomics, ptr, mask)
            return rmw(operation, ptr, value, mask, *more)

        def seen_cas(ptr: Any, *more: Any) -> Any:
            self._note(self._atomics, ptr, None)
            return cas(ptr, *more)

        builder.set_grid_idx = next_program
        builder.create_masked_load, builder.create_masked_store = seen_load, seen_store
        builder.create_atomic_rmw, builder.create_atomic_cas = seen_rmw, seen_cas

    def clear(self) -> None:
        """Forget what was seen: another launch begins."""
        self._reads: _Seen = []
        self._writes: _Seen = []
        self._atomics: _Seen = []

    def _note(self, seen: _Seen, ptrs: Any, mask: Any) -> None:
        addresses = np.asarray(ptrs.data).ravel()
        if mask is not None:
            addresses = addresses[np.broadcast_to(mask.data, ptrs.data.shape).ravel()]
        if addresses.size and addresses[0] != self._flag:
            seen.append((self._program, addresses))

    def check(self, name: str) -> None:
        """Raise RaceError where programs of the launch of `name` touched each other's memory."""
        writes, reads, atomics = map(_flat, (self._writes, self._reads, self._atomics))
        self.clear()
        for what, ours, theirs in (
            ("write", writes, writes),
            ("write and read", writes, reads),
            ("write and count at", writes, atomics),
            ("count at and read", atomics, reads),
        ):
            at = _shared(ours, theirs)
            if at is not None:
                raise RaceError(f"{name}: two programs {what} address {at:#x}")


def _flat(seen: _Seen) -> tuple[Any, Any]:
    """Addresses with their programs, sorted, each pair once."""
    if not seen:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    addresses = np.concatenate([one for _, one in seen]).astype(np.uint64)
    programs = np.repeat([program for program, _ in seen], [one.size for _, one in seen])
    order = np.lexsort((programs, addresses))
    addresses, programs = addresses[order], programs[order]
    new = np.ones(addresses.size, bool)
    new[1:] = (addresses[1:] != addresses[:-1]) | (programs[1:] != programs[:-1])
    return addresses[new], programs[new]


def _shared(ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> int | None:
    """An address of both with different programs, if there is one."""
    addresses, programs = theirs
    first = np.searchsorted(addresses, ours[0], "left")
    last = np.searchsorted(addresses, ours[0], "right")
    lone = np.minimum(first, max(addresses.size - 1, 0))
    other = (last - first > 1) | (
        (last > first) & (programs[lone] != ours[1]) if addresses.size else False
    )
    where = np.flatnonzero(other)
    return int(ours[0][where[0]]) if where.size else None


def watch() -> None:
    """See every launch of the interpreter from now on; the launch that has a race raises."""
    from triton.runtime import interpreter

    from tilewright.backends.cuda.machine import faults
    from tilewright.backends.cuda.machine.triton_launch import INTERPRETED

    watched = Watch(interpreter.interpreter_builder, faults.flag(INTERPRETED).data_ptr())
    call = interpreter.GridExecutor.__call__

    def checked(self: Any, *arguments: Any, **named: Any) -> None:
        watched.clear()
        call(self, *arguments, **named)
        watched.check(self.fn.__name__)

    interpreter.GridExecutor.__call__ = checked
