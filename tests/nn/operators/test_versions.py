"""Meanings that newer opsets replaced, and forms that the standard tests little: as onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.support.nets import model
from tilewright import nn
from tilewright.arrays.array import NDArray
from tilewright.nn.infer import tensors
from tilewright.nn.operators.erf import erf
from tilewright.nn.operators.resize import resized
from tilewright.nn.operators.resize_axis import Along, taps_of

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def ints(*numbers: int) -> NDArray:
    return np.asarray(numbers, np.int64)


def floats(*shape: int) -> NDArray:
    return np.random.default_rng(math.prod(shape)).standard_normal(shape).astype(np.float32)


X = (2, 4, 6, 5)
# Operator, opset, shape of x, attributes, other inputs in order, outputs.
Case = tuple[str, int, tuple[int, ...], Mapping[str, Any], list[NDArray], int]
CASES: list[Case] = [
    ("Upsample", 8, X, {"scales": [1.0, 1.0, 2.0, 3.0]}, [], 1),
    ("Upsample", 9, X, {"mode": "linear"}, [np.array([1, 1, 2, 2], np.float32)], 1),
    ("Resize", 10, X, {"mode": "nearest"}, [np.array([1, 1, 1.6, 0.6], np.float32)], 1),
    ("Resize", 10, X, {"mode": "linear"}, [np.array([1, 1, 2, 0.6], np.float32)], 1),
    ("Softmax", 11, X, {}, [], 1),
    ("LogSoftmax", 12, X, {"axis": 2}, [], 1),
    ("Hardmax", 11, X, {"axis": -1}, [], 1),
    ("Split", 11, X, {"axis": 2, "split": [1, 2, 3]}, [], 3),
    ("Split", 11, X, {"axis": 1}, [], 2),
    ("Slice", 9, X, {"starts": [1, -3], "ends": [9, -1], "axes": [2, 3]}, [], 1),
    ("Slice", 13, X, {}, [ints(-1, 4), ints(-9, 0), ints(2, 3), ints(-2, -1)], 1),
    ("Pad", 10, X, {"pads": [0, 0, 1, 2, 0, 0, 0, 3], "value": 1.5}, [], 1),
    ("Pad", 10, X, {"pads": [0, 0, 2, 2, 0, 0, 3, 3], "mode": "reflect"}, [], 1),
    ("Pad", 10, X, {"pads": [0, 0, -1, 2, 0, 0, 3, -2], "mode": "edge"}, [], 1),
    ("Clip", 10, X, {"min": -0.5, "max": 0.25}, [], 1),
    ("Clip", 9, X, {}, [], 1),
    ("BatchNormalization", 8, X, {}, [floats(4), floats(4), floats(4), np.abs(floats(4))], 1),
    ("BatchNormalization", 14, X, {}, [floats(4), floats(4), floats(4), np.abs(floats(4))], 1),
    ("ReduceMean", 11, X, {"axes": [1, -1]}, [], 1),
    ("ReduceMean", 13, X, {"axes": [2], "keepdims": 0}, [], 1),
    ("ReduceMax", 17, X, {}, [], 1),
    ("ReduceSum", 11, X, {"axes": [0]}, [], 1),
    ("ReduceSum", 13, X, {"keepdims": 0}, [ints(1, 3)], 1),
    ("ReduceL2", 17, X, {"axes": [-2]}, [], 1),
    ("ArgMax", 12, X, {"axis": 1, "select_last_index": 1, "keepdims": 0}, [], 1),
    ("Squeeze", 11, (2, 1, 3, 1), {"axes": [1, -1]}, [], 1),
    ("Unsqueeze", 11, (2, 3), {"axes": [0, 3]}, [], 1),
    ("Unsqueeze", 13, (2, 3), {}, [ints(-1, 1)], 1),
    ("Dropout", 9, X, {"ratio": 0.3}, [], 1),
    ("Dropout", 10, X, {"ratio": 0.3}, [], 1),
    ("TopK", 9, X, {"k": 3, "axis": 2}, [], 2),
    ("TopK", 10, X, {"axis": 1}, [ints(2)], 2),
    ("GlobalLpPool", 17, X, {"p": 3}, [], 1),
    ("LpPool", 11, X, {"kernel_shape": [3, 2], "p": 3, "pads": [1, 0, 1, 1]}, [], 1),
    ("AveragePool", 7, X, {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}, [], 1),
    ("AveragePool", 10, X, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, [], 1),
    ("MaxPool", 8, X, {"kernel_shape": [2, 3], "strides": [2, 1]}, [], 2),
    ("MaxPool", 12, X, {"kernel_shape": [2, 2], "dilations": [2, 1], "pads": [1] * 4}, [], 2),
    ("MaxPool", 12, (1, 3, 9), {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}, [], 1),
    ("Scatter", 9, (3, 3), {"axis": 1}, [ints(1, 0, 2)[:, None], floats(3, 1)], 1),
    ("Flatten", 11, X, {"axis": -1}, [], 1),
    ("Gemm", 9, (3, 5), {"transB": 1, "alpha": 0.5, "beta": 2.0}, [floats(4, 5), floats(4)], 1),
    ("Conv", 11, (2, 4, 9), {"strides": [2], "pads": [1, 2]}, [floats(3, 4, 3), floats(3)], 1),
    ("Conv", 11, (1, 2, 5, 6, 4), {"dilations": [1, 2, 1]}, [floats(3, 2, 2, 2, 3)], 1),
    ("Conv", 11, X, {"group": 4, "pads": [1] * 4}, [floats(4, 1, 3, 3), floats(4)], 1),
    ("Conv", 11, X, {"group": 4}, [floats(8, 1, 3, 3)], 1),
    ("ConvTranspose", 11, X, {"strides": [2, 3], "pads": [1, 0, 0, 1]}, [floats(4, 3, 3, 3)], 1),
    ("ConvTranspose", 11, X, {"group": 2, "dilations": [2, 1]}, [floats(4, 3, 2, 3), floats(6)], 1),
    (
        *("ConvTranspose", 11, X, {"strides": [2, 2], "output_padding": [1, 1]}),
        *([floats(4, 2, 3, 3)], 1),
    ),
    (
        "ConvTranspose",
        11,
        X,
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        [floats(4, 2, 3, 3)],
        1,
    ),
    ("ConvTranspose", 11, (1, 2, 7), {"strides": [3]}, [floats(2, 3, 2)], 1),
    ("GridSample", 16, X, {"mode": "bicubic"}, [floats(2, 3, 4, 2)], 1),
    ("GridSample", 16, X, {"padding_mode": "reflection"}, [floats(2, 3, 4, 2) * 2], 1),
    ("GridSample", 16, X, {"mode": "nearest", "align_corners": 1}, [floats(2, 3, 4, 2)], 1),
    ("InstanceNormalization", 17, X, {}, [floats(4), floats(4)], 1),
    ("LayerNormalization", 17, X, {"axis": -2}, [floats(6, 5), floats(6, 5)], 1),
    ("LRN", 13, X, {"size": 3, "alpha": 0.1}, [], 1),
    ("MatMul", 13, (3, 1, 4, 5), {}, [floats(2, 5, 3)], 1),
    ("Einsum", 12, (3, 4, 5), {"equation": "...ij,kj->...ik"}, [floats(2, 5)], 1),
    ("Gelu", 20, X, {"approximate": "tanh"}, [], 1),
    ("HardSwish", 14, X, {}, [], 1),
    ("PRelu", 9, X, {}, [floats(4, 1, 1)], 1),
    ("CumSum", 14, X, {"exclusive": 1, "reverse": 1}, [ints(2)[0]], 1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_a_form_of_an_operator_gives_what_onnxruntime_gives(case: Case) -> None:
    operator, opset, shape, attributes, others, count = case
    names = [f"c{at}" for at in range(len(others))]
    outputs = [f"y{at}" for at in range(count)]
    content = model(
        [(operator, ["x", *names], outputs, attributes)],
        {"x": shape},
        dict(zip(names, others, strict=True)),
        outputs,
        opset=opset,
        check=False,
    )
    x = floats(*shape)
    typed = onnx.shape_inference.infer_shapes(onnx.load_from_string(content)).SerializeToString()
    wanted = ort.InferenceSession(typed).run(None, {"x": x})
    net = nn.import_onnx(content)
    made = net.run(x)
    known = tensors(net.graph, {"x": shape})
    for name, array, right in zip(outputs, made if count > 1 else (made,), wanted, strict=True):
        assert known[name].shape == array.shape == right.shape
        assert array.dtype == right.dtype
        np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-5)


def test_the_error_function_is_right_to_the_last_bits_of_its_type() -> None:
    x = np.linspace(-7, 7, 20001)
    wanted = np.array([math.erf(value) for value in x])
    assert np.abs(erf(np, x) - wanted).max() < 3e-14
    single = x.astype(np.float32)
    exact = np.array([math.erf(float(value)) for value in single])
    errors = np.abs(erf(np, single) - exact) / np.maximum(np.abs(exact), 1e-30)
    assert errors.max() < 5e-7
    assert np.isnan(erf(np, np.array([np.nan], np.float32))).all()


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize(("old", "new"), [(1, 4), (5, 10), (4, 12), (12, 4), (8, 4), (3, 3)])
def test_slices_give_what_gathering_gives_where_sizes_are_multiples(
    mode: str, coordinates: str, old: int, new: int
) -> None:
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "cubic_coeff_a": -0.75,
        "antialias": int(new < old),
    }
    taps = taps_of(Along(old, new, new / old), attributes, 19)
    x = floats(2, old, 3)
    wanted = sum(
        x[:, places] * weights.astype(np.float32)[:, None]
        for places, weights in zip(taps.places.T, taps.weights.T, strict=True)
    )
    np.testing.assert_allclose(resized(np, x, 1, taps), wanted, atol=1e-5)


def test_whole_numbers_divide_towards_zero() -> None:
    content = model(
        [("Div", ["x", "c"], ["y"], {})],
        {"x": (4,)},
        {"c": np.array([2, 2, -2, -2], np.int32)},
        dtype="INT32",
    )
    made = nn.import_onnx(content).run(np.array([7, -7, 7, -7], np.int32))
    assert made.tolist() == [3, -3, -3, 3]
