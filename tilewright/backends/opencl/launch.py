"""Runs a plan: builds its kernels, gives arguments their memory, enqueues in order, waits if it must.

An `Executable` is a plan with its kernels compiled and every constant argument converted; what is
left for each run is filling in the operands.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.backends import Scalars, Timing
from tilewright.backends.opencl.memory import Staged, device_memory, stage
from tilewright.backends.opencl.program import kernel_of
from tilewright.backends.opencl.runtime import (
    Session,
    foreign_session,
    pyopencl,
    session,
)
from tilewright.errors import DeviceError, DeviceMemoryError
from tilewright.kernel import Image, Int, Long, Operand, Plan, Raw, Scalar, Texels
from tilewright.operands import View


class Executable:
    """A plan ready to launch on one session."""

    def __init__(self, session_: Session, plan: Plan) -> None:
        self.session = session_
        self.plan = plan
        self.kernels = [kernel_of(session_, launch) for launch in plan.step.launches]
        self.images = {image.name: image for image in plan.step.images}
        self.scalar_type = np.dtype(plan.problem.accumulate).type

    def enqueue_all(
        self, views: Mapping[str, View], staged: Mapping[str, Staged], scalars: Scalars
    ) -> list[Any]:
        """Every product of the leading dimensions in order; the events of all launches."""
        shape = views["c"].shape[:-2]
        events = []
        for index in np.ndindex(*shape):
            moved = {
                name: Staged(part.argument, part.offset + _shift(views.get(name), index))
                for name, part in staged.items()
            }
            events += self.enqueue(moved, scalars)
        return events

    def enqueue(self, operands: Mapping[str, Staged], scalars: Scalars) -> list[Any]:
        """All launches in order; their events. The caller holds the session's lock."""
        cl = pyopencl()
        scratch = self.plan.step.scratch
        with device_memory(self.session.device, max((s.bytes for s in scratch), default=0)):
            memory = {s.name: self.session.scratch(s.name, s.bytes) for s in scratch}
        laid: dict[str, Any] = {}
        events = []
        for launch, kernel in zip(self.plan.step.launches, self.kernels, strict=True):
            for argument in launch.arguments:
                if isinstance(argument, Texels) and argument.name not in laid:
                    image = self.images[argument.name]
                    laid[argument.name] = self._lay(image, memory[image.scratch])
            kernel.set_args(*self._arguments(launch.arguments, operands, memory, laid, scalars))
            events.append(
                cl.enqueue_nd_range_kernel(
                    self.session.queue, kernel, launch.global_size, launch.local_size
                )
            )
            for argument in launch.arguments:
                if isinstance(argument, Texels) and self.images[argument.name].written:
                    image = self.images[argument.name]
                    self._lift(image, laid[argument.name], memory[image.scratch])
        return events

    def _arguments(
        self,
        declared: tuple[Any, ...],
        operands: Mapping[str, Staged],
        memory: Mapping[str, Any],
        laid: Mapping[str, Any],
        scalars: Scalars,
    ) -> list[Any]:
        values: list[Any] = []
        for argument in declared:
            match argument:
                case Operand(name, offset):
                    if name in memory:
                        values += (memory[name], np.int64(offset))
                    else:
                        staged = operands[name]
                        values += (staged.argument, np.int64(staged.offset + offset))
                case Raw(name):
                    values.append(memory[name])
                case Int(value):
                    values.append(np.int32(value))
                case Long(value):
                    values.append(np.int64(value))
                case Texels(name):
                    values.append(laid[name])
                case Scalar(str() as name):
                    values.append(self.scalar_type(getattr(scalars, name)))
                case Scalar(value):
                    values.append(self.scalar_type(value))
        return values

    def _lay(self, image: Image, buffer: Any) -> Any:
        """The image on its scratch, or a copy of the scratch where the device cannot lay one."""
        cl = pyopencl()
        channel = cl.channel_type.HALF_FLOAT if image.dtype == "float16" else cl.channel_type.FLOAT
        form = cl.ImageFormat(cl.channel_order.RGBA, channel)
        flags = cl.mem_flags.WRITE_ONLY if image.written else cl.mem_flags.READ_ONLY
        desc = cl.ImageDescriptor()
        desc.image_type = cl.mem_object_type.IMAGE2D
        desc.shape = (image.width, image.height, 0)
        if self.session.device.has("image_from_buffer"):
            desc.pitches = (image.row_pitch,)
            desc.buffer = buffer
            return cl.Image(self.session.context, flags, form, desc=desc)
        result = cl.Image(self.session.context, flags, form, desc=desc)
        if not image.written:
            self._copy_rows(image, buffer, result, to_image=True)
        return result

    def _lift(self, image: Image, laid: Any, buffer: Any) -> None:
        """Bring a written image back to its scratch where it was not laid on it."""
        if not self.session.device.has("image_from_buffer"):
            self._copy_rows(image, buffer, laid, to_image=False)

    def _copy_rows(self, image: Image, buffer: Any, laid: Any, *, to_image: bool) -> None:
        # Without image_from_buffer the pitch alignment is 1, so rows are tight and one copy does.
        cl = pyopencl()
        region = (image.width, image.height, 1)
        if to_image:
            cl.enqueue_copy(
                self.session.queue, laid, buffer, offset=0, origin=(0, 0, 0), region=region
            )
        else:
            cl.enqueue_copy(
                self.session.queue, buffer, laid, offset=0, origin=(0, 0, 0), region=region
            )


