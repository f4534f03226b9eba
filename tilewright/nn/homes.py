"""Where a bound network's values lie: one piece of NumPy's memory, or of a GPU's by torch.

A home gives arrays at planned places, takes what a caller passes, and hands results over. Values
that no engine touches are arrays of the same library, made by definitions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from tilewright.arrays import torch_private as private
from tilewright.arrays.aligned import aligned_bytes
from tilewright.arrays.array import NDArray
from tilewright.backends.cuda.machine import timing
from tilewright.backends.host import halves
from tilewright.engines.conv import Format
from tilewright.errors import DeviceMemoryError
from tilewright.nn import by_torch
from tilewright.nn.again import Again
from tilewright.nn.evaluate import moved, namespace, rounded
from tilewright.nn.graph import Node, Tensor
from tilewright.nn.kinds import copied, is_tensor, maker, to_numpy
from tilewright.nn.memory import ALIGNMENT
from tilewright.nn.recorded import Recorded

Launch = Callable[[], None]
_COMPILERS = 8  # threads
_HELD = {"float16": "float16", "bfloat16": "float32"}  # in NumPy's arrays


class Home(Protocol):
    """Memory of one device, made for one bound network."""

    @property
    def xp(self) -> Any:
        """The array API of its arrays."""

    def laid(self, begin: int, tensor: Tensor, format_: Format | None) -> Any:
        """The array at a planned place: ONNX's sizes, in memory as `format_` says."""

    def held(self, tensor: Tensor) -> Any:
        """A constant there."""

    def taken(self, value: Any, name: str, dtype: str) -> Any:
        """What a caller passes, as an array here of an element type."""

    def copied(self, into: Any, value: Any) -> None:
        """Copy into an array of this home."""

    def is_planned(self, value: Any) -> bool:
        """Whether an array lies in the planned memory."""

    def given(self, value: Any, dtype: str, like: Any, out: Any, fresh: bool) -> Any:
        """A result as the caller gets it: into `out`, else of the kind of `like`.

        fresh: nobody else holds the array, so that it may be handed over.
        """

    def begin(self) -> None:
        """A run is about to begin."""

    def end(self) -> None:
        """All of a run was begun."""

    def wait(self) -> None:
        """Wait until it is done."""

    def prepared(self, makers: Sequence[Callable[[], Launch]]) -> tuple[Launch, ...]:
        """What each of them makes, in order."""

    def recorded(self, launch: Callable[[], Any]) -> Recorded | None:
        """All steps as one call, where that is faster here; else None."""

    def again(
        self, lock: Any, replay: Recorded, inputs: Sequence[Any], results: Sequence[Any]
    ) -> Again | None:
        """Calls of what was recorded, which need few checks; None where there are none."""

    def seconds(self, call: Callable[[], None]) -> float:
        """How long the device works on a call."""

    def called(self, node: Node, given: Sequence[Any]) -> Any:
        """What the library of these arrays makes of a node in one call; None: the definition."""


