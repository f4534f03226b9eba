"""Products of ragged rows on Hopper: out[i] = x[i] @ w[group of i] + bias[group].

The launch reads its work from a table on the device, int32 [1 + entries, 4]:

    row 0      number of entries that follow, 0 (counts tiles during a launch), 0, 0
    row e      group, first row of x, one past the last row, turn

An entry has at most as many rows as a tile is wide, all of one group; a group of more rows has
several entries, one of none has none. Rows in no entry are not touched. Any order is right; long
entries first is faster. Up to TURNS entries of a group that follow one another take turns, column
by column of tiles, and find the weights in cache: `turn` is which of them an entry is, and how many
they are << 16. `entries` says how many there can be, so that a table can be allocated before
offsets are known. Whoever plans on the device writes it on the same stream before each launch.

The weights give the rows of wgmma's tiles and x the columns, for those come in units of 16. How
groups are cut says hopper_cuts.py. Where only the device can say, it leaves one of two tables
empty, and of the two launches that multiply one finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.backends.cuda.hopper import maps
from tilewright.backends.cuda.hopper.bind import Ragged, defines
from tilewright.backends.cuda.hopper.blocks import FINE, WIDE
from tilewright.backends.cuda.hopper.records import ENGINE_STORES
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.ragged import hopper_cuts
from tilewright.backends.cuda.ragged.hopper_cuts import EITHER, Cut
from tilewright.backends.cuda.ragged.moving import LEFT, OUT, RIGHT, Moving
from tilewright.backends.cuda.ragged.plan import RowPlan, memory
from tilewright.backends.cuda.ragged.work import RaggedWork, Way, in_turn
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

ROWS = WIDE.width  # rows of x that one entry may have
_RAGGED_ROWS = 1  # hopper_tiles.cuh
LONG = 2  # whole tiles of a group from which on what is left of groups is better done last
TURNS = 4  # entries of a group, at most, whose tiles follow one another


def is_long(rows: int, groups: int, height: int) -> bool:
    """Whether groups have so many whole tiles, of so many rows, that what is left of them is better
    done last."""
    return rows >= LONG * groups * height


def entries(rows: int, groups: int, height: int) -> int:
    """How many entries of so many rows `rows` rows in `groups` groups can need at most."""
    return rows // height + groups


def cuts_of(chosen: int) -> tuple[Cut, ...]:
    """The cuts that a choice may end in."""
    return hopper_cuts.CUTS if chosen == EITHER else (hopper_cuts.CUTS[chosen],)


def planned(
    chosen: int, offsets: Any, out: Any, groups: int, clear: bool, last: bool, units: int
) -> RowPlan:
    """The planning launch of a choice; where `last`, what whole tiles leave is done last.

    Raises DeviceError.
    """
    first = cuts_of(chosen)[0]
    return RowPlan(
        *(offsets, out, groups, first.shape.width),
        clear=clear,
        rests_last=last and not first.evenly,
        long_first=first.evenly,
        unit=first.unit,
        turns=TURNS,
        either=hopper_cuts.decides(units) if chosen == EITHER else None,
    )


class HopperRows:
    """The Hopper kernel behind a table of rows: w gives the rows of its tiles."""

    name = "hopper"

    def why_not(self, work: RaggedWork, device: Device) -> str | None:
        """Takes half precision whose rows the copy engine can read; not thousands of tiny ones."""
        if work.index is not None:
            return "rows are found by index"
        nothing = work.why_not_large() or nvrtc.missing()
        return nothing or why_not(work.x, work.w, work.out, work.bias, device)

    def propose(self, work: RaggedWork, device: Device) -> Proposal:
        """As it is: what it takes, no other kernel does faster."""
        return Proposal(self.name, device, None, "half precision on wgmma")

    def bind(self, proposal: Proposal, work: RaggedWork) -> Way:
        """The planning launch and the multiplying ones. Raises DeviceError."""
        (groups, _, n), (rows, k) = work.w.shape, work.x.shape  # packed, w may have more than k
        units = proposal.device.compute_units
        chosen = hopper_cuts.choice(rows // groups, groups, k, n, units)
        cuts = cuts_of(chosen)
        multiplies = tuple(prepared(work.x, work.w, work.out, cut, work.bias) for cut in cuts)
        last = is_long(rows, groups, cuts[0].shape.width)
        plan = planned(chosen, work.offsets, work.out, groups, work.clear, last, units)
        return _Launches(plan, multiplies, groups, [cut.shape.width for cut in cuts])


@dataclass(frozen=True, slots=True)
class _Launches:
    """A Way of rows: plan, then multiply, by each cut that the device may take."""

    plan: RowPlan
    multiplies: tuple[Moving, ...]
    groups: int
    heights: list[int]

    def __call__(
        self, stream: int, x: Any, w: Any, offsets: Any, bias: Any, out: Any, *_: Any
    ) -> None:
        tables = self._tables(x)
        self.plan.launch(stream, offsets, tables[0], out, *tables[1:])
        for moving, table in zip(self.multiplies, tables, strict=True):
            moving.launch(stream, table, w, x, out, bias, x.shape[0])

    def standing(self, x: Any, w: Any, offsets: Any, out: Any) -> Callable[[int], None] | None:
        """As `Standing` has it; without a bias."""
        tables = self._tables(x)
        plan = self.plan.standing(offsets, tables[0], out, *tables[1:])
        multiplies = [
            moving.standing(table, w, x, out, x.shape[0])
            for moving, table in zip(self.multiplies, tables, strict=True)
        ]
        return in_turn(plan, multiplies, tables)

    def _tables(self, x: Any) -> list[Any]:
        rows, groups = x.shape[0], self.groups
        return [memory(x, 4 + 4 * entries(rows, groups, height)) for height in self.heights]


def why_not(x: Any, w: Any, out: Any, bias: Any, device: Device) -> str | None:
    """Why these cannot be had here: [rows, k], [groups, k, n] and [rows, n], torch, one GPU.

    Either of w's last two dimensions may be the contiguous one; groups must follow one another;
    rows of x and w must begin at multiples of 16 bytes. x may have fewer columns than w has rows.
    """
    groups, k, n = w.shape
    if str(x.dtype).removeprefix("torch.") not in ("bfloat16", "float16"):
        return f"{x.dtype} is not half precision"
    if not device.has("wgmma"):
        return "needs wgmma: compute capability 9.0"
    transposed = _k_contiguous(w)
    run, runs = (k, n) if transposed else (n, k)
    if not transposed and (w.stride(2) != 1 or k % 16 != 0):
        return "w [groups, k, n] needs contiguous n and k a multiple of 16"
    step = row_step(w)
    if step < run or (groups > 1 and w.stride(0) != step * runs):
        return "w's groups do not follow one another"
    if x.stride(1) != 1 or out.stride(1) != 1:
        return "rows of x and out must be contiguous"
    # A gradient of a sum over rows is one row, expanded.
    if min(x.stride(0), out.stride(0)) <= 0:
        return "rows of x or out lie in one place"
    if bias is not None and max(bias.stride()) >= 2**31:
        return "a stride of the bias is 2^31 elements or more"
    if max(out.stride(0), groups * max(n, k)) >= 2**31:
        return "rows of w, or elements from one row of out to the next, are 2^31 or more"
    aligned = x.data_ptr() % 16 == w.data_ptr() % 16 == 0 and x.stride(0) % 8 == step % 8 == 0
    return None if aligned else "rows of x and w must begin at multiples of 16 bytes"


def prepared(x: Any, w: Any, out: Any, cut: Cut, bias: Any = None) -> Moving:
    """The kernel for these and for all that lie alike; see `why_not`. Launch it on w, x and out.

    x and out have as many rows as the launch says. Its table is int32 [1 + entries, 4] on the
    device, as drawn above, read at each launch; `bias` is [groups, n] of x's dtype. Raises
    DeviceError.
    """
    import torch

    groups, k, n = w.shape
    ordinal, dtype = x.device.index, str(x.dtype).removeprefix("torch.")
    transposed = _k_contiguous(w)
    stores = out.data_ptr() % 16 == 0 and out.stride(0) % 8 == 0 and n >= 8
    weights = (groups * n, k) if transposed else (groups * k, n)
    matrices = [
        (LEFT, maps.Matrix(w.data_ptr(), *weights, 2 * row_step(w))),
        (RIGHT, maps.Matrix(x.data_ptr(), x.shape[0], x.shape[1], 2 * x.stride(0), cut.slab)),
    ]
    if stores:
        results = maps.Matrix(out.data_ptr(), out.shape[0], n // 8 * 8, 2 * out.stride(0))
        matrices += [(OUT, results), (OUT, results._replace(high=FINE))]
    epilogue = None if bias is None else "none"
    macros = defines(dtype, cut.shape, (not transposed, False, True), epilogue, _RAGGED_ROWS)
    shared = Ragged(
        n=n,
        k=k,
        stride=out.stride(0),
        across=-(-n // cut.shape.rows),
        flags=ENGINE_STORES * stores,
        slab=cut.slab,
    )
    if bias is not None:
        shared.bias_group, shared.bias_step = bias.stride()
    kernel = nvrtc.function("hopper_multiply", macros, ordinal, shared=cut.shape.shared)
    units = torch.cuda.get_device_properties(ordinal).multi_processor_count
    return Moving(kernel, units, cut.shape.threads, 0, matrices, dtype, shared, {RIGHT, OUT})


def row_step(w: Any) -> int:
    """Elements of w [groups, k, n] from one contiguous row to the next."""
    return int(w.stride(2) if _k_contiguous(w) else w.stride(1))


def _k_contiguous(w: Any) -> bool:
    return bool(w.stride(1) == 1)
