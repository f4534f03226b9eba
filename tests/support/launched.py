"""Launches of CUDA C++ with no GPU: what each hands over is kept, structures are read as in C."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field
from typing import Any

from tilewright.backends.cuda.machine import nvrtc

_KINDS = {
    "long long": ctypes.c_longlong,
    "int": ctypes.c_int,
    "u32": ctypes.c_uint,
    "float": ctypes.c_float,
}


@dataclass
class Recorder:
    """Stands where `nvrtc.function` does, and where the kernel that it gives does."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)  # name, macros, shared bytes
    runs: list[tuple[Any, ...]] = field(default_factory=list)  # blocks, threads, values

    def __call__(self, name: str, defines: nvrtc.Defines, ordinal: Any, *, shared: int = 0) -> Any:
        assert len(dict(defines)) == len(defines)
        self.asked.append((name, dict(defines), shared))
        return self

    def launch(self, blocks: nvrtc.Blocks, threads: int, arguments: nvrtc.Arguments) -> None:
        """One launch, its arguments as ctypes values."""
        self.runs.append((blocks, threads, arguments._values))


def members(header: str, name: str) -> list[tuple[str, Any]]:
    """Names and ctypes of a structure's members in a .cuh, a nested structure by its name."""
    text = re.sub(r"//.*", "", nvrtc.path_of(header).read_text(encoding="utf-8"))
    found = re.search(rf"^struct {name} \{{(.*?)^\}};", text, re.MULTILINE | re.DOTALL)
    assert found
    made = []
    for line in found.group(1).split(";")[:-1]:
        words = line.replace("const ", "").strip()
        kind, rest = re.fullmatch(r"(long long|\w+(?: char)?)\s*(.*)", words, re.DOTALL).groups()  # type: ignore[union-attr]
        for one in rest.split(","):
            is_pointer = "*" in rest
            plain, _, length = one.strip(" *]").partition("[")
            c_type = ctypes.c_void_p if is_pointer else _KINDS.get(kind, kind)
            made.append((plain, c_type * int(length) if length else c_type))
    return made


def fields(structure: Any) -> list[tuple[str, Any]]:
    """The same of ours."""
    return [
        (name, kind.__name__ if issubclass(kind, ctypes.Structure) else kind)
        for name, kind in structure._fields_
    ]
