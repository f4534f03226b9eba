"""Products cut along k by some shapes and not by others, with a launch that adds parts or none."""

from __future__ import annotations

import pytest

from tilewright.planning.buckets import Table, Tile
from tilewright.planning.grouped import lay_out
from tilewright.planning.makespan import Slots


def test_of_an_edge_that_is_trimmed_a_share_of_a_whole_tiles_time_is_kept() -> None:
    """A tile of 64 x 64 of which a quarter exists, another whole one, and both in one problem."""
    sizes = ([32, 64, 96], [32, 64, 64], [100] * 3)
    for kept in (0.0, 0.5, 1.0):
        tile = Tile(64, 64, 8.192e9, trim=(32, 32), kept=kept)
        table = Table.of(*sizes, (tile, Tile(16, 16, 1e9)))
        quarter, half = kept + (1 - kept) / 4, kept + (1 - kept) / 2
        expected = [1e-4 * quarter, 1e-4, 1e-4 * (1 + half) / 2]
        assert table.seconds[0].tolist() == pytest.approx(expected)


def test_what_is_whole_is_never_cut_and_another_shape_is_where_that_is_sooner() -> None:
    """The small shape would end the deep product first, were no other cut."""
    small = Tile(16, 16, 2e9, 1e-6, whole=True)
    for tiles in ((Tile(64, 64, 4e9, 1e-6), small), (small,)):
        slots = Slots(64, launch=1e-5)
        layout = lay_out([64, 16], [64, 16], [100_000, 10], tiles, slots)
        cut = layout.parts > 1
        assert cut.any() == (len(tiles) == 2)
        assert not any(tiles[number].whole for number in layout.tile[cut])
        assert layout.counts.tolist() == [
            int(parts) * -(-m // tiles[number].m) * -(-m // tiles[number].n)
            for m, parts, number in zip((64, 16), layout.parts, layout.tile, strict=True)
        ]


def test_parts_that_whoever_is_last_adds_take_no_launch_of_their_own() -> None:
    tiles = (Tile(64, 64, 4e9, 1e-6),)
    found = {
        adds: lay_out([64], [64], [100_000], tiles, Slots(8, launch=1e-5, merge=1e-9, adds=adds))
        for adds in (True, False)
    }
    assert (found[True].parts == found[False].parts).all()
    assert found[True].parts[0] > 1
    assert found[True].seconds - found[False].seconds == pytest.approx(1e-5)
