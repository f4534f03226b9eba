"""Engines of pools, of sums along an axis and of functions of elements: steps of programs.

By the definitions, which are NumPy's, each took a pass through memory for every tap, and the cores
left a program and met again. A step here joins the convolutions before and after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled, rates
from tilewright.backends.host.kernels.step_table import STEP
from tilewright.backends.host.program import (
    BLEND,
    CHANNELS,
    ELEMENTS,
    POOL,
    ROWS,
    SUM,
    Program,
    joined,
)
from tilewright.engines.contract import Engine
from tilewright.engines.conv import ACTIVATIONS
from tilewright.engines.values import (
    PAIRS,
    Blend,
    Channels,
    Elements,
    Pool,
    Rows,
    ValueOperands,
    ValueWork,
    WholeSum,
)
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

# Elements that windows, sums along an axis, functions, rows and channels read a second, on the core
# that `rates` counts in.
_POOL, _BLEND, _ELEMENTS, _ROWS, _CHANNELS = 8e9, 2e9, 2e9, 4e9, 2e9
_START = 1.5e-5  # seconds until a program of one step runs on all cores
_TASK = 1 << 13  # least elements that a task reads
_DIMENSIONS, _LANES, _SHORT = 6, 16, 8
SCRATCH = 512
_LEFT = 17  # where a table has the bytes between neighbours of a
_BUNDLES = 16  # of rows, at least


class _Values:
    """What the engines have in common."""

    name = ""
    kind: type = Pool
    rate = _POOL

    def why_not(self, work: ValueWork, device: Device) -> str | None:
        """Numba, and the kind of work."""
        if not compiled.available():
            return compiled.why_none()
        if not isinstance(work, self.kind):
            return f"computes {self.kind.__name__}, not {type(work).__name__}"
        return None

    def propose(self, work: ValueWork, device: Device) -> Proposal:
        """Elements that are read, on the core that `rates` counts in, scaled as others."""
        cores, found = device.compute_units, rates.of(device)
        seconds = _START + work.loads / self.rate / cores * found.factor
        reason = f"{work.loads / 1e6:.3g} M elements read, {found.origin}"
        return Proposal(self.name, device, seconds, reason, decisions=work)

    def bind(self, proposal: Proposal, operands: ValueOperands) -> Program:
        """Everything by address; float32 arrays of NumPy."""
        cores, seconds = proposal.device.compute_units, proposal.seconds or 0.0
        made = self.steps(proposal.decisions, operands, cores)
        programs = [
            Program(step.reshape(1), SCRATCH, cores, seconds / len(made), [operands, *keep])
            for step, keep in made
        ]
        return programs[0] if len(programs) == 1 else joined(programs)

    def steps(
        self, work: Any, operands: ValueOperands, cores: int
    ) -> list[tuple[NDArray, list[NDArray]]]:
        """Records of the steps, and the arrays that each knows by address."""
        raise NotImplementedError


class PoolEngine(_Values):
    """`pool`: windows of pictures, channels last."""

    name, kind, rate = "pool", Pool, _POOL

    def steps(
        self, work: Pool, operands: ValueOperands, cores: int
    ) -> list[tuple[NDArray, list[NDArray]]]:
        """Rows shared out, and channels where there are few rows."""
        step = np.zeros(1, STEP)[0]
        images, channels, height, width = work.shape
        step["kind"], step["outputs"] = POOL, channels
        for side, array, (rows, columns) in (
            ("x", operands.sources[0], (height, width)),
            ("out", operands.out, work.result),
        ):
            step[side], step[f"{side}_pixel"] = array.ctypes.data, 4 * channels
            step[f"{side}_row"] = 4 * channels * columns
            step[f"{side}_image"] = 4 * channels * columns * rows
        step["height"], step["width"] = height, width
        step["rows"], step["columns"] = work.result
        step["top"], step["left"] = work.begins
        step["y_stride"], step["x_stride"] = work.strides
        step["taps_down"], step["taps_across"] = work.kernel
        step["dilation_down"], step["dilation_across"] = work.dilations
        largest = work.kind == "largest"
        step["least"], step["low"] = (-np.inf, 1.0) if largest else (0.0, work.share)
        step["tile"] = 0 if largest else 1 if work.divisors is None else 2
        keep = [] if work.divisors is None else [np.ascontiguousarray(work.divisors, np.float32)]
        step["pieces"] = keep[0].ctypes.data if keep else 0
        wanted = _wanted(work.loads, cores)
        band = max(1, work.result[0] * images // wanted)
        step["band"], step["bands"] = band, math.ceil(work.result[0] / band)
        parts = min(math.ceil(channels / _LANES), math.ceil(wanted / (images * step["bands"])))
        step["block_step"] = math.ceil(math.ceil(channels / _LANES) / parts) * _LANES
        step["parts"] = math.ceil(channels / int(step["block_step"]))
        step["tasks"] = images * step["bands"] * step["parts"]
        return [(step, keep)]


class BlendEngine(_Values):
    """`blend`: sums along one axis of arrays without gaps."""

    name, kind, rate = "blend", Blend, _BLEND

    def steps(
        self, work: Blend, operands: ValueOperands, cores: int
    ) -> list[tuple[NDArray, list[NDArray]]]:
        """Rows of the result shared out, or whole axes where a row is short."""
        step = np.zeros(1, STEP)[0]
        places = np.ascontiguousarray(work.places, np.int64)
        weights = np.ascontiguousarray(work.weights, np.float32)
        step["kind"], step["through"] = BLEND, work.inner < _SHORT
        step["x"], step["out"] = operands.sources[0].ctypes.data, operands.out.ctypes.data
        step["x_image"] = 4 * work.old * work.inner
        step["columns"], step["inputs"], step["count"] = work.new, work.inner, places.shape[1]
        step["pieces"], step["weights"] = places.ctypes.data, weights.ctypes.data
        step["rows"] = work.outer * (1 if step["through"] else work.new)
        _shared(step, work.loads, cores)
        return [(step, [places, weights])]


class ElementsEngine(_Values):
    """`elements`: functions of one or two operands, and copies."""

    name, kind, rate = "elements", Elements, _ELEMENTS

    def steps(
        self, work: Elements, operands: ValueOperands, cores: int
    ) -> list[tuple[NDArray, list[NDArray]]]:
        """A step for each triple of views."""
        made = []
        for a, given, out in work.views(operands.sources, operands.out):
            b = a if given is None else given
            table = table_of(a, b, out)
            if work.function in ("add", "multiply") and not table[_LEFT]:
                a, b = b, a  # one number for a whole run comes second
                table = table_of(a, b, out)
            step = np.zeros(1, STEP)[0]
            step["kind"], step["x"], step["out"] = ELEMENTS, a.ctypes.data, out.ctypes.data
            step["weights"] = b.ctypes.data
            low, high = work.activation.low, work.activation.high
            step["low"], step["high"] = (0.0, np.inf) if work.function == "relu" else (low, high)
            pair = work.function in PAIRS
            first = compiled.kernels("values").FIRST_PAIR
            step["tile"] = (
                first + PAIRS.index(work.function) if pair else ACTIVATIONS.index(work.function)
            )
            step["pieces"], step["rows"] = table.ctypes.data, math.prod(table[:4].tolist())
            _shared(step, out.size * (2 if pair else 1), cores)
            made.append((step, [table]))
        return made


class RowsEngine(_Values):
    """`rows`: softmax and normalisation of rows without gaps."""

    name, kind, rate = "rows", Rows, _ROWS

    def steps(
        self, work: Rows, operands: ValueOperands, cores: int
    ) -> list[tuple[NDArray, list[NDArray]]]:
        """Rows shared out."""
        step = np.zeros(1, STEP)[0]
        step["kind"], step["rows"], step["columns"] = ROWS, work.rows, work.columns
        step["tile"] = ("softmax", "layer", "instance").index(work.kind)
        step["outputs"], step["low"] = work.channels, work.epsilon
        size = work.columns if work.kind == "layer" else work.channels
        keep = _ended(step, operands, size) if work.kind != "softmax" else []
        step["x"], step["out"] = operands.sources[0].ctypes.data, operands.out.ctypes.data
        _shared(step, work.loads, cores)
        return [(step, keep)]


class ChannelsEngine(_Values):
    """`channels`: normalisation of the channels of pictures, channels last."""

    name, kind, rate = "channels", Channels, _CHANNELS

    def steps(
        self, work: Channels, operands: ValueOperands, cores: int
    ) -> list[tuple[NDArray, list[NDArray]]]:
        """Sixteen channels of an image each."""
        step = np.zeros(1, STEP)[0]
        step["kind"], step["outputs"], step["count"] = CHANNELS, work.channels, work.pixels
        step["x"], step["out"] = operands.sources[0].ctypes.data, operands.out.ctypes.data
        step["x_pixel"], step["x_image"] = 4 * work.channels, 4 * work.channels * work.pixels
        step["low"], step["parts"] = work.epsilon, math.ceil(work.channels / _LANES)
        step["tasks"] = work.images * step["parts"]
        return [(step, _ended(step, operands, work.channels))]


class SumEngine(_Values):
    """`whole_sum`: two values, bytes or float32, to bytes."""

    name, kind, rate = "whole_sum", WholeSum, _ROWS

    def steps(
        self, work: WholeSum, operands: ValueOperands, cores: int
    ) -> list[tuple[NDArray, list[NDArray]]]:
        """One run, in lines of the cache; signed bytes are 128 higher while they are summed."""
        step = np.zeros(1, STEP)[0]
        step["kind"], step["rows"] = SUM, work.count
        flips = [128 if one.dtype == "int8" else 0 for one in (*work.summands, work)]
        step["groups"], step["blocks"], step["through"] = flips
        step["least"], step["most"] = 0, 255
        a, b = (
            (one.scale or 0.0, one.zero + flip)
            for one, flip in zip(work.summands, flips, strict=False)
        )
        numbers = (*a, *b, work.step, work.shift + flips[2], work.low, work.high)
        table = np.array(numbers, np.float32)
        step["pieces"], step["out"] = table.ctypes.data, operands.out.ctypes.data
        step["x"], step["weights"] = (one.ctypes.data for one in operands.sources)
        _shared(step, work.loads, cores)
        step["band"] = math.ceil(int(step["band"]) / 64) * 64
        step["tasks"] = math.ceil(work.count / int(step["band"]))
        return [(step, [table])]


def _ended(step: NDArray, operands: ValueOperands, size: int) -> list[NDArray]:
    """Scale and bias, zeros where there is none; the step knows them by address."""
    given = operands.sources[1:]
    scale, bias = (np.ascontiguousarray(one, np.float32) for one in (*given, np.zeros(size))[:2])
    step["weights"], step["bias"] = scale.ctypes.data, bias.ctypes.data
    return [scale, bias]


def _wanted(loads: int, cores: int) -> int:
    """Tasks that are worth it: a few for each core."""
    return max(1, min(4 * cores, loads // _TASK))


def _shared(step: NDArray, loads: int, cores: int) -> None:
    """The rows of a step among tasks."""
    rows = int(step["rows"])
    step["band"] = max(1, math.ceil(rows / _wanted(loads, cores)))
    step["tasks"] = math.ceil(rows / int(step["band"]))


def table_of(a: NDArray, b: NDArray, out: NDArray) -> NDArray:
    """int64 [24]: six sizes, and bytes from one to the next in out, a and b.

    Axes that lie alike in all are one; those that are furthest apart in `out` come first.
    """
    axes = [
        (size, *steps)
        for size, *steps in zip(out.shape, out.strides, a.strides, b.strides, strict=True)
        if size != 1
    ]
    axes.sort(key=lambda axis: -axis[1])
    merged: list[tuple[int, ...]] = []
    for axis in axes:
        before = merged[-1] if merged else None
        if before and all(before[at] == axis[0] * axis[at] for at in (1, 2, 3)):
            merged[-1] = (before[0] * axis[0], *axis[1:])
        else:
            merged.append(axis)
    if len(merged) > 1 and merged[-1][0] < _SHORT < merged[-2][0]:
        merged[-2:] = merged[:-3:-1]
    if len(merged) == 1 and merged[0][0] > 4 * _TASK:  # one long run: pieces for tasks
        merged = _cut(merged[0])
    whole = [(1, 0, 0, 0)] * (_DIMENSIONS - len(merged)) + merged
    if len(merged) == 2:
        whole[3:] = [*_bundled(merged[0]), merged[1]]
    return np.array(whole, np.int64).T.copy().reshape(-1)


def _bundled(axis: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Rows as bundles, enough for tasks: one by one, each was looked up anew, in five times the
    time that copying eight numbers takes.
    """
    size, *steps = axis
    most = max(1, size // _BUNDLES)
    rows = next(count for count in range(most, 0, -1) if size % count == 0)
    return [(size // rows, *(rows * step for step in steps)), (rows, *steps)]


def _cut(axis: tuple[int, ...]) -> list[tuple[int, ...]]:
    """A long run as runs that tasks take, where it divides."""
    size, *steps = axis
    for length in range(_TASK, _TASK // 4, -_LANES):
        if size % length == 0:
            return [(size // length, *(length * step for step in steps)), (length, *steps)]
    for parts in (8, 7, 6, 5, 4, 3, 2):
        if size % parts == 0:
            length = size // parts
            return [(parts, *(length * step for step in steps)), (length, *steps)]
    return [axis]


ValueEngine = Engine[ValueWork, ValueOperands, Callable[[], None]]
VALUE_ENGINES: tuple[ValueEngine, ...] = (
    PoolEngine(),
    BlendEngine(),
    ElementsEngine(),
    RowsEngine(),
    ChannelsEngine(),
    SumEngine(),
)
