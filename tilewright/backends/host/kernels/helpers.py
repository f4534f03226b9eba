"""Decorators of functions that compiled functions alone call.

Numba makes an entry for Python and one for C of every function, and machine code of its own. Of a
function that becomes part of its callers nobody needs these; `parts.py` says what they cost. Python
must not call such a function: there is nothing to enter it by.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from numba import njit


def _compilers() -> tuple[Any, Any]:
    """Of parts and of blocks; Numba's own for all of them where that is made otherwise."""
    try:
        from tilewright.backends.host.kernels import parts
    except ImportError:
        return None, None
    return parts.PartCompiler, parts.BlockCompiler


_part, _block = _compilers()
_inner = partial(njit, no_cpython_wrapper=True, no_cfunc_wrapper=True)
helper = _inner(pipeline_class=_part)
fast_helper = _inner(pipeline_class=_part, fastmath=True)
# On disk by itself too: what is compiled ahead of its callers, piece by piece.
kept_helper = _inner(pipeline_class=_block, cache=True)
