"""Which row of which expert each token's slots become: four launches, nothing read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.backends.cuda.machine import faults
from tilewright.backends.cuda.moe.launches import enqueue
from tilewright.backends.cuda.ragged.plan import memory, ordinal_of

_BLOCK = 128  # slots that a program counts and places; each is compared with all of them
_GROUPS = 32  # experts that it looks at together
_TOGETHER = 32  # slots that it compares its own with at a time
_BLOCKS, _FEW = 256, 4  # blocks and experts whose counts one program adds
_ENDS = 1024  # experts whose ends are found together


@dataclass(frozen=True, slots=True)
class Routes:
    """Rows in the order of experts, and within one of slots. All int32, on the device.

    offsets: [E], where the rows of each expert end. tokens, order: [T K], of each row the token
    and the slot (token K + k) whose it is. places: [T, K], the row of each slot, or -1.
    """

    offsets: Any
    tokens: Any
    order: Any
    places: Any


def route(experts: Any, groups: int) -> Routes:
    """The routes of experts [T, K], any integers of the device; there are slots and groups."""
    from tilewright.backends.cuda.kernels.triton import moe_routes as kernels

    tokens, top = experts.shape
    slots = tokens * top
    blocks = -(-slots // _BLOCK)
    counts, totals = memory(experts, blocks * groups), memory(experts, groups)
    found = Routes(*(memory(experts, words) for words in (groups, slots, slots, slots)))
    lie = (groups, top, *experts.stride())
    flag = faults.flag(ordinal_of(experts))
    count = {"BLOCK": _BLOCK, "GROUPS": _GROUPS}
    enqueue(kernels.count_slots, blocks, (experts, counts, flag), lie, count, moving=(slots,))
    add = {"BLOCKS": _BLOCKS, "GROUPS": _FEW}
    programs = -(-groups // _FEW)
    enqueue(kernels.add_counts, programs, (counts, totals), (groups,), add, moving=(blocks,))
    enqueue(kernels.end_groups, 1, (totals, found.offsets), (groups,), {"GROUPS": _ENDS})
    written = (found.offsets, found.tokens, found.order, found.places)
    place = {"BLOCK": _BLOCK, "TOGETHER": _TOGETHER}
    tensors = (experts, counts, *written)
    enqueue(kernels.place_slots, blocks, tensors, lie, place, moving=(slots,))
    return found