class HostHome:
    """NumPy's memory; engines of OpenCL devices map it or copy from it."""

    xp = np

    def __init__(self, size: int) -> None:
        none = f"the host cannot give {size} bytes for values"
        self._room = aligned_bytes(size, none, ALIGNMENT)

    def laid(self, begin: int, tensor: Tensor, format_: Format | None) -> NDArray:
        """A view of the planned memory."""
        flat = self._room[begin : begin + tensor.bytes].view(tensor.dtype)
        if format_ != "channels_last":
            return flat.reshape(tensor.shape)
        images, channels, height, width = tensor.shape
        return flat.reshape(images, height, width, channels).transpose(0, 3, 1, 2)

    def held(self, tensor: Tensor) -> Any:
        """As it is."""
        return tensor.value

    def taken(self, value: Any, name: str, dtype: str) -> NDArray:
        """As NumPy has it."""
        array = to_numpy(value, name)
        if dtype not in halves.HALVES or array.dtype != np.float32:
            return rounded(array, dtype)
        return _rounded(array, dtype, np.empty(array.shape, _HELD[dtype]))

    def copied(self, into: Any, value: Any) -> None:
        """Element by element, layouts as they are; float16 is widened where `into` is float32."""
        if not halves.copied(into, value, str(into.dtype)):
            np.copyto(into, value)

    def is_planned(self, value: Any) -> bool:
        """By addresses: arrays, and torch's tensors of the processor."""
        if is_tensor(value) and value.device.type == "cpu":
            return bool(0 <= value.data_ptr() - self._room.ctypes.data < len(self._room))
        return isinstance(value, np.ndarray) and bool(np.may_share_memory(value, self._room))

    def given(self, value: Any, dtype: str, like: Any, out: Any, fresh: bool) -> Any:
        """A copy, as the memory serves the next run; none where nobody else holds it."""
        if isinstance(out, np.ndarray):
            return _rounded(value, dtype, out)
        if dtype in halves.HALVES and value.dtype == np.float32:
            made = _rounded(value, dtype, np.empty(value.shape, _HELD[dtype]))
        else:
            made = value if fresh and value.base is None else np.array(value, order="C")
        if out is None:
            return maker(like)(made, dtype)
        return _filled(out, maker(out)(made, dtype))

    def begin(self) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def wait(self) -> None:
        """Nothing: steps return when they are done."""

    def prepared(self, makers: Sequence[Callable[[], Launch]]) -> tuple[Launch, ...]:
        """One after another: what compiles here keeps all cores busy."""
        return tuple(make() for make in makers)

    def recorded(self, launch: Callable[[], Any]) -> Recorded | None:
        """One after another is as fast."""
        return None

    def again(
        self, lock: Any, replay: Recorded, inputs: Sequence[Any], results: Sequence[Any]
    ) -> Again | None:
        """Nothing is recorded here."""
        return None

    def seconds(self, call: Callable[[], None]) -> float:
        """By the clock."""
        begun = time.perf_counter()
        call()
        return time.perf_counter() - begun

    def called(self, node: Node, given: Sequence[Any]) -> Any:
        """Nothing: definitions are NumPy's calls."""
        return None


