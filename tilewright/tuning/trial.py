"""One product on one device, ready to be timed and checked: operands in place, true result at hand.

The output is NaN before a check, so an element that a kernel forgets shows. The truth is float64.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import Array, NDArray
from tilewright.arrays.views import View, view, view_host
from tilewright.backends.host.backend import multiply
from tilewright.engines.backend import Backend
from tilewright.facts.device import Device
from tilewright.facts.kernel import Plan
from tilewright.facts.problem import Problem
from tilewright.facts.scalars import Scalars
from tilewright.remember import once

# Seconds for which BLAS threads keep a core busy after their last product.
SPIN = 0.05
# A prime: rows and columns of repeated draws are shifted, so that no two of them are alike.
_DRAWS = 65521
LAYOUTS = ("rows-rows", "rows-columns", "columns-rows", "columns-columns")


@dataclass(frozen=True, slots=True)
class Shape:
    """C[m, n] = A[m, k] @ B[k, n], dense; `layout` is that of A and B as planning.classes names it.

    `dtype` is of the elements, `accumulate` of the sums.
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    accumulate: str = "float32"
    layout: str = "rows-rows"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types; `Shape(**document)` is the way back."""
        return asdict(self)

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k

    def problem(self, *, aligned: bool = True) -> Problem:
        """The problem as the planner knows it."""
        a, _, b = self.layout.partition("-")
        a_strides = (self.k, 1) if a == "rows" else (1, self.m)
        strides = (*a_strides, *((self.n, 1) if b == "rows" else (1, self.k)), self.n, 1)
        sizes, types = (self.m, self.n, self.k), (self.dtype, self.accumulate)
        return Problem(*sizes, *strides, *types, aligned=aligned)


class Trial:
    """Random operands of a shape on the host and on the device; the same ones in every process."""

    def __init__(self, shape: Shape, device: Device, backend: Backend) -> None:
        self.shape, self.device, self.backend = shape, device, backend
        a_layout, _, b_layout = shape.layout.partition("-")
        stored = {"a": ((shape.m, shape.k), a_layout), "b": ((shape.k, shape.n), b_layout)}
        self._host: dict[str, View] = {}
        self._device: dict[str, View] = {}
        for seed, (name, (sides, layout)) in enumerate(stored.items()):
            array = drawn(sides if layout == "rows" else sides[::-1], shape.dtype, seed)
            turned = layout != "rows"
            placed = view(self._placed(array), name)
            held = view_host(array)
            self._host[name] = held.swapped if turned else held
            self._device[name] = placed.swapped if turned else placed
        self._c = np.empty((shape.m, shape.n), shape.dtype)
        self._c_placed = self._placed(self._c)
        self._host["c"] = view_host(self._c)
        self._device["c"] = view(self._c_placed, "c")
        laid = [backend.layout(self._device[name], device) for name in "ab"]
        self.problem = shape.problem(aligned=all(part.aligned for part in laid))

    @property
    def bytes(self) -> int:
        """What it holds: three matrices here and on the device, and the truth."""
        held = sum(int(view.memory.nbytes) for view in self._host.values())
        return 2 * held + 8 * self.shape.m * self.shape.n

    def seconds(self, plan: Plan) -> float:
        """Wall seconds of one product on the device, operands in place."""
        return self.backend.time(plan, self._device, Scalars()).wall

    def host_seconds(self) -> float:
        """Wall seconds of the same product by NumPy's BLAS."""
        begun = time.perf_counter()
        a, b, c = (self._host[name].memory for name in "abc")
        multiply(a, b, c, Scalars(), None, "none")
        return time.perf_counter() - begun

    def copied_seconds(self, plan: Plan) -> float:
        """Wall seconds of the same product from and to the host's memory."""
        begun = time.perf_counter()
        self.backend.run(plan, self._host, Scalars())
        return time.perf_counter() - begun

    def ready(self) -> Trial:
        """Itself, its truth computed now: later, BLAS threads would spin as a clock runs."""
        if self._allowed:
            time.sleep(SPIN)
        return self

    def wrong(self, plan: Plan) -> str:
        """Why the plan's result is wrong; empty where it is right.

        Errors are relative to the largest magnitude; `allowed_error` says which are rounding.
        """
        error = self._error(self._poisoned(plan))
        if error <= self._allowed:
            return ""
        return f"wrong numbers: error {error:.2g} where {self._allowed:.2g} is rounding"

    def _poisoned(self, plan: Plan) -> NDArray:
        poison = np.full_like(self._c, np.nan)
        if self._c_placed is self._c:
            np.copyto(self._c, poison)
            views, c = self._device, self._c_placed
        else:
            c = self._placed(poison)
            views = {**self._device, "c": view(c, "c")}
        self.backend.time(plan, views, Scalars())
        return np.asarray(c)

    def _error(self, result: NDArray) -> float:
        return relative_error(result, self._truth)

    @once
    def _truth(self) -> NDArray:
        a, b = (self._host[name].memory.astype(np.float64) for name in "ab")
        product: NDArray = a @ b
        return product

    @once
    def _allowed(self) -> float:
        self.host_seconds()
        return allowed_error(self.shape.accumulate, self.shape.k, self._error(self._c))

    def _placed(self, array: NDArray) -> Any:
        """The array itself where the device works in the host's memory, else one on the device."""
        if self.device.has("svm_system"):
            return array
        memory = self.backend.allocate(array.nbytes, self.device, "allocate", array)
        return Array(memory, array.shape, array.dtype)


def drawn(sides: tuple[int, ...], dtype: str, seed: int) -> NDArray:
    """Random elements, the same in every process; few are drawn, as 2048 x 2048 take 60 ms."""
    wide = np.float64 if dtype == "float64" else np.float32
    few = np.random.default_rng(seed).standard_normal(_DRAWS, wide).astype(dtype)
    return np.resize(few, sides)


def relative_error(result: NDArray, truth: NDArray) -> float:
    """The largest error relative to the largest magnitude; NaN if anything is NaN."""
    return float(np.max(np.abs(result - truth)) / max(np.max(np.abs(truth)), 1e-300))


def allowed_error(sums: str, depth: int, numpy: float) -> float:
    """The largest error that is rounding: twice NumPy's in the same dtype, 1e-6, and a drift.

    A plain sum of `depth` products in sequence drifts with their root, where a BLAS sums in blocks.
    One product left out shows a thousand times larger.
    """
    return float(1e-6 + float(np.finfo(sums).eps) * depth**0.5 + 2 * numpy)
