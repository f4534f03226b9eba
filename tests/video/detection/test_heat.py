"""Small objects by heat: what the network reads, tiles that give the same map, peaks as boxes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("av")

from tilewright import video
from tilewright.video.detection import heat
from tilewright.video.detection.kinds import KINDS


def frame(format: str, look: video.Look, seed: int = 0) -> video.Frame:
    rng = np.random.default_rng(seed)
    planes = tuple(rng.integers(16, 236, shape).astype(look.dtype) for shape in look.shapes)
    return video.Frame(planes, 0, 1, Fraction(1, 25), look)


def naive(said: np.ndarray, score: float) -> list[tuple[int, int, int]]:
    """Kind, row and column of cells that no neighbour of 3 x 3 exceeds."""
    kinds, rows, columns = len(said) - 4, *said.shape[1:]
    found = []
    for kind in range(kinds):
        for row in range(rows):
            for column in range(columns):
                near = said[kind, max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
                here = said[kind, row, column]
                if here >= near.max() and 1 / (1 + np.exp(-here)) >= score:
                    found.append((kind, row, column))
    return found


@pytest.mark.parametrize(("width", "height"), [(32, 24), (35, 22), (3, 2)])
def test_every_sample_of_a_picture_is_read_at_its_place(width: int, height: int) -> None:
    picture = frame("yuv420p", video.Look(width, height, "yuv420p", 8, "yuv", (1, 1)))
    given = heat.planes(picture)
    assert given.shape == (1, 24, -(-height // 4), -(-width // 4))
    luma, blue, _ = picture.planes
    for y, x in [(0, 0), (height - 1, width - 1), (height // 2, width // 3)]:
        place = given[0, 4 * (y % 4) + x % 4, y // 4, x // 4]
        assert place == pytest.approx((int(luma[y, x]) - 16) / 219 - 0.5, abs=1e-6)
        y, x = y // 2, x // 2
        place = given[0, 16 + 2 * (y % 2) + x % 2, y // 2, x // 2]
        assert place == pytest.approx((int(blue[y, x]) - 128) / 255, abs=1e-6)


@pytest.mark.parametrize(
    ("format", "bits", "halved"),
    [("yuv444p", 8, (0, 0)), ("yuv422p10le", 10, (1, 0)), ("yuv410p", 8, (2, 2))],
)
def test_chroma_of_every_layout_is_brought_to_half(
    format: str, bits: int, halved: tuple[int, int]
) -> None:
    look = video.Look(32, 24, format, bits, "yuv", halved)
    flat = tuple(
        np.full(shape, value << (bits - 8), look.dtype)
        for shape, value in zip(look.shapes, (126, 90, 200), strict=True)
    )
    given = heat.planes(video.Frame(flat, 0, 1, Fraction(1, 25), look))[0]
    most = (1 << bits) - 1
    np.testing.assert_allclose(given[16:20], (90 << (bits - 8)) / most - 128 / 255, atol=1e-6)
    np.testing.assert_allclose(given[20:], (200 << (bits - 8)) / most - 128 / 255, atol=1e-6)


@pytest.mark.parametrize("range_", [1, 2])
def test_white_black_and_grey_are_the_same_in_both_ranges(range_: int) -> None:
    look = video.Look(8, 8, "gray", 8, "grey", range=range_)
    black, white = (0, 255) if range_ == 2 else (16, 235)
    plane = np.full((8, 8), black, np.uint8)
    plane[:, 4:] = white
    given = heat.planes(video.Frame((plane,), 0, 1, Fraction(1, 25), look))[0]
    np.testing.assert_allclose(given[:16, :, 0], -0.5, atol=1e-6)
    np.testing.assert_allclose(given[:16, :, 1], 0.5, atol=1e-6)
    assert not given[16:].any()


@pytest.mark.parametrize("rows", [136, 137, 300, 1000])
@pytest.mark.parametrize("columns", [7, 240, 700])
def test_tiles_cover_every_cell_once_and_keep_away_from_their_edges(
    rows: int, columns: int
) -> None:
    covered = np.zeros((rows, columns), int)
    for above, before, down, right in heat.tiles(rows, columns):
        covered[down, right] += 1
        for read, kept, length, tile in (
            (above, down, rows, heat.TILE[0]),
            (before, right, columns, heat.TILE[1]),
        ):
            assert read.stop - read.start == min(length, tile)
            assert 0 <= read.start <= kept.start
            assert kept.stop <= read.stop <= length
            assert kept.start - read.start >= heat.SEEN or read.start == kept.start == 0
            assert read.stop - kept.stop >= heat.SEEN or kept.stop == length
    assert (covered == 1).all()


def test_the_map_in_tiles_is_that_of_the_whole_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over as many cells to each side as the network sees."""
    monkeypatch.setattr(heat, "TILE", (40, 44))
    rng = np.random.default_rng(0)
    given = rng.random((1, 3, 75, 131)).astype(np.float32)
    reach = 9

    def run(x: np.ndarray) -> np.ndarray:
        padded = np.pad(x, ((0, 0), (0, 0), (reach, reach), (reach, reach)))
        parts = [
            padded[:, :, reach + y : reach + y + x.shape[2], reach + a : reach + a + x.shape[3]]
            for y, a in [(-reach, 0), (reach, 0), (0, -reach), (0, reach), (3, -4)]
        ]
        return sum(parts)  # type: ignore[return-value]

    np.testing.assert_array_equal(heat.mapped(run, given), run(given)[0])


