"""Tiles dealt round by round are those dealt one by one, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.planning import deal

RANDOM = np.random.default_rng(11)
QUEUES = {
    "none": np.zeros(0),
    "one": np.ones(1),
    "equal": np.full(700, 1e-6),
    "few lengths": RANDOM.choice([1e-6, 2e-6, 3e-6], 1500),
    "longest first": -np.sort(-RANDOM.uniform(1e-7, 1e-5, 3000)),
    "shortest first": np.sort(RANDOM.uniform(1e-7, 1e-5, 800)),
    "any order": RANDOM.uniform(1e-7, 1e-5, 1200),
    "a giant first": np.append(1e-2, RANDOM.uniform(1e-7, 1e-6, 900)),
    "some take no time": RANDOM.choice([0.0, 1e-6, 5e-6], 600),
    "by a power law": RANDOM.zipf(1.4, 1500) * 1e-9,
}


@pytest.mark.parametrize("units", [1, 2, 7, 66, 132, 264])
@pytest.mark.parametrize("name", QUEUES)
def test_rounds_deal_as_one_by_one(name: str, units: int) -> None:
    seconds = QUEUES[name]
    owners, ends = deal.dealt(seconds.tolist(), units)
    found = deal.begin(seconds, units)
    assert (found.owners.tolist(), found.free.tolist()) == (owners, ends)
    half = deal.begin(seconds[: len(seconds) // 2], units)
    rest = deal.begin(seconds[len(seconds) // 2 :], units, half)
    assert (rest.owners.tolist(), rest.free.tolist()) == (owners, ends)


@pytest.mark.parametrize("units", [1, 7, 132, 300])
@pytest.mark.parametrize("name", QUEUES)
def test_turns_hold_each_tile_once_in_its_units_order(name: str, units: int) -> None:
    seconds = QUEUES[name]
    turns, busiest = deal.turns(seconds, units)
    assert sorted(turns[turns >= 0].tolist()) == list(range(len(seconds)))
    owners, ends = deal.dealt(seconds.tolist(), units)
    assert busiest == max(ends)
    for unit, hand in enumerate(turns.T.tolist()):
        mine = [tile for tile in hand if tile >= 0]
        assert hand == mine + [-1] * (len(hand) - len(mine))
        assert mine == [tile for tile, owner in enumerate(owners) if owner == unit]


def test_more_tiles_than_are_worth_dealing_are_taken_round() -> None:
    turns, busiest = deal.turns(np.ones(60_001), 100)
    assert (turns.shape, busiest) == ((601, 100), 601.0)
    assert turns[:, 0].tolist() == list(range(0, 60_100, 100))
