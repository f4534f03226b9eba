"""Pictures vote on what is in the one between them: its class, its score, and whether it is."""

from __future__ import annotations

import pytest

from tilewright.video.detection.things import Thing
from tilewright.video.detection.votes import grouped, voted


def thing(x: float, score: float, kind: str = "ball") -> Thing:
    return Thing(kind, score, x, 20.0, 12.0, 12.0)


def said(*pictures: list[Thing], place: int = 1) -> list[Thing]:
    looked = [(number / 25, grouped(things)) for number, things in enumerate(pictures)]
    return voted(looked, place)


def test_boxes_on_each_other_are_one_thing_with_all_their_classes() -> None:
    found = grouped([thing(10, 0.4, "sign"), thing(11, 0.7), thing(80, 0.2), thing(12, 0.3)])
    assert [one.scores for one in found] == [{"ball": 0.7, "sign": 0.4}, {"ball": 0.2}]
    assert found[0].thing == Thing("", 0.7, 11, 20.0, 12.0, 12.0)


def test_a_thing_has_the_class_that_most_of_its_track_has() -> None:
    wrong = [thing(13, 0.6, "drone"), thing(13, 0.5)]
    (one,) = said([thing(10, 0.8)], wrong, [thing(16, 0.9)])
    assert one.kind == "ball"
    assert one.score == pytest.approx(0.5 * 0.5 + 0.5 * (0.8 + 0.5 + 0.9) / 3)
    assert one.x == pytest.approx(13)


def test_what_is_seen_for_a_moment_is_doubted() -> None:
    (one,) = said([], [thing(10, 0.9)], [])
    assert one.score == pytest.approx(0.6)
    lasting = said([thing(8, 0.9)], [thing(10, 0.9)], [thing(12, 0.9)])
    assert lasting[0].score == pytest.approx(0.9)


def test_what_is_missed_between_two_pictures_is_on_its_way() -> None:
    (one,) = said([thing(10, 0.9)], [], [thing(16, 0.9)])
    assert (one.x, one.score) == (pytest.approx(13), pytest.approx(0.3))


def test_what_has_not_come_yet_or_is_gone_is_not_there() -> None:
    assert said([], [], [thing(16, 0.9)]) == []
    assert said([thing(16, 0.9)], [], []) == []


def test_a_picture_alone_says_what_it_says() -> None:
    assert said([thing(10, 0.7), thing(90, 0.4)], place=0) == [thing(10, 0.7), thing(90, 0.4)]


def test_sides_are_those_of_the_track() -> None:
    wide = Thing("ball", 0.9, 8.0, 18.0, 18.0, 15.0)
    (one,) = said([thing(11, 0.9)], [wide], [thing(11, 0.9)])
    assert (one.w, one.h) == (pytest.approx(14), pytest.approx(13))
    assert one.middle == pytest.approx(wide.middle)