def test_a_mirrored_picture_has_the_mirrored_map() -> None:
    """By a network that knows the way it looks: both ways no longer do."""
    look = video.Look(32, 24, "yuv420p", 8, "yuv", (1, 1))
    picture = frame("yuv420p", look)
    mirror = replace(picture, planes=tuple(plane[:, ::-1] for plane in picture.planes))
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 1, (8, 24, 3)).astype(np.float32)

    def run(x: np.ndarray) -> np.ndarray:
        padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 1)))
        parts = [padded[..., tap : tap + x.shape[3]] for tap in range(3)]
        return sum(np.einsum("oi,nihw->nohw", weights[..., t], p) for t, p in enumerate(parts))  # type: ignore[return-value]

    given, turned = heat.planes(picture), heat.planes(mirror)
    one, other = heat.both_ways(run, given), heat.both_ways(run, turned)[..., ::-1]
    assert np.abs(run(given) - run(turned)[..., ::-1]).max() > 1
    rest = [*range(6), 7]
    np.testing.assert_allclose(one[:, rest], other[:, rest], atol=1e-4)
    np.testing.assert_allclose(one[:, 6], 1 - other[:, 6], atol=1e-4)
    alone, back = run(given)[:, 6], run(turned)[..., ::-1][:, 6]
    np.testing.assert_allclose(one[:, 6], (alone + 1 - back) / 2, atol=1e-4)


def test_peaks_are_the_cells_that_no_neighbour_exceeds() -> None:
    rng = np.random.default_rng(1)
    said = rng.normal(0, 2, (len(KINDS) + 4, 23, 31)).astype(np.float32)
    boxes = heat.peaks(said, 0.6)
    wanted = naive(said, 0.6)
    assert len(wanted) > 20
    assert len(boxes.scores) == len(wanted)
    middles = (boxes.corners[:, :2] + boxes.corners[:, 2:]) / 2
    for (kind, row, column), middle, box, score, number in zip(
        wanted, middles, boxes.corners, boxes.scores, boxes.kinds, strict=True
    ):
        wide, high, right, down = said[len(KINDS) :, row, column]
        assert number == kind
        assert score == pytest.approx(1 / (1 + np.exp(-said[kind, row, column])))
        assert middle == pytest.approx(
            (4 * (column + right.clip(0, 1)), 4 * (row + down.clip(0, 1)))
        )
        assert box[2] - box[0] == pytest.approx(4 * max(wide, 0.25))
        assert box[3] - box[1] == pytest.approx(4 * max(high, 0.25))


def test_a_map_without_heat_has_no_boxes() -> None:
    assert not len(heat.peaks(np.full((8, 5, 5), -9, np.float32), 0.5).scores)
