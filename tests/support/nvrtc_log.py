"""What NVRTC's assembler says of a kernel: registers, spills, products that are serialised."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tilewright.backends.cuda.machine import nvrtc
from tilewright.files import cache


def log_of(source: str, defines: Mapping[str, int], arch: str) -> str:
    """The compiler's log, kept beside machine code; skips the test where there is no compiler."""
    why = nvrtc.missing()
    if why is not None:
        pytest.skip(why)
    code = nvrtc._cache_path(source, tuple(sorted(defines.items())), arch)
    assert code is not None
    kept = code.with_suffix(".log")
    if not kept.exists():
        cache.write(kept, _compiled(source, defines, arch).encode())
    return kept.read_text(encoding="utf-8")


def _compiled(source: str, defines: Mapping[str, int], arch: str) -> str:
    from cuda.bindings import nvrtc as library

    text = nvrtc.path_of(f"{source}.cu").read_bytes()
    program = nvrtc.check(library.nvrtcCreateProgram(text, source.encode(), 0, [], []), source)
    macros = [f"-D{name}={value}" for name, value in defines.items()]
    options = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v"]
    encoded = [option.encode() for option in (*options, *nvrtc.include_paths(), *macros)]
    (status,) = library.nvrtcCompileProgram(program, len(encoded), encoded)
    log = bytes(nvrtc.check(library.nvrtcGetProgramLogSize(program), "log"))
    library.nvrtcGetProgramLog(program, log)
    assert status == library.nvrtcResult.NVRTC_SUCCESS, log.decode()
    return log.decode()
