"""Compiles kernels, one program a kernel, and keeps the binaries in a cache processes can share.

One kernel a program, since Adreno 6xx drivers fail on programs of many. Includes are spliced in
here: phone drivers and include paths do not agree. Binaries are filed under everything that decides
them (source, options, device, driver), written to a temporary name and renamed, so that a reader
sees a whole file or none; a damaged one is set aside with a warning and compiled again. Platforms
that keep programs themselves (PoCL) are not asked for theirs.
"""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import re
import threading
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.backends.opencl.rules import KEEPS_PROGRAMS, why_not_compile
from tilewright.backends.opencl.runtime import Session, programs, pyopencl
from tilewright.errors import BuildError
from tilewright.facts.kernel import Launch
from tilewright.files import cache as cache_files
from tilewright.remember import open_after_fork

KERNELS = Path(__file__).parent / "kernels"
PROBES = Path(__file__).parent / "probes"
_INCLUDE = re.compile(r'^#include "(\w+\.clh)"$', re.MULTILINE)
_MAGIC = b"tilewright-program-2\n"
_building = open_after_fork(threading.Lock())
_WRITTEN = "<generated: 'pyopencl invoker"
_BYTES = 256 << 10  # of a program in its driver: Intel's binaries are 30 to 300 KB
# Compilers declare the functions of cl_khr_integer_dot_product from OpenCL C 3.0 on.
_STANDARD = {"dot8": "CL3.0"}


@cache
def source(program: str) -> str:
    """The text of PROGRAM.cl in kernels/ or probes/ with its includes spliced in."""
    return _spliced(f"{program}.cl")


def _spliced(name: str) -> str:
    return _INCLUDE.sub(lambda match: _spliced(match.group(1)), _text(name))


def _text(name: str) -> str:
    """A file of kernels/, of a folder there (film/), or of probes/."""
    places = (KERNELS, PROBES, KERNELS / "film")
    return next(path for place in places if (path := place / name).is_file()).read_text(
        encoding="utf-8"
    )


def kernel_of(session: Session, launch: Launch) -> Any:
    """A kernel object of the launch's own: constant arguments stay set in it between runs."""
    key = (session, launch.program, launch.defines)
    program = programs.found(key, lambda: _load_or_build(session, launch), lambda _: _BYTES)
    kernel = pyopencl().Kernel(program, launch.entry)
    _forget_sources()
    return kernel


def _forget_sources() -> None:
    """pyopencl writes Python for each kernel object, and `linecache` would keep the text for good.

    That is 2 KiB a kernel that grow with every bind of a network that is dropped again.
    """
    for name in list(linecache.cache):
        if name.startswith(_WRITTEN):
            linecache.cache.pop(name, None)


def _load_or_build(session: Session, launch: Launch) -> Any:
    cl = pyopencl()
    if why := why_not_compile(session.device, launch.program):
        raise BuildError(f"device={session.device.id!r}: {why}")
    text, options = source(launch.program), _options(launch)
    path = _cache_path(session, text, options)
    binary = cache_files.read_sealed(path, _MAGIC) if path else None
    if binary is not None and path is not None:
        try:
            with _quietly():
                return cl.Program(session.context, [session.cl_device], [binary]).build()
        except cl.Error:
            cache_files.set_aside(path, "the driver refused it")
    program = _build(session, launch, text, options)
    if path is not None:
        binary = program.get_info(cl.program_info.BINARIES)[0]
        cache_files.write_sealed(path, _MAGIC, binary)
    return program


def _options(launch: Launch) -> tuple[str, ...]:
    defines = tuple(f"-D{name}={value}" for name, value in launch.defines)
    # Denormals, NaN and Inf must behave as NumPy's, so no -cl-fast-relaxed-math. Some compilers
    # count their warnings on the user's terminal ("1 warning generated."): -w leaves none.
    return (f"-cl-std={_STANDARD.get(launch.program, 'CL1.2')}", "-w", *defines)


def _build(session: Session, launch: Launch, text: str, options: tuple[str, ...]) -> Any:
    cl = pyopencl()
    try:
        with _quietly():
            return cl.Program(session.context, text).build(list(options))
    except cl.RuntimeError as error:
        raise BuildError(
            f"kernel={launch.program!r}: {session.device.name} refused"
            f" {launch.program}.cl with {' '.join(options)}: {error}"
        ) from None


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Drivers report "build succeeded" as a warning. One build at a time: filters are global."""
    with _building, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _cache_path(session: Session, text: str, options: tuple[str, ...]) -> Path | None:
    folder = settings.cache_part("programs")
    if folder is None or session.device.platform in KEEPS_PROGRAMS:
        return None
    digest = hashlib.sha256("\0".join((session.device.key, text, *options)).encode())
    return folder / f"{digest.hexdigest()}.bin"
