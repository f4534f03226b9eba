"""Things keep their number while they move, cross, and are missed for a moment."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.video.detection.things import Thing
from tilewright.video.detection.tracks import tracked


def thing(x: float, y: float, kind: str = "ball", size: float = 12.0) -> Thing:
    return Thing(kind, 0.9, x - size / 2, y - size / 2, size, size)


def times(count: int) -> list[float]:
    return [number / 25 for number in range(count)]


@pytest.mark.parametrize("exact", [False, True])
def test_things_that_move_and_cross_keep_their_numbers(exact: bool) -> None:
    pictures = []
    for number, time in enumerate(times(30)):
        things = [thing(10 + 7 * number, 50.0), thing(220 - 7 * number, 54 + 0.3 * number)]
        pictures.append((time, things if number % 2 else things[::-1]))
    numbers = [
        found if at % 2 else found[::-1] for at, found in enumerate(tracked(pictures, exact))
    ]
    # Both directions were unknown in the first picture, where order decides.
    assert {tuple(found) for found in numbers} in ({(1, 2)}, {(2, 1)})


def test_a_thing_that_is_missed_for_a_moment_has_its_number_again() -> None:
    pictures = [
        (time, [] if 8 <= number < 14 else [thing(20 + 6 * number, 40)])
        for number, time in enumerate(times(25))
    ]
    assert {n for found in tracked(pictures) for n in found} == {1}


def test_a_thing_that_was_gone_for_half_a_second_is_another() -> None:
    pictures = [(0.0, [thing(20, 20)]), (0.04, [thing(20, 20)]), (0.6, [thing(20, 20)])]
    assert list(tracked(pictures)) == [[1], [1], [2]]


@pytest.mark.parametrize(
    "other", [thing(20, 20, "bird"), thing(20, 20, size=40), thing(90, 20)],
    ids=["class", "size", "place"],
)  # fmt: skip
def test_another_class_size_or_place_is_another_thing(other: Thing) -> None:
    assert list(tracked([(0.0, [thing(20, 20)]), (0.04, [other])])) == [[1], [2]]


def test_the_least_distance_in_all_beats_the_nearest_pair_first() -> None:
    """Where the first takes the other's nearest: only SciPy's assignment sees it."""
    pytest.importorskip("scipy")
    first = [thing(100, 100), thing(112, 100)]
    second = [thing(111, 100), thing(134, 100)]
    pictures = [(0.0, first), (0.04, second)]
    assert list(tracked(pictures, exact=True))[1] == [1, 2]
    assert list(tracked(pictures))[1] == [2, 1]


def test_numbers_of_many_things_that_wander_are_those_of_truth() -> None:
    rng = np.random.default_rng(0)
    places, speeds = rng.uniform(0, 4000, (40, 2)), rng.normal(0, 60, (40, 2))
    truth: dict[int, int] = {}
    wrong = 0
    pictures, orders = [], []
    for time in times(40):
        order = rng.permutation(40)
        order = order[rng.random(40) > 0.15]
        at = places + speeds * time + rng.normal(0, 0.5, places.shape)
        pictures.append((time, [thing(*at[number]) for number in order]))
        orders.append(order)
    for order, found in zip(orders, tracked(pictures, exact=True), strict=True):
        for number, track in zip(order, found, strict=True):
            wrong += truth.setdefault(int(number), track) != track
    assert wrong <= 8  # of 1,360
