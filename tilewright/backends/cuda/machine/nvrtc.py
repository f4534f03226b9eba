"""Compiles CUDA C++ when it is first asked for, by NVRTC; keeps machine code; launches on a stream.

source    a .cu file of `kernels/`, with the .cuh files it includes; tunables are macros
cubin     filed under a hash of every source there, the macros, the architecture and the compiler
Function  a kernel loaded on one GPU; `launch` enqueues it on torch's current stream of that GPU

NVRTC and the driver are reached through `cuda-bindings`, which comes with PyTorch's CUDA build.
Nothing is imported before a kernel is asked for.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.errors import BuildError, DeviceError
from tilewright.files import cache as cache_files

KERNELS = Path(__file__).parents[1] / "kernels"
_CUBIN = b"\x7fELF"

Defines = tuple[tuple[str, int], ...]
Blocks = int | tuple[int, int]  # across and down
_refused: dict[tuple[str, Defines, str], str] = {}  # why, by source, macros and architecture


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel on one GPU. `shared` is its dynamic shared memory in bytes."""

    name: str
    ordinal: int
    handle: Any
    shared: int

    def launch(self, blocks: Blocks, threads: int, arguments: Arguments) -> None:
        """Enqueue on torch's current stream of this GPU; returns at once."""
        import torch

        with torch.cuda.device(self.ordinal):
            stream = int(torch.cuda.current_stream(self.ordinal).cuda_stream)
            launcher((self, blocks, threads, arguments))(stream)


class Arguments:
    """Kernel arguments in memory of their own: ctypes values, in the kernel's order."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = tuple(values)  # the launch reads them where they lie
        self._table = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        self.pointer = ctypes.addressof(self._table)


def launcher(*calls: tuple[Function, Blocks, int, Arguments]) -> Callable[[int], None]:
    """Kernels, blocks, threads and arguments, launched one after another on the stream it is given.

    The driver copies what the arguments hold during the call. It is called at once: on an H200's
    host one kernel took 4 us and two took 7, where a Python function for each took 5 to 7 and 10.
    The GPU must be the current one. Raises DeviceError.
    """
    from cuda.bindings import driver

    launch = driver.cuLaunchKernel
    parts = []
    for kernel, blocks, threads, arguments in calls:
        grid = (blocks, 1, 1) if isinstance(blocks, int) else (*blocks, 1)
        sizes = (kernel.handle, *grid, threads, 1, 1, kernel.shared)
        parts.append((sizes, arguments, kernel.name))

    def enqueue(stream: int) -> None:
        for sizes, arguments, name in parts:
            (status,) = launch(*sizes, stream, arguments.pointer, 0)
            if status:
                check((status,), f"launch of {name}")

    return enqueue


@cache
def missing() -> str | None:
    """Why NVRTC cannot be used here, if so."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        return f"NVRTC cannot be used ({error}); pip install 'tilewright[cuda]'"
    return None


def is_cuda(ordinal: int) -> bool:
    """Whether CUDA's own driver runs a device: not on ROCm, and not in Triton's interpreter."""
    if ordinal < 0 or missing() is not None:
        return False
    import torch

    return torch.version.hip is None


def enter(ordinal: int) -> bool:
    """Make a GPU's context current in this thread if none is; True if it did.

    The driver needs one for most calls. CUDA's runtime, which torch calls, makes it on the way; a
    thread of autograd's may come here first. False where the driver is not CUDA's.
    """
    if not is_cuda(ordinal):
        return False
    from cuda.bindings import driver

    if int(check(driver.cuCtxGetCurrent(), "context of this thread")):
        return False
    device = check(driver.cuDeviceGet(ordinal), f"cuda:{ordinal}")
    context = check(driver.cuDevicePrimaryCtxRetain(device), f"context of cuda:{ordinal}")
    check(driver.cuCtxSetCurrent(context), f"context of cuda:{ordinal}")
    return True


@cache
def function(name: str, defines: Defines, ordinal: int, *, shared: int = 0) -> Function:
    """The kernel `name` of kernels/FAMILY/NAME.cu, or of the file before its colon, on a GPU.

    Raises BuildError where the compiler refuses it, DeviceError where the driver does.
    """
    import torch
    from cuda.bindings import driver

    source, _, kernel = name.rpartition(":")
    with torch.cuda.device(ordinal):
        torch.empty(0, device="cuda")  # makes the GPU's context where there is none yet
        enter(ordinal)
        module = _load(source or kernel, defines, architecture(ordinal))
        handle = check(driver.cuModuleGetFunction(module, kernel.encode()), f"kernel {kernel}")
        if shared > 48 * 1024:  # what a kernel gets without asking
            limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(driver.cuFuncSetAttribute(handle, limit, shared), f"{shared} shared bytes")
    return Function(kernel, ordinal, handle, shared)


