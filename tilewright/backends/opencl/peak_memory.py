"""Probes of an OpenCL device's memories, of the way to the host, and of a launch.

Global memory is read at every working set, copied at the largest. A core of a CPU reads a part of
its own, so that a set is spread over the cores' caches; a GPU's units walk the whole set, so that
what counts is the cache they share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from tilewright.backends.opencl.launch import clocked
from tilewright.backends.opencl.memory import device_memory
from tilewright.backends.opencl.probe import ProbeKernel, own_cores
from tilewright.backends.opencl.runtime import Session, guarded, pyopencl
from tilewright.engines.backend import Timing
from tilewright.engines.probes import Effort, Probe, distant_step, launches, parts_of
from tilewright.facts.ceilings import READ, Bandwidth, Latency, bytes_text
from tilewright.facts.device import Device

_GROUP = 256  # items of a GPU's group
_TEXEL_ROWS = 16  # a strip of an image
_IMAGE_WIDTH = 1024
_LOCAL_VECTORS = 512
Source = Callable[[], Any]  # a buffer that is held


def memory_probes(opened: Session, effort: Effort) -> Iterator[Probe]:
    """Global memory, images, local memory, transfers, mapping, launches."""
    device = opened.device
    most = min(device.max_allocation, device.memory // 8)
    sizes = [size for size in effort.sizes if size <= most]
    source = cache(partial(_filled, opened, max(sizes, default=0), "probe source"))
    for size in sizes:
        yield _read(opened, source, size)
    if sizes:
        yield _copy(opened, source, sizes[-1])
    if device.has("images"):
        for size in sizes[len(sizes) // 2 :: max(len(sizes) // 2 - 1, 1)]:
            if size // (16 * _IMAGE_WIDTH) <= device.image_height:
                yield _image(opened, size)
    yield _local(opened)
    if sizes:
        yield from _transfers(opened, source, sizes[len(sizes) * 3 // 4])
    yield from launches(ProbeKernel(opened, "empty", lambda out, rounds: (out,)).again)
    opened.release_scratch()


def _filled(opened: Session, size: int, name: str) -> Any:
    """A buffer of `size` bytes with something in it; probes make it on first need and hold it.

    Pages that nobody ever wrote may all be one page of zeros, which no cache misses.
    """
    with device_memory(opened.device, size):
        buffer = opened.scratch(name, size)
    pyopencl().enqueue_fill_buffer(opened.queue, buffer, np.float32(1), 0, size)
    return buffer


def _width_of(device: Device) -> tuple[int, int]:
    """Items of a group, and numbers that each reads at once."""
    return (1, 16) if device.kind == "cpu" else (min(_GROUP, device.max_work_group), 4)


def _read(opened: Session, source: Source, size: int) -> Probe:
    device = opened.device
    on_cpu = device.kind == "cpu"
    group, vector = _width_of(device)
    groups = device.compute_units * (1 if on_cpu else 8)
    parts, count = parts_of(size // (4 * vector), groups, 4 * group)
    step = 0 if on_cpu else distant_step(parts)
    kernel = ProbeKernel(
        opened,
        "read_sum",
        lambda out, n: (source(), out, *map(np.int32, (parts, count, step, n))),
        (groups, 1),
        group,
        "read",
        VECTOR=vector,
        GROUP=group,
    )
    work = 4.0 * vector * count * groups
    return Probe(Bandwidth(READ, size), work, kernel, own_cores(device))


def _copy(opened: Session, source: Source, size: int) -> Probe:
    device, half = opened.device, size // 2
    group, vector = _width_of(device)
    groups = device.compute_units * (4 if device.kind == "cpu" else 32)
    count = half // (4 * vector) // groups
    # Held here: scratch this large is nobody's else, and a kernel holds none of its arguments.
    target = cache(partial(_filled, opened, half, "probe copy"))
    kernel = ProbeKernel(
        opened,
        "copy",
        lambda out, rounds: (source(), target(), np.int32(count)),
        (groups, 1),
        group,
        VECTOR=vector,
        GROUP=group,
    )
    return Probe(Bandwidth("copy", size), 8.0 * vector * count * groups, kernel.again)


def _image(opened: Session, size: int) -> Probe:
    """All strips at once on a GPU, so that a round walks the whole image; else a launch a round."""
    device = opened.device
    on_cpu = device.kind == "cpu"
    height = max(size // (16 * _IMAGE_WIDTH), _TEXEL_ROWS)
    # Two strips of 1024 columns keep a GPU's unit full: 2048 items.
    strips = height // _TEXEL_ROWS if on_cpu else 2 * device.compute_units
    rows = max(height // strips, 1)
    laid = cache(partial(_image_of, opened, height))
    group = min(64, device.max_work_group)
    kernel = ProbeKernel(
        opened,
        "image_read",
        lambda out, rounds: (laid(), out, *map(np.int32, (height, rows, rounds))),
        (_IMAGE_WIDTH // group, strips),
        group,
    )
    run = kernel.again if on_cpu else kernel
    work = 16.0 * _IMAGE_WIDTH * rows * strips
    return Probe(Bandwidth("image read", 16 * _IMAGE_WIDTH * height), work, run)


def _image_of(opened: Session, height: int) -> Any:
    cl = pyopencl()
    form = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    desc = cl.ImageDescriptor()
    desc.image_type = cl.mem_object_type.IMAGE2D
    desc.shape = (_IMAGE_WIDTH, height, 0)
    image = guarded(
        opened, lambda: cl.Image(opened.context, cl.mem_flags.READ_ONLY, form, desc=desc)
    )
    source = np.ones((height, _IMAGE_WIDTH, 4), np.float32)
    region = (_IMAGE_WIDTH, height, 1)
    cl.enqueue_copy(opened.queue, image, source, origin=(0, 0, 0), region=region)
    return image


def _local(opened: Session) -> Probe:
    device = opened.device
    group = min(_GROUP if device.kind == "gpu" else 64, device.max_work_group)
    kernel = ProbeKernel(
        opened,
        "local_read",
        lambda out, rounds: (out, np.int32(rounds)),
        (device.compute_units * 16, 1),
        group,
        GROUP=group,
        LOCAL_VECTORS=_LOCAL_VECTORS,
    )
    return Probe(Bandwidth("local read", 16 * _LOCAL_VECTORS), 16.0 * 8 * kernel.items, kernel)


def _transfers(opened: Session, source: Source, size: int) -> Iterator[Probe]:
    """Copies between NumPy's memory and the device's, and mapping, of `size` bytes."""
    cl = pyopencl()
    array = np.ones(size, np.uint8)

    def copied(back: bool, rounds: int) -> Timing:
        there = source()[:size]
        pair = (array, there) if back else (there, array)
        return clocked(
            opened, lambda: [cl.enqueue_copy(opened.queue, *pair) for _ in range(rounds)]
        )

    def mapped(index: int, rounds: int) -> Timing:
        return _map(opened, size, rounds)[index]

    for path, back in (("host to device", False), ("device to host", True)):
        yield Probe(Bandwidth(path, size), float(size), partial(copied, back))
    for index, what in enumerate(("map", "unmap")):
        yield Probe(Latency(f"{what} {bytes_text(size)}"), 1.0, partial(mapped, index))


def _map(opened: Session, size: int, rounds: int) -> tuple[Timing, Timing]:
    """Mapping for reading, and handing back; by the wall clock."""
    cl = pyopencl()
    spent = [0.0, 0.0]
    with opened.lock:
        buffer = opened.scratch("probe mapped", size)
        cl.enqueue_fill_buffer(opened.queue, buffer, np.uint8(1), 0, size)
        opened.queue.finish()
        for _ in range(rounds):
            begun = time.perf_counter()
            array, _event = cl.enqueue_map_buffer(
                opened.queue, buffer, cl.map_flags.READ, 0, (size,), np.uint8, is_blocking=True
            )
            mapped = time.perf_counter()
            array.base.release(opened.queue)
            opened.queue.finish()
            done = time.perf_counter()
            spent[0] += mapped - begun
            spent[1] += done - mapped
    return Timing(None, spent[0], 0.0), Timing(None, spent[1], 0.0)
