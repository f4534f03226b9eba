"""Cuts a chain of convolutions into what engines take, by their own predictions.

    conv conv conv conv     one engine keeps all of it in a cache, if one says that it is faster;
    [--------] [--] [--]    else the chain is cut where the sum of predicted seconds is least

A cut costs what the prediction says: the value there goes through memory. What nobody predicted
counts behind all that somebody did, and of equals fewer pieces win. A pure function of what the
engines answer; a piece that none takes is computed by its definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tilewright.engines.choose import choose
from tilewright.engines.contract import Planner
from tilewright.engines.conv import ConvWork, Format
from tilewright.facts.device import Device
from tilewright.facts.dtypes import VALUES
from tilewright.facts.verdict import Verdict
from tilewright.wording import counted, time_text

_LONGEST = 24  # layers that engines are asked for at once
_FORMATS: tuple[Format, Format] = ("channels_last", "channels_first")


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Layers `begin` to `end` of a chain, asked as `work`; without proposals, the definition.

    why  how its chain was cut, beside the other ways that were asked
    """

    begin: int
    end: int
    work: ConvWork
    verdict: Verdict
    why: str = ""

    @property
    def seconds(self) -> float | None:
        """Predicted, None where nobody does."""
        return self.verdict.best.seconds if self.verdict.proposals else None


# Layers without a prediction, predicted seconds, pieces.
_Cost = tuple[int, float, int]


def cut(
    work: ConvWork,
    device: Device,
    engines: Sequence[Planner[ConvWork]],
    preferred: Format,
    source: Format | None = None,
) -> tuple[Segment, ...]:
    """The pieces of a chain, in order; `preferred` is how values between them lie if both do.

    source: how x should rather lie, where that is not as `preferred`.
    """
    count = len(work.layers)
    known: dict[tuple[int, int], Segment] = {}

    def piece(begin: int, end: int) -> Segment:
        if (begin, end) not in known:
            forms = (source or preferred if begin == 0 else preferred, preferred)
            known[begin, end] = _asked(part_of(work, begin, end), begin, device, engines, forms)
        return known[begin, end]

    places = _least(count, piece)
    pieces = tuple(piece(begin, end) for begin, end in pairwise(places))
    if count == 1:
        return pieces
    why = _why(pieces, [piece(at, at + 1) for at in range(count)], known.get((0, count)))
    return tuple(replace(one, why=why) for one in pieces)


def part_of(work: ConvWork, begin: int, end: int) -> ConvWork:
    """Some layers of a chain as a chain."""
    _, height, width = work.sizes[begin]
    whole = work.layers[begin].whole
    dtype = work.dtype if whole is None else whole.source
    return replace(work, layers=work.layers[begin:end], height=height, width=width, dtype=dtype)


def _least(count: int, piece: Callable[[int, int], Segment]) -> list[int]:
    """Where to cut so that the sum of costs is least: each layer's best end, from the last back."""
    best: list[tuple[_Cost, int]] = [((0, 0.0, 0), count)] * (count + 1)
    for begin in reversed(range(count)):
        found = None
        for end in range(begin + 1, min(count, begin + _LONGEST) + 1):
            one = piece(begin, end)
            if end > begin + 1 and not one.verdict.proposals:
                break  # who refuses a chain refuses a longer one
            cost = _sum(_cost(one), best[end][0])
            if found is None or cost < found[0]:
                found = cost, end
        assert found is not None
        best[begin] = found
    places = [0]
    while places[-1] < count:
        places.append(best[places[-1]][1])
    return places


def moved_bytes(work: ConvWork, nodes: Sequence[int]) -> tuple[float, float]:
    """Bytes between memory and cores: of the piece, and of its `nodes` a layer one by one."""
    apart = 0.0
    for at, count in enumerate(nodes):
        layer = part_of(work, at, at + 1)
        channels, height, width = layer.sizes[-1]
        element = VALUES[layer.result_dtype]
        # What follows the convolution reads and writes its result once more.
        again = 2 * element * layer.images * channels * height * width
        apart += layer.bytes + (count - 1) * again
    return work.bytes, apart


def _why(pieces: Sequence[Segment], singles: Sequence[Segment], whole: Segment | None) -> str:
    """Into how many pieces, and what was predicted of none and of as many as there are layers."""
    chosen = _total(pieces)
    said = f"{len(singles)} layers in {counted(len(pieces), 'piece')}"
    parts = [said if chosen is None else f"{said}, {time_text(chosen)}"]
    if len(pieces) > 1 and whole is None:
        parts.append("in one piece: not asked, as shorter ones were refused")
    elif len(pieces) > 1 and whole is not None:
        seconds = whole.seconds
        found = "not predicted" if seconds is None else time_text(seconds)
        parts.append(f"in one piece: {found if whole.verdict.proposals else 'refused'}")
    if len(pieces) < len(singles):
        apart = _total(singles)
        found = "not predicted" if apart is None else time_text(apart)
        parts.append(f"layer by layer: {found}")
    return "; ".join(parts)


def _total(pieces: Sequence[Segment]) -> float | None:
    """The sum of predictions, None where one is missing."""
    known = [one.seconds for one in pieces if one.seconds is not None]
    return sum(known) if len(known) == len(pieces) else None


def _cost(one: Segment) -> _Cost:
    unknown = 0 if one.seconds is not None else one.end - one.begin
    return unknown, one.seconds or 0.0, 1


def _sum(one: _Cost, other: _Cost) -> _Cost:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _asked(
    work: ConvWork,
    begin: int,
    device: Device,
    engines: Sequence[Planner[ConvWork]],
    preferred: tuple[Format, Format],
) -> Segment:
    """What engines say of some layers; of the ways in which x and out may lie, one that is taken.

    Other ways than the preferred, of x and of out, are asked only where that has no taker.
    """
    ways = sorted(
        ((source, result) for source in _FORMATS for result in _FORMATS),
        key=lambda way: sum(one != other for one, other in zip(way, preferred, strict=True)),
    )
    first = None
    for source, result in ways:
        asked = replace(work, source=source, result=result)
        found = Segment(
            begin, begin + len(work.layers), asked, choose(asked, device, tuple(engines))
        )
        if found.verdict.proposals:
            return found
        first = first or found
    assert first is not None
    return first
