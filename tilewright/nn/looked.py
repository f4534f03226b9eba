"""What a run by the definitions asks of every node before it is computed: what `bind` asks.

Sizes are those of the arrays that are there, so that nothing is inferred twice, and what depends on
an input's content (the shape given to Reshape) is asked as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.errors import DeviceMemoryError, ShapeError
from tilewright.facts.dtypes import VALUES
from tilewright.inputs.devices import host
from tilewright.nn.graph import Node, Tensor
from tilewright.nn.infer import LARGEST, operator_of
from tilewright.nn.kinds import dtype_name, to_numpy

_FEW = 1 << 12  # elements of what sizes may depend on: more of another library are not read


def check_node(xp: Any, node: Node, given: Sequence[Any]) -> None:
    """Raise ShapeError, ArgumentError or DeviceMemoryError for inputs that a node cannot take."""
    operator = operator_of(node)
    tensors = [None if array is None else _tensor(xp, array) for array in given]
    shapes = [tuple(map(int, shape)) for shape in operator.shapes(node, tensors)]
    for shape in shapes:
        if min(shape, default=0) < 0 or math.prod(shape) >= LARGEST:
            raise ShapeError(f"gives {list(shape)}; accepted are sizes from 0, fewer than 2^48")
    if xp is not np:
        return
    needed = operator.scratch(node, tensors) + sum(map(math.prod, shapes))
    memory = host().memory
    if memory and needed > memory:
        raise DeviceMemoryError(f"takes {needed} bytes and more; the host has {memory}")


def _tensor(xp: Any, array: Any) -> Tensor:
    """What is known of an array: everything, where it is NumPy's or small."""
    shape = tuple(array.shape)
    dtype = dtype_name(array)
    content = None
    if xp is np:
        content = np.asarray(array)
    elif math.prod(shape) <= _FEW:
        content = to_numpy(array, "value")
    return Tensor(shape, dtype if dtype in VALUES else "float32", content)
