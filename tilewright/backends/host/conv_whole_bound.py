"""A bound chain of int8 convolutions: weights packed, rings taken, records of what kernels read.

`conv_whole_plan` has cut it, `conv_whole_pack` lays the weights out, `kernels/conv_whole` computes.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from functools import partial

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.backends.host import conv_whole_pack as pack
from tilewright.backends.host.conv_whole_plan import (
    LANES,
    WholePlan,
    is_depth,
    is_read_directly,
    pieces_of,
    sums_of,
)
from tilewright.backends.host.kernels import whole_table as table
from tilewright.backends.host.threads import in_parallel
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.remember import open_after_fork

_FEW = 4  # outputs whose parts share a vector


class BoundWhole:
    """A chain whose weights are packed and whose memory is there."""

    def __init__(self, work: ConvWork, plan: WholePlan, operands: ConvOperands) -> None:
        self.work, self.plan = work, plan
        self._operands = operands
        self._kernels = compiled.kernels("conv_whole")
        self._tiles = compiled.kernels("whole_tile")
        self._signed = compiled.kernels("whole_dot").SIGNED
        self._deep = compiled.kernels("whole_depth").THERE
        self._keep: list[NDArray] = []  # what the kernels know by address
        self._stages = np.zeros(len(work.layers) + 1, table.STAGE)
        for at in range(len(self._stages)):
            self._ring(self._stages[at], at)
        self._source(self._stages[0])
        for at, layer in enumerate(work.layers, start=1):
            self._window(self._stages[at], layer, at)
            self._end(self._stages[at], layer, last=at == len(work.layers))
        self._jobs = [np.array(jobs, np.int64).reshape(-1, table.JOB) for jobs in plan.strips]
        self._memories = [self._memory() for _ in range(plan.workers)]
        self._lock = open_after_fork(threading.Lock())

    def __call__(self) -> None:
        """Compute; one call at a time, as calls share memory."""
        with self._lock:
            tasks = itertools.product(range(self.work.images), self._jobs)
            # Of two threads that ask, each gets another: the interpreter's lock is held meanwhile.
            calls = [partial(self._worker, *memory, tasks) for memory in self._memories]
            in_parallel(calls, len(calls))

    def _worker(
        self, rings: NDArray, scratch: NDArray, tasks: Iterator[tuple[int, NDArray]]
    ) -> None:
        begin = scratch.ctypes.data + -scratch.ctypes.data % 64
        for image, jobs in tasks:
            self._kernels.run_strip(self._stages, jobs, rings.ctypes.data, image, begin)

    def _memory(self) -> tuple[NDArray, NDArray]:
        """Rings full of what stands for 0, of which the kernels write what lies inside pictures."""
        room = np.empty(self.plan.memory + 64, np.uint8)
        rings = room[-room.ctypes.data % 64 :][: self.plan.memory]
        for at, layer in enumerate(self.work.layers):
            assert layer.whole is not None
            ring, outside = self.plan.offsets[at]
            end = ring + self.plan.rows[at] * self.plan.lines[at]
            rings[outside:end] = pack.zero_of(layer.whole)
        return rings, np.zeros(self._kernels.SCRATCH + 64, np.uint8)

    def _kept(self, array: NDArray) -> int:
        """An array's address, for as long as this lives; on a line of the cache."""
        room = np.zeros(array.nbytes + 128, np.uint8)
        skip = -room.ctypes.data % 64
        room[skip : skip + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._keep.append(room)
        return int(room.ctypes.data + skip)

    def _ring(self, stage: np.void, at: int) -> None:
        """Where rows of a stage lie: of the last, and of an x that is read as it lies, outside."""
        work, plan, arrays = self.work, self.plan, self._operands
        height, width = [(work.height, work.width), *sums_of(work)][at]
        stage["height"], stage["width"] = height, width
        stage["line"], stage["rows"] = plan.lines[at], plan.rows[at]
        stage["base"], stage["outside"] = plan.offsets[at]
        stage["channels"] = work.layers[at].inputs if at < len(work.layers) else work.sizes[-1][0]
        if at < len(work.layers):
            stage["margin"] = work.layers[at].pads[1] * work.layers[at].inputs
        array = arrays.out if at else arrays.x
        if at == len(work.layers) or (at == 0 and is_read_directly(work)):
            stage["fixed"], stage["base"] = 1, array.ctypes.data
            stage["rows"], stage["line"] = height, width * stage["channels"]
            stage["image"] = height * stage["line"]
            stage["margin"] = 0

    def _source(self, stage: np.void) -> None:
        """How x is read."""
        whole, x = self.work.layers[0].whole, self._operands.x
        assert whole is not None
        stage["x"] = x.ctypes.data
        steps = _strides(x, self.work.source)
        for name, step in zip(("image", "channel", "row", "pixel"), steps, strict=True):
            stage[f"x_{name}"] = step
        stage["flip"] = pack.zero_of(whole) - whole.zero
        stage["least"], stage["most"] = 0, 255
        stage["kind"] = table.COPIED
        if whole.taken is not None:
            stage["kind"] = table.TAKEN
            stage["step"], stage["shift"] = whole.taken, pack.zero_of(whole)
        elif is_read_directly(self.work):
            stage["kind"] = table.DIRECT

    def _window(self, stage: np.void, layer: Conv, at: int) -> None:
        """How a window's pieces lie in the stage before."""
        splits, _, quads = pieces_of(layer)
        stage["taps"], stage["dilation"] = layer.kernel[0], layer.dilations[0]
        stage["stride"], stage["top"] = layer.strides[0], layer.pads[0]
        stage["splits"], stage["piece"] = splits, layer.dilations[1] * layer.inputs
        stage["quads"], stage["pixel"] = quads, layer.strides[1] * layer.inputs
        stage["groups"], stage["inputs"] = layer.groups, layer.inputs // layer.groups
        stage["outputs"] = layer.outputs // layer.groups

    def _end(self, stage: np.void, layer: Conv, *, last: bool) -> None:
        """Weights, and what becomes of sums."""
        whole, vectors = layer.whole, self._tiles.VECTORS
        assert whole is not None
        stage["low"], stage["high"] = whole.low, whole.high
        stage["shuffle"] = layer.shuffle
        stage["kind"] = self._kind(layer)
        if is_depth(layer, int(stage["width"])) and stage["kind"] == table.BYTES and self._deep:
            self._depth(stage, layer, last=last)
            return
        few = bool(stage["kind"] == table.FEW)
        packed = pack.few_weights(layer) if few else pack.weights(layer, vectors)
        starts = pack.starts(layer, signed=self._signed, few=few)
        stage["weights"], stage["start"] = self._kept(packed), self._kept(starts)
        stage["scale"] = self._kept(pack.scales(layer))
        stage["group_weights"] = packed.nbytes // layer.groups
        stage["group_starts"] = starts.nbytes // layer.groups
        if few:
            stage["quads"] = packed.shape[1]
            stage["ends"] = self._kept(pack.few_ends(layer))
        if whole.step is not None:
            stage["step"], stage["shift"] = whole.step, pack.shift_of(whole)
            stage["least"], stage["most"] = 0, 255
            stage["flip"] = pack.shift_of(whole) - whole.shift if last else 0
            ends = pack.ends(layer, vectors, flip=int(stage["flip"]))
            stage["ends"] = self._kept(ends)
            stage["group_ends"] = ends.nbytes // layer.groups
            return
        steps = _strides(self._operands.out, self.work.result)
        for name, step in zip(("image", "channel", "row", "pixel"), steps, strict=True):
            stage[f"out_{name}"] = step
        if layer.adds:
            added, out = self._operands.residuals[0], self._operands.out
            stage["residual"] = added.ctypes.data - out.ctypes.data

    def _depth(self, stage: np.void, layer: Conv, *, last: bool) -> None:
        """Channels that go by themselves, many at a time."""
        whole = layer.whole
        assert whole is not None
        stage["flip"] = pack.shift_of(whole) - whole.shift if last else 0
        parts = pack.depth_parts(layer, signed=self._signed, flip=int(stage["flip"]))
        stage["kind"], stage["groups"], stage["splits"] = table.DEPTH, 1, 1
        stage["outputs"], stage["inputs"] = layer.outputs, layer.outputs
        for name, part in zip(("weights", "start", "ends"), parts, strict=True):
            stage[name] = self._kept(part)
        stage["group_weights"], stage["group_ends"] = parts[0][0].nbytes, parts[2][0].nbytes

    def _kind(self, layer: Conv) -> int:
        """What becomes of a layer's sums."""
        assert layer.whole is not None
        if layer.whole.step is not None:
            return table.BYTES if pack.is_exact(layer) else table.DIVIDED
        splits, size, _ = pieces_of(layer)
        side = _strides(self._operands.out, self.work.result)[3] == 1
        alone = layer.groups == 1 and splits == 1 and layer.outputs <= self._tiles.FEW
        shuffled = layer.shuffle == 1 or (layer.shuffle == 2 and layer.outputs == _FEW)
        alone = alone and not layer.adds
        return table.FEW if side and alone and shuffled and size % LANES == 0 else table.FLOATS


def _strides(array: NDArray, form: str) -> tuple[int, int, int, int]:
    """Elements from one image, channel, row, pixel to the next, as the format has it.

    Not the array's own: those of an axis of one element may be anything.
    """
    _, channels, height, width = array.shape
    if form == "channels_last":
        return height * width * channels, 1, width * channels, channels
    return channels * height * width, height * width, width, 1
