"""Grouped launches: a laid-out batch becomes tables, and a callable that only launches them.

    problems  [count, 16] int64   where A, B, C and bias lie, sizes, strides, epilogue
    scalars   [count, 2]          alpha, beta in the accumulator's type
    tiles     [count, 4] int32    problem, first row, first column, shape

`grouped.clh` follows two problems through the tables. Problems stand in launch order, so that tiles
that run together read neighbouring rows; products cut along k appear once a part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.backends.grouped import GroupedOperands
from tilewright.backends.opencl.launch import guarded
from tilewright.backends.opencl.lowering import EPILOGUE_ACTIVATION, EPILOGUE_BIAS, type_defines
from tilewright.backends.opencl.program import kernel_of
from tilewright.backends.opencl.rules import preferences
from tilewright.backends.opencl.runtime import Session, pyopencl, session
from tilewright.device import Device
from tilewright.kernel import Launch
from tilewright.planning.grouped import GroupedLayout, Slots, Tile

_WORDS = 16
_SUMS = {"float16": "float32", "float32": "float32", "float64": "float64"}

# Flops a second of one core on whole tiles and seconds a tile, measured on AVX-512. Only their
# ratios decide anything; an order is never chosen by the absolute time.
_LANES_TILES = (
    Tile(12, 32, rate=70e9, overhead=0.15e-6),
    Tile(48, 64, rate=100e9, overhead=0.15e-6),
    Tile(96, 128, rate=130e9, overhead=0.2e-6),
)
_PANEL_TILES = (Tile(384, 256, rate=150e9, overhead=1e-6),)


@dataclass(frozen=True)
class CpuGroups:
    """`grouped_lanes` for small tiles and `grouped_panel` for large ones, one launch each."""

    device: Device
    dtype: str
    tiles: tuple[Tile, ...]
    slots: Slots

    @classmethod
    def on(cls, device: Device, dtype: str) -> CpuGroups:
        """For a device and dtype. The thread pool deals tiles to the cores as they come free."""
        # Products are not cut along k here: two cores are busy with far less than one product.
        slots = Slots(device.compute_units, kind="dynamic", merge=np.inf)
        # grouped_panel keeps running sums in C, which half precision would round at every block.
        tiles = _LANES_TILES if dtype == "float16" else _LANES_TILES + _PANEL_TILES
        return cls(device, dtype, tiles, slots)

    def reads_host(self) -> bool:
        """By address, where the device has system SVM."""
        return self.device.has("svm_system")

    def bind(self, layout: GroupedLayout, operands: GroupedOperands) -> Callable[[], None]:
        """Tables built, kernel prepared, arguments set: what is left is enqueueing."""
        pointers = operands.c.base is None
        tables = Tables.of(layout, operands)
        # Large tiles first: the small ones then fill the cores up.
        large = tables.tiles[:, 3] >> 16 == _PANEL_TILES[0].m
        tables = replace(tables, tiles=np.concatenate((tables.tiles[large], tables.tiles[~large])))
        first = int(np.count_nonzero(large))
        lanes = 8 if self.dtype == "float64" else 16
        launches = (
            self._launch("grouped_panel", ("VECTOR", lanes), 1, first, pointers),
            self._launch("grouped_lanes", ("LANES", lanes), lanes, len(large) - first, pointers),
        )
        parts = [(launches[0], 0), (launches[1], first)]
        used = tuple(part for part in parts if part[0].global_size[0])
        return _Bound(session(self.device), used, tables, operands, pointers)

    def _launch(
        self, name: str, width: tuple[str, int], group: int, tiles: int, pointers: bool
    ) -> Launch:
        return Launch(
            program=name,
            entry=name,
            defines=(
                *type_defines(self.dtype, _SUMS[self.dtype]),
                ("MULTIPLY_ADD", preferences(self.device).multiply_add),
                width,
                ("POINTERS", int(pointers)),
            ),
            global_size=(group * tiles, 1),
            local_size=(group, 1),
            arguments=(),
        )


class _Bound:
    """Prepared launches. Holds every table and operand for as long as it lives.

    All launches of a kind share one kernel object, as making one costs as much as a small batch;
    whoever finds another's arguments in it sets its own, under the session's lock.
    """

    def __init__(
        self,
        session_: Session,
        launches: tuple[tuple[Launch, int], ...],
        tables: Tables,
        operands: GroupedOperands,
        pointers: bool,
    ) -> None:
        self.session = session_
        self.wait = pointers
        self.held = (tables, operands)
        self.launches: list[tuple[Launch, list[Any]]] = []
        if not launches:
            return
        resident = [
            _resident(session_, table) for table in (tables.problems, tables.scalars, tables.tiles)
        ]
        bases = (operands.a, operands.b, operands.c, operands.bias or operands.c)
        # In pointer mode the bases are never read; any memory will do as an argument.
        memory = [resident[0] if pointers else part.base.memory.buffer for part in bases]
        self.launches = [
            (launch, [*resident, np.int32(first), *memory]) for launch, first in launches
        ]

    def __call__(self) -> None:
        if not self.launches:
            return
        with self.session.lock:
            for launch, arguments in self.launches:
                guarded(self.session, partial(self._enqueue, launch, arguments))
            if self.wait:
                self.session.queue.finish()

    def _enqueue(self, launch: Launch, arguments: list[Any]) -> None:
        key = (launch.program, launch.defines)
        shared = self.session.grouped.get(key)
        if shared is None:
            kernel = kernel_of(self.session, launch)
            shared = self.session.grouped[key] = SharedKernel(kernel)
        if shared.owner is not arguments:
            # One by one: set_args() would compile a Python function for each new kernel object.
            for index, value in enumerate(arguments):
                shared.kernel.set_arg(index, value)
            shared.owner = arguments
        pyopencl().enqueue_nd_range_kernel(
            self.session.queue, shared.kernel, launch.global_size, launch.local_size
        )


@dataclass(slots=True)
class SharedKernel:
    """A kernel object and whose arguments it holds."""

    kernel: Any
    owner: Any = None


def _resident(session_: Session, table: npt.NDArray[Any]) -> Any:
    """A table where kernels read it: in place with system SVM, copied once elsewhere."""
    cl = pyopencl()
    if session_.device.has("svm_system"):
        return cl.SVM(table)
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(session_.context, flags, hostbuf=table)


@dataclass(frozen=True)
class Tables:
    """The three tables of `grouped.clh`."""

    problems: npt.NDArray[np.int64]
    scalars: npt.NDArray[Any]
    tiles: npt.NDArray[np.int32]

    @classmethod
    def of(cls, layout: GroupedLayout, operands: GroupedOperands) -> Tables:
        """Pure array code: a thousand problems take about 0.1 ms."""
        order, queue = layout.order, layout.queue
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        shapes = np.array([(tile.m, tile.n) for tile in layout.tiles], np.int32)
        rows, cols = shapes[layout.tile[queue.problem]].T if len(queue) else (0, 0)
        tiles = np.empty((len(queue), 4), np.int32)
        tiles[:, 0] = position[queue.problem]
        tiles[:, 1] = queue.row * rows
        tiles[:, 2] = queue.col * cols
        tiles[:, 3] = rows << 16 | cols
        scalars = np.stack((operands.alpha[order], operands.beta[order]), axis=1)
        return cls(_problems(layout, operands), scalars.astype(_SUMS[operands.dtype]), tiles)


def _problems(layout: GroupedLayout, operands: GroupedOperands) -> npt.NDArray[np.int64]:
    table = np.zeros((len(layout.order), _WORDS), np.int64)
    a, b, c, bias = operands.a, operands.b, operands.c, operands.bias
    columns = (
        a.address,
        b.address,
        c.address,
        0 if bias is None else bias.address,
        layout.m,
        layout.n,
        layout.k,
        a.row,
        a.col,
        b.row,
        b.col,
        c.row,
        c.col,
        _epilogues(operands),
    )
    for index, column in enumerate(columns):
        table[:, index] = column
    return np.ascontiguousarray(table[layout.order])


def _epilogues(operands: GroupedOperands) -> npt.NDArray[np.int64] | int:
    activation = EPILOGUE_ACTIVATION[operands.activation]
    if operands.bias is None:
        return activation
    return np.where(operands.bias.address >= 0, activation | EPILOGUE_BIAS, activation)


def grouped_of(device: Device, dtype: str) -> CpuGroups | None:
    """The grouped kernels of a device, or None where it has none for this dtype."""
    if dtype not in device.dtypes or device.kind == "gpu":
        return None
    return CpuGroups.on(device, dtype)
