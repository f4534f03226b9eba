"""What the library remembers between calls, all in one bounded place: `Shelf`, and `forget()`.

A plan, a launch or a compiled program found once is found again by its key. Everything of that kind
stands on a named shelf. A shelf has a limit in bytes, drops what was not used lately when it is
full, may be used by several threads, and drops what belongs to an object as soon as that object
dies. `tilewright.forget()` empties every shelf.

    plans: Shelf[Key, Plan] = Shelf("plans of batches", most=64 << 20)
    plan = plans.get(key)                     # 0.1 µs; no lock
    if plan is None:
        plan = plans.keep(key, make(), size=plan_bytes)

`get` takes no lock, as a dictionary's look-up is one step of the interpreter; it only marks the
entry as used. What is full makes room by second chance (F. J. Corbató, "A paging experiment with
the Multics system", 1968): the oldest entry goes unless it was used since it was last looked at.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, Generic, Self, TypeVar, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ENTRY = 512  # bytes that an entry costs besides its value: key, record, two dictionary slots
_shelves: dict[str, Shelf[Any, Any]] = {}
_also: list[Callable[[], object]] = []
_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def open_after_fork(lock: Any) -> Any:
    """The lock itself, which is free in every forked child.

    A child has one thread; what its parent's others held nobody would ever let go there.
    """
    _locks.add(lock)
    return lock


def _after_fork() -> None:
    for lock in tuple(_locks):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class once(Generic[V]):  # noqa: N801 (a decorator, written as functools.cached_property is)
    """A property made when first asked for and kept with its object.

    That of functools, in Python 3.11, makes it under one lock for all objects of a class: a child
    forked while another thread holds it waits forever. Here two threads may make it; all get the
    first.
    """

    def __init__(self, make: Callable[[Any], V]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> V: ...

    def __get__(self, instance: object | None, owner: type) -> Self | V:
        if instance is None:
            return self
        value: V = instance.__dict__.setdefault(self._name, self._make(instance))
        return value


class _Entry(Generic[V]):
    """A value, what it weighs, whether it was used lately, and whose death ends it."""

    __slots__ = ("owners", "size", "used", "value")

    def __init__(self, value: V, size: int) -> None:
        self.value = value
        self.size = size
        self.used = False
        self.owners: tuple[weakref.ref[Any], ...] = ()

    def is_of(self, owners: Iterable[object]) -> bool:
        """Whether it was kept for these objects, and not for others that had their numbers."""
        given = tuple(owners)
        return len(given) == len(self.owners) and all(
            known() is owner for known, owner in zip(self.owners, given, strict=True)
        )


class Shelf(Generic[K, V]):
    """Values by key, at most `most` bytes of them; one name, one shelf."""

    def __init__(self, name: str, *, most: int) -> None:
        if name in _shelves:
            raise ValueError(f"name={name!r}: there is a shelf of that name")
        self.name = name
        self.most = most
        self._entries: dict[K, _Entry[V]] = {}
        self._bytes = 0
        # Twice by one thread: a finalizer may run inside any method.
        self._lock = open_after_fork(threading.RLock())
        _shelves[name] = self

    def get(self, key: K, owner: object = None) -> V | None:
        """The value kept under `key`, or None.

        Whose key has the number of an object (`id`) names the object as well: an entry may outlive
        its owner, as Python drops what is raised in the callback that removes it (Ctrl-C is), and
        the next object may get the number.
        """
        entry = self._entries.get(key)
        if entry is None or (owner is not None and not entry.is_of((owner,))):
            return None
        entry.used = True
        return entry.value

    def keep(self, key: K, value: V, *, size: int = 0, owners: Iterable[object] = ()) -> V:
        """Keep `value`, which holds `size` bytes, until room is needed or an owner dies.

        Returns what is kept under the key: another thread's value where it came first. What is
        larger than the shelf is returned and not kept.
        """
        entry, owners = _Entry(value, size + _ENTRY), tuple(owners)
        if entry.size > self.most:
            return value
        with self._lock:
            first = self._entries.get(key)
            if first is not None and first.is_of(owners):
                return first.value
            if first is not None:
                self._remove(key, first)
            entry.owners = tuple(
                weakref.ref(owner, partial(self._drop, key, entry)) for owner in owners
            )
            self._entries[key] = entry
            self._bytes += entry.size
            dropped = self._make_room(entry)
        del dropped  # outside the lock: what dies here may run code of its own
        return value

    def found(self, key: K, make: Callable[[], V], size: Callable[[V], int] = lambda _: 0) -> V:
        """The value kept under `key`, made now where there is none. `make` runs without a lock."""
        known = self.get(key)
        if known is not None:
            return known
        value = make()
        return self.keep(key, value, size=size(value))

    def drop(self, key: K) -> None:
        """Forget one key, if it is there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._remove(key, entry)

    def clear(self) -> None:
        """Forget everything on this shelf."""
        with self._lock:
            old, self._entries, self._bytes = self._entries, {}, 0
        old.clear()

    def keys(self) -> tuple[K, ...]:
        """Every key, the one to go first first."""
        with self._lock:
            return tuple(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    @property
    def bytes(self) -> int:
        """What the values weigh, with their keys."""
        return self._bytes

    def _make_room(self, newest: _Entry[V]) -> list[_Entry[V]]:
        dropped = []
        while self._bytes > self.most:
            key, entry = next(iter(self._entries.items()))
            if entry is newest or entry.used:
                entry.used = False
                self._entries[key] = self._entries.pop(key)  # to the end of the line
                continue
            self._remove(key, entry)
            dropped.append(entry)
        return dropped

    def _remove(self, key: K, entry: _Entry[V]) -> None:
        del self._entries[key]
        self._bytes -= entry.size

    def _drop(self, key: K, entry: _Entry[V], _owner: weakref.ref[Any]) -> None:
        with self._lock:
            if self._entries.get(key) is entry:
                self._remove(key, entry)


def forget() -> None:
    """Forget every plan, launch, table and program that was kept to be found again.

    Results do not change: the next call of each kind takes longer once, and reads anew what is
    stored on disk. Memory that kept launches held on a device is free for others. What the caller
    holds (arrays, bound plans, networks) stays as it is.
    """
    for shelf in shelves():
        shelf.clear()
    for clear in tuple(_also):
        clear()


def forgets(clear: Callable[[], object]) -> None:
    """Have `forget()` call `clear` too: for caches that a library keeps for us."""
    _also.append(clear)


def shelves() -> tuple[Shelf[Any, Any], ...]:
    """Every shelf, in the order in which they were made."""
    return tuple(_shelves.values())
