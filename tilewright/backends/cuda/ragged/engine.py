"""Products with sizes on the device: plan and multiply, two or three launches, nothing read back.

    rows     x [t, k] by w [groups, k, n]: the rows of a group meet its own matrix     -> [t, n]
    depths   x [m, t] by y [t, n]: the group's columns of x meet its rows of y -> [groups, m, n]

How many tiles there are is known on the device only; the host knows a bound, groups + t / TILE_M,
and launches a fixed number of programs that share whatever there is. Rows may be found by index,
where tokens lie in another order, and results go through a gate (facts/gates.py). What is compiled
and decided for operands is kept by their sizes, strides and alignments, not by their addresses; nor
by t, which in training changes with every batch: of it only the class (`_class_of`) decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from typing import Any

from tilewright.arrays import storage
from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.giving_way import first_that_can
from tilewright.backends.cuda.machine import driver, faults, nvrtc
from tilewright.backends.cuda.ragged import (
    hopper_chosen,
    hopper_cuts,
    hopper_depths,
    hopper_rows,
    packed,
    single,
    triton,
    triton_chosen,
)
from tilewright.backends.cuda.ragged.tiles import MANY, TINY_ROWS
from tilewright.backends.cuda.ragged.work import LEFT, RaggedWork, Standing, Way
from tilewright.engines.choose import choose, named
from tilewright.engines.contract import Engine
from tilewright.facts.arithmetic import is_alone, rounding
from tilewright.facts.device import Device
from tilewright.facts.gates import Gate
from tilewright.facts.verdict import Verdict
from tilewright.remember import Shelf

# What multiplies each of the two forms, the faster first: what it takes, no other does faster.
_ENGINES: dict[str, tuple[Engine[RaggedWork, RaggedWork, Way], ...]] = {
    "rows": (
        hopper_chosen.HopperChosen(),
        hopper_rows.HopperRows(),
        single.SingleRows(),
        packed.PackedRows(),
        triton_chosen.TritonRows(),
        triton.TritonRows(),
    ),
    "depths": (
        hopper_depths.HopperDepths(),
        single.SingleDepths(),
        packed.PackedDepths(),
        triton_chosen.TritonDepths(),
        triton.TritonDepths(),
    ),
}
INTERPRETER = Device(
    "interpreter",
    "cuda",
    "Triton's interpreter",
    compute_units=4,
    local_memory=2**20,
    features=frozenset({"tf32"}),
)
_ALIGNMENT = 256  # bytes; what an address is a multiple of matters up to here
_WITHIN = _ALIGNMENT - 1
_FAR = 2**30  # elements from one row to the next that engines have no numbers for
_WAY = 1 << 13  # bytes of the host that a prepared launch holds, about
# Rows a group from which on something is decided otherwise: tiles, bands, orders of entries.
_CLASSES = sorted(
    {
        *(many.m // 2 for many in MANY.values()),
        hopper_rows.LONG * hopper_rows.ROWS,
        hopper_depths.SHORT,
        single.FEW,
        packed.FEW,
        TINY_ROWS,
    }
)
_NAMES = ("x", "w", "offsets", "bias", "out", "index", "h")
# The arithmetic's word, whether rows without a group are cleared, whose rows are chosen, the gate.
_How = tuple[str, bool, int, Gate | None]
# By operands that lie alike; where `out` was new, without it.
_ways: Shelf[tuple[Any, ...], Way] = Shelf("launches of ragged products", most=4 << 20)


def rows(
    x: Any,
    w: Any,
    offsets: Any,
    bias: Any,
    out: Any,
    precision: str,
    clear: bool,
    *,
    index: Any = None,
    h: Any = None,
    gate: Gate | None = None,
) -> None:
    """out[i] = x[i] @ w[group of i] + bias[group of i]; checked tensors of one device.

    `precision` is a word of facts/arithmetic.py; where rows stand alone, x must be `settled`.
    `clear` writes zeros into the rows of `out` that no group has. With an `index` it is
    x[index[i]]; with a `gate` `out` is what that makes of the product, and the product goes into
    `h` if given. Both want no bias, and out and h dense. Raises OperandError for a tensor without
    memory of its own.
    """
    if not w.shape[0]:  # there is nobody to plan
        if clear:
            out.zero_()
        return
    _need(x)
    how = (precision, clear, LEFT if index is not None else 0, gate)
    _run("rows", (x, w, offsets, bias, out, index, h), how)


def depths(
    x: Any, y: Any, offsets: Any, out: Any, precision: str, *, index: Any = None, chosen: int = 0
) -> None:
    """out[g] = x[:, rows of g] @ y[rows of g]; checked tensors of one device.

    With an `index` columns of x (`chosen` LEFT) or rows of y (RIGHT) are found by it; out is dense.
    Raises OperandError for a tensor without memory of its own.
    """
    _need(x)
    if not out.shape[0]:
        return
    how = (rounding(precision), False, chosen if index is not None else 0, None)
    _run("depths", (x, y, offsets, None, out, index, None), how)


def settled(x: Any) -> Any:
    """x [rows, k] as every engine reads it: its rows contiguous, at multiples of 16 bytes, apart.

    So that what an engine wants of x never decides by which of them a row is multiplied.
    """
    item, k = x.element_size(), x.shape[1]
    step, along = x.stride()
    aligned = x.data_ptr() % 16 == 0 and step * item % 16 == 0
    if along == 1 and aligned and max(k, 1) <= step < _FAR:
        return x
    pitch = -(-max(k, 1) * item // 16) * 16 // item
    found = x.new_empty((x.shape[0], pitch))[:, :k]
    return found.copy_(x)


def judged(operands: tuple[Any, ...], precision: str, gate: Gate | None = None) -> Verdict:
    """What the engines say of x, w, offsets, a bias, out, index and h: who would multiply, why."""
    x, w, *_ = operands
    form = "rows" if w.dim() == 3 else "depths"
    word = precision if form == "rows" else rounding(precision)
    work = _work(operands, (word, True, LEFT if operands[5] is not None else 0, gate))
    return choose(work, _device_of(x), _ENGINES[form])


def again(x: Any, w: Any, offsets: Any, bias: Any, precision: str) -> Any:
    """A product into a new tensor, at once, where one that lies alike was remembered; else None.

    What was remembered was checked, so operands that lie alike need no checks.
    """
    way = _ways.get(_alike(x, w, offsets, bias, precision))
    if way is None or any(
        one is not None and storage.is_short(one) for one in (x, w, offsets, bias)
    ):
        return None
    torch, ordinal = driver.need(), x.get_device()
    if private.current_device(torch)() != ordinal:
        return None
    faults.check_unless_captured(x)
    out = x.new_empty(_result(x, w, offsets))
    if out.data_ptr() & _WITHIN:  # not from torch's own allocator
        return None
    way(private.raw_stream(torch)(ordinal), x, w, offsets, bias, out, None, None)
    return out


def remember(x: Any, w: Any, offsets: Any, bias: Any, out: Any, precision: str) -> None:
    """Let `again` do at once what has just run into a new tensor. For checked operands only."""
    if w.dim() == 3:
        how = (precision, True, 0, None)
        key = _key("rows", (x, w, offsets, bias, out, None, None), how)
    else:
        how = (rounding(precision), False, 0, None)
        key = _key("depths", (x, w, offsets, None, out, None, None), how)
    way = _ways.get(key)
    if way is not None and _facts(out)[-1] == _ALIGNMENT:
        _ways.keep(_alike(x, w, offsets, bias, precision), way)


def is_remembered(x: Any, w: Any, offsets: Any, bias: Any, precision: str) -> bool:
    """Whether `again` knows such a product."""
    return _alike(x, w, offsets, bias, precision) in _ways


def _result(x: Any, w: Any, offsets: Any) -> tuple[int, ...]:
    if w.dim() == 3:
        return x.shape[0], w.shape[2]
    return offsets.shape[0], x.shape[0], w.shape[1]


def _alike(x: Any, w: Any, offsets: Any, bias: Any, precision: str) -> tuple[Any, ...]:
    extra = None if bias is None else _facts(bias)
    if w.dim() == 3:
        moving = (_class_of(_units(x), x.shape[0], *w.shape), _of_rows(x, 1), _facts(w))
    else:
        moving = (_class_of(0, w.shape[0], offsets.shape[0]), _of_rows(x, 0), _of_rows(w, 1))
    return precision, *moving, _facts(offsets), extra


def standing_rows(x: Any, w: Any, offsets: Any, out: Any, precision: str) -> Callable[[int], None]:
    """`rows`, cleared, of these tensors again and again: `launch(stream)`, the same each time.

    That must be torch's current stream here, for tables are taken from its memory. Whoever launches
    keeps the tensors. Raises OperandError.
    """
    return _standing("rows", (x, w, offsets, None, out, None, None), (precision, True, 0, None))


def standing_depths(
    x: Any, y: Any, offsets: Any, out: Any, precision: str
) -> Callable[[int], None]:
    """`depths` likewise."""
    how = (rounding(precision), False, 0, None)
    return _standing("depths", (x, y, offsets, None, out, None, None), how)


def _standing(form: str, operands: tuple[Any, ...], how: _How) -> Callable[[int], None]:
    storage.check_memory(dict(zip(_NAMES, operands, strict=True)))
    x, w, offsets, _, out, *_ = operands
    torch = driver.need()
    way = _way_of(form, operands, how)
    found = way.standing(x, w, offsets, out) if isinstance(way, Standing) else None
    if found is not None:
        return found
    stream_of = torch.cuda.ExternalStream

    def launch(stream: int) -> None:
        with torch.cuda.stream(stream_of(stream, device=x.device)):
            way(stream, *operands)

    return launch


def _run(form: str, operands: tuple[Any, ...], how: _How) -> None:
    x = operands[0]
    storage.check_memory(dict(zip(_NAMES, operands, strict=True)))
    if not x.is_cuda:
        _way(form, operands, how)(0, *operands)
        return
    torch = driver.need()
    ordinal = x.device.index
    if private.current_device(torch)() != ordinal:
        with torch.cuda.device(ordinal):
            _run(form, operands, how)
        return
    way = _way_of(form, operands, how)
    way(private.raw_stream(torch)(ordinal), *operands)


def _way_of(form: str, operands: tuple[Any, ...], how: _How) -> Way:
    """The launches of a product on the current GPU, as kept of one that lay alike, or made now."""
    key = _key(form, operands, how)
    way = _ways.get(key)
    if way is None:
        nvrtc.enter(operands[0].device.index)
        way = _ways.keep(key, _way(form, operands, how), size=_WAY)
    return way


def _key(form: str, operands: tuple[Any, ...], how: _How) -> tuple[Any, ...]:
    x, w, offsets, bias, out, index, h = operands
    if form == "rows":
        count = (x if index is None else index).shape[0]
        decided = _class_of(_units(x), count, *w.shape)
        moving = (decided, _of_rows(x, 1), _facts(w), _of_rows(out, 1))
    else:
        count = (w if index is None else index).shape[0]
        groups = (_class_of(0, count, out.shape[0]), _of_rows(x, 0), _of_rows(w, 1))
        moving = (*groups, _facts(out))
    extra = None if bias is None else _facts(bias)
    kept = None if h is None else _of_rows(h, 1)
    found = None if index is None else index.data_ptr() & _WITHIN
    return form, *how, *moving, _facts(offsets), extra, kept, found


def _class_of(units: int, rows: int, groups: int, k: int = 0, columns: int = 0) -> int:
    """What so many rows decide, by k and columns of w where tiles are cut for so many `units`.

    No rows are a class of their own.
    """
    if not (rows and groups):
        return 0
    mean = rows // groups
    cut = hopper_cuts.choice(mean, groups, k, columns, units) if units else 0
    return (1 + hopper_cuts.EITHER) * bisect_right(_CLASSES, mean) + 1 + cut


def _units(x: Any) -> int:
    """The multiprocessors for whose waves rows of x are cut (hopper_cuts.py); 0: for nobody's."""
    return _units_of(x.get_device()) if x.element_size() == 2 else 0


