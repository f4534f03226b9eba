"""Sizes of pictures and of the motion between them, in numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.planning.film import Size, Sizes, bordered

HALVED = ((300, 201), (150, 101), (75, 51), (38, 26), (19, 13))
FILM = Sizes(((300, 201), (150, 101), (150, 101)), 8, HALVED, 1)


def test_motion_is_looked_for_from_coarse_to_fine_where_two_patches_fit() -> None:
    assert FILM.place == (150, 101)
    assert FILM.searched == (3, 2, 1)
    assert replace(FILM, sizes=((16, 40), (8, 20)), finest=0).searched == (0,)
    assert replace(FILM, sizes=((15, 40), (8, 20)), finest=0).searched == ()


def test_planes_begin_where_the_one_before_ends() -> None:
    assert FILM.starts == (0, 60300, 75450, 90600)
    assert FILM.images == (("size 0", (300, 201)), ("plane 1", (150, 101)), ("plane 2", (150, 101)))
    assert [replace(FILM, bits=bits).bytes_each for bits in (1, 8, 9, 16)] == [1, 1, 2, 2]


def test_fields_are_halved_upwards_until_one_number_is_left() -> None:
    halves = [(150, 101), (75, 51), (38, 26), (19, 13), (10, 7), (5, 4), (3, 2), (2, 1), (1, 1)]
    assert FILM.sums == tuple(halves)
    assert replace(FILM, sizes=((1, 1),), finest=0).sums == ((1, 1),)


def test_cells_patches_and_borders_cover_a_picture() -> None:
    assert FILM.cells == (38, 26)
    assert FILM.patches(1) == (37, 25)
    assert FILM.patches(4) == (4, 3)
    assert FILM.steps((150, 101)) == (2, 2)
    assert FILM.steps((300, 50)) == (1, 4)
    assert bordered((300, 201)) == 332 * 233


@pytest.mark.parametrize(
    ("luma", "samples"),
    [((300, 201), 64), ((5, 201), 40), ((300, 3), 24), ((8, 8), 64), ((1, 1), 1)],
)
def test_pictures_are_compared_by_cells_or_by_what_there_is_of_one(
    luma: Size, samples: int
) -> None:
    halved = tuple(-(-length // 2) for length in luma)
    rows, columns = halved
    assert replace(FILM, sizes=(luma, (rows, columns))).alike == samples
