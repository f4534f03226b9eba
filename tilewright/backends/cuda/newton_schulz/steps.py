"""All Newton-Schulz steps of matrices of any shapes, three grouped products a step.

    g  = x xT                     tall matrices xT x, read as they lie; of g and h, which are
                                  symmetric, block rows up to the diagonal, the rest copied
    h  = g + (a / b) I            (between.py)
    h  = b h + c g g              = a I + b g + c g g
    x' = h x                      tall ones x h

So x enters one product instead of a product and a sum: neither it nor g is copied for a sum to be
added to, and the errors are those of x' = a x + (b g + c g g) x in bf16, to a quarter more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Columns
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.guards import guarded
from tilewright.backends.cuda.machine import driver
from tilewright.backends.cuda.newton_schulz import between
from tilewright.backends.cuda.work import Work
from tilewright.errors import DeviceError
from tilewright.planning.newton_schulz import Flat, block_rows, laid_out

_ITEM = 2  # bytes of bf16
Coefficients = tuple[float, float, float]


class Steps:
    """Steps bound to scratch of their own: fill `given`, call, read `made`; bf16 matrices all.

    It only launches, on torch's current stream, on one at a time. Raises DeviceError where a graph
    is captured while it is made.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, int]],
        ordinal: int,
        coefficients: Coefficients,
        steps: int,
        eps: float,
    ) -> None:
        torch = driver.need()
        if torch.cuda.is_current_stream_capturing():
            raise DeviceError(
                "newton_schulz: a CUDA graph is being captured on this stream; take a step with"
                " the same shapes before the capture"
            )
        layout = laid_out(shapes)
        where = {"dtype": torch.bfloat16, "device": torch.device("cuda", ordinal)}
        with torch.cuda.device(ordinal):
            x = [torch.zeros(layout.x.elements, **where) for _ in range(2 if steps else 1)]
            g, h = (torch.zeros(layout.gram.elements, **where) for _ in range(2))
            self.bytes = _ITEM * (len(x) * len(x[0]) + len(g) + len(h))
            self.given = _views(x[0], layout.x)
            self.made = _views(x[steps % 2], layout.x)
            begin = between.normalising(x[0], layout.x, eps, ordinal)
            once = _a_step(x, (g, h), layout.tall, (layout.x, layout.gram), coefficients, ordinal)
            self._launches = [guarded(begin, ordinal, (*x, g, h))]
            self._launches += [launch for i in range(steps) for launch in once(i % 2)]

    def __call__(self) -> None:
        """Launch; `made` is ready when the stream has come so far."""
        for launch in self._launches:
            launch()


def _a_step(
    x: list[Any],
    grams: tuple[Any, Any],
    tall: npt.NDArray[np.bool_],
    layouts: tuple[Flat, Flat],
    coefficients: Coefficients,
    ordinal: int,
) -> Callable[[int], list[Callable[[], None]]]:
    """The launches of a step that reads x[0] and writes x[1], or the other way round."""
    if len(x) < 2:
        return lambda _: []
    a, b, c = coefficients
    keep, add, beta = (1.0, a / b, b) if b else (0.0, a, 1.0)
    wide, (g, h) = ~tall, (_columns(one, layouts[1]) for one in grams)
    there = [_columns(one, layouts[0]) for one in x]
    device, held = driver.device_of(ordinal), (*x, *grams)

    def bound(left: Columns, right: Columns, out: Columns, alpha: float, beta: float) -> Any:
        count = len(out.rows)
        scalars: Any = {"alpha": np.full(count, alpha), "beta": np.full(count, beta)}
        parts: Any = {"a": left, "b": right, "c": out, "dtype": "bfloat16", "keep": held}
        work = Work(ordinal=ordinal, **parts, **scalars)
        return choose.bind(work, device, often=True).launch

    first = [
        bound(*_lower(_either(wide, y, y.swapped), _either(wide, y.swapped, y), g), 1, 0)
        for y in there
    ]
    g_whole, h_whole = (
        guarded(between.mirroring(one, layouts[1], ordinal), ordinal) for one in grams
    )
    shift = guarded(between.shifting(*grams, layouts[1], keep, add, ordinal), ordinal)
    # g is its own transpose: k is contiguous in both.
    middle = bound(*_lower(g, g.swapped, h), c, beta)
    last = [
        bound(_either(wide, h, y), _either(wide, y, h), z, 1, 0)
        for y, z in pairwise((*there, there[0]))
    ]
    return lambda turn: [first[turn], g_whole, shift, middle, h_whole, last[turn]]


def _lower(left: Columns, right: Columns, out: Columns) -> tuple[Columns, Columns, Columns]:
    """Symmetric products as runs of rows, each up to its diagonal."""
    owner, first, end = block_rows(out.rows)
    left, right, out = (one.take(owner) for one in (left, right, out))
    left = replace(left, address=left.address + first * left.row, rows=end - first)
    rows = {"address": out.address + first * out.row, "rows": end - first}
    return left, replace(right, cols=end), replace(out, **rows, cols=end)


def _either(which: npt.NDArray[np.bool_], one: Columns, other: Columns) -> Columns:
    """Row by row of the first where `which`, else of the second."""
    names = ("address", "rows", "cols", "row", "col")
    return Columns(*(np.where(which, getattr(one, x), getattr(other, x)) for x in names))


def _columns(memory: Any, layout: Flat) -> Columns:
    address = memory.data_ptr() + _ITEM * layout.begin
    row, col = _ITEM * layout.step, np.full(len(layout.begin), _ITEM)
    return Columns(address, layout.rows, layout.cols, row, col)


def _views(memory: Any, layout: Flat) -> list[Any]:
    columns = (layout.rows, layout.cols, layout.step, layout.begin)
    every = zip(*(column.tolist() for column in columns), strict=True)
    return [memory.as_strided((m, n), (step, 1), begin) for m, n, step, begin in every]
