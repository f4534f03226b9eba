"""A bound chain of 3x3 convolutions: weights packed, memory taken, tables of what kernels read.

`conv_plan` has cut the picture, `conv_pack` lays the weights out, `kernels/conv_chain` computes.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from functools import partial

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled, conv_pack
from tilewright.backends.host import packed as store
from tilewright.backends.host.conv_plan import ChainPlan, needs_finish
from tilewright.backends.host.kernels import conv_table as table
from tilewright.backends.host.threads import in_parallel
from tilewright.engines.conv import ACTIVATIONS, Activation, Conv, ConvOperands, ConvWork
from tilewright.remember import open_after_fork


class BoundChain:
    """A chain whose weights are packed and whose memory is there."""

    def __init__(self, work: ConvWork, plan: ChainPlan, operands: ConvOperands) -> None:
        self.work, self.plan = work, plan
        self._operands = operands
        self._kernels = compiled.kernels("conv_chain")
        self._packed = [
            self._pack(layer, number) for number, layer in enumerate(work.layers, start=1)
        ]
        self._stages, self._numbers, self._call = self._tables()
        self._strips = [np.array(strip, np.int64) for strip in plan.strips]
        self.memories = [_aligned(plan.memory) for _ in range(plan.workers)]
        self._lock = open_after_fork(threading.Lock())

    def __call__(self) -> None:
        """Compute; one call at a time, as calls share memory."""
        with self._lock:
            jobs = itertools.product(range(self.work.images), self._strips)
            # Of two threads that ask, each gets another: the interpreter's lock is held meanwhile.
            tasks = [partial(self._worker, memory, jobs) for memory in self.memories]
            in_parallel(tasks, len(tasks))

    def _worker(self, memory: NDArray, jobs: Iterator[tuple[int, NDArray]]) -> None:
        x, out = self._operands.x, self._operands.out
        for image, strip in jobs:
            self._kernels.run_strip(
                self._call,
                self._stages,
                self._numbers,
                strip,
                memory.ctypes.data,
                image,
                x.ctypes.data + image * x.strides[0],
                out.ctypes.data + image * out.strides[0],
            )

    def _pack(self, layer: Conv, number: int) -> dict[int, NDArray]:
        stage, pair = self.plan.stages[number], self._kernels.PAIR
        weights: NDArray = np.ascontiguousarray(layer.weights, np.float32)
        if stage.kind == "few":
            main = store.packed(("few", pair), weights, lambda: conv_pack.few(weights, pair))
        else:
            step, folded = self.plan.step, stage.folded
            main = store.packed(
                ("winograd", step, pair, folded),
                weights,
                lambda: conv_pack.winograd(weights, step, pair, folded=folded),
            )
        found = {
            table.BIAS: conv_pack.biases(layer.bias, layer.outputs, folded=stage.folded),
            table.SLOPES: conv_pack.biases(layer.activation.slopes, layer.outputs, folded=False),
        }
        plain = store.packed(("plain",), weights, lambda: conv_pack.plain(weights))
        copies = {field: _copied(array) for field, array in found.items()}
        return {table.WEIGHTS: main, table.PLAIN: plain, **copies}

    def _tables(self) -> tuple[NDArray, NDArray, NDArray]:
        """What the kernel reads; see `kernels/conv_table`."""
        work, plan = self.work, self.plan
        kinds = {"planes": table.PLANES, "blocked": table.BLOCKED, "few": table.FEW}
        stages = np.zeros((len(plan.stages), table.FIELDS), np.int64)
        numbers = np.zeros((len(plan.stages), 4), np.float32)
        for row, stage in zip(stages, plan.stages, strict=True):
            row[table.KIND] = kinds.get(stage.kind, table.WINOGRAD)
            row[table.BLOCKS], row[table.CELL] = stage.blocks, stage.cell
            row[table.RING], row[table.RING_ROWS] = stage.ring, stage.rows
            row[table.COLUMNS], row[table.INPUTS] = stage.columns, stage.inputs
            row[table.QUARTERS], row[table.FOLDING] = -(-stage.inputs // 4), stage.folded
            row[table.OUTPUTS] = stage.channels
        residuals = iter(self._operands.residuals)
        for number, (layer, packed) in enumerate(zip(work.layers, self._packed, strict=True), 1):
            row, activation = stages[number], layer.activation
            for field, array in packed.items():
                row[field] = array.ctypes.data
            numbers[number] = (*_limits(layer), activation.low, activation.high)
            row[table.FINISHED] = needs_finish(layer)
            row[table.ACTIVATION] = ACTIVATIONS.index(activation.kind)
            if activation.kind in ("none", "relu"):  # limits of their own
                numbers[number, table.LOW :] = _bounds(activation)
            if layer.adds:
                residual = next(residuals)
                row[table.ADDED] = residual.ctypes.data
                row[table.ADDED_IMAGE :][:4] = [step // 4 for step in residual.strides]
        return stages, numbers, self._ends()

    def _ends(self) -> NDArray:
        """Sizes, steps through both ends, and where things begin in a worker's memory."""
        work, plan, x, out = self.work, self.plan, self._operands.x, self._operands.out
        call = np.zeros(table.CALL, np.int64)
        for field, value in (
            (table.STEP, plan.step),
            (table.HEIGHT, work.height),
            (table.WIDTH, work.width),
            (table.BANDS, plan.bands),
            (table.PICTURE_CHANNEL, x.strides[1] // 4),
            (table.PICTURE_ROW, x.strides[2] // 4),
            (table.PICTURE_COLUMN, x.strides[3] // 4),
            (table.CHANNELS, work.layers[0].inputs),
            (table.RESULT_CHANNEL, out.strides[1] // 4),
            (table.RESULT_ROW, out.strides[2] // 4),
            (table.RESULT_COLUMN, out.strides[3] // 4),
            (table.SHUFFLE, work.layers[-1].shuffle),
            (table.TILES, plan.tiles),
            (table.SUMS, plan.sums),
            (table.TABLES, plan.tables),
            (table.SPARE, plan.spare),
        ):
            call[field] = value
        return call


def _limits(layer: Conv) -> tuple[float, float]:
    """What the transform back limits sums to: all that it does of an activation."""
    return (-np.inf, np.inf) if needs_finish(layer) else _bounds(layer.activation)


def _bounds(activation: Activation) -> tuple[float, float]:
    """The least and the largest result."""
    if activation.kind == "relu":
        return 0.0, np.inf
    if activation.kind == "clip":
        return activation.low, activation.high
    return -np.inf, np.inf


def _aligned(size: int) -> NDArray:
    """Bytes that begin on a line of the cache."""
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size]


def _copied(array: NDArray) -> NDArray:
    """The same numbers on lines of the cache."""
    room = _aligned(array.nbytes).view(np.float32)
    room[:] = array
    return room
