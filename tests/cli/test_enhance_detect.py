"""Options of `tilewright enhance` that find things: what they mean, and those that lack another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")

from tilewright import video
from tilewright.cli.enhance_detect import Asked
from tilewright.cli.optional import filled
from tilewright.errors import ArgumentError

NOTHING: dict[str, Any] = {
    "detect": None, "draw": False, "detections": None, "model": None, "names": None,
    "score": None, "tiles": False, "device": "auto",
}  # fmt: skip


def asked(**given: Any) -> Asked:
    return Asked(**{**NOTHING, **given})


def test_options_become_the_stages_at_their_places() -> None:
    assert asked().stages() == ([], [])
    both = asked(detect="ball, bird", draw=True, score=0.3).stages()
    assert both == ([video.Detect(("ball", "bird"), 0.09), video.Follow(0.3)], [video.Draw()])
    alone = asked(detect="all", detections=Path("a.jsonl")).stages()
    assert alone == ([video.Detect(score=0.15), video.Follow()], [])
    again = asked(detect="a.jsonl", draw=True).stages()
    assert again == ([video.Listed("a.jsonl")], [video.Draw()])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"detect": "all"}, "nothing would come of it; accepted is --draw"),
        ({"draw": True}, "--draw without --detect"),
        ({"detections": Path("a.jsonl")}, "--detections without --detect"),
        ({"score": 0.0}, "--score without --detect"),
        ({"names": "a"}, "--classes without --detect"),
        ({"tiles": True}, "--tiles without --detect"),
        ({"detect": "all", "draw": True, "names": "a"}, "accepted is --detect-model FILE"),
        ({"detect": "all", "draw": True, "tiles": True}, "--tiles without a model's file"),
        ({"detect": "ball,", "draw": True}, "--detect='ball,': accepted are names between commas"),
        ({"detect": "all", "draw": True, "score": 2.0}, "--score=2: accepted is between 0 and 1"),
        ({"detect": "a.jsonl"}, "--detect=a.jsonl alone: accepted is --draw beside it"),
        ({"detect": "a.jsonl", "draw": True, "score": 0.4}, "--score beside --detect=a.jsonl"),
        ({"detect": "a.jsonl", "draw": True, "tiles": True}, "--tiles beside --detect=a.jsonl"),
        ({"detect": "all", "draw": True, "score": 7.0}, "--score=7: accepted is between 0 and 1"),
        ({"detect": "all", "draw": True, "score": 1.0}, "--score=1: accepted is between 0 and 1"),
        ({"detect": "all", "draw": True, "score": float("nan")}, "--score=nan: accepted is"),
        ({"model": Path("none.onnx"), "draw": True}, "model='none.onnx': cannot be read"),
    ],
)
def test_options_that_lack_another_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        asked(**given).stages()
    assert said in str(raised.value)


def test_alone_it_means_all_that_the_network_knows() -> None:
    assert list(filled(["in.mp4", "--detect", "--draw"])) == ["in.mp4", "--detect", "all", "--draw"]
    assert list(filled(["--detect", "ball"])) == ["--detect", "ball"]