class TorchHome:
    """Memory of one of torch's devices; runs follow torch's current stream there."""

    def __init__(self, size: int, device: Any) -> None:
        import torch

        self._torch, self._device = torch, torch.device(device)
        try:
            self._room = torch.empty(max(size, 1), dtype=torch.uint8, device=self._device)
        except torch.OutOfMemoryError:
            raise DeviceMemoryError(f"{device} cannot give {size} bytes for values") from None
        self.xp = namespace(self._room)
        self._ended: Any = None  # an event behind the last run
        self._last = 0  # its stream

    def laid(self, begin: int, tensor: Tensor, format_: Format | None) -> Any:
        """A view of the planned memory."""
        flat = self._room[begin : begin + tensor.bytes].view(getattr(self._torch, tensor.dtype))
        if format_ != "channels_last":
            return flat.view(tensor.shape)
        images, channels, height, width = tensor.shape
        return flat.view(images, height, width, channels).permute(0, 3, 1, 2)

    def held(self, tensor: Tensor) -> Any:
        """Copied there once."""
        return moved(self.xp, self._device, tensor.value, tensor.dtype)

    def taken(self, value: Any, name: str, dtype: str) -> Any:
        """Tensors as they are where they lie there; others are copied."""
        kind = getattr(self._torch, dtype)
        if is_tensor(value):
            return value.detach().to(self._device, kind)
        if type(value).__module__.partition(".")[0] == "cupy":
            return self._torch.from_dlpack(value).to(self._device, kind)
        array = np.ascontiguousarray(to_numpy(value, name)).reshape(np.shape(value))
        array = array if array.flags.writeable else array.copy()
        return self._torch.from_numpy(array).to(self._device, kind)

    def copied(self, into: Any, value: Any) -> None:
        """On the device."""
        copied(into, value)

    def is_planned(self, value: Any) -> bool:
        """By the storage."""
        if not is_tensor(value):
            return False
        return bool(value.untyped_storage().data_ptr() == self._room.untyped_storage().data_ptr())

    def given(self, value: Any, dtype: str, like: Any, out: Any, fresh: bool) -> Any:
        """A copy, as the memory serves the next run; none where nobody else holds it."""
        if is_tensor(out):
            return copied(out, value)
        kind = like if out is None else out
        if is_tensor(kind) or type(kind).__module__.partition(".")[0] == "cupy":
            whole = fresh and value._base is None and value.is_contiguous()
            made = value if whole else value.clone(memory_format=self._torch.contiguous_format)
            if is_tensor(kind):
                return made.to(kind.device)
            import cupy

            made = cupy.from_dlpack(made)
        else:
            made = maker(kind)(to_numpy(value, "out"), dtype)
        return made if out is None else _filled(out, made)

    def begin(self) -> None:
        """Wait for the last run, where that was on another stream."""
        if self._ended is None or self._stream() == self._last or self.is_captured():
            return
        self._torch.cuda.current_stream(self._device).wait_event(self._ended)

    def _stream(self) -> int:
        """The current stream of the GPU, as a handle."""
        return int(private.raw_stream(self._torch)(self._device.index))

    def is_captured(self) -> bool:
        """Whether a CUDA graph is being made, whose events nobody else may wait for."""
        return bool(self._torch.cuda.is_current_stream_capturing())

    def end(self) -> None:
        """Mark where this stream is."""
        if self._device.type == "cuda" and not self.is_captured():
            self._ended, self._last = self._ended or self._torch.cuda.Event(), self._stream()
            self._ended.record(self._torch.cuda.current_stream(self._device))

    def wait(self) -> None:
        """For the whole device."""
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)

    def prepared(self, makers: Sequence[Callable[[], Launch]]) -> tuple[Launch, ...]:
        """By threads on a GPU: a network's kernels are tens, and each compiles for a second."""
        if self._device.type != "cuda":
            return tuple(make() for make in makers)
        with ThreadPoolExecutor(min(_COMPILERS, os.cpu_count() or 1)) as pool:
            made = tuple(pool.map(self._there, makers))
        self.wait()  # for memory that was filled on those threads' streams
        return made

    def _there(self, make: Callable[[], Launch]) -> Launch:
        """In a thread, whose current device would be the first."""
        with self._torch.cuda.device(self._device):
            return make()

    def recorded(self, launch: Callable[[], Any]) -> Recorded | None:
        """A CUDA graph."""
        return Recorded(launch, self._device) if self._device.type == "cuda" else None

    def again(
        self, lock: Any, replay: Recorded, inputs: Sequence[Any], results: Sequence[Any]
    ) -> Again | None:
        """Runs of what was recorded, checked in a few steps."""
        return Again(self, lock, replay, inputs, results)

    def seconds(self, call: Callable[[], None]) -> float:
        """Its own time on a GPU, whose launches are not waited for."""
        if self._device.type == "cuda":
            return timing.seconds(call, self._device)
        begun = time.perf_counter()
        call()
        return time.perf_counter() - begun

    def called(self, node: Node, given: Sequence[Any]) -> Any:
        """By torch's own functions."""
        return by_torch.called(node, given)


def _rounded(value: NDArray, dtype: str, out: NDArray) -> NDArray:
    """`out`, of elements as NumPy holds those of `dtype`."""
    if not halves.copied(out, value, dtype):
        np.copyto(out, rounded(value, dtype))
    return out


def _filled(out: Any, made: Any) -> Any:
    """Another kind's `out`, written element by element."""
    if hasattr(out, "map"):
        with out.map() as view:
            view[...] = to_numpy(made, "out")
    else:
        out[...] = made
    return out
