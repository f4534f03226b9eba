"""A chain of convolutions ready to run on one session: programs, packed weights, operands.

`Lowered` is what an engine makes of a work: launches that name their memory, and what that memory
holds. `Bound` is the callable: it stages the operands, launches in order, and brings back a result
that lies in the host's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.arrays.views import View, plain, view, view_host
from tilewright.backends.opencl.executable import Arguments
from tilewright.backends.opencl.launch import other_queues, wait_for
from tilewright.backends.opencl.memory import device_memory, stage, staged_strides
from tilewright.backends.opencl.program import kernel_of
from tilewright.backends.opencl.runtime import (
    Session,
    foreign_session,
    guarded,
    pyopencl,
    session,
)
from tilewright.engines.conv import ConvOperands, ConvWork
from tilewright.errors import DtypeError, OperandError, ShapeError
from tilewright.facts.device import Device
from tilewright.facts.kernel import Launch, Long, Operand, Scratch
from tilewright.facts.scalars import Scalars


@dataclass(frozen=True, slots=True, eq=False)
class Texture:
    """An image of texels of four, made when the work is bound; `values` fill it where given."""

    name: str
    width: int
    height: int
    dtype: str
    values: NDArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """Launches in order; scratch that they share with others; what they read, packed; images."""

    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...]
    constants: Mapping[str, NDArray]
    textures: tuple[Texture, ...] = ()


@dataclass(frozen=True, slots=True)
class Steps:
    """Strides of an operand [N, C, H, W] in elements, once it is staged."""

    name: str
    strides: tuple[int, ...] = field(default=(0, 0, 0, 0))

    @property
    def arguments(self) -> tuple[Operand | Long, ...]:
        """Pointer, offset and four strides."""
        return (Operand(self.name), *map(Long, self.strides))


Lower = Callable[[Mapping[str, Steps]], Lowered]


def bind(work: ConvWork, device: Device, operands: ConvOperands, lower: Lower) -> Bound:
    """Check the operands, then make programs and memory of what `lower` gives for their strides.

    Raises ShapeError, DtypeError and OperandError, naming the operand; DeviceError where the
    device's compiler or memory refuses.
    """
    views = _views(work, operands)
    steps = {name: Steps(name, staged_strides(one, device)) for name, one in views.items()}
    queues = [one.queue for one in views.values() if one.queue is not None]
    queue = queues[-1] if queues else None
    opened = session(device) if queue is None else foreign_session(queue.context, queue)
    lowered = lower(steps)
    with opened.lock:
        bound: Bound = guarded(opened, lambda: Bound(opened, views, lowered))
    return bound


class Bound:
    """The launches of one work on one session's memory."""

    def __init__(self, opened: Session, views: Mapping[str, View], lowered: Lowered) -> None:
        self.session = opened
        self.views = views
        self.scratch = lowered.scratch
        self.constants = {n: self._buffer(values) for n, values in lowered.constants.items()}
        self.textures = {one.name: self._image(one) for one in lowered.textures}
        self.launches = [
            (launch, Arguments(kernel_of(opened, launch), launch, np.float32))
            for launch in lowered.launches
        ]

    def __call__(self) -> None:
        """Compute `out`: complete on return in host memory, else enqueued."""
        with self.session.turn():
            guarded(self.session, self._run)

    def _run(self) -> None:
        opened = self.session
        queues = other_queues(opened, self.views)
        staged = {
            name: stage(opened, one, read=name != "out", write=name == "out")
            for name, one in self.views.items()
        }
        try:
            wait_for(opened.queue, queues)
            self._enqueue(staged)
            for queue in queues:
                wait_for(queue, [opened.queue])
            if any(one.host for one in self.views.values()):
                opened.queue.finish()
            fetch = staged["out"].fetch
            if fetch is not None:
                fetch()
        except BaseException:  # Ctrl-C too: kernels must not outlive the call in its memory
            opened.queue.finish()
            raise

    def _enqueue(self, staged: Mapping[str, Any]) -> None:
        cl, opened = pyopencl(), self.session
        memory = dict(self.constants)
        for one in self.scratch:
            with device_memory(opened.device, one.bytes):
                memory[one.name] = opened.scratch(one.name, max(1, one.bytes))
        for launch, arguments in self.launches:
            arguments.fill(staged, memory, self.textures, Scalars())
            cl.enqueue_nd_range_kernel(
                opened.queue, arguments.kernel, launch.global_size, launch.local_size
            )

    def _buffer(self, values: NDArray) -> Any:
        cl = pyopencl()
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        with device_memory(self.session.device, values.nbytes):
            return cl.Buffer(self.session.context, flags, hostbuf=np.ascontiguousarray(values))

    def _image(self, one: Texture) -> Any:
        cl = pyopencl()
        half = one.dtype == "float16"
        channel = cl.channel_type.HALF_FLOAT if half else cl.channel_type.FLOAT
        form = cl.ImageFormat(cl.channel_order.RGBA, channel)
        flags, given = cl.mem_flags.READ_WRITE, None
        if one.values is not None:
            given = np.ascontiguousarray(one.values)
            flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        desc = cl.ImageDescriptor()
        desc.image_type = cl.mem_object_type.IMAGE2D
        desc.shape = (one.width, one.height, 0)
        with device_memory(self.session.device, one.width * one.height * (8 if half else 16)):
            return cl.Image(self.session.context, flags, form, desc=desc, hostbuf=given)


def _views(work: ConvWork, operands: ConvOperands) -> dict[str, View]:
    """The operands by name: x, out, and residual0, residual1 ... in the layers' order."""
    shapes = dict(zip(("x", "out"), (work.sizes[0], work.sizes[-1]), strict=True))
    dtypes = {"x": work.source_dtype, "out": work.result_dtype}
    views = {"x": _seen(operands.x, "x"), "out": _seen(operands.out, "out")}
    adding = [index for index, layer in enumerate(work.layers) if layer.adds]
    if len(operands.residuals) != len(adding):
        raise OperandError(
            f"residuals: {len(operands.residuals)} of them; accepted is one for each of the"
            f" {len(adding)} layers that add one"
        )
    for at, (index, value) in enumerate(zip(adding, operands.residuals, strict=True)):
        layer = work.layers[index]
        shapes[f"residual{at}"] = (layer.outputs, *layer.sums(*work.sizes[index][1:]))
        views[f"residual{at}"] = view(value, f"residuals[{at}]")
    for name, one in views.items():
        if one.shape != (work.images, *shapes[name]):
            wanted = (work.images, *shapes[name])
            raise ShapeError(f"{name}.shape={one.shape}: accepted is {wanted}")
        wanted_dtype = dtypes.get(name, work.dtype)
        if str(one.dtype) != wanted_dtype:
            raise DtypeError(f"{name}.dtype={str(one.dtype)!r}: accepted is {wanted_dtype!r}")
    return views


def _seen(value: Any, name: str) -> View:
    """The view of an operand; of whole numbers NumPy's arrays only."""
    whole = isinstance(value, np.ndarray) and value.dtype in (np.uint8, np.int8)
    return view_host(plain(value, name)) if whole else view(value, name)
