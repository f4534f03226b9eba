"""Functions that become part of their callers: no machine code is made of them by themselves.

    function   types -> LLVM's words -> linked with what it calls -> optimised -> machine code
    part       types -> LLVM's words -> linked with what it calls (-> optimised, of a block)
    caller     ... linked with all of its parts, optimised with them, and made machine code once

Numba optimises every function with all that it calls, makes machine code of it, and does the same
again for each function that calls it: what stands four calls down is compiled four times over. All
kinds of steps took 33 s so and take 26 s of one core of an EPYC (Zen 4). What multiplies is as fast
(within 2 % either way), where tiles are optimised by themselves, too: a ragged product of bfloat16
took 8 % more when they were optimised only with their callers.

That a function has a compiler of its own is public in Numba ("Customizing the Compiler"). What a
library of code does when it is finished is not; it is the same in Numba 0.60 to 0.68.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Words(JITCodeLibrary):
    """A function in LLVM's words, for others to link with."""

    @property
    def codegen(self):
        return _Machine(self._codegen, self._final_module)

    def get_pointer_to_function(self, name):
        """0, which says that there is no such entry."""
        self._ensure_finalized()
        return 0

    def serialize_using_object_code(self):
        """What is kept on disk: words too, of which who reads them makes machine code."""
        return self.serialize_using_bitcode()

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True


class _AsLowered(_Words):
    def _optimize_final_module(self):
        pass


class _Machine:
    """Numba's own machine, which is not told of a part."""

    def __init__(self, codegen: Any, words: Any) -> None:
        self._codegen, self._words = codegen, words

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, env: Any) -> None:
        """Objects of Python's that a function has at hand, to print or to raise: no part may."""
        if str(self._words).count(f"@{name}") > 1:
            raise NotImplementedError(f"{name}: a part of other functions needs Python's objects")


class PartCompiler(Compiler):
    """Numba's compiler, which leaves a function as it was lowered to those who call it."""

    def __init__(self, typing, target, library, *rest):
        super().__init__(typing, target, library or _AsLowered(target.codegen(), "part"), *rest)


class BlockCompiler(Compiler):
    """The same, of a function that is optimised by itself before it becomes part of others."""

    def __init__(self, typing, target, library, *rest):
        super().__init__(typing, target, library or _Words(target.codegen(), "block"), *rest)
