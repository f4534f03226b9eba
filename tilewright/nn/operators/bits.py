"""Layers of bits as operators: one layer, or a whole network of them by its compiled program.

Values are [N, height, width, channels], as those of `tilewright.onebit`; bits are int8 -1 and +1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.operators.base import Given, Operator

LAYER, BITS = "LayerOfBits", "Bits"


class LayerOfBits(Operator):
    """attributes: `layer`, a record of nn/layers/, and `value`, what it gives for one picture."""

    name = LAYER
    versions = (1,)
    dtypes = ("float16", "bfloat16", "float32", "int8")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """int8 of bits, float32 of reals."""
        return ("int8" if node.attributes["value"].kind == "bits" else "float32",)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As many pictures as given."""
        assert given[0] is not None
        value = node.attributes["value"]
        return ((given[0].shape[0], value.height, value.width, value.channels),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The layer's own definition, in NumPy."""
        arrays = [_four(_numpy(array)) for array in given]
        return _there(xp, node.attributes["layer"].compute(*arrays), given[0])


class Bits(Operator):
    """A whole network of bits: what `Network.run` of `tilewright.onebit` gives.

    attributes: `network`.
    """

    name = BITS
    versions = (1,)
    dtypes = ("float16", "bfloat16", "float32")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Scores."""
        return ("float32",)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[N, height, width, channels]."""
        assert given[0] is not None
        network = node.attributes["network"]
        value = network.values[network.output]
        return ((given[0].shape[0], value.height, value.width, value.channels),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """By the host's compiled kernels where there are any."""
        network = node.attributes["network"]
        value = network.values[network.output]
        made = network.run(_numpy(given[0]).reshape(-1, *network.input_shape))
        return _there(xp, made.reshape(-1, value.height, value.width, value.channels), given[0])

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Not counted: sums of bits are no floating-point operations."""
        return 0.0


def _numpy(array: Any) -> Any:
    """In the host's memory; bits are computed there."""
    if isinstance(array, np.ndarray):
        return array
    return np.asarray(array.detach().cpu().float() if array.dtype.is_floating_point else array)


def _four(array: Any) -> Any:
    """Rows of features as pictures of one pixel."""
    return array if array.ndim == 4 else array.reshape(len(array), 1, 1, -1)


def _there(xp: Any, made: Any, like: Any) -> Any:
    """Back where the input lay."""
    return made if xp is np else xp.asarray(made, device=like.device)


OPERATORS = (LayerOfBits(), Bits())
