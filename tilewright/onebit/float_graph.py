"""The float graph of an ONNX file, evaluated in float64: what an imported network is checked with.

Every operator that the importer takes is here, and no other; images are [N, C, H, W] as in ONNX. A
node whose inputs are all constants is a constant itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import FileError, TilewrightError
from tilewright.onebit.onnx_model import Graph, Node
from tilewright.onebit.reference import convolve, counted, taps_of
from tilewright.onebit.window import Window

NDArray = npt.NDArray[Any]
_LARGEST = 1 << 28  # elements of one value
# What operators are known to raise on inputs that are absent and on attributes out of all range.
_NOT_POSSIBLE = (
    TilewrightError,
    ValueError,
    IndexError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Every value of a graph by name, and which of them do not depend on the input."""

    values: Mapping[str, NDArray]
    constants: frozenset[str]


def evaluate_graph(graph: Graph, x: NDArray) -> Evaluation:
    """All values for an input [N, ...]. Raises FileError that names a node that cannot be done."""
    values: dict[str, NDArray] = dict(graph.constants)
    values[graph.input] = x.astype(np.float64)
    constants = set(graph.constants)
    for node in graph.nodes:
        operator = OPERATORS.get(node.op)
        if operator is None:
            raise unsupported(graph, node, f"accepted are {', '.join(sorted(OPERATORS))}")
        given = [values[name] if name else None for name in node.inputs]
        if len(node.outputs) < 1 or any(node.outputs[1:]):
            raise unsupported(graph, node, "more than one output")
        try:
            with np.errstate(all="ignore"):
                result = operator(node, given)
        except KeyError as error:
            raise unsupported(graph, node, f"{error.args[0]!r} is missing") from None
        except _NOT_POSSIBLE as error:
            raise unsupported(graph, node, str(error) or type(error).__name__) from None
        if result.size > _LARGEST:
            raise unsupported(graph, node, f"gives {result.size} elements")
        values[node.outputs[0]] = result
        if all(name in constants for name in node.inputs if name):
            constants.add(node.outputs[0])
    return Evaluation(values, frozenset(constants))


def unsupported(graph: Graph, node: Node, why: str) -> FileError:
    """An error that names the node."""
    return FileError(f"{graph.label}: {node.title} is not supported: {why}")


def window_of(node: Node, kernel: Sequence[int], size: Sequence[int]) -> Window:
    """The window of a convolution or a pool over images of `size` (height, width)."""
    get = node.attributes.get
    if get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise FileError(f"auto_pad={get('auto_pad')!r}; accepted are explicit pads")
    pads = [0] * 4 if get("auto_pad") == "VALID" else list(get("pads", [0] * 4))
    strides, dilations = get("strides", [1, 1]), get("dilations", [1, 1])
    if len(kernel) != 2 or len(strides) != 2 or len(dilations) != 2 or len(pads) != 4:
        raise FileError(f"{len(kernel)} dimensions; accepted are images of two")
    if get("ceil_mode", 0):
        pads = _ceiled(pads, kernel, strides, size)
    return Window(
        (int(kernel[0]), int(kernel[1])),
        (int(strides[0]), int(strides[1])),
        (int(dilations[0]), int(dilations[1])),
        (int(pads[0]), int(pads[1]), int(pads[2]), int(pads[3])),
    )


