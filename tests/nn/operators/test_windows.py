"""Windows that stick out of a picture: as many, and of the same elements, as elsewhere."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.support.nets import model
from tilewright import nn
from tilewright.errors import ShapeError

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
CASES = [
    (size, kernel, stride, pad)
    for size, kernel, stride, pad in product((1, 2, 3, 5), (2, 3, 5), (1, 2, 3), (0, 1))
    if pad <= kernel // 2
]


def pooled(x: torch.Tensor, operator: str, window: tuple[int, int, int]) -> torch.Tensor | None:
    kernel, stride, pad = window
    try:
        if operator == "MaxPool":
            return torch.nn.functional.max_pool2d(x, kernel, stride, pad, ceil_mode=True)
        return torch.nn.functional.avg_pool2d(x, kernel, stride, pad, True, operator == "with pads")
    except RuntimeError:  # "Output size is too small"
        return None


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "with pads"])
@pytest.mark.parametrize("places", [False, True])
def test_windows_of_ceil_mode_are_those_of_torch(operator: str, places: bool) -> None:
    if places and operator != "MaxPool":
        pytest.skip("only MaxPool says where")
    refused = 0
    for size, *rest in CASES:
        kernel, stride, pad = rest
        x = np.random.default_rng(size).standard_normal((1, 2, size, size + 1)).astype(np.float32)
        fields = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        more = {"count_include_pad": 1} if operator == "with pads" else {}
        node = ("MaxPool" if operator == "MaxPool" else "AveragePool", ["x"],
                ["y", "i"] if places else ["y"], {**fields, "ceil_mode": 1, **more})  # fmt: skip
        content = model([node], {"x": x.shape}, outputs=("y",), check=False)
        net = nn.import_onnx(content)
        wanted = pooled(torch.from_numpy(x), operator, (kernel, stride, pad))
        if wanted is None:
            with pytest.raises(ShapeError, match="accepted are windows that fit"):
                net.bind(device="host")
            refused += 1
            continue
        runs = [net.run] if places else [net.run, net.bind(device="host")]
        for run in runs:
            np.testing.assert_allclose(run(x), wanted.numpy(), rtol=1e-5, atol=1e-6)
    assert 0 < refused < len(CASES) // 2
