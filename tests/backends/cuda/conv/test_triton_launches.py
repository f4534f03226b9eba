"""What a layer's kernels are handed: every parameter once, in the order in which they take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.conv_chains import layer, whole_layer
from tilewright.backends.cuda.conv import triton_launches
from tilewright.backends.cuda.conv.tiles import Tile
from tilewright.engines.conv import Conv, Whole

torch: Any = pytest.importorskip("torch")
pytest.importorskip("triton")
RNG = np.random.default_rng(0)
STEP = Whole(3, np.ones(6, np.float32), step=0.1, shift=2, dtype="uint8")


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (layer(RNG, 4, 6), "float32"),
        (layer(RNG, 4, 6, adds=True), "float16"),
        (layer(RNG, 6, 6, groups=6), "float32"),
        (whole_layer(RNG, 4, 6, STEP), "uint8"),
    ],
)
def test_a_launch_names_every_parameter_of_its_kernel(
    one: Conv, kind: str, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[Any] = []
    monkeypatch.setattr(triton_launches, "reusable", lambda task, ordinal: tasks.append(task))
    x = torch.zeros((2, one.inputs, 5, 7), dtype=getattr(torch, kind))
    out = torch.zeros((2, one.outputs, 5, 7), dtype=x.dtype)
    added = out if one.adds else None
    triton_launches.prepared(one, Tile(16, 16, 32, 4, 2, splits), x, out, added)
    assert len(tasks) == (1 if splits == 1 else 2)
    for task in tasks:
        names = list(task.kernel.arg_names)
        count = len(task.arguments)
        assert set(names[count:]) == set(task.constants)
        assert all(name.isupper() for name in names[count:])
        tensors = [hasattr(value, "data_ptr") for value in task.arguments]
        assert tensors == sorted(tensors, reverse=True)
