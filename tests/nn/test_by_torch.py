"""What torch does in one call is what the definitions say, or is left to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.nn.graph import Node
from tilewright.nn.infer import operator_of

torch: Any = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from tilewright.nn import by_torch  # noqa: E402
from tilewright.nn.evaluate import namespace  # noqa: E402

POOL = {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1], "ceil_mode": 0}


def drawn(*sizes: int) -> Any:
    return torch.from_numpy(np.random.default_rng(1).standard_normal(sizes).astype(np.float32))


@pytest.mark.parametrize(
    ("operator", "attributes", "sizes"),
    [
        ("MaxPool", {**POOL, "storage_order": 0}, [(2, 3, 7, 8)]),
        ("MaxPool", {**POOL, "storage_order": 0, "dilations": [2, 1]}, [(2, 3, 7, 8)]),
        ("MaxPool", {**POOL, "storage_order": 0, "auto_pad": "SAME_UPPER"}, [(1, 2, 7, 9)]),
        ("AveragePool", {**POOL, "count_include_pad": 0}, [(2, 3, 7, 8)]),
        ("AveragePool", {**POOL, "count_include_pad": 1}, [(2, 3, 7, 8)]),
    ],
)
def test_torchs_call_is_the_definition(operator: str, attributes: Any, sizes: Any) -> None:
    node = Node(operator, 22, ("x",), ("y",), attributes, "n")
    given = [drawn(*size) for size in sizes]
    made = by_torch.called(node, given)
    wanted = operator_of(node).compute(namespace(given[0]), node, *given)
    torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "changed", "dtype"),
    [
        ("MaxPool", {"ceil_mode": 1}, "float32"),
        ("MaxPool", {"pads": [0, 0, 1, 1]}, "float32"),
        ("MaxPool", {"pads": [2, 2, 2, 2]}, "float32"),
        ("MaxPool", {}, "int8"),
        ("AveragePool", {"dilations": [2, 2]}, "float32"),
        ("Relu", {}, "float32"),
    ],
)
def test_what_torch_takes_otherwise_is_left_to_the_definition(
    operator: str, changed: Any, dtype: str
) -> None:
    node = Node(operator, 22, ("x",), ("y",), {**POOL, **changed}, "n")
    assert by_torch.called(node, [drawn(1, 2, 9, 9).to(getattr(torch, dtype))]) is None
