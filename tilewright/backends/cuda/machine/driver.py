"""Finds the GPUs there are, at no cost where there are none, and says what is missing.

    driver library (libcuda, /dev/kfd) -> torch and Triton installed -> their versions -> torch.cuda

Each step is only taken where the one before succeeded: importing torch takes a second or two.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tilewright.errors import DeviceError
from tilewright.facts.device import Device

HINT = "pip install 'tilewright[cuda]'"
# (accepted from, refused from), as the extra `cuda` of pyproject.toml says.
_VERSIONS = {"torch": ((2, 11), None), "triton": ((3, 6), (3, 10))}
# NVIDIA compute capability of the first chips with bfloat16 and tf32 in their tensor cores.
_AMPERE = 8


@cache
def missing() -> str | None:
    """Why no GPU can be used through this back end; None where one can."""
    if not _has_driver():
        return "no NVIDIA or AMD driver (libcuda.so.1, /dev/kfd) on this machine"
    for package in _VERSIONS:
        why = _unfit(package)
        if why is not None:
            return why
    torch = _imported("torch")
    if isinstance(torch, str):
        return torch
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} reaches no GPU ({_why_not(torch)})"
    triton = _imported("triton")
    return triton if isinstance(triton, str) else None


def need() -> Any:
    """The torch module, with a GPU behind it. Raises DeviceError naming what is missing."""
    why = missing()
    if why is not None:
        raise DeviceError(f"cuda: {why}; needed are a GPU's driver and {HINT}")
    import torch

    return torch


@cache
def found() -> tuple[Device, ...]:
    """Every GPU that torch sees, in its order."""
    if missing() is not None:
        return ()
    torch = need()
    return tuple(_describe(torch, ordinal) for ordinal in range(torch.cuda.device_count()))


def device_of(ordinal: int) -> Device:
    """The record of one GPU."""
    return found()[ordinal]


def ordinal_of(device: Device) -> int:
    """Torch's number of a device of this back end."""
    return int(device.id.rpartition(":")[2])


def _has_driver() -> bool:
    if os.path.exists("/dev/kfd"):
        return True
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _unfit(package: str) -> str | None:
    """What is wrong with a package's version, or that it is absent."""
    low, high = _VERSIONS[package]
    wanted = f"{package}>={_dotted(low)}" + (f",<{_dotted(high)}" if high else "")
    if find_spec(package) is None:
        return f"{package} is not installed; accepted is {wanted}"
    from importlib.metadata import PackageNotFoundError, version

    try:
        have = version(package)
    except PackageNotFoundError:  # a build without metadata: its import will tell
        return None
    numbers = tuple(int(part) for part in have.split("+")[0].split(".")[:2] if part.isdecimal())
    if numbers < low or (high is not None and numbers >= high):
        return f"{package} {have} is installed; accepted is {wanted}"
    return None


def _imported(package: str) -> Any:
    """The module, or why it cannot be imported: products of the host go on without it."""
    try:
        return import_module(package)
    except (ImportError, OSError) as error:
        return f"{package} cannot be imported ({str(error).partition(chr(10))[0]})"


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _why_not(torch: Any) -> str:
    """What torch says on the way to a GPU: a driver that is too old is named there."""
    if torch.version.cuda is None and torch.version.hip is None:
        return "it is a build for processors only"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]
    return "no device is visible; see CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES"


def _describe(torch: Any, ordinal: int) -> Device:
    import triton

    facts = torch.cuda.get_device_properties(ordinal)
    hip = torch.version.hip is not None
    arch = facts.gcnArchName.partition(":")[0] if hip else f"sm_{facts.major}{facts.minor}"
    features = {"fp16", "fp64", "bf16"}
    if not hip and facts.major < _AMPERE:
        features.remove("bf16")
    if arch == "gfx942" or (not hip and facts.major >= _AMPERE):
        features.add("tf32")
    if arch == "sm_90":
        features.add("wgmma")
    shared: Callable[[str], int] = lambda name: int(getattr(facts, name, 0))  # noqa: E731
    toolkit = torch.version.hip if hip else torch.version.cuda
    return Device(
        id=f"cuda:{ordinal}",
        backend="cuda",
        name=facts.name,
        vendor="Advanced Micro Devices, Inc." if hip else "NVIDIA Corporation",
        driver=f"{toolkit}, torch {torch.__version__}, triton {triton.__version__}",
        version=arch,
        platform="ROCm" if hip else "CUDA",
        kind="gpu",
        compute_units=facts.multi_processor_count,
        memory=facts.total_memory,
        max_allocation=facts.total_memory,
        local_memory=shared("shared_memory_per_block_optin") or shared("shared_memory_per_block"),
        local_memory_is_dedicated=True,
        max_work_group=1024,
        max_work_item_sizes=(1024, 1024, 64),
        features=frozenset(features),
    )
