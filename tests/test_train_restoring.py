"""Recipes of nets that take damage away: what is taught to round is what is exported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from tilewright import nn as networks  # noqa: E402
from tilewright.pytorch import qat  # noqa: E402
from train.damage import Noisy  # noqa: E402
from train.restorer import DEPTHS, Restorer  # noqa: E402
from train.restoring import Means, Task, learn  # noqa: E402
from train.restoring_eight import teach  # noqa: E402
from train.shipped import Chain, export  # noqa: E402

TASK = Task("denoise", "s", seed=0, batch=2, crop=16, rate=1e-3, minutes=1.0, steps=2)


def test_a_net_taught_to_round_is_exported_with_its_ranges(tmp_path: Path) -> None:
    waves = 128 + 60 * np.add.outer(np.sin(np.arange(64) / 5), np.cos(np.arange(64) / 7)) / 2
    crops = Noisy([waves.round().astype(np.uint8)], TASK.crop, "cpu")
    learn(TASK, Means("cpu", False, False, 0), crops, lambda net: "", tmp_path)
    kept = torch.load(teach(TASK, crops, lambda net: "", tmp_path), weights_only=True)
    before = torch.load(tmp_path / "denoise-s.pt", weights_only=True)["steps"]["averages"]
    assert not torch.equal(kept["tensors"][0], before[0])

    export("denoise", "s", tmp_path, tmp_path / "models", crops)
    chain = Chain(Restorer(DEPTHS["s"]).take(kept["tensors"]))
    taught = qat.prepare(chain, kept["ranges"]).eval()
    x = torch.rand(1, 5, 9, 11)
    with torch.no_grad():
        wanted = taught(x).numpy()
    got = networks.load(tmp_path / "models" / "denoise-s-int8.npz").run(x.numpy())
    np.testing.assert_allclose(got, wanted, atol=1e-6 + 1e-5 * float(np.abs(wanted).max()))
