"""Decorators of functions that compiled functions alone call.

Numba makes an entry for Python and one for C of every function, and machine code to keep on disk.
Of a function that becomes part of its callers nobody needs these, and they were a tenth of what a
first call waits for: all kinds of steps took 24.3 s to compile with them, 21.1 s without (one core
of an EPYC, Zen 4). Python must not call such a function: there is nothing to enter it by.
"""

from __future__ import annotations

from numba import njit

helper = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
fast_helper = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath=True)
# On disk by itself too: what is compiled ahead of its callers, piece by piece.
kept_helper = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, cache=True)