@cache
def architecture(ordinal: int) -> str:
    """What NVRTC calls a GPU: "sm_86"; "sm_90a" for Hopper, whose wgmma only that name allows."""
    import torch

    major, minor = torch.cuda.get_device_capability(ordinal)
    return f"sm_{major}{minor}{'a' if major == 9 else ''}"


def cubin(source: str, defines: Defines, arch: str) -> bytes:
    """Machine code of kernels/FAMILY/SOURCE.cu for an architecture, from the disk where cached.

    Raises BuildError; what was refused once is refused at once.
    """
    if (source, defines, arch) in _refused:
        raise BuildError(_refused[source, defines, arch])
    path = _cache_path(source, defines, arch)
    kept = cache_files.read_or_warn(path) if path else None
    if path is not None and kept is not None:
        if kept.startswith(_CUBIN):
            return kept
        cache_files.set_aside(path, "holds no machine code")
    try:
        code = compiled(source, dict(defines), arch)
    except BuildError as error:
        _refused[source, defines, arch] = str(error)
        raise
    if path is not None:
        cache_files.write(path, code)
    return code


def compiled(source: str, defines: Mapping[str, int], arch: str) -> bytes:
    """Machine code of kernels/FAMILY/SOURCE.cu, compiled now. Needs no GPU. Raises BuildError."""
    from cuda.bindings import nvrtc

    text = path_of(f"{source}.cu").read_bytes()
    program = check(
        nvrtc.nvrtcCreateProgram(text, f"{source}.cu".encode(), 0, [], []), f"{source}.cu"
    )
    options = [
        f"--gpu-architecture={arch}",
        "--std=c++17",
        *include_paths(),
        *(f"-D{name}={value}" for name, value in defines.items()),
    ]
    encoded = [option.encode() for option in options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = bytes(check(nvrtc.nvrtcGetProgramLogSize(program), "log"))
        nvrtc.nvrtcGetProgramLog(program, log)
        raise BuildError(f"{source}.cu for {arch}, {dict(defines)}: {log.decode().strip()}")
    code = bytes(check(nvrtc.nvrtcGetCUBINSize(program), "size"))
    check(nvrtc.nvrtcGetCUBIN(program, code), "machine code")
    nvrtc.nvrtcDestroyProgram(program)
    return code


def _load(source: str, defines: Defines, arch: str) -> Any:
    from cuda.bindings import driver

    result = driver.cuModuleLoadData(cubin(source, defines, arch))
    path = _cache_path(source, defines, arch)
    if result[0] != driver.CUresult.CUDA_SUCCESS and path is not None and path.is_file():
        cache_files.set_aside(path, f"the driver refuses it ({result[0].name})")
        result = driver.cuModuleLoadData(cubin(source, defines, arch))
    return check(result, f"{source}.cu")


def _cache_path(source: str, defines: Defines, arch: str) -> Path | None:
    folder = settings.cache_part("nvrtc")
    if folder is None:
        return None
    described = repr((source, sorted(defines), arch, _version(), _sources()))
    key = hashlib.sha256(described.encode()).hexdigest()[:32]
    return folder / f"{source}-{arch}-{key}.cubin"


def path_of(name: str) -> Path:
    """The one file of this name in the folders of kernels/."""
    (path,) = KERNELS.rglob(name)
    return path


def include_paths() -> list[str]:
    """Options by which a compiler finds the headers of every family."""
    folders = sorted({path.parent for path in KERNELS.rglob("*.cuh")})
    return [f"--include-path={folder}" for folder in folders]


@cache
def _sources() -> str:
    """A hash of every CUDA source: one header is shared by several, so none is left out."""
    digest = hashlib.sha256()
    for path in sorted(KERNELS.rglob("*.cu*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def _version() -> tuple[int, int]:
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return int(major), int(minor)


def check(result: tuple[Any, ...], what: str) -> Any:
    """The value of a call, or its error as DeviceError."""
    status, *values = result
    if status.value != 0:
        raise DeviceError(f"{what}: {status.name}")
    return values[0] if values else None
