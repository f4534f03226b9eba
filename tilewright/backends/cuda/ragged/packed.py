"""Ragged products whose operands lie as no fast kernel reads them: packed first, then multiplied.

    x, w  ---- rows at multiples of 16 bytes; rows by index in order ---->  hopper or single
    h     ---- gate ---->  out

A pass over the operands costs their bytes. bf16, 64 groups of 64 rows, k 2047 and n 1023 took
Triton, which loads such rows element by element, 2.29 ms on an H200; aligned ones take 0.12.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.machine.triton_launch import Task, reusable
from tilewright.backends.cuda.ragged import hopper_depths, hopper_rows, single
from tilewright.backends.cuda.ragged.plan import ordinal_of
from tilewright.backends.cuda.ragged.triton import sum_type
from tilewright.backends.cuda.ragged.work import LEFT, RIGHT, RaggedWork, Way
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

FEW = 16  # rows a group below which w is read faster as it lies than packed
_WIDE, _ELEMENTS = 256, 4096  # columns and elements of a program that packs
_ROW, _DEPTH = 8, 16  # elements: rows of halves begin at multiples; wgmma's steps of k

Copy = Callable[..., Any]  # a stream, an operand, an index or None: a packed copy of it
Make = Callable[..., Any]  # a tensor, sizes and steps: another of its dtype that lies so


@dataclass(frozen=True, slots=True)
class _Packed:
    """Which operands are packed, and what is left to multiply, with stand-ins for them."""

    x: bool
    w: bool
    left: RaggedWork


class PackedRows:
    """Rows in order at multiples of 16 bytes for `HopperRows`, or in order for `SingleRows`."""

    name = "packed"

    def why_not(self, work: RaggedWork, device: Device) -> str | None:
        """Takes what the two would take if it lay otherwise."""
        nothing = work.why_not_large() or nvrtc.missing()
        if nothing is None and work.gate is not None and work.clear:
            nothing = "rows without a group are to be cleared behind a gate"
        few = work.w.dim() == 3 and work.rows_for_tiles < work.w.shape[0] * _few(work)
        if nothing is None and few:
            nothing = f"groups have fewer than {_few(work)} rows on average"
        if nothing is None and work.w.dim() == 2 and min(work.out.shape[1:]) < _few(work):
            nothing = f"results have fewer than {_few(work)} rows or columns"
        if nothing is not None:
            return nothing
        packed = _packed(work, _nowhere)
        if not packed.x and not packed.w:
            return "there is nothing to pack"
        return _why_not_behind(packed.left, device)

    def propose(self, work: RaggedWork, device: Device) -> Proposal:
        """By which engine, and what is packed for it."""
        packed = _packed(work, _nowhere)
        behind: Proposal = _behind(work).propose(packed.left, device)
        what = " and ".join(name for name in ("x", "w") if getattr(packed, name))
        return replace(behind, engine=self.name, reason=f"{what} packed, then {behind.reason}")

    def bind(self, proposal: Proposal, work: RaggedWork) -> Way:
        """Packing launches, then those of the engine behind, then the gate."""
        packed = _packed(work, _somewhere)
        left = packed.left
        behind = _behind(work).bind(proposal, left)
        pack_x = _packer(work, LEFT, left.x) if packed.x else None
        pack_w = _packer(work, RIGHT, left.w) if packed.w else None
        end = None if work.gate is None else _gated(work, left.out)

        def way(
            stream: int, x: Any, w: Any, offsets: Any, bias: Any, out: Any, index: Any, h: Any
        ) -> None:
            x = x if pack_x is None else pack_x(stream, x, index)
            w = w if pack_w is None else pack_w(stream, w, index)
            if end is None:
                behind(stream, x, w, offsets, bias, out, None, None)
                return
            product = x.new_empty((out.shape[0], w.shape[2])) if h is None else h
            behind(stream, x, w, offsets, bias, product, None, None)
            end(stream, product, out)

        return way


class PackedDepths(PackedRows):
    """The same for `HopperDepths` and `SingleDepths`."""


def _few(work: RaggedWork) -> int:
    return single.FEW if work.x.element_size() == 4 else FEW


def _behind(work: RaggedWork) -> Any:
    halves = work.x.element_size() == 2
    if work.w.dim() == 3:
        return hopper_rows.HopperRows() if halves else single.SingleRows()
    return hopper_depths.HopperDepths() if halves else single.SingleDepths()


def _why_not_behind(left: RaggedWork, device: Device) -> str | None:
    """What the engine behind says of packed operands, of which it sees how they would lie."""
    if left.x.element_size() == 4:
        return single.why_not(left, device)
    if left.w.dim() == 3:
        return hopper_rows.why_not(left.x, left.w, left.out, left.bias, device)
    return hopper_depths.why_not(left.x, left.w, left.out, device)


def _packed(work: RaggedWork, make: Make) -> _Packed:
    """What has to be packed, with what `make` makes for it."""
    halves, rows, x, w, out = work.x.element_size() == 2, work.rows, work.x, work.w, work.out
    step = _ROW if halves else 1
    if w.dim() == 3:
        moved = work.index is not None
        pack_x = moved or not _reads(x, halves)
        pack_w = not _reads_groups(w, halves)
        if pack_x:
            x = make(x, (rows, x.shape[1]), (_up(x.shape[1], step), 1))
        if pack_w:
            w = _groups_like(w, step, make)
        if work.gate is not None:
            out = make(x, (rows, work.w.shape[2]), (work.w.shape[2], 1))
    else:
        pack_x = work.chosen == LEFT or not _reads(x.t(), halves)
        pack_w = work.chosen == RIGHT or not _reads(w, halves)
        if pack_x:
            x = make(x, (x.shape[0], rows), (1, _up(x.shape[0], step)))
        if pack_w:
            w = make(w, (rows, w.shape[1]), (_up(w.shape[1], step), 1))
    left = replace(work, x=x, w=w, out=out, index=None, chosen=0, h=None, gate=None)
    return _Packed(pack_x, pack_w, left)


def _reads(rows: Any, halves: bool) -> bool:
    """Whether the engine behind reads a matrix of such rows as it lies."""
    if not halves:
        return 1 in rows.stride()
    first, along = rows.stride()
    return bool(along == 1 and first > 0 and first % _ROW == 0 and rows.data_ptr() % 16 == 0)


def _reads_groups(w: Any, halves: bool) -> bool:
    """The same of w [groups, k, n]."""
    (groups, k, n), (apart, down, across) = w.shape, w.stride()
    if not halves:
        return 1 in (down, across)
    run, runs, step = (k, n, across) if down == 1 else (n, k, down)
    follow = step >= run and step % _ROW == 0 and (groups == 1 or apart == runs * step)
    whole = down == 1 or (across == 1 and k % _DEPTH == 0)
    return bool(whole and follow and w.data_ptr() % 16 == 0)


def _groups_like(w: Any, step: int, make: Make) -> Any:
    """Packed w: k stays along rows where it lies along them; across them it comes in sixteens."""
    groups, k, n = w.shape
    if w.stride(1) == 1 and w.stride(2) != 1:
        along = _up(k, step)
        return make(w, (groups, k, n), (n * along, 1, along))
    deep, along = _up(k, _DEPTH if step > 1 else 1), _up(n, step)
    return make(w, (groups, deep, n), (deep * along, along, 1))


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _nowhere(like: Any, sizes: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    """A tensor without memory, which says how another would lie."""
    import torch

    return torch.empty_strided(sizes, steps, dtype=like.dtype, device="meta")


def _somewhere(like: Any, sizes: tuple[int, ...], steps: tuple[int, ...]) -> Any:
    import torch

    return torch.empty_strided(sizes, steps, dtype=like.dtype, device=like.device)


def _packer(work: RaggedWork, side: int, held: Any) -> Copy:
    """Packs operands that lie as the left or right one of `work` into new ones as `held` lies."""
    from tilewright.backends.cuda.kernels.triton.packing import pack_rows

    given = work.x if side == LEFT else work.w
    grouped, indexed = given.dim() == 3, work.index is not None and side == (work.chosen or LEFT)
    turned, steps = held.stride(-1) != 1, held.stride()
    high, columns, apart, down, across = _as_rows(given, turned)
    # A matrix is packed as groups of a row each.
    padded = (held.shape[-1] if turned else held.shape[-2]) if grouped else 1
    source = (high, padded, apart, down, across) if grouped else (1, 1, down, down, across)
    wide = min(_WIDE, 1 << (columns - 1).bit_length())
    tile = {"HIGH": _ELEMENTS // wide // 4, "WIDE": wide}
    tensors = (given, held, work.index if indexed else given)
    numbers = (0, 0, columns, *source, max(steps[-2:]))
    task = Task(pack_rows, 1, (*tensors, *numbers), {"INDEXED": indexed, **tile}, {})
    launch, beside = reusable(task, ordinal_of(given)), -(-columns // wide)

    def pack(stream: int, operand: Any, index: Any) -> Any:
        limit = _as_rows(operand, turned)[0]
        count = index.shape[0] if indexed else operand.shape[0] * padded if grouped else limit
        sizes = operand.shape if grouped else (columns, count) if turned else (count, columns)
        made = _somewhere(operand, _deep(sizes, padded, turned), steps)
        programs = -(-count // tile["HIGH"]) * beside
        launch(stream, programs, operand, made, index if indexed else operand, count, limit)
        return made

    return pack


def _deep(sizes: tuple[int, ...], padded: int, turned: bool) -> tuple[int, ...]:
    """Of groups k as the copy has it."""
    return (sizes[0], padded, sizes[2]) if len(sizes) == 3 and not turned else sizes


def _as_rows(given: Any, turned: bool) -> tuple[int, int, int, int, int]:
    """Rows of a matrix (of each group of it), their columns, and the steps from one to the next.

    `turned`: its columns are the rows.
    """
    apart = given.stride(0) if given.dim() == 3 else 0
    (high, wide), (down, across) = given.shape[-2:], given.stride()[-2:]
    return (wide, high, apart, across, down) if turned else (high, wide, apart, down, across)


def _gated(work: RaggedWork, product: Any) -> Callable[[int, Any, Any], None]:
    """Launches the gate, from such products to the result."""
    from tilewright.backends.cuda.kernels.triton.packing import gate_rows

    assert work.gate is not None
    n = work.out.shape[1]
    wide = min(_WIDE, 1 << (n - 1).bit_length())
    high = _ELEMENTS // wide // 4
    constants = {"FORM": work.gate.form, "KIND": work.gate.kind, "SUM": sum_type(product)}
    constants |= {"HIGH": high, "WIDE": wide}
    tensors = (product, work.out)
    task = Task(gate_rows, 1, (*tensors, 0, n), constants, {})
    launch, across = reusable(task, ordinal_of(product)), -(-n // wide)

    def end(stream: int, product: Any, out: Any) -> None:
        rows = out.shape[0]
        launch(stream, -(-rows // high) * across, product, out, rows)

    return end