@cache
def _units_of(ordinal: int) -> int:
    device = _device(ordinal)
    return device.compute_units if device.has("wgmma") else 0


def _facts(tensor: Any) -> tuple[Any, ...]:
    """What kernels are compiled and maps are made for."""
    return tensor.shape, *_of_rows(tensor, None)


def _of_rows(tensor: Any, other: int | None) -> tuple[Any, ...]:
    """The same of a matrix whose rows may grow: of its sizes only that of dimension `other`."""
    at = tensor.data_ptr()
    aligned = at & _WITHIN
    # The largest power of two that it is a multiple of; 0 for what has no memory.
    aligned = aligned & -aligned or (_ALIGNMENT if at else 0)
    size = None if other is None else tensor.shape[other]
    return size, tensor.stride(), tensor.dtype, tensor.get_device(), aligned


def _way(form: str, operands: tuple[Any, ...], how: _How) -> Way:
    """The launches of a product, by the first engine that takes it and can be had."""
    work, device, engines = _work(operands, how), _device_of(operands[0]), _ENGINES[form]
    verdict = choose(work, device, engines)
    _, way = first_that_can(
        verdict, lambda proposal: named(engines, proposal.engine, device).bind(proposal, work)
    )
    return way


def _work(operands: tuple[Any, ...], how: _How) -> RaggedWork:
    x, w, offsets, bias, out, index, h = operands
    word, clear, chosen, gate = how
    precision, alone = rounding(word), is_alone(word)
    return RaggedWork(x, w, offsets, bias, out, precision, clear, index, chosen, h, gate, alone)


def _device_of(x: Any) -> Device:
    return _device(x.get_device())


def _device(ordinal: int) -> Device:
    return INTERPRETER if ordinal < 0 else driver.device_of(ordinal)


def _need(x: Any) -> None:
    """Raise what is missing, by name, before Triton is imported."""
    if x.is_cuda:
        driver.need()
