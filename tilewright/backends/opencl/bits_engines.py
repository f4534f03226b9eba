"""One-bit products through OpenCL: B laid out 16 columns side by side, then one of four kernels.

    bits, TREE 16 or 1   wide vectors, through carry-save adders or counted word by word: CPUs
    bits_bytes           16 byte counters in a 128-bit register: NEON, Midgard
    bits_lanes           a column a work-item: GPUs

Which is best on a device is a prior here and measured by `onebit.choice`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.arrays.array import FREE, Array, NDArray
from tilewright.arrays.views import View, view_host
from tilewright.backends.opencl.memory import Staged, device_memory, stage
from tilewright.backends.opencl.program import kernel_of
from tilewright.backends.opencl.runtime import Session, guarded, pyopencl, session_at
from tilewright.engines.bits import BitEngine, BitProblem, BitWork
from tilewright.errors import OperandError
from tilewright.facts.device import Device
from tilewright.facts.kernel import Defines, Launch
from tilewright.facts.verdict import Proposal
from tilewright.wording import short

TYPES = {"int32": np.int32, "float16": np.float16, "float32": np.float32, "bits": np.uint64}
_PANEL = 16
_VECTORS = ("scale", "shift", "threshold", "flip")


@dataclass(frozen=True, slots=True)
class OpenCLBits:
    """A kernel and how it is launched. `rates` are priors: operations a second of one unit."""

    name: str
    program: str
    element: str
    defines: Defines
    rates: tuple[tuple[str, float], ...]
    needs_counts: bool = False

    def why_not(self, problems: Sequence[BitProblem], device: Device) -> str | None:
        """Takes everything but a device of another kind."""
        return None if device.backend == "opencl" else "it runs on OpenCL devices"

    def propose(self, problems: Sequence[BitProblem], device: Device) -> Proposal:
        """From a rate for devices of this kind: a prior."""
        rate = dict(self.rates).get(device.kind, 1e10) * device.compute_units
        seconds = sum(5e-5 + problem.operations / rate for problem in problems)
        kind = device.kind.upper() if device.kind in ("cpu", "gpu") else device.kind
        reason = f"typical rates of a {kind}; not measured on this device yet"
        return Proposal(self.name, device, seconds, reason)

    def bind(self, proposal: Proposal, works: Sequence[BitWork]) -> Callable[[], None]:
        """Two launches a product, three for bits out of `bits_lanes`; in order, one wait."""
        return partial(self._multiply_all, works, proposal.device)

    def _multiply_all(self, works: Sequence[BitWork], device: Device) -> None:
        for work in works:
            session_ = session_at(device, getattr(work.out, "queue", None))
            with session_.turn():
                guarded(session_, partial(self._run, session_, work))

    def _run(self, session_: Session, work: BitWork) -> None:
        staged = {name: _stage(session_, getattr(work, name)) for name in ("a", "b")}
        staged["out"] = _stage(session_, work.out, write=True)
        try:
            self._launch_all(session_, work, staged)
        except BaseException:  # Ctrl-C too: what is staged goes with this call
            session_.queue.finish()
            raise

    def _launch_all(self, session_: Session, work: BitWork, staged: dict[str, Staged]) -> None:
        problem, vectors = work.problem, _vectors(work)
        panels = self._lay_out(session_, problem, staged["b"])
        for name in _VECTORS:
            given = vectors.get(name)
            staged[name] = Staged(panels, 0) if given is None else _stage(session_, given)
        if self.program == "bits_lanes" and problem.out == "bits":
            self._through_ints(session_, problem, staged, panels)
        else:
            self._multiply(session_, problem, staged, panels)
        if vectors or isinstance(work.out, np.ndarray):
            session_.queue.finish()  # the kernel reads the host's memory until then
        fetch = staged["out"].fetch
        if fetch is not None:
            fetch()

    def _lay_out(self, session_: Session, problem: BitProblem, b: Staged) -> Any:
        """B's panels, in scratch; as many as whole words of columns have."""
        size = 8 if self.element == "ulong" else 1
        panels = -(-problem.n // 64) * 4
        elements = problem.words * 8 // size
        buffer = _scratch(session_, "bits_panels", 128 * panels * max(1, problem.words))
        if elements:
            launch = _launch("bits_lay_out", (("ELEMENT", self.element),), (elements, panels))
            sizes = np.int32(problem.n), np.int32(elements)
            _enqueue(session_, launch, [*sizes, *b.pair, buffer])
        return buffer

    def _multiply(
        self, session_: Session, problem: BitProblem, staged: dict[str, Staged], panels: Any
    ) -> None:
        block = _rows_a_block(problem, session_.device)
        rows = -(-problem.m // 4) if self.program == "bits_lanes" else -(-problem.m // block)
        columns = -(-problem.n // 64) * 4 if problem.out == "bits" else -(-problem.n // _PANEL)
        if self.program == "bits_lanes":
            columns = -(-problem.n // 32) * 32
        defines = (
            *self.defines,
            ("FORM", 0 if problem.form == "xor" else 1),
            ("OUT", ("int32", "float32", "float16", "bits").index(problem.out)),
        )
        local = (32, 1) if self.program == "bits_lanes" else (1, 1)
        launch = _launch(self.program, defines, (columns, rows), local)
        item = np.dtype(TYPES[problem.out]).itemsize
        out, a = staged["out"], staged["a"]
        width = -(-problem.n // 64) * 8 if problem.out == "bits" else problem.n
        sizes = map(np.int32, (problem.m, problem.n, problem.k, block))
        place = out.argument, np.int64(out.offset * item), np.int32(width)
        vectors = (value for name in _VECTORS for value in staged[name].pair)
        _enqueue(session_, launch, [*sizes, *a.pair, panels, *place, *vectors])

    def _through_ints(
        self, session_: Session, problem: BitProblem, staged: dict[str, Staged], panels: Any
    ) -> None:
        """Integers to scratch, then 64 columns a work-item to bits."""
        m, n = problem.m, problem.n
        values = _scratch(session_, "bits_values", 4 * m * n)
        inner = BitProblem(m, n, problem.k, problem.form)
        self._multiply(session_, inner, {**staged, "out": Staged(values, 0)}, panels)
        launch = _launch("bits_threshold", (), (-(-n // 64), m))
        parts = (value for name in ("out", "threshold", "flip") for value in staged[name].pair)
        _enqueue(session_, launch, [np.int32(m), np.int32(n), values, *parts])


def _stage(session_: Session, value: Any, *, write: bool = False) -> Staged:
    """Any of the arrays where a kernel reads it, offsets in elements."""
    if isinstance(value, np.ndarray):
        return stage(session_, view_host(value), read=not write, write=write)
    if isinstance(value, Array):
        if value.memory.mapped:
            raise OperandError(f"{short(value)}: it is mapped; {FREE}")
        buffer = value.memory.buffer  # type: ignore[attr-defined]
        view = View(buffer, 0, value.shape, value.strides, value.dtype, False)
        return stage(session_, view, read=not write, write=write)
    return Staged(value.base_data, value.offset // value.dtype.itemsize)


def _vectors(work: BitWork) -> dict[str, NDArray]:
    """What the epilogue reads; neutral where not given: -0 leaves every sum as it is."""
    n = work.problem.n
    if work.problem.out == "int32":
        return {}
    if work.problem.out == "bits":
        return {"threshold": work.threshold, "flip": work.flip}
    scale = np.ones(n, np.float32) if work.scale is None else work.scale
    shift = np.full(n, -0.0, np.float32) if work.shift is None else work.shift
    return {"scale": scale, "shift": shift}


def _rows_a_block(problem: BitProblem, device: Device) -> int:
    """Rows a work-item takes: enough work-items for all units, and a panel read for many rows."""
    panels = -(-problem.n // _PANEL)
    blocks = max(1, -(-8 * device.compute_units // panels))
    return max(4, min(64, -(-problem.m // blocks)))


def _launch(
    program: str, defines: Defines, size: tuple[int, int], local: tuple[int, int] = (1, 1)
) -> Launch:
    return Launch(program, program, defines, size, local, ())


def _scratch(session_: Session, name: str, size: int) -> Any:
    with device_memory(session_.device, size):
        return session_.scratch(name, max(8, size))


def _enqueue(session_: Session, launch: Launch, arguments: Sequence[Any]) -> None:
    kernel = kernel_of(session_, launch)
    kernel.set_args(*arguments)
    pyopencl().enqueue_nd_range_kernel(
        session_.queue, kernel, launch.global_size, launch.local_size
    )


# Rates of a unit: those of "cpu" were measured on two AVX-512 cores with Intel's runtime, those of
# "gpu" are guesses whose order is what counts. A measurement on the device replaces both.
ENGINES: tuple[BitEngine, ...] = (
    OpenCLBits("carry_save", "bits", "ulong", (("TREE", 16),), (("cpu", 6e11), ("gpu", 1e11))),
    OpenCLBits("popcount", "bits", "ulong", (("TREE", 1),), (("cpu", 3e11), ("gpu", 9e10))),
    OpenCLBits("bytes", "bits_bytes", "uchar", (), (("cpu", 1e11), ("gpu", 5e10))),
    OpenCLBits("lanes", "bits_lanes", "ulong", (), (("cpu", 5e10), ("gpu", 6e11))),
)