def _session_of(plan: Plan, views: Mapping[str, View]) -> Session:
    queue = views["c"].queue
    return session(plan.device) if queue is None else foreign_session(queue.context, queue)


def _shift(view: View | None, index: tuple[int, ...]) -> int:
    """Elements to the matrix at `index` of the leading dimensions; bias has none."""
    if view is None or not index or view.ndim < 3:
        return 0
    return sum(i * step for i, step in zip(index, view.strides[:-2], strict=True))


def run(plan: Plan, views: Mapping[str, View], scalars: Scalars) -> None:
    """Compute views["c"]. Host results are complete on return; device results are enqueued."""
    session_ = _session_of(plan, views)
    with session_.lock:
        executable = _executable(session_, plan)
        staged = _stage_all(session_, views, scalars)
        events = _guarded(session_, lambda: executable.enqueue_all(views, staged, scalars))
        fetch = staged["c"].fetch
        if fetch is not None:
            fetch()
        elif views["c"].host:
            events[-1].wait()


def timed(plan: Plan, views: Mapping[str, View], scalars: Scalars) -> Timing:
    """One run with operands staged beforehand: event time, wall clock and processor seconds."""
    session_ = _session_of(plan, views)
    with session_.lock:
        executable = _executable(session_, plan)
        staged = _stage_all(session_, views, scalars)
        session_.queue.finish()
        cpu, wall = time.process_time(), time.perf_counter()
        events = _guarded(session_, lambda: executable.enqueue_all(views, staged, scalars))
        session_.queue.finish()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        span = sum(event.profile.end - event.profile.start for event in events) * 1e-9
        if staged["c"].fetch is not None:
            staged["c"].fetch()
    return Timing(span, wall, cpu)


def _executable(session_: Session, plan: Plan) -> Executable:
    # Plans are cached by signature above, so the same object comes back for the same product.
    found = session_.executables.get(id(plan))
    if found is None or found.plan is not plan:
        if len(session_.executables) > 512:
            session_.executables.clear()
        found = session_.executables[id(plan)] = Executable(session_, plan)
    executable: Executable = found
    return executable


def _stage_all(
    session_: Session, views: Mapping[str, View], scalars: Scalars
) -> dict[str, Staged]:
    staged = {
        name: stage(session_, view, read=name != "c" or scalars.beta != 0, write=name == "c")
        for name, view in views.items()
    }
    # The argument list always has a bias; without one any valid memory does.
    staged.setdefault("bias", Staged(staged["c"].argument, 0))
    return staged


def _guarded(session_: Session, enqueue: Any) -> Any:
    cl = pyopencl()
    try:
        return enqueue()
    except cl.MemoryError as error:
        session_.release_scratch()
        raise DeviceMemoryError(
            f"device={session_.device.id!r}: {session_.device.name} ran out of memory ({error});"
            " use device='host' or a smaller product"
        ) from None
    except cl.Error as error:
        raise DeviceError(f"device={session_.device.id!r}: the driver failed: {error}") from None
