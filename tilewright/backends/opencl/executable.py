"""`Executable`: a plan with its kernels compiled and every constant argument converted.

What is left for each run is filling in the operands (launch.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.arrays.views import View
from tilewright.backends.opencl.memory import Staged, device_memory, staged_strides
from tilewright.backends.opencl.program import kernel_of
from tilewright.backends.opencl.runtime import MOST_KEPT, Session, pyopencl
from tilewright.facts.kernel import (
    Argument,
    Image,
    Int,
    Launch,
    Long,
    Operand,
    Plan,
    Raw,
    Scalar,
    Texels,
)
from tilewright.facts.scalars import Scalars

# Of an executable: three kernel objects with their arguments.
_BYTES = 16 << 10


class Arguments:
    """The arguments of one launch: constants set once, the rest when it is another than before.

    Setting an argument takes some microseconds, a kernel has about twenty of them, and between two
    runs of a plan only the operands change.
    """

    def __init__(self, kernel: Any, launch: Launch, scalar_type: type[np.generic]) -> None:
        self.kernel = kernel
        self.scalar_type = scalar_type
        self.variable: list[tuple[int, Argument]] = []
        self._set: dict[int, Any] = {}
        index = 0
        for argument in launch.arguments:
            match argument:
                case Int(value):
                    kernel.set_arg(index, np.int32(value))
                case Long(value):
                    kernel.set_arg(index, np.int64(value))
                case Scalar(float() as number):
                    kernel.set_arg(index, scalar_type(number))
                case _:
                    self.variable.append((index, argument))
            index += 2 if isinstance(argument, Operand) else 1

    def fill(
        self,
        operands: Mapping[str, Staged],
        memory: Mapping[str, Any],
        laid: Mapping[str, Any],
        scalars: Scalars,
    ) -> None:
        """Set what differs from the last run."""
        for index, argument in self.variable:
            match argument:
                case Operand(name, offset):
                    part = operands.get(name)
                    if part is None:
                        part = Staged(memory[name], 0)
                    self._fill_memory(index, part)
                    shifted = part.offset + offset
                    if self._set.get(index + 1) != shifted:
                        self._put(index + 1, np.int64(shifted), shifted)
                case Raw(name):
                    self._fill_memory(index, Staged(memory[name], 0))
                case Texels(name):
                    self.kernel.set_arg(index, laid[name])
                case Scalar(str() as name):
                    value = getattr(scalars, name)
                    if self._set.get(index) != value:
                        self._put(index, self.scalar_type(value), value)

    def _fill_memory(self, index: int, part: Staged) -> None:
        # A device buffer is compared by object, which the dictionary keeps alive; host memory by
        # address, as another array may come to lie there.
        key = part.argument if part.address is None else part.address
        if self._set.get(index) is not key and self._set.get(index) != key:
            self._put(index, part.argument, key)

    def _put(self, index: int, argument: Any, key: Any) -> None:
        """Set one; where Ctrl-C comes between the two steps, nothing counts as set."""
        self._set.pop(index, None)
        self.kernel.set_arg(index, argument)
        self._set[index] = key


class Executable:
    """A plan ready to launch on one session."""

    def __init__(self, session_: Session, plan: Plan) -> None:
        self.session = session_
        self.plan = plan
        self.images = {image.name: image for image in plan.step.images}
        # With scratch that is not kept it is not kept either: kernels hold their arguments.
        own = (scratch.bytes for scratch in plan.step.scratch if scratch.bytes > MOST_KEPT)
        self.bytes = _BYTES + sum(own)
        scalar_type = np.dtype(plan.problem.accumulate).type
        self.launches = [
            (launch, Arguments(kernel_of(session_, launch), launch, scalar_type))
            for launch in plan.step.launches
        ]

    def enqueue_all(
        self, views: Mapping[str, View], staged: Mapping[str, Staged], scalars: Scalars
    ) -> list[Any]:
        """Every product of the leading dimensions in order; the events of all launches."""
        shape = views["c"].shape[:-2]
        if not shape:
            return self.enqueue(staged, scalars)
        strides = {n: staged_strides(view, self.session.device) for n, view in views.items()}
        events = []
        for index in np.ndindex(*shape):
            moved = {
                name: replace(part, offset=part.offset + _shift(strides.get(name, ()), index))
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
        for launch, arguments in self.launches:
            texels = [item.name for item in launch.arguments if isinstance(item, Texels)]
            for name in texels:
                if name not in laid:
                    laid[name] = self._lay(self.images[name], memory[self.images[name].scratch])
            arguments.fill(operands, memory, laid, scalars)
            events.append(
                cl.enqueue_nd_range_kernel(
                    self.session.queue, arguments.kernel, launch.global_size, launch.local_size
                )
            )
            for name in texels:
                image = self.images[name]
                if image.written and not self.session.device.has("image_from_buffer"):
                    self._copy_rows(image, memory[image.scratch], laid[name], to_image=False)
        return events

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

    def _copy_rows(self, image: Image, buffer: Any, laid: Any, *, to_image: bool) -> None:
        # Without image_from_buffer the pitch alignment is 1, so rows are tight and one copy does.
        origin, region = (0, 0, 0), (image.width, image.height, 1)
        pair = (laid, buffer) if to_image else (buffer, laid)
        pyopencl().enqueue_copy(self.session.queue, *pair, offset=0, origin=origin, region=region)


def _shift(strides: tuple[int, ...], index: tuple[int, ...]) -> int:
    """Elements to the matrix at `index` of the leading dimensions; bias has none."""
    if len(strides) < 3:
        return 0
    return sum(i * step for i, step in zip(index, strides[:-2], strict=True))
