"""Launches the kernels that plan ragged products on the device, in tables (ragged_plans.py).

    RowPlan     entries of at most so many rows, and zeros where no group has rows
    DepthPlan   an entry of each group, those of most rows first

Few groups are planned by one launch, each program of which reads all offsets; more than _MANY by
three (depths: two), which count blocks of groups first. 200,000 groups took 38 ms the first way
on an H200. How many rows there are is said at each launch, so batches may grow and shrink.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.machine import faults
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED, Task, reusable, standing

_BLOCK = 256  # offsets that a planning program looks at together
_CLEARED = 64  # rows, and columns at a time, that a program clears
_MANY = 2048  # groups from which on counting blocks first is faster
_COUNTED = 1024  # groups in such a block
_CLEARING = ("plan_rows", "plan_either", "fill_groups")
_LONG = 4  # so many times the mean rows of a group are done early, where groups are many


def at_once(groups: int) -> bool:
    """Whether so many groups are planned by one launch."""
    return groups <= _MANY


class RowPlan:
    """The table of rows for operands that lie alike, of any number of rows."""

    def __init__(
        self,
        offsets: Any,
        out: Any,
        groups: int,
        height: int,
        *,
        clear: bool,
        rests_last: bool,
        long_first: bool = False,
        unit: int = 0,
        turns: int = 1,
        either: dict[str, int] | None = None,
    ) -> None:
        """`height` is the most rows of an entry; `rests_last` puts entries of fewer last.

        Else groups with longer entries come first if `long_first`, and entries of a group are about
        as long, in multiples of `unit` rows (none: of `height`). Up to `turns` entries of a group
        take turns. With `either`, constants of plan_either, each launch fills one of two tables,
        by whichever of two cuts is the faster. Of more groups than are planned `at_once`,
        `rests_last` is all of this that is done.
        """
        self._ordinal, self._groups, self._height = ordinal_of(out), groups, height
        self._clear, self._flag = clear, faults.flag(self._ordinal)
        self._counts = 0 if at_once(groups) else -(-groups // _COUNTED)
        self._common = {"LEADING": offsets.shape[0] - groups, "TILE_M": height}
        order = {"RESTS_LAST": rests_last}
        cut = {"LONG_FIRST": long_first, "UNIT": unit or height, "TURNS": turns}
        self._name, others = ("plan_either", 1) if either else ("plan_rows", 0)
        self._cut = order | cut | (either or {})
        self._compile(offsets, out, others, order)

    def _compile(self, offsets: Any, out: Any, others: int, order: dict[str, Any]) -> None:
        """The launches, for tensors that lie like these and so many `others` of the table."""
        groups = self._groups
        where = (groups, offsets.stride(0))
        result = (*where, out.shape[1], *out.stride())
        table = memory(out, 4)
        if not self._counts:
            given = (offsets, table, *[table] * others, self._flag, out, 0, *result)
            self._plan = self._task(self._name, given, self._cut)
            return
        self._count = self._task("count_groups", (offsets, table, 0, *where), {})
        self._place = self._task(
            "place_groups", (offsets, table, self._flag, table, 0, *where), order
        )
        self._fill = self._task("fill_groups", (offsets, table, table, out, 0, 0, *result), order)

    def _task(self, name: str, arguments: tuple[Any, ...], more: dict[str, Any]) -> Any:
        return reusable(_task(name, 1, arguments, self._constants(name, more)), self._ordinal)

    def _constants(self, name: str, more: dict[str, Any]) -> dict[str, Any]:
        cleared = {"CLEARED": _CLEARED} if name in _CLEARING else {}
        block = {"BLOCK": _COUNTED if self._counts else _BLOCK}
        return {**self._common, **more, **block, **cleared}

    def launch(self, stream: int, offsets: Any, table: Any, out: Any, *other: Any) -> None:
        """Write `table`, and zeros into the rows of `out` that no group has if asked for.

        With `either` also the `other` one, of the second cut; one of the two is empty.
        """
        rows, groups = out.shape[0], self._groups
        cleared = -(-rows // _CLEARED) if self._clear else 0
        if not self._counts:
            self._plan(stream, groups + cleared, offsets, table, *other, self._flag, out, rows)
            return
        places = memory(out, 2 * groups + 4 + 4 * self._counts)
        fills = -(-(rows // self._height) // _COUNTED)
        self._count(stream, self._counts, offsets, places, rows)
        self._place(stream, self._counts, offsets, table, self._flag, places, rows)
        self._fill(stream, fills + cleared, offsets, table, places, out, rows, fills)

    def standing(
        self, offsets: Any, table: Any, out: Any, *other: Any
    ) -> Callable[[int], None] | None:
        """`launch` of these alone, called with the stream; whoever calls keeps them.

        None where each launch takes scratch.
        """
        if self._counts:
            return None
        programs = self._groups + (-(-out.shape[0] // _CLEARED) if self._clear else 0)
        result = (out.shape[0], self._groups, offsets.stride(0), out.shape[1], *out.stride())
        arguments = (offsets, table, *other, self._flag, out, *result)
        constants = self._constants(self._name, self._cut)
        return standing(_task(self._name, programs, arguments, constants))


class DepthPlan:
    """The table of depths for operands that lie alike, of any number of rows."""

    def __init__(self, x: Any, offsets: Any, groups: int) -> None:
        """x: a tensor of the device."""
        self._ordinal, self._groups = ordinal_of(x), groups
        self._flag = faults.flag(self._ordinal)
        self._counts = 0 if at_once(groups) else -(-groups // _COUNTED)
        where, table = (groups, offsets.stride(0)), memory(x, 4)
        block = _COUNTED if self._counts else _BLOCK
        constants = self._constants = {"LEADING": offsets.shape[0] - groups, "BLOCK": block}
        if not self._counts:
            planned = (offsets, table, self._flag, 0, *where)
            self._plan = reusable(_task("plan_depths", 1, planned, constants), self._ordinal)
            return
        counted = (offsets, self._flag, table, 0, 0, *where)
        self._count = reusable(_task("count_long", 1, counted, constants), self._ordinal)
        placed = (offsets, table, table, 0, 0, *where)
        self._place = reusable(_task("place_long", 1, placed, constants), self._ordinal)

    def launch(self, stream: int, offsets: Any, table: Any, rows: int) -> None:
        """Write `table`."""
        if not self._counts:
            self._plan(stream, self._groups, offsets, table, self._flag, rows)
            return
        places, long = memory(table, 4 * self._counts), _LONG * (rows // self._groups)
        self._count(stream, self._counts, offsets, self._flag, places, rows, long)
        self._place(stream, self._counts, offsets, table, places, rows, long)

    def standing(self, offsets: Any, table: Any, rows: int) -> Callable[[int], None] | None:
        """`launch` of these alone, as of `RowPlan`."""
        if self._counts:
            return None
        arguments = (offsets, table, self._flag, rows, self._groups, offsets.stride(0))
        return standing(_task("plan_depths", self._groups, arguments, self._constants))


def _task(name: str, programs: int, arguments: tuple[Any, ...], constants: Any) -> Task:
    from tilewright.backends.cuda.kernels.triton import ragged_blocks, ragged_either, ragged_plans

    places = (ragged_plans, ragged_either, ragged_blocks)
    kernels = next(place for place in places if hasattr(place, name))
    return Task(getattr(kernels, name), programs, arguments, constants, {})


def memory(like: Any, words: int) -> Any:
    """Memory for a plan, of this launch alone, where a tensor lies.

    What torch's generated code calls takes a third of the host time, for the current GPU.
    """
    import torch

    if like.is_cuda and private.current_device(torch)() == like.get_device():
        with suppress(AttributeError):
            return private.empty_strided(torch)((words,), (1,), torch.int32)
    return torch.empty(words, dtype=torch.int32, device=like.device)


def ordinal_of(x: Any) -> int:
    """The GPU that a tensor lies on; that of Triton's interpreter for one of the host."""
    return int(x.device.index) if x.is_cuda else INTERPRETED
