"""Files of onnxruntime's quantiser in its own operators give what it gives, by int8's layers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

from tests.support.nets import ONE, NodeText, model, picture, weights_of  # noqa: E402
from tilewright import nn  # noqa: E402
from tilewright.errors import FileError  # noqa: E402
from tilewright.nn.graph import Tensor  # noqa: E402
from tilewright.nn.onnx.quantised import expanded  # noqa: E402

SHAPE = (1, 3, 12, 10)
NODES: tuple[NodeText, ...] = (
    ("Conv", ["x", "a", "d"], ["c0"], ONE),
    ("Relu", ["c0"], ["r0"], {}),
    ("Conv", ["r0", "b"], ["c1"], ONE),
    ("Add", ["c1", "r0"], ["s"], {}),
    ("LeakyRelu", ["s"], ["l"], {"alpha": 0.125}),
    ("Sigmoid", ["l"], ["g"], {}),
    ("Mul", ["l", "g"], ["m"], {}),
    ("AveragePool", ["m"], ["p"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("Concat", ["p", "p"], ["j"], {"axis": 1}),
    ("GlobalAveragePool", ["j"], ["v"], {}),
    ("Flatten", ["v"], ["f"], {"axis": 1}),
    ("Gemm", ["f", "e", "h"], ["z"], {}),
    ("Softmax", ["z"], ["y"], {"axis": 1}),
)
WEIGHTS = weights_of(a=(8, 3, 3, 3), b=(8, 8, 3, 3), d=(8,), e=(16, 5), h=(5,))


class Samples:
    """What onnxruntime's calibration reads."""

    def __init__(self) -> None:
        self._left = [{"x": picture(*SHAPE) * scale} for scale in (1.0, 0.5)]

    def get_next(self) -> Any:
        return self._left.pop() if self._left else None


def quantised(folder: Path, *, per_channel: bool) -> bytes:
    """The net in onnxruntime's own operators."""
    source, made = folder / "net.onnx", folder / "small.onnx"
    source.write_bytes(model(NODES, {"x": SHAPE}, WEIGHTS))
    logging.disable(logging.WARNING)
    try:
        quantization.quantize_static(
            source,
            made,
            Samples(),
            quant_format=quantization.QuantFormat.QOperator,
            per_channel=per_channel,
            weight_type=quantization.QuantType.QInt8,
        )
    finally:
        logging.disable(logging.NOTSET)
    return made.read_bytes()


@pytest.mark.parametrize("per_channel", [False, True])
def test_they_give_what_onnxruntime_gives(tmp_path: Path, per_channel: bool) -> None:
    """But for ties between two steps, which onnxruntime rounds after another multiplication."""
    content = quantised(tmp_path, per_channel=per_channel)
    file = onnx.load_model_from_string(content)
    theirs = {node.op_type for node in file.graph.node if node.domain == "com.microsoft"}
    assert len(theirs) >= 7, theirs
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    net, x = nn.import_onnx(content), picture(*SHAPE)
    (wanted,) = session.run(None, {"x": x})
    made = net.run(x)
    np.testing.assert_allclose(made, wanted, rtol=0, atol=2 / 256)
    bound = net.bind(SHAPE, "host")
    np.testing.assert_allclose(bound(x), made, rtol=0, atol=1 / 256)
    told = bound.explain()
    assert "Conv int8" in told


def test_others_of_that_domain_are_refused_by_name() -> None:
    file = onnx.load_model_from_string(model([("Relu", ["x"], ["y"], {})], {"x": SHAPE}))
    file.graph.node[0].domain, file.graph.node[0].op_type = "com.microsoft", "QLinearReduceMean"
    with pytest.raises(FileError, match=r"'com.microsoft'; accepted of it are QGemm, QLinearAdd"):
        nn.import_onnx(file.SerializeToString())


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_a_bias_has_the_scale_of_its_values_times_that_of_each_channels_weights(
    channels: int,
) -> None:
    of = np.linspace(0.5, 2.0, channels).astype(np.float32)
    values = {
        "s": np.float32(0.25),
        "z": np.uint8(128),
        "w": np.ones((channels, 1, 1, 1), np.int8),
        "ws": of,
        "wz": np.zeros(channels, np.int8),
        "os": np.float32(1.0),
        "oz": np.uint8(0),
        "b": np.arange(channels, dtype=np.int32),
    }
    constants = {
        name: Tensor(np.shape(one), str(one.dtype), np.asarray(one)) for name, one in values.items()
    }
    node = onnx.helper.make_node("QLinearConv", ["x", *values], ["y"])
    made = expanded(node, constants, 21)
    assert [one.op_type for one in made] == [*["DequantizeLinear"] * 3, "Conv", "QuantizeLinear"]
    scale = constants[made[2].input[1]].value
    assert scale.shape == (() if channels == 1 else (channels,))
    np.testing.assert_array_equal(scale, 0.25 * of if channels > 1 else 0.125)
    assert [a.i for a in made[2].attribute] == ([] if channels == 1 else [0])
