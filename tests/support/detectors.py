"""Small networks that find what tests say: outputs of YOLO that do not depend on the input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.support import nets
from tilewright.arrays.array import NDArray


def saying(
    said: NDArray, shape: Sequence[int | str] = (1, 3, 64, 64), names: str | None = None
) -> bytes:
    """A model that says the same of every picture; `names` are its metadata."""
    nodes = [
        ("ReduceMean", ["x"], ["m"], {"axes": [1, 2, 3], "keepdims": 0}),
        ("Mul", ["m", "zero"], ["z"], {}),
        ("Add", ["z", "said"], ["y"], {}),
    ]
    constants = {"zero": np.zeros(1, np.float32), "said": said.astype(np.float32)}
    content = nets.model(nodes, {"x": shape}, constants)
    if names is None:
        return content
    import onnx

    model = onnx.load_model_from_string(content)
    onnx.helper.set_model_props(model, {"names": names})
    made: bytes = model.SerializeToString()
    return made


def written(path: Path, content: bytes) -> Path:
    """A model's file."""
    path.write_bytes(content)
    return path


def yolo(boxes: Sequence[Sequence[float]], classes: int, side: int = 64) -> NDArray:
    """[1, 4 + classes, n] with some boxes (middle, size, score, class) among nothing."""
    count = sum((side // stride) ** 2 for stride in (8, 16, 32))
    found = np.zeros((1, 4 + classes, count), np.float32)
    for number, (x, y, wide, high, score, kind) in enumerate(boxes):
        found[0, :4, number] = x, y, wide, high
        found[0, 4 + int(kind), number] = score
    return found


def yolo5(boxes: Sequence[Sequence[float]], classes: int, side: int = 64) -> NDArray:
    """[1, n, 5 + classes], three anchors a cell; whether there is a thing is 0.8."""
    rows = yolo(boxes, classes, side)[0].T
    found = np.zeros((1, 3 * len(rows), 5 + classes), np.float32)
    found[0, : len(rows), :4] = rows[:, :4]
    found[0, : len(rows), 4] = 0.8
    found[0, : len(rows), 5:] = rows[:, 4:]
    return found
