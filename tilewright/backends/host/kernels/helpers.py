"""Decorators of functions that compiled functions alone call.

Numba makes an entry for Python and one for C of every function, and machine code of its own. Of a
function that becomes part of its callers nobody needs these; `parts.py` says what they cost. Python
must not call such a function: there is nothing to enter it by.
"""

from __future__ import annotations

from functools import partial

from numba import njit

try:
    from tilewright.backends.host.kernels.parts import BlockCompiler, PartCompiler
except ImportError:  # a Numba whose compiler is made otherwise: its own for all of them
    BlockCompiler = PartCompiler = None

_inner = partial(njit, no_cpython_wrapper=True, no_cfunc_wrapper=True)
helper = _inner(pipeline_class=PartCompiler)
fast_helper = _inner(pipeline_class=PartCompiler, fastmath=True)
# On disk by itself too: what is compiled ahead of its callers, piece by piece.
kept_helper = _inner(pipeline_class=BlockCompiler, cache=True)
