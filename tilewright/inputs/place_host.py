"""The places of the host and its OpenCL devices: which arrays lie there, what is new there.

Host        NumPy, CPU arrays with DLPack, tilewright arrays on the host
OnDevice    tilewright arrays on an OpenCL device
Foreign     pyopencl arrays, on the queue that they came with
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.arrays.aligned import room
from tilewright.arrays.array import Array
from tilewright.arrays.place import New, Place, Shape
from tilewright.arrays.views import View, is_pyopencl, like, view, view_host
from tilewright.backends.cuda.backend import refuse
from tilewright.errors import OperandError
from tilewright.facts.device import Device
from tilewright.inputs.devices import backend_of, resolve
from tilewright.wording import short


@dataclass(frozen=True, slots=True)
class _OffGpu:
    """What these places have in common; `first` is the array that tells the place."""

    first: Any
    is_host: ClassVar[bool] = False
    most: ClassVar[int | None] = None
    precisions: ClassVar[tuple[str, ...]] = ()

    def stream(self) -> AbstractContextManager[Any]:
        """None: an array's queue travels in its view."""
        return nullcontext()

    def check_beside(self, name: str, value: Any) -> None:
        """Raise OperandError where another argument lies elsewhere than the first."""
        if type(_place_of(value)) is not type(self):
            raise OperandError(
                f"{name}={type(value).__name__}: lies on another kind of device than"
                f" a={type(self.first).__name__}; accepted are arrays of one kind in a call"
            )


class Host(_OffGpu):
    """The host's memory, of which any device but CUDA's takes arrays."""

    is_host = True

    def device(self, wanted: Device | str | None) -> Device:
        """The one that is wanted, or the best."""
        chosen = resolve(wanted)
        if chosen.backend == "cuda":
            refuse(chosen)
        return chosen

    def new(self, shape: Shape, public: Shape, dtype: str) -> New:
        """By NumPy, handed over as what the first array is."""
        if isinstance(self.first, Array):
            return _new_array(self.first.device, shape, public, dtype)
        none = f"out: the host has no room for a result of shape {shape} in {dtype}"
        made = room(shape, dtype, none)
        convert = like(self.first)
        return view_host(made), lambda: convert(made.reshape(public))


class OnDevice(_OffGpu):
    """The memory of an OpenCL device, in tilewright's own arrays."""

    def check_beside(self, name: str, value: Any) -> None:
        """They lie on one device."""
        _OffGpu.check_beside(self, name, value)
        if value.device != self.first.device:
            raise OperandError(
                f"{name}={short(value)}: lies on another device than a={self.first!r}; accepted are"
                " arrays of one device in a call"
            )

    def device(self, wanted: Device | str | None) -> Device:
        """That of the arrays."""
        own: Device = self.first.device
        if wanted is not None and resolve(wanted) != own:
            raise OperandError(f"device={short(wanted)}: a lies on {own.id!r}")
        return own

    def new(self, shape: Shape, public: Shape, dtype: str) -> New:
        """Memory that the host reaches too."""
        return _new_array(self.first.device, shape, public, dtype)


class Foreign(_OffGpu):
    """The memory of a pyopencl context; every array may have a queue of its own."""

    def check_beside(self, name: str, value: Any) -> None:
        """They have queues of one context; that the first has none is said by `device`."""
        _OffGpu.check_beside(self, name, value)
        own = self.first.queue
        if own is None or (value.queue is not None and value.queue.context == own.context):
            return
        queue = "no queue" if value.queue is None else "a queue of another context"
        raise OperandError(
            f"{name}.queue: {queue}; accepted are arrays with a queue of a.queue.context"
            " (with_queue)"
        )

    def device(self, wanted: Device | str | None) -> Device:
        """That of the first array's queue, whatever is wanted."""
        from tilewright.backends.opencl.runtime import foreign_session

        queue = self.first.queue
        if queue is None:
            raise OperandError("a.queue=None: accepted are arrays with a queue (a.with_queue)")
        return foreign_session(queue.context, queue).device

    def new(self, shape: Shape, public: Shape, dtype: str) -> New:
        """By pyopencl, on the first array's queue."""
        import pyopencl.array

        made = pyopencl.array.empty(self.first.queue, shape, np.dtype(dtype))
        return view(made, "out"), lambda: made.reshape(public)  # type: ignore[no-untyped-call]


def place_and_views(given: Mapping[str, Any]) -> tuple[Place, dict[str, View]]:
    """The place of `a`, the first of these arguments, and the views of all, which must lie there.

    Raises OperandError and DtypeError.
    """
    first, *others = given.items()
    place = _place_of(first[1])
    for name, value in others:
        place.check_beside(name, value)
    return place, {name: view(value, name) for name, value in given.items()}


def _place_of(value: Any) -> Host | OnDevice | Foreign:
    if isinstance(value, Array):
        return (Host if value.device.backend == "host" else OnDevice)(value)
    return (Foreign if is_pyopencl(value) else Host)(value)


def _new_array(device: Device, shape: Shape, public: Shape, dtype: str) -> New:
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=object)) * kind.itemsize
    memory = backend_of(device).allocate(size, device, "allocate")
    return view(Array(memory, shape, kind), "out"), lambda: Array(memory, public, kind)
