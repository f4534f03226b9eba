"""Bi-Real-Net-18 as an ONNX model with random weights: the shape of a real binary network.

    image -> 7x7 convolution, norm, pool -> 16 times -> mean -> dense
                                            |
          x ---> sign -> binary 3x3 -> norm -> + --->
            |__________________________________|

Liu, Wu, Luo, Yang, Liu, Cheng: Bi-Real Net: Enhancing the Performance of 1-bit CNNs With Improved
Representational Capability and Advanced Training Algorithm, ECCV 2018. Where an image shrinks, the
shortcut is a 2x2 mean, a real 1x1 convolution and a norm, as there. Padding is zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import ArgumentError

NDArray = npt.NDArray[Any]
_STAGES = (64, 128, 256, 512)
_BLOCKS = 4


def birealnet18(classes: int = 1000, size: int = 224, seed: int = 0) -> Any:
    """An onnx.ModelProto, [1, 3, size, size] to [1, classes], float32, weights -a or +a.

    Raises ArgumentError for sizes that are no multiple of 32; ImportError where onnx is absent.
    """
    if size < 32 or size % 32 or classes < 1:
        raise ArgumentError(
            f"classes={classes}, size={size}: accepted are a class or more, multiples of 32"
        )
    model = _Model(seed)
    x = model.norm(model.conv("image", "stem.conv", 3, 64, 7, 2, binary=False), "stem.norm", 64)
    x = model.node(
        "MaxPool", [x], "stem.pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    channels = 64
    for stage, width in enumerate(_STAGES):
        for block in range(_BLOCKS):
            step = 2 if block == 0 and stage else 1
            x = _block(model, x, f"stage{stage + 1}.{block}", channels, width, step)
            channels = width
    x = model.node("GlobalAveragePool", [x], "mean")
    x = model.node("Flatten", [x], "flat", axis=1)
    weights = model.random("dense.weights", (classes, channels), 1 / np.sqrt(channels))
    bias = model.random("dense.bias", (classes,), 0.1)
    model.node("Gemm", [x, weights, bias], "scores", transB=1)
    return model.finish(classes, size)


def _block(model: _Model, x: str, name: str, channels: int, width: int, step: int) -> str:
    shortcut = x
    if step == 2:
        half = model.node("AveragePool", [x], f"{name}.mean", kernel_shape=[2, 2], strides=[2, 2])
        real = model.conv(half, f"{name}.shortcut", channels, width, 1, 1, binary=False)
        shortcut = model.norm(real, f"{name}.shortcut.norm", width)
    signs = model.node("Sign", [x], f"{name}.sign")
    sums = model.conv(signs, f"{name}.conv", channels, width, 3, step, binary=True)
    return model.node("Add", [model.norm(sums, f"{name}.norm", width), shortcut], f"{name}.add")


class _Model:
    """Nodes and weights as they are added; a value has the name of its node."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def node(self, op: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """A node; the name of its value."""
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name: str, array: NDArray) -> str:
        """Weights."""
        from onnx import numpy_helper

        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def random(self, name: str, shape: tuple[int, ...], spread: float) -> str:
        """Weights of a normal distribution, in half precision: rounding to it changes nothing."""
        return self.constant(name, (spread * self.generator.standard_normal(shape)).astype("f2"))

    def conv(
        self, x: str, name: str, channels: int, width: int, kernel: int, step: int, *, binary: bool
    ) -> str:
        """A convolution that keeps the size but for the step."""
        shape, spread = (width, channels, kernel, kernel), 1 / np.sqrt(channels * kernel * kernel)
        if binary:
            signs = self.generator.integers(0, 2, shape, np.int8) * 2.0 - 1
            scales = spread * self.generator.uniform(0.5, 1.5, (width, 1, 1, 1))
            weights = self.constant(f"{name}.weights", signs * scales)
        else:
            weights = self.random(f"{name}.weights", shape, spread)
        pad = kernel // 2
        return self.node(
            "Conv",
            [x, weights],
            name,
            kernel_shape=[kernel] * 2,
            strides=[step] * 2,
            pads=[pad] * 4,
        )

    def norm(self, x: str, name: str, width: int) -> str:
        """A batch norm with the statistics of a network that was trained."""
        draw = self.generator
        parts = {
            "scale": draw.uniform(0.5, 1.5, width) * draw.choice([-1.0, 1.0], width),
            "shift": 0.2 * draw.standard_normal(width),
            "mean": 0.2 * draw.standard_normal(width),
            "variance": draw.uniform(0.5, 1.5, width),
        }
        names = [self.constant(f"{name}.{part}", array) for part, array in parts.items()]
        return self.node("BatchNormalization", [x, *names], name)

    def finish(self, classes: int, size: int) -> Any:
        """The model."""
        from onnx import TensorProto, helper

        graph = helper.make_graph(
            self.nodes,
            "birealnet18",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, classes])],
            self.weights,
        )
        opset = [helper.make_opsetid("", 17)]
        # The version that came with opset 17: readers refuse files of a later one than they know.
        return helper.make_model(
            graph, opset_imports=opset, ir_version=8, producer_name="tilewright"
        )
