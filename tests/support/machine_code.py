"""Machine code of NVIDIA's GPUs as text, by the disassembler that Triton's package carries.

It takes a quarter of a second to begin, whatever there is to read: kernels for one target that a
file of tests compiles go through it together.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.spills import sections
from tilewright.backends.cuda.machine import nvrtc

_BYTES = 16  # of an instruction, from sm_70 on

Compiled = Callable[[str], dict[Any, tuple[bytes, str]]]


def compiled(source: str, defines: Mapping[str, int], arch: str) -> bytes:
    """A kernel of CUDA for an architecture, as NVRTC made it of these very sources."""
    return nvrtc.cubin(source, tuple(sorted(defines.items())), arch)


def together(
    source: str, variants: Mapping[Hashable, Mapping[str, int]], folders: pytest.TempPathFactory
) -> Compiled:
    """Every variant's machine code and instructions for an architecture, when first asked for."""

    @cache
    def of(arch: str) -> dict[Any, tuple[bytes, str]]:
        codes = [compiled(source, one, arch) for one in variants.values()]
        found = instructions(codes, arch, folders.mktemp(arch))
        return dict(zip(variants, zip(codes, found, strict=True), strict=True))

    return of


def instructions(cubins: Sequence[bytes], arch: str, folder: Path) -> list[str]:
    """The instructions of each, a line each, of cubins for one architecture, as `sm_90a`."""
    triton = find_spec("triton")
    if triton is None or triton.origin is None:
        pytest.skip("no Triton, whose package carries nvdisasm")
    tool = Path(triton.origin).parent / "backends/nvidia/bin/nvdisasm"
    kernels = [
        b"".join(text for name, text in sections(cubin) if name.startswith(".text."))
        for cubin in cubins
    ]
    file = folder / "kernels.bin"
    file.write_bytes(b"".join(kernels))
    target = arch.replace("sm_", "SM")
    command = [tool, "--no-dataflow", "--binary", target, file]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = iter([line for line in said.splitlines() if line.lstrip().startswith("/*")])
    found = ["\n".join(itertools.islice(lines, len(one) // _BYTES)) for one in kernels]
    assert all(found), "a kernel without instructions"
    assert next(lines, None) is None, "instructions of no kernel"
    return found
