"""The recipe of small objects: what is drawn lies where it is said to, and what is learned runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("PIL")
pytest.importorskip("av")

from tilewright import nn  # noqa: E402
from tilewright.video.detection import heat  # noqa: E402
from tilewright.video.detection.boxes import Boxes  # noqa: E402
from tilewright.video.detection.kinds import KINDS  # noqa: E402
from train.detect import Task, learn  # noqa: E402
from train.filmed import HIGH, KEPT, SLOTS, WIDE, Both, Filmed, make  # noqa: E402
from train.judging import clips, read_by_net  # noqa: E402
from train.objects import BORDER, NONE, SIDE, drawn  # noqa: E402
from train.pasted import Pasted, cost, wanted  # noqa: E402
from train.scenes import HIDDEN, judged, pasted, scene, thing  # noqa: E402
from train.seeking import SIZES, Seeker  # noqa: E402
from train.shipped_detect import export  # noqa: E402

GREY = np.full((3, 120, 160), 0.5, np.float32)


@pytest.fixture(scope="module")
def crops() -> Pasted:
    rng = np.random.default_rng(0)
    photograph = rng.integers(90, 130, (3, 96, 104)).astype(np.uint8)
    return Pasted([photograph], 64, "cpu", each=2, seed=0)


@pytest.mark.parametrize("kind", range(NONE + 1))
def test_a_drawn_object_fills_its_picture_to_the_border(kind: int) -> None:
    for number in range(4):
        patch = drawn(kind, np.random.default_rng((kind, number)))
        rows, columns = (np.flatnonzero(patch[3].max(axis) > 0.2) for axis in (1, 0))
        longest = max(rows[-1] - rows[0], columns[-1] - columns[0]) + 1
        assert abs(longest - (SIDE - 2 * BORDER)) <= 2
        assert (patch[:3] <= patch[3] + 1e-3).all()


@pytest.mark.parametrize(("x", "y"), [(40.0, 30.0), (41.3, 60.7), (3.0, 117.0)])
def test_what_is_pasted_lies_in_its_box(x: float, y: float) -> None:
    one = thing(0, 5)
    made, apart = pasted(GREY, one, x, y)
    rows, columns = np.nonzero(np.abs(made - GREY).max(0) > 0.05)
    box = one.box(x, y)
    assert columns.min() >= np.floor(box[0]) and rows.min() >= np.floor(box[1])  # noqa: PT018
    assert columns.max() < np.ceil(box[2]) and rows.max() < np.ceil(box[3])  # noqa: PT018
    assert apart > 0.05
    assert abs(rows.mean() + 0.5 - y) < 1.5 or y > 110


def test_a_scene_says_what_is_in_it_and_is_the_same_again() -> None:
    one, other = scene(GREY, 4, 3), scene(GREY, 4, 3)
    np.testing.assert_array_equal(one.picture, other.picture)
    assert len(one.kinds) == 4
    sides = (one.corners[:, 2:] - one.corners[:, :2]).max(1)
    assert ((sides >= 9.9) & (sides <= 16.1)).all()


def test_what_is_wanted_is_read_back_by_the_stage() -> None:
    """Heat of 0 to 1 as logits, through `peaks`: the objects, but those that are hardly seen."""
    objects = torch.tensor([[
        [0, 13.2, 22.9, 12.0, 11.0, 1, 1],
        [3, 50.1, 41.0, 15.0, 14.0, 1, 1],
        [1, 30.0, 50.0, 10.0, 10.0, -1, 1],
        [2, 0.0, 0.0, 0.0, 0.0, 0, 0],
    ]])  # fmt: skip
    made = wanted(objects, 16)[0].numpy()
    kinds = len(KINDS)
    logits = np.log(made[:kinds].clip(1e-6, 1 - 1e-6)) - np.log(
        1 - made[:kinds].clip(1e-6, 1 - 1e-6)
    )
    boxes = heat.peaks(np.concatenate([logits, made[kinds : kinds + 4]]), 0.9)
    assert sorted(boxes.kinds) == [0, 3]
    order = np.argsort(boxes.kinds)
    middles = (boxes.corners[:, :2] + boxes.corners[:, 2:])[order] / 2
    np.testing.assert_allclose(middles, [[13.2, 22.9], [50.1, 41.0]], atol=1e-4)
    sizes = (boxes.corners[:, 2:] - boxes.corners[:, :2])[order]
    np.testing.assert_allclose(sizes, [[12, 11], [15, 14]], atol=1e-4)
    assert made[-1].max() == 1  # where nothing counts


def test_the_cost_is_least_of_what_is_wanted(crops: Pasted) -> None:
    rows = torch.from_numpy(crops.drawn(np.random.default_rng(1), 1, 4)[0])
    x, target = crops.at(rows)
    assert x.shape == (4, heat.PLANES, 16, 16)
    kinds = len(KINDS)
    right = torch.cat(
        [torch.logit(target[:, :kinds].clamp(1e-4, 1 - 1e-4)), target[:, kinds:-2]], 1
    )
    assert float(cost(right, target)) < 0.2 * float(cost(0.5 * right, target))
    wrong = right.clone()
    wrong[:, kinds:] += 1
    assert float(cost(wrong, target)) > float(cost(right, target)) + 1


def test_a_seed_gives_the_same_net_again_and_it_is_exported(tmp_path: Path, crops: Pasted) -> None:
    def learned(folder: str) -> list[torch.Tensor]:
        task, begin = Task("s", 0, 2, 64, 2, 1e-3, 1.0, 2), partial(Seeker, SIZES["s"])
        path = learn(task, begin, crops, [], "cpu", tmp_path / folder, 0.0, graph=False)
        kept: list[torch.Tensor] = torch.load(path, weights_only=True)["steps"]["parameters"]
        return kept

    for one, other in zip(learned("a"), learned("b"), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    path = export("s", tmp_path / "a", tmp_path / "models", len(KINDS), 0.2)
    scene_of = scene(GREY, 1, 0).picture
    given = read_by_net(scene_of)
    kept = torch.load(tmp_path / "a" / "detect-s.pt", weights_only=True)["steps"]["averages"]
    with torch.no_grad():
        said = Seeker(SIZES["s"]).take(kept)(given).numpy()
    got = nn.load(path).run(given.numpy())
    said[:, : len(KINDS)] += np.log(0.8 / 0.2)  # a score of 0.2 is one half by now
    np.testing.assert_allclose(got, said, atol=1e-4)
    assert heat.classes(nn.load(path)) == len(KINDS)


def test_recall_counts_each_thing_once_and_false_boxes_by_the_picture() -> None:
    corners, kinds = np.array([[0, 0, 10, 10], [30, 30, 40, 40]], float), np.array([0, 1])
    boxes = Boxes(
        np.array([[0, 0, 10, 9], [1, 0, 10, 10], [30, 30, 40, 40], [60, 60, 70, 70]], float),
        np.array([0.9, 0.8, 0.7, 0.6]),
        np.array([0, 0, 0, 1]),
    )
    found = judged([(corners, kinds, boxes)])
    assert sorted(found.hits) == [0.9]
    assert sorted(found.wrong) == [0.6, 0.7, 0.8]
    assert judged([(corners, kinds, boxes)], kind=False).things == 2
    assert found.recall(0.1)[0] == 0.5
    assert judged([(corners, kinds, boxes)], kind=False).recall(1.0)[0] == 1.0


@pytest.fixture(scope="module")
def photograph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from PIL import Image

    rng = np.random.default_rng(3)
    smooth = np.kron(rng.integers(60, 200, (9, 12, 3)), np.ones((60, 60, 1))).astype(np.uint8)
    path = tmp_path_factory.mktemp("photographs") / "a.png"
    Image.fromarray(smooth).save(path)
    return path


def test_clips_are_made_once_and_their_objects_lie_where_they_are_said_to(
    tmp_path: Path, photograph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train.filmed._CHUNK", 2)
    paths = make((photograph,), tmp_path, 0, 2)
    made = [path.stat().st_mtime_ns for path in paths]
    assert [p.stat().st_mtime_ns for p in make((photograph,), tmp_path, 0, 2)] == made
    with np.load(paths[0]) as kept:
        pictures, objects = kept["pictures"], kept["objects"]
    assert pictures.shape == (2 * KEPT, HIGH * 3 // 2, WIDE)
    assert objects.shape == (2 * KEPT, SLOTS, 7)
    inside = objects[..., 5] != 0
    assert inside.any()
    assert (objects[inside][:, 1:3] > -20).all()
    crops = Filmed(paths, 64, "cpu")
    rows = np.zeros((1, 7), np.int64)
    number, slot = np.argwhere(objects[..., 5] > 0)[0]
    x, y = objects[number, slot, 1:3]
    left, top = (2 * int(np.clip(at - 30, 0, end - 64) // 2) for at, end in ((x, WIDE), (y, HIGH)))
    rows[0, [0, 2, 3]] = number, top, left
    for mirrored in (0, 1):
        rows[0, 5] = mirrored
        given, target = crops.at(torch.from_numpy(rows))
        assert given.shape == (1, heat.PLANES, 16, 16)
        at = 63.99 - (x - left) if mirrored else x - left
        assert target[0, -2, int(y - top) // 4, int(at) // 4] == 1


def test_a_step_is_half_of_each(tmp_path: Path, photograph: Path, crops: Pasted,
                                monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr("train.filmed._CHUNK", 1)
    both = Both(crops, Filmed(make((photograph,), tmp_path, 7, 1), 64, "cpu"))
    rows = torch.from_numpy(both.drawn(np.random.default_rng(0), 1, 4)[0])
    given, target = both.at(rows)
    assert (len(given), len(target)) == (4, 4)
    assert (rows[2:, 0] < KEPT).all()


def test_clips_that_judge_have_things_in_every_picture(photograph: Path) -> None:
    still, moved = clips([photograph])
    assert len(still) == len(moved) == 12
    for one in (*still, *moved):
        assert one.planes.shape == (1, heat.PLANES, 90, 160)
        assert (one.kinds != HIDDEN).sum() >= 4
    assert np.abs(still[0].planes - moved[5].planes).mean() > 1e-4
