"""What is said of all that was found in a film."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tilewright.video.detection.lines import summed


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], []),
        ([(0, []), (1, [])], ["nothing found in 2 pictures"]),
        ([(0, [("ball", 0.9, 1.0, 2.0, 9.0, 9.0)]), (1, [])], ["ball: seen 1 time, 0 tracks"]),
    ],
)
def test_where_pictures_were_looked_at_it_is_said_that_nothing_was_found(
    rows: list[tuple[int, list[tuple[str, float, float, float, float, float]]]], said: list[str]
) -> None:
    assert summed(rows, Fraction(1, 25)) == said