def _ceiled(
    pads: list[int], kernel: Sequence[int], strides: Sequence[int], size: Sequence[int]
) -> list[int]:
    """Pads with which rounding down gives what rounding up gave; no window begins in a pad."""
    wider = list(pads)
    for axis in (0, 1):
        room = size[axis] + pads[axis] + pads[axis + 2] - kernel[axis]
        count = -(-room // strides[axis]) + 1
        if (count - 1) * strides[axis] >= size[axis] + pads[axis]:
            count -= 1
        needed = (count - 1) * strides[axis] + kernel[axis] - size[axis] - pads[axis]
        wider[axis + 2] = max(pads[axis + 2], needed)
    return wider


def epsilon_of(node: Node) -> float:
    """A batch norm's guard against division by zero."""
    return float(node.attributes.get("epsilon", 1e-5))


def norm_of(node: Node, given: Sequence[Any]) -> tuple[NDArray, NDArray]:
    """A batch norm as scale and shift of each channel, float64."""
    gamma, beta, mean, variance = (np.asarray(array, np.float64) for array in given[1:5])
    if node.attributes.get("training_mode", 0):
        raise FileError("training_mode=1; accepted are trained networks")
    scale = gamma / np.sqrt(variance + epsilon_of(node))
    if not np.isfinite(scale).all():
        raise FileError("a variance below 0")
    return scale, beta - mean * scale


def limits_of(node: Node, given: Sequence[Any]) -> tuple[float, float]:
    """Least and greatest of a Clip or a Relu."""
    if node.op == "Relu":
        return 0.0, np.inf
    get = node.attributes.get
    low, high = [*given[1:3], None, None][:2]
    return (
        float(get("min", -np.inf) if low is None else low),
        float(get("max", np.inf) if high is None else high),
    )


def _conv(node: Node, given: Sequence[Any]) -> NDArray:
    x, weights = given[0], given[1]
    window = window_of(node, weights.shape[2:], x.shape[2:])
    groups = int(node.attributes.get("group", 1))
    if groups < 1 or weights.shape[1] * groups != x.shape[1] or weights.shape[0] % groups:
        raise FileError(f"group={groups}, weights {weights.shape}, {x.shape[1]} channels")
    sums = convolve(_last(x), weights.transpose(0, 2, 3, 1), window, groups, 0)
    bias = given[2] if len(given) > 2 and given[2] is not None else 0
    return _first(sums + bias)


def _gemm(node: Node, given: Sequence[Any]) -> NDArray:
    get = node.attributes.get
    if get("transA", 0):
        raise FileError("transA=1")
    b = given[1].T if get("transB", 0) else given[1]
    result: NDArray = get("alpha", 1.0) * (given[0] @ b.astype(np.float64))
    if len(given) > 2 and given[2] is not None:
        result = result + get("beta", 1.0) * given[2]
    return result


def _norm(node: Node, given: Sequence[Any]) -> NDArray:
    scale, shift = norm_of(node, given)
    around = (1, -1, *[1] * (given[0].ndim - 2))
    result: NDArray = given[0] * scale.reshape(around) + shift.reshape(around)
    return result


def _max_pool(node: Node, given: Sequence[Any]) -> NDArray:
    window = window_of(node, node.attributes["kernel_shape"], given[0].shape[2:])
    taps = list(taps_of(_last(given[0]), window, -np.inf))
    return _first(np.maximum.reduce(taps))


def _average_pool(node: Node, given: Sequence[Any]) -> NDArray:
    x, kernel = given[0], node.attributes["kernel_shape"]
    window = window_of(node, kernel, x.shape[2:])
    every = bool(node.attributes.get("count_include_pad", 0))
    if every and node.attributes.get("ceil_mode", 0):
        raise FileError("ceil_mode with count_include_pad")
    sums = np.add.reduce(list(taps_of(_last(x), window, 0.0)))
    return _first(sums / counted(window, x.shape[2:], all_of_it=every)[..., None])


def _mean(node: Node, given: Sequence[Any]) -> NDArray:
    axes = node.attributes.get("axes", given[1] if len(given) > 1 else None)
    x = given[0]
    if axes is None or x.ndim != 4 or sorted(int(a) % 4 for a in axes) != [2, 3]:
        raise FileError(f"axes={axes}; accepted are those of the image")
    result: NDArray = x.mean(axis=(2, 3), keepdims=bool(node.attributes.get("keepdims", 1)))
    return result


def _flatten(node: Node, given: Sequence[Any]) -> NDArray:
    x = given[0]
    flat: NDArray = x.reshape(len(x), -1)
    if node.op == "Flatten" and node.attributes.get("axis", 1) != 1:
        raise FileError(f"axis={node.attributes['axis']}; accepted is 1")
    if node.op == "Reshape":
        shape = [int(size) for size in given[1].reshape(-1)]
        fine = len(shape) == 2 and shape[0] in (-1, 0, 1) and shape[1] in (-1, flat.shape[1])
        if not fine:
            raise FileError(f"shape={shape}; accepted is [batch, everything else]")
    if node.op == "Squeeze" and x.shape[2:] != (1, 1):
        raise FileError(f"of {x.shape}; accepted are images of one pixel")
    return flat


def _pad(node: Node, given: Sequence[Any]) -> NDArray:
    pads, value = pads_of(node, given)
    top, left, bottom, right = pads
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    return np.pad(given[0], around, constant_values=value)


def pads_of(node: Node, given: Sequence[Any]) -> tuple[tuple[int, int, int, int], float]:
    """Top, left, bottom, right, and what is put there."""
    get = node.attributes.get
    if get("mode", "constant") != "constant" or len([g for g in given if g is not None]) > 3:
        raise FileError(f"mode={get('mode')!r} or axes; accepted are constants around images")
    pads = [int(p) for p in (get("pads", ()) if len(given) < 2 else given[1].reshape(-1))]
    value = get("value", 0.0) if len(given) < 3 or given[2] is None else float(given[2])
    if (
        len(pads) != 8
        or given[0].ndim != 4
        or pads[0]
        or pads[1]
        or pads[4]
        or pads[5]
        or min(pads) < 0
    ):
        raise FileError(f"pads={pads}; accepted are rows and columns around images")
    if max(pads) > 1 << 12:
        raise FileError(f"pads={pads}; accepted are up to 4096")
    return (pads[2], pads[3], pads[6], pads[7]), float(value)


def _constant(node: Node, given: Sequence[Any]) -> NDArray:
    found = [
        np.asarray(node.attributes[name])
        for name in ("value", "value_float", "value_int", "value_floats", "value_ints")
        if name in node.attributes
    ]
    if not found:
        raise FileError("a constant without a number")
    return found[0]


def _last(x: NDArray) -> NDArray:
    return np.ascontiguousarray(x.astype(np.float64).transpose(0, 2, 3, 1))


def _first(x: NDArray) -> NDArray:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def _cast(node: Node, given: Sequence[Any]) -> NDArray:
    if node.attributes.get("to") not in (1, 10, 11) or given[0].dtype == np.bool_:
        raise FileError("accepted are numbers to float32, float16 and float64")
    return _same(node, given)


def _same(node: Node, given: Sequence[Any]) -> NDArray:
    array: NDArray = given[0]
    return array


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Node, Sequence[Any]], NDArray]:
    return lambda node, given: np.asarray(function(given[0], given[1]))


OPERATORS: dict[str, Callable[[Node, Sequence[Any]], NDArray]] = {
    "Add": _binary(np.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _norm,
    "Cast": _cast,
    "Clip": lambda node, given: np.clip(given[0], *limits_of(node, given)),
    "Constant": _constant,
    "Conv": _conv,
    "Div": _binary(np.divide),
    "Dropout": _same,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda node, given: given[0].mean(axis=(2, 3), keepdims=True),
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Identity": _same,
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "MatMul": lambda node, given: given[0] @ np.asarray(given[1], np.float64),
    "MaxPool": _max_pool,
    "Mul": _binary(np.multiply),
    "Pad": _pad,
    "ReduceMean": _mean,
    "Relu": lambda node, given: np.clip(given[0], *limits_of(node, given)),
    "Reshape": _flatten,
    "Sign": lambda node, given: np.sign(given[0]),
    "Squeeze": _flatten,
    "Sub": _binary(np.subtract),
    "Where": lambda node, given: np.where(given[0], given[1], given[2]),
}
