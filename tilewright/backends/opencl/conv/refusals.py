"""Why an OpenCL device cannot take a chain of convolutions, as far as all its engines agree."""

from __future__ import annotations

from tilewright.engines.conv import ConvWork
from tilewright.errors import KernelError
from tilewright.facts.device import Device
from tilewright.facts.kernel import Scratch
from tilewright.facts.limits import MOST


def why_not(work: ConvWork, device: Device) -> str | None:
    """Another back end's device, a type without kernels, sizes past 32 bits; None else."""
    if device.backend != "opencl":
        return "it runs on OpenCL devices"
    if work.dtype not in ("float32", "float16"):
        return f"OpenCL has no {work.dtype}"
    return why_no_sizes(work)


def why_no_sizes(work: ConvWork) -> str | None:
    """Nothing to compute, sizes past 32 bits; None else."""
    if work.images < 1 or any(min(size) < 1 for size in work.sizes):
        return "nothing to compute"
    for channels, height, width in work.sizes:
        # Kernels count pixels of all pictures and channels of a row in 32 bits.
        if max(work.images * height, (channels + 16) * width, height * width * 16) > MOST:
            return "a picture of more than 2^31 elements a side"
    return None


def check_memory(scratch: tuple[Scratch, ...], device: Device) -> int:
    """Bytes of all scratch. Raises KernelError where the device has not the memory."""
    largest = max((one.bytes for one in scratch), default=0)
    total = sum(one.bytes for one in scratch)
    if device.max_allocation and largest > device.max_allocation:
        limit = device.max_allocation
        raise KernelError(f"it would need {largest} bytes at once, of which {limit} can be had")
    if device.memory and total > device.memory:
        raise KernelError(f"it would need {total} bytes, and the device has {device.memory}")
    return total
