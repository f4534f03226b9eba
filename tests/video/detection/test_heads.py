"""What detectors of others say becomes boxes of the picture, whatever their output's layout."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("onnx")
pytest.importorskip("numba")

from tests.support.detectors import saying, written, yolo, yolo5
from tilewright import video
from tilewright.errors import ArgumentError
from tilewright.video.detection.boxes import Boxes, merged
from tilewright.video.detection.heads import cells, head_of
from tilewright.video.detection.letterbox import letterboxed
from tilewright.video.stages.contract import Window

LOOK = video.Look(128, 96, "yuv420p", 8, "yuv", (1, 1))
# In an input of 64 x 64 a picture of 128 x 96 is 64 x 48, eight samples lower.
THING = (20.0, 28.0, 8.0, 4.0, 0.9, 1)
SEEN = (32.0, 36.0, 16.0, 8.0)  # of the same in the picture: left, top, width, height


def frame(look: video.Look = LOOK, value: int = 90) -> video.Frame:
    planes = tuple(np.full(shape, value, look.dtype) for shape in look.shapes)
    return video.Frame(planes, 5, 1, Fraction(1, 25), look)


def things(stage: video.Detect, picture: video.Frame | None = None) -> list[tuple[object, ...]]:
    picture = frame() if picture is None else picture
    (out,) = stage.bound(picture.look)(Window(picture))
    assert out.found.time == picture.time
    return [(one.kind, one.score, one.x, one.y, one.w, one.h) for one in out.found.things]


def nanodet(stride: int, row: int, column: int, edges: tuple[float, ...], plus: bool) -> np.ndarray:
    """An output of two classes that says one thing: edges so many cells from a place."""
    strides = (8, 16, 32, 64) if plus else (8, 16, 32)
    found = np.zeros((1, cells(64, 64, strides), 2 + 32), np.float32)
    begin = cells(64, 64, [s for s in strides if s < stride])
    at = begin + row * (64 // stride) + column
    found[0, at, 1] = 0.75
    for edge, far in enumerate(edges):
        low = int(far)
        bins = found[0, at, 2 + 8 * edge : 10 + 8 * edge]
        bins[:] = -40
        bins[low] = np.log(1 - (far - low) + 1e-9)
        bins[min(low + 1, 7)] = np.log(far - low + 1e-9) if far > low else bins[min(low + 1, 7)]
    return found


@pytest.mark.parametrize(
    ("said", "score"), [(yolo([THING], 3), 0.9), (yolo5([THING], 3), 0.72)], ids=["v8", "v5"]
)
def test_boxes_of_yolo_come_back_through_the_letterbox(
    tmp_path: Path, said: np.ndarray, score: float
) -> None:
    path = written(tmp_path / "y.onnx", saying(said, names="{0: 'a', 1: 'b', 2: 'c'}"))
    (one,) = things(video.Detect.of_file(path))
    assert one == ("b", pytest.approx(score, abs=1e-4), *map(pytest.approx, SEEN))


@pytest.mark.parametrize("plus", [False, True])
def test_boxes_of_nanodet_are_expected_distances_from_cells(tmp_path: Path, plus: bool) -> None:
    said = nanodet(8, 3, 2, (1.0, 0.5, 1.25, 0.5), plus)
    path = written(tmp_path / "n.onnx", saying(said))
    stage = video.Detect.of_file(path, names=["a", "b"])
    (one,) = things(stage)
    x, y = ((2, 3), (2.5, 3.5))[not plus]
    corners = np.array([8 * (x - 1), 8 * (y - 0.5), 8 * (x + 1.25), 8 * (y + 0.5)])
    corners = 2 * (corners - [0, 8, 0, 8])
    assert one[0] == "b"
    found = (*one[2:4], one[2] + one[4], one[3] + one[5])  # type: ignore[operator]
    assert found == pytest.approx(tuple(corners), abs=0.02)


def test_what_overlaps_one_of_its_class_is_one_thing_and_another_class_stays(
    tmp_path: Path,
) -> None:
    near = [THING, (20.5, 28.0, 8.0, 4.0, 0.8, 1), (20.0, 28.0, 8.0, 4.0, 0.7, 2)]
    far = [(50.0, 40.0, 8.0, 4.0, 0.6, 1), (50.0, 20.0, 8.0, 4.0, 0.3, 1)]
    path = written(tmp_path / "y.onnx", saying(yolo(near + far, 3)))
    found = things(video.Detect.of_file(path))
    assert [(one[0], one[1]) for one in found] == [
        ("class 1", 0.9), ("class 2", 0.7), ("class 1", 0.6)
    ]  # fmt: skip


def test_chosen_classes_alone_are_found(tmp_path: Path) -> None:
    said = yolo([THING, (50.0, 40.0, 8.0, 4.0, 0.6, 0)], 3)
    path = written(tmp_path / "y.onnx", saying(said))
    stage = video.Detect.of_file(path, ["cat"], names=["cat", "dog", "cow"])
    assert [one[0] for one in things(stage)] == ["cat"]


def test_of_free_sizes_an_input_of_640_is_made(tmp_path: Path) -> None:
    said = yolo([(320.0, 320.0, 64.0, 32.0, 0.9, 0)], 1, side=640)
    path = written(tmp_path / "y.onnx", saying(said, (1, 3, "h", "w")))
    (one,) = things(video.Detect.of_file(path))
    assert one[2:] == pytest.approx((64 - 6.4, 48 - 3.2, 12.8, 6.4), abs=0.02)


def test_tiles_find_what_lies_beside_the_first(tmp_path: Path) -> None:
    """A box in each tile's middle, and one in the whole picture's; those that edges cut go."""
    said = yolo([(32.0, 32.0, 8.0, 8.0, 0.9, 0), (1.0, 32.0, 8.0, 8.0, 0.8, 0)], 1)
    path = written(tmp_path / "y.onnx", saying(said))
    found = things(video.Detect.of_file(path, tiles=True))
    middles = {(one[2] + one[4] / 2, one[3] + one[5] / 2) for one in found if one[1] == 0.9}  # type: ignore[operator]
    assert middles == {(x, y) for x in (32, 83, 96) for y in (32, 64)} | {(64, 48)}
    # Of those that a tile's edge cuts the ones at the picture's own edge are left.
    assert {one[2] for one in found if one[1] == 0.8} == {0.0}


@pytest.mark.parametrize(
    ("size", "inside"),
    [((128, 96), (8, 0, 48, 64)), ((96, 128), (0, 8, 64, 48)), ((10, 10), (0, 0, 64, 64))],
)
def test_a_letterbox_keeps_the_shape_and_fills_with_grey(
    size: tuple[int, int], inside: tuple[int, int, int, int]
) -> None:
    look = video.Look(*size, "gray", 8, "grey")
    pixels, fitting = letterboxed(frame(look, 200), 64, 64)
    top, left, rows, columns = inside
    outside = np.ones((64, 64), bool)
    outside[top : top + rows, left : left + columns] = False
    assert (pixels[outside] == 114).all()
    assert (pixels[~outside] >= 200).all()
    corners = np.array([[left, top, left + columns, top + rows]], float)
    back = fitting.back(Boxes(corners, np.ones(1), np.zeros(1, int)))
    np.testing.assert_allclose(back.corners, [[0, 0, *size]], atol=1e-9)


@pytest.mark.parametrize("shape", [(1, 7), (2, 84, 84), (1, 4, 84), (1, 84, 30, 1), (1, 84, 6)])
def test_outputs_of_no_known_head_are_none(shape: tuple[int, ...]) -> None:
    assert head_of(shape, 64, 64) is None


def test_a_file_that_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    cases = [
        (saying(np.zeros((1, 7))), "output is [1, 7]"),
        (saying(yolo([], 2), (1, 1, 64, 64)), "inputs ['x float32 [1, 1, 64, 64]']"),
    ]
    for content, words in cases:
        path = written(tmp_path / "m.onnx", content)
        with pytest.raises(ArgumentError) as raised:
            video.Detect.of_file(path).turned(LOOK)
        assert "\n" not in str(raised.value)
        assert words in str(raised.value)
        assert "accepted is" in str(raised.value)


def test_names_that_are_too_few_and_classes_nobody_knows_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", saying(yolo([], 3), names="{0: 'a', 1: 'b', 2: 'c'}"))
    with pytest.raises(ArgumentError, match=r"2 names; accepted for .* are 3"):
        video.Detect.of_file(path, names=["a", "b"]).turned(LOOK)
    with pytest.raises(ArgumentError, match=r"classes='cat': unknown; accepted are a, b, c"):
        video.Detect.of_file(path, ["cat"]).turned(LOOK)
    with pytest.raises(ArgumentError, match=r"unknown; accepted are ball, bird, drone, sign"):
        video.Detect(("cat",)).turned(LOOK)
    with pytest.raises(ArgumentError, match="score=0; accepted is"):
        video.Detect(score=0).turned(LOOK)
    with pytest.raises(ArgumentError, match="cannot be read"):
        video.Detect.of_file(tmp_path / "none.onnx")


def test_metadata_that_is_no_list_of_names_is_none(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", saying(yolo([THING], 3), names="__import__('os')"))
    assert things(video.Detect.of_file(path))[0][0] == "class 1"


def test_merged_keeps_the_best_of_each_and_no_more_than_most() -> None:
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 100, (200, 2))
    corners = np.concatenate([corners, corners + rng.uniform(5, 20, (200, 2))], 1)
    boxes = Boxes(corners, rng.random(200), rng.integers(2, size=200))
    kept = merged(boxes)
    assert (np.diff(kept.scores) <= 0).all()
    for number in range(200):  # every box is kept, or overlaps a better one of its class that is
        alike = _alike(boxes, number, kept)
        assert alike.max(initial=0) > 0.5 or boxes.scores[number] in kept.scores
    assert len(merged(boxes, most=5).scores) == 5


def _alike(boxes: Boxes, number: int, kept: Boxes) -> np.ndarray:
    from tilewright.video.detection.boxes import overlaps

    better = (kept.scores > boxes.scores[number]) & (kept.kinds == boxes.kinds[number])
    return overlaps(boxes.corners[number : number + 1], kept.corners[better])[0]
