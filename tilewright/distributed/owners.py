"""Which rank of a group has which experts: as many as the others, or as the caller says."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import ArgumentError
from tilewright.planning.ranks import Share
from tilewright.wording import short


@dataclass(frozen=True, slots=True)
class Owners:
    """The rank of every expert, of so many ranks. Experts of a rank are in the order of numbers."""

    ranks: tuple[int, ...]
    count: int

    def of(self, rank: int) -> list[int]:
        """The experts of a rank."""
        return [expert for expert, owner in enumerate(self.ranks) if owner == rank]

    @property
    def check(self) -> int:
        """A number that differs for other owners, all but surely."""
        return zlib.crc32(np.array(self.ranks, np.int64).tobytes())

    @property
    def places(self) -> list[int]:
        """Of every expert which of its rank's it is."""
        seen = [0] * self.count
        found = []
        for rank in self.ranks:
            found.append(seen[rank])
            seen[rank] += 1
        return found


def owners_of(placement: Any, experts: int, ranks: int) -> Owners:
    """Owners of `experts` on `ranks`: None for runs of experts, a rank an expert, or shares.

    Raises ArgumentError naming the expert that has no rank, or more than one.
    """
    if placement is None:
        return Owners(tuple(expert * ranks // experts for expert in range(experts)), ranks)
    if not isinstance(placement, Sequence | np.ndarray) or isinstance(placement, str):
        raise ArgumentError(f"placement={short(placement)}: {_accepted(experts, ranks)}")
    given = list(placement)
    if given and all(isinstance(one, Share) for one in given):
        return Owners(_of_shares(given, experts, ranks), ranks)
    wrong = [one for one in given if not _is_rank(one, ranks)]
    if len(given) != experts or wrong:
        shown = short(wrong[0]) if wrong else f"{len(given)} entries"
        raise ArgumentError(f"placement: {shown}; {_accepted(experts, ranks)}")
    return Owners(tuple(map(int, given)), ranks)


def _of_shares(shares: list[Share], experts: int, ranks: int) -> tuple[int, ...]:
    if len(shares) != ranks:
        raise ArgumentError(f"placement: {len(shares)} shares; accepted are {ranks}, one a rank")
    found: dict[int, int] = {}
    for rank, share in enumerate(shares):
        for expert in share.problem.tolist():
            if expert in found or not 0 <= expert < experts:
                why = "is none of the layer's" if expert not in found else "is cut between ranks"
                raise ArgumentError(
                    f"placement: expert {expert} {why}; accepted are shares that have each of the"
                    f" {experts} experts whole, once"
                )
            found[expert] = rank
    if missing := sorted(set(range(experts)) - set(found)):
        raise ArgumentError(
            f"placement: no share has expert {missing[0]}; accepted are shares that have each of"
            f" the {experts} experts"
        )
    return tuple(found[expert] for expert in range(experts))


def _is_rank(value: Any, ranks: int) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and 0 <= value < ranks


def _accepted(experts: int, ranks: int) -> str:
    return (
        f"accepted are None, {experts} ranks from 0 to {ranks - 1}, one an expert, and what"
        " tilewright.split gives"
    )
