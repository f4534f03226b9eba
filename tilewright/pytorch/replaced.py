"""Names of another library that lead here until they are given back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tilewright.remember import open_after_fork


class Replaced:
    """Attributes of modules or classes, each with what is to stand there.

    `install` and `uninstall` may be called any number of times, from any thread. What somebody
    else has put there since is left as it is; `is_installed` then tells what was kept of ours that
    it should do as the library's own does.
    """

    def __init__(self, find: Callable[[], list[tuple[Any, str, Any]]]) -> None:
        self._find = find
        self._places: list[tuple[Any, str, Any, Any]] = []
        self._lock = open_after_fork(threading.Lock())

    @property
    def is_installed(self) -> bool:
        """Whether the names lead here."""
        return bool(self._places)

    def install(self) -> None:
        """Put ours there, all of them or none. Raises what finding them raises."""
        with self._lock:
            if self._places:
                return
            found = [(*place, getattr(place[0], place[1])) for place in self._find()]
            for owner, name, ours, _ in found:
                setattr(owner, name, ours)
            self._places = found

    def uninstall(self) -> None:
        """Put back what stood there."""
        with self._lock:
            for owner, name, ours, before in self._places:
                if getattr(owner, name, None) is ours:
                    setattr(owner, name, before)
            self._places = []
