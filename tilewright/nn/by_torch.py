"""Operators that torch has as one call on its GPUs: by definition they are many small kernels.

A pool of 3 x 3 is six kernels by its definition and one by torch. What torch does not take as ONNX
means it, pads that differ or windows that stick out, is left to the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.nn.graph import Node
from tilewright.nn.operators.windows import Windows, windows_of

_FLOATS = ("float32", "float16", "bfloat16")


def called(node: Node, given: Sequence[Any]) -> Any:
    """What torch makes of a node of one result, or None where the definition has to."""
    call = _CALLS.get(node.operator)
    if call is None or len(node.outputs) != 1 or str(given[0].dtype).split(".")[-1] not in _FLOATS:
        return None
    return call(node, *given)


def _pooled(node: Node, x: Any) -> Windows | None:
    """The windows of a pool that torch takes: equal pads of at most half a window."""
    if x.ndim != 4 or node.attributes.get("ceil_mode"):
        return None
    windows = windows_of(
        node.attributes, tuple(node.attributes["kernel_shape"]), tuple(x.shape[2:])
    )
    top, left, bottom, right = windows.pads
    wide = any(2 * pad > size for pad, size in zip((top, left), windows.kernel, strict=True))
    return None if (top, left) != (bottom, right) or wide else windows


def _max_pool(node: Node, x: Any) -> Any:
    import torch.nn.functional as nnf

    at = _pooled(node, x)
    if at is None:
        return None
    return nnf.max_pool2d(x, at.kernel, at.strides, at.pads[:2], at.dilations)


def _average_pool(node: Node, x: Any) -> Any:
    import torch.nn.functional as nnf

    at = _pooled(node, x)
    if at is None or any(one != 1 for one in at.dilations):
        return None
    padded = bool(node.attributes.get("count_include_pad"))
    return nnf.avg_pool2d(x, at.kernel, at.strides, at.pads[:2], count_include_pad=padded)


_CALLS: dict[str, Callable[..., Any]] = {
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
}
