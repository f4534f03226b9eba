"""moe_routes: from the experts that tokens chose to the order in which experts take their rows.

    experts [T, K], a slot each     counts [blocks, E]        places [T, K]   which row a slot got
    | e e e e | e e e e | ... |     | of block 0    |         tokens [rows]   whose row it is
      block 0   block 1        ->   | of block 1    |    ->   order [rows]    which slot's row it is
      count_slots                   | ...           |         offsets [E]     where an expert ends
                                      add_counts                end_groups, place_slots

Rows of an expert are in the order of their slots, so nothing depends on which block came first. A
slot that names no expert gets no row, and its place is -1. Unless it says so itself, by -1, `fault`
gets the slot's number, negative.
"""

import triton
import triton.language as tl


@triton.jit
def _expert_of(experts, slot, slots, groups, top, token_step, step):
    """The experts that slots name: `groups` for -1 and where there is no such slot, one more for
    what is no expert.
    """
    live = slot < slots
    place = experts + (slot // top).to(tl.int64) * token_step + (slot % top) * step
    expert = tl.load(place, mask=live, other=0)
    good = live & (expert >= 0) & (expert < groups)
    return tl.where(good, expert, tl.where(live & (expert != -1), groups + 1, groups)).to(tl.int32)


@triton.jit(do_not_specialize=["slots"])
def count_slots(
    experts,
    counts,
    fault,
    slots,
    groups,
    top,
    token_step,
    step,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Program b counts how often each expert is named by the slots from b BLOCK on."""
    block = tl.program_id(0)
    slot = block * BLOCK + tl.arange(0, BLOCK)
    expert = _expert_of(experts, slot, slots, groups, top, token_step, step)
    worst = tl.max(tl.where(expert > groups, slot + 1, 0))
    if worst > 0:
        tl.store(fault, -worst)
    row = counts + block.to(tl.int64) * groups
    for start in range(0, groups, GROUPS):
        group = start + tl.arange(0, GROUPS)
        named = expert[:, None] == group[None, :]
        tl.store(row + group, tl.sum(named.to(tl.int32), 0), mask=group < groups)


@triton.jit(do_not_specialize=["blocks"])
def add_counts(counts, totals, blocks, groups, BLOCKS: tl.constexpr, GROUPS: tl.constexpr):
    """Each block's counts become those of all blocks before it; `totals` has those of all."""
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    before = tl.zeros((GROUPS,), tl.int32)
    for start in range(0, blocks, BLOCKS):
        block = start + tl.arange(0, BLOCKS)
        inside = (block < blocks)[:, None] & (group < groups)[None, :]
        place = counts + block.to(tl.int64)[:, None] * groups + group[None, :]
        count = tl.load(place, mask=inside, other=0)
        tl.store(place, before[None, :] + tl.cumsum(count, 0) - count, mask=inside)
        before += tl.sum(count, 0)
    tl.store(totals + group, before, mask=group < groups)


@triton.jit
def end_groups(totals, offsets, groups, GROUPS: tl.constexpr):
    """One program: where each expert's rows end."""
    end = tl.zeros((), tl.int32)
    for start in range(0, groups, GROUPS):
        group = start + tl.arange(0, GROUPS)
        total = tl.load(totals + group, mask=group < groups, other=0)
        tl.store(offsets + group, end + tl.cumsum(total, 0), mask=group < groups)
        end += tl.sum(total)


@triton.jit(do_not_specialize=["slots"])
def place_slots(
    experts,
    counts,
    offsets,
    tokens,
    order,
    places,
    slots,
    groups,
    top,
    token_step,
    step,
    BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Program b gives the slots from b BLOCK on their rows."""
    block = tl.program_id(0)
    first = block * BLOCK
    slot = first + tl.arange(0, BLOCK)
    expert = _expert_of(experts, slot, slots, groups, top, token_step, step)
    good = expert < groups
    begin = tl.load(offsets + expert - 1, mask=good & (expert > 0), other=0)
    row = tl.load(counts + block.to(tl.int64) * groups + expert, mask=good, other=0) + begin
    for start in range(0, BLOCK, TOGETHER):
        other = first + start + tl.arange(0, TOGETHER)
        theirs = _expert_of(experts, other, slots, groups, top, token_step, step)
        ahead = (theirs[None, :] == expert[:, None]) & (other[None, :] < slot[:, None])
        row += tl.sum(ahead.to(tl.int32), 1)
    tl.store(tokens + row, slot // top, mask=good)
    tl.store(order + row, slot, mask=good)
    tl.store(places + slot, tl.where(good, row, -1), mask=slot < slots)
