"""Runs proofs of this folder in Triton's interpreter, each in a process of its own.

    TRITON_INTERPRET=1 python -m tests.support.interpreter [ragged_proof]

The interpreter is chosen when Triton is first imported; the process that imports it and PyTorch is
forked for each proof. What takes time there and changes nothing
is left out here, a third of the proofs' time: sums of whole numbers are made a second time, to see
whether they overflow, which only debuggers are told; Triton's builtins are replaced before each
function that a kernel calls, though they are since the kernel began, and looked for among all
members of four modules and classes; a table of dtypes is made each time that one is looked up.
Every launch is watched for races between its programs, which run one after another here (races.py).
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import forked, races

SERVER = forked.Server("tests.support.interpreter", {"TRITON_INTERPRET": "1"})


def interpreted(script: str) -> str:
    """What a script of tests/support prints with Triton interpreted; it must end well."""
    for package in ("torch", "triton"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'tilewright[cuda]'")
    status, said = SERVER.run(script)
    assert status == 0, said[-3000:]
    return said


def prove(script: str) -> None:
    """A script of tests/support, in this process."""
    import_module(f"tests.support.{script}").main()


def list_once() -> None:
    """From now on members of a module that are no builtins are not looked at again."""
    from triton.runtime import interpreter

    found: dict[int, list[str]] = {}

    def getmembers(place: Any) -> list[tuple[str, Any]]:
        if id(place) not in found:
            members = inspect.getmembers(place)
            builtins = [name for name, one in members if getattr(one, "__triton_builtin__", False)]
            found[id(place)] = builtins
        return [(name, getattr(place, name)) for name in found[id(place)]]

    interpreter.inspect = SimpleNamespace(**{**vars(inspect), "getmembers": getmembers})


def replace_once() -> None:
    """From now on builtins stay replaced while a kernel runs, whatever functions it calls."""
    import triton.language as tl
    from triton.runtime import interpreter

    replace, replaced = interpreter._patch_lang, set[int]()

    def patch(function: Any) -> Any:
        values = function.__globals__.values()
        languages = {id(one) for one in values if one is tl or one is tl.core}
        if languages <= replaced:
            return interpreter._LangPatchScope()
        replaced.update(languages)
        scope = replace(function)
        restore = scope.restore

        def back() -> None:
            replaced.clear()
            restore()

        scope.restore = back
        return scope

    interpreter._patch_lang = patch


def tell_nothing_of_overflow() -> None:
    """From now on sums of whole numbers are made once; none was told of, as nothing is debugged."""
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    assert not interpreter.interpreter_builder.options.debug
    TritonSemantic.binary_op_sanitize_overflow_impl = lambda *_: None
    look_up, known = interpreter._get_np_dtype, dict[str, Any]()

    def look_up_once(kind: Any) -> Any:
        if kind.name not in known:
            known[kind.name] = look_up(kind)
        return known[kind.name]

    interpreter._get_np_dtype = look_up_once


def take_one_element_for_a_number() -> None:
    """Triton 3.6 takes an array of one element for the end of `range`; NumPy 2.5 refuses that."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patched


if __name__ == "__main__":
    list_once()
    replace_once()
    tell_nothing_of_overflow()
    take_one_element_for_a_number()
    races.watch()
    import_module("torch")
    if sys.argv[1:]:
        prove(sys.argv[1])
    else:
        forked.serve(prove)
