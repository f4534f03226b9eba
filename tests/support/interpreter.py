"""Runs proofs of this folder in Triton's interpreter, each in a process of its own.

    TRITON_INTERPRET=1 python -m tests.support.interpreter [ragged_proof]

The interpreter is chosen when Triton is first imported. One process of a worker's imports it and
PyTorch, two seconds, and is forked for each proof. What takes time there and changes nothing
is left out here, a third of the proofs' time: sums of whole numbers are made a second time, to see
whether they overflow, which only debuggers are told; Triton's builtins are replaced before each
function that a kernel calls, though they are since the kernel began, and looked for among all
members of four modules and classes; a table of dtypes is made each time that one is looked up.
Every launch is watched for races between its programs, which run one after another here (races.py).
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import paths, races

ROOT = Path(__file__).parents[2]


def interpreted(script: str) -> str:
    """What a script of tests/support prints with Triton interpreted; it must end well."""
    for package in ("torch", "triton"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'tilewright[cuda]'")
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{script}\n")
    server.stdin.flush()
    done = json.loads(server.stdout.readline() or '{"status": "the interpreter ended"}')
    assert done["status"] == 0, str(done)[-3000:]
    said: str = done["said"]
    return said


@cache
def _server() -> subprocess.Popen[str]:
    """The process that is forked; it ends with this one."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths.first(ROOT)}
    command = [sys.executable, "-m", "tests.support.interpreter"]
    pipe = subprocess.PIPE
    server = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=ROOT
    )
    atexit.register(_end, server, os.getpid())
    return server


def _end(server: subprocess.Popen[str], starter: int) -> None:
    """Nothing is left to ask; a process that was forked from a worker's has not asked."""
    if os.getpid() == starter and server.stdin is not None:
        server.stdin.close()
        server.wait()


def serve() -> None:
    """A line of JSON for each proof that a line of the input names."""
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as said:
            child = os.fork()
            if child == 0:
                os._exit(_proof(line.strip(), said.fileno()))
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            print(json.dumps({"status": status, "said": said.read()}), flush=True)


def _proof(script: str, said: int) -> int:
    """What a forked process does, its output and errors into a file: 0 where all ended well."""
    os.dup2(said, 1)
    os.dup2(said, 2)
    try:
        import_module(f"tests.support.{script}").main()
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


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


if __name__ == "__main__":
    list_once()
    replace_once()
    tell_nothing_of_overflow()
    races.watch()
    import_module("torch")
    if sys.argv[1:]:
        import_module(f"tests.support.{sys.argv[1]}").main()
    else:
        serve()
