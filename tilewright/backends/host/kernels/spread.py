"""Kernels whose outer loop goes to all cores, by Numba's threads; on one core where those are lost.

A child that was forked from a process whose OpenMP threads had run may not start any: the library
ends it. So every such kernel is compiled a second time there, without threads.
"""

from __future__ import annotations

from types import FunctionType

from numba import njit

from tilewright.backends.host import compiled


class spread:  # noqa: N801 - a decorator
    """Compile a function whose outer loop is a `prange`."""

    def __init__(self, function):
        self.__doc__ = function.__doc__
        self._on_all = njit(cache=True, parallel=True)(function)
        self._on_one = njit(cache=True)(_renamed(function))

    def __call__(self, *arguments):
        """Run it."""
        run = self._on_one if compiled.pool_is_lost() else self._on_all
        return run(*arguments)


def _renamed(function):
    """The same function under another name: Numba keeps machine code by name."""
    made = FunctionType(function.__code__, function.__globals__, function.__name__)
    made.__qualname__ = f"{function.__qualname__}_on_one"
    made.__module__ = function.__module__
    return made
