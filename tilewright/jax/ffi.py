"""Functions of Python that XLA calls while a program runs: its C interface, read by ctypes.

    XLA -> handler(frame) -> run(inputs, results, stream) -> launches on that stream, returns

No compiler is needed on the user's machine, and the kernels are those that torch's tensors get. A
call costs the host some microseconds in XLA's thread, with Python's lock held; JAX lets go of the
lock whenever it waits. The structures are the first fields of those of xla/ffi/api/c_api.h, which
grow at their ends; the version that is answered is the one of the header that JAX brings.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax

from tilewright.errors import DeviceError

_METADATA, _EXECUTE, _INTERNAL = 1, 3, 13  # an extension, a stage, a code of errors


class Buffer(NamedTuple):
    """An array of XLA's: dense, rows last; `kind` is the number that its dtype has there."""

    address: int
    kind: int
    shape: tuple[int, ...]


# What a call does: inputs, results, and the address of the stream (None on processors).
Run = Callable[[Sequence[Buffer], Sequence[Buffer], int | None], None]


class _Extension(Structure):
    pass


_Extension._fields_ = [
    ("struct_size", c_size_t),
    ("type", c_int),
    ("next", POINTER(_Extension)),
]
_HEAD: list[tuple[str, Any]] = [("struct_size", c_size_t), ("extension_start", POINTER(_Extension))]


class _Version(Structure):
    _fields_ = [*_HEAD, ("major", c_int), ("minor", c_int)]


class _Metadata(Structure):
    _fields_ = [("struct_size", c_size_t), ("version", _Version), ("traits", c_uint32)]


class _MetadataExtension(Structure):
    _fields_ = [("base", _Extension), ("metadata", POINTER(_Metadata))]


class _Buffer(Structure):
    _fields_ = [
        *_HEAD,
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    ]


class _Values(Structure):
    """Arguments or results."""

    _fields_ = [
        *_HEAD,
        ("size", c_int64),
        ("types", c_void_p),
        ("values", POINTER(POINTER(_Buffer))),
    ]


class _ErrorArguments(Structure):
    _fields_ = [*_HEAD, ("message", c_char_p), ("code", c_int)]


class _StreamArguments(Structure):
    _fields_ = [*_HEAD, ("context", c_void_p), ("stream", c_void_p)]


_Function = ctypes.CFUNCTYPE(c_void_p, c_void_p)


class _Api(Structure):
    """Its first functions."""

    _fields_ = [
        *_HEAD,
        ("version", _Version),
        ("internal", c_void_p),
        ("make_error", _Function),
        ("message_of", c_void_p),
        ("destroy", c_void_p),
        ("register", c_void_p),
        ("stream_of", _Function),
    ]


class _Frame(Structure):
    _fields_ = [
        *_HEAD,
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("inputs", _Values),
        ("results", _Values),
    ]


_Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))
_held: list[Any] = []  # XLA keeps the address of a handler for good


def register(name: str, run: Run, platform: str) -> None:
    """From now on XLA's programs for a platform ("cpu", "CUDA") may call `run` by this name."""
    on_gpu = platform != "cpu"

    def handle(given: Any) -> int | None:
        frame = given.contents
        try:
            if _described(frame) or frame.stage != _EXECUTE:
                return None
            stream = _stream(frame) if on_gpu else None
            run(_buffers(frame.inputs), _buffers(frame.results), stream)
        except BaseException as error:  # Ctrl-C too: nothing may go up into XLA
            return _error(frame, error)
        return None

    handler = _Handler(handle)
    _held.append(handler)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform=platform)


def _described(frame: Any) -> bool:
    """Whether XLA asked what the handler is, which is answered then."""
    extension = frame.extension_start
    while extension:
        if extension.contents.type == _METADATA:
            asked = ctypes.cast(extension, POINTER(_MetadataExtension)).contents.metadata.contents
            asked.version.major, asked.version.minor = _version()
            asked.traits = 0  # it is not to be captured: a graph would keep a call's addresses
            return True
        extension = extension.contents.next
    return False


@cache
def _version() -> tuple[int, int]:
    """Of the interface that this JAX has. Raises DeviceError where its header does not say."""
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    text = header.read_text(encoding="utf-8") if header.exists() else ""
    found = [re.search(rf"#define XLA_FFI_API_{one} (\d+)", text) for one in ("MAJOR", "MINOR")]
    if None in found:
        raise DeviceError(f"jax {jax.__version__}: {header} does not tell XLA's version")
    major, minor = (int(one[1]) for one in found if one is not None)
    return major, minor


def _buffers(values: Any) -> tuple[Buffer, ...]:
    found = []
    for i in range(values.size):
        one = values.values[i].contents
        found.append(Buffer(one.data or 0, one.dtype, tuple(one.dims[: one.rank])))
    return tuple(found)


def _stream(frame: Any) -> int:
    arguments = _StreamArguments(ctypes.sizeof(_StreamArguments), None, frame.context, None)
    failed = frame.api.contents.stream_of(ctypes.addressof(arguments))
    if failed:
        raise DeviceError("jax: XLA gave no stream to launch on")
    return int(arguments.stream or 0)


def _error(frame: Any, error: BaseException) -> int | None:
    message = f"{type(error).__name__}: {error}".encode()
    arguments = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, message, _INTERNAL)
    made: int | None = frame.api.contents.make_error(ctypes.addressof(arguments))
    return made
