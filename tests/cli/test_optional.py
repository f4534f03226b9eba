"""Options whose value may be left out."""

from __future__ import annotations

import pytest

from tilewright.cli.optional import FILES, filled
from tilewright.video.detection.lines import SUFFIXES


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("in.mp4 --low-light -o out.mp4", "in.mp4 --low-light 1 -o out.mp4"),
        ("--low-light in.mp4 -o out.mp4", "--low-light 1 in.mp4 -o out.mp4"),
        ("in.mp4 --low-light 0.5 -o out.mp4", "in.mp4 --low-light 0.5 -o out.mp4"),
        ("in.mp4 --low-light -1", "in.mp4 --low-light -1"),
        ("in.mp4 --denoise", "in.mp4 --denoise auto"),
        ("in.mp4 --denoise auto --dehaze", "in.mp4 --denoise auto --dehaze 0.9"),
        ("in.mp4 --denoise 8 --contrast --auto", "in.mp4 --denoise 8 --contrast 0.6 --auto"),
        ("in.mp4 --low-light=0.2 --sharpen", "in.mp4 --low-light=0.2 --sharpen 0.6"),
        ("in.mp4 --denoise loud", "in.mp4 --denoise loud"),
        ("in.mp4 --detect runs/seen.jsonl --draw", "in.mp4 --detect runs/seen.jsonl --draw"),
        ("--detect a.NDJSON", "--detect a.NDJSON"),
        ("--detect in.mp4 --draw", "--detect all in.mp4 --draw"),
        ("in.mp4 --low-light a.jsonl", "in.mp4 --low-light 1 a.jsonl"),
        ("-o out.mp4 -- --denoise", "-o out.mp4 -- --denoise"),
    ],
)
def test_a_value_is_put_in_where_none_follows(given: str, wanted: str) -> None:
    assert list(filled(given.split())) == wanted.split()


def test_files_of_lines_are_those_that_detections_writes() -> None:
    assert FILES["--detect"] == SUFFIXES
