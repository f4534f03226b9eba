"""The recipe of fusion: what learns is what the stage does, and runs go on where they were cut."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("numba")

from tilewright import nn as networks  # noqa: E402
from tilewright.video.look import Frame, Look  # noqa: E402
from tilewright.video.motion import Motion  # noqa: E402
from train import dropped, layered  # noqa: E402
from train.between import Seen, _kept, seen  # noqa: E402
from train.fuser import DEPTHS, READ, Fuser, said  # noqa: E402
from train.fusing import Task, learn  # noqa: E402
from train.shipped_fusing import export  # noqa: E402

TASK = Task("s", 0, 2, 16, 1e-3, 1.0, 4, 2, 0.5, half=False)


def scenes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Layers over one another, float32 [count, 3, SIDE, SIDE], and shares."""
    waves = 128 + 50 * np.add.outer(np.sin(np.arange(512) / 5), np.cos(np.arange(512) / 7))
    files = [waves.round().clip(0, 255).astype(np.uint8), waves.T.round().clip(0, 255)]
    pictures, share = layered.scenes(files, np.random.default_rng(2), count, "cpu")
    return pictures.numpy(), share


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of two scenes as the recipe keeps them."""
    pictures, share = scenes(2)
    chance = np.random.default_rng(1)
    found = [
        seen((layered.coded(one, chance), float(part), 0))
        for one, part in zip(pictures, share, strict=True)
    ]
    to = tmp_path_factory.mktemp("seen") / "layers-000000.npz"
    _kept(to, found)
    return to


def test_scenes_are_of_light_and_ends_differ_from_what_is_between() -> None:
    pictures, share = scenes(3)
    assert pictures.shape == (3, 3, layered.SIDE, layered.SIDE)
    assert 0 <= pictures.min() < pictures.max() <= 255
    assert ((share > 0) & (share < 1)).all()
    assert all(np.abs(one[0] - one[2]).mean() > 0.01 for one in pictures)


def test_a_net_makes_of_what_is_kept_what_the_stage_makes() -> None:
    rng = np.random.default_rng(0)
    texture = np.kron(rng.integers(0, 160, (16, 16)), np.ones((10, 10)))
    texture = (texture + rng.integers(0, 60, texture.shape)).astype(np.uint8)
    pictures = np.stack([texture[n : n + 96, 2 * n : 2 * n + 112] for n in (0, 2, 4)])
    torch.manual_seed(0)
    net = Fuser(DEPTHS["s"])
    with torch.no_grad():
        net.layers[-1].weight.mul_(100)
        found = seen((pictures, 0.5, 0))
        assert found is not None
        x = torch.from_numpy(found[0].astype(np.float32))[None]
        wanted = net(x)[0, 0].numpy() * 255

    class Bound:
        given = np.zeros(x.shape[1:], np.float32)

        def __call__(self) -> np.ndarray:
            with torch.no_grad():
                return said(torch.from_numpy(self.given)[None], net.tensors)[0].numpy()

    look = Look(112, 96, "gray", 8, "grey")
    first, second = (
        Frame((one.copy(),), n, 1, Fraction(1), look) for n, one in enumerate(pictures[::2])
    )
    motion, out = Motion(look, Bound()), np.zeros((96, 112), np.uint8)
    motion.given(first, second)
    motion.found()
    motion.between(0.5, (out,))
    assert np.abs(out - wanted.clip(0, 255)).max() < 1.5  # float16 in what is kept
    assert np.abs(out - wanted.clip(0, 255)).mean() < 0.35


def test_crops_changed_about_and_mirrored_want_what_they_show(path: Path) -> None:
    crops = Seen([path], 32, "cpu", 0.0)
    rows = torch.tensor([[0, 3, 5, down, across, swap, 0] for down in (0, 1)
                         for across in (0, 1) for swap in (0, 1)])  # fmt: skip
    x, target = crops.at(rows)
    for number, (_, _, _, down, across, swap, _) in enumerate(rows.tolist()):
        axes = [axis for axis, turn in ((-2, down), (-1, across)) if turn]
        assert torch.equal(target[number].flip(axes), target[0])
        one = x[number, 4:8] if swap else x[number, :4]
        shown = torch.nn.functional.pixel_shuffle(one, 2).flip(axes)
        assert torch.equal(shown, torch.nn.functional.pixel_shuffle(x[0, :4], 2))
        share = x[number, 22]
        torch.testing.assert_close(share, 1 - x[0, 22] if swap else x[0, 22])


def test_a_run_that_was_cut_goes_on_and_is_exported(path: Path, tmp_path: Path) -> None:
    whole = learn(TASK, [path], "cpu", tmp_path / "whole", 0, False)
    cut = replace(TASK, steps=4)
    learn(cut, [path], "cpu", tmp_path / "cut", 1e-9, False)
    again = learn(cut, [path], "cpu", tmp_path / "cut", 0, False)
    kept = [torch.load(one, weights_only=True)["steps"] for one in (whole, again)]
    assert kept[0]["done"] == kept[1]["done"] == 4
    for one, other in zip(*(k["averages"] for k in kept), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(ValueError, match="of another run"):
        learn(replace(TASK, rate=2e-3), [path], "cpu", tmp_path / "whole", 0, False)
    file = export("s", tmp_path / "whole", tmp_path / "models")
    x = np.random.default_rng(0).random((1, READ, 9, 11), np.float32)
    got = networks.load(file).run(x)
    with torch.no_grad():
        wanted = said(torch.from_numpy(x), kept[0]["averages"]).numpy()
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_dropped_pictures_lie_where_their_share_says() -> None:
    clip = [np.full((2, 2), n, np.uint8) for n in range(6)]
    for pictures, share in dropped.triples([clip]):
        first, between, second = (int(one[0, 0]) for one in pictures)
        assert between == first + share * (second - first)
    assert not set(dropped.CLIPS) & set(__import__("bench.interpolate").interpolate.CLIPS)
