"""Compiled functions whose code is written here in LLVM's own words, by a builder."""

from __future__ import annotations

from inspect import signature

from numba import types
from numba.extending import intrinsic


def emitted(result, *takes):
    """Compile `emit(builder, *arguments)`, which builds the code of a function of these types.

    It returns the function's result; where that is `types.void`, nothing.
    """

    def compiled(emit):
        def typed(typing, *_):
            return result(*takes), generate

        def generate(context, builder, _, arguments):
            made = emit(builder, *arguments)
            return context.get_dummy_value() if result is types.void else made

        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        typed.__signature__ = signature(emit)  # Numba counts on the first for itself
        return intrinsic(typed)

    return compiled
