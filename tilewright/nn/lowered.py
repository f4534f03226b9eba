"""Nodes as what engines of values are asked: windows, sums along an axis, functions of elements.

    MaxPool, AveragePool, global pools          -> Pool
    Resize                                      -> Blend along one axis, then along the next
    Add, Mul, ..., activations                  -> Elements
    Concat, Split, Slice, Gather of one slice, Transpose, Reshape, DepthToSpace ...
                           -> Elements that copy views
    Softmax, LayerNormalization, InstanceNormalization -> Rows or Channels (rows.py)

What is not float32, or has no such form, is None here and stays a definition.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Activation, Conv, Format
from tilewright.engines.values import Blend, Elements, Pool, ValueWork, Views, WholeSum
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.infer import operator_of
from tilewright.nn.operators.add_int8 import NAME as WHOLE_SUM
from tilewright.nn.operators.add_int8 import SumNumbers
from tilewright.nn.operators.joins import INTERLEAVE
from tilewright.nn.operators.pools import divisors_of
from tilewright.nn.operators.resize import steps_of
from tilewright.nn.operators.windows import Windows, windows_of
from tilewright.nn.passes.activating import activation_of
from tilewright.nn.rows import rows_of

_ALONE = Conv(np.zeros((1, 1, 1, 1), np.float32), shuffle=2)  # has no channels that slopes fit
_PAIRS = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "Max": "largest",
    "Min": "least",
}  # fmt: skip
_MOST = 6  # dimensions that kernels count
_VIEWS = ("Slice", "Transpose")
_RESHAPED = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A work of a node: what it reads, by name, what it gives, and how that lies.

    wants   how its pictures must lie; None where any way does
    """

    work: ValueWork
    inputs: tuple[str, ...]
    output: str
    tensor: Tensor
    wants: Format | None = None


def lowered(
    node: Node, tensors: Mapping[str, Tensor], lies: Callable[[str], Format]
) -> tuple[Part, ...] | None:
    """The works of a node, one after another, or None; `lies` says how a value will lie."""
    given = [tensors[name] for name in node.inputs if name]
    made = [tensors[name] for name in node.outputs if name]
    if node.operator == WHOLE_SUM:
        return _whole_sum(node, given, made[0])
    if any(tensor.dtype != "float32" or not tensor.size for tensor in (given[:1] + made)):
        return None
    if any(len(tensor.shape) > _MOST for tensor in (*given, *made)):
        return None
    if node.operator in _POOLS:
        return _pool(node, given[0], made)
    if node.operator == "Resize":
        return _resized(node, tensors, made[0], lies)
    if node.operator in _PAIRS:
        return _pair(node, tensors, made[0])
    if node.operator == "Concat":
        return _joined(node, given, made[0])
    if node.operator == INTERLEAVE:
        return _in_turns(node, made[0])
    if node.operator == "Split":
        return _split(node, given[0], made)
    if node.operator == "Gather":
        return _gathered(node, tensors, made[0])
    if node.operator in (*_VIEWS, *_RESHAPED, "DepthToSpace", "SpaceToDepth"):
        return _moved(node, tensors, made[0])
    rows = rows_of(node, tensors)
    if rows is not None:
        work, inputs, wants = rows
        return (Part(work, inputs, node.outputs[0], made[0], wants),)
    activation = activation_of(_ALONE, node, node.inputs[0], tensors) if node.inputs else None
    if activation is None or len(made) != 1:
        return None
    return (_elements(node, activation.kind, activation, _same, made[0], node.inputs[:1]),)


def copied(node: Node, tensor: Tensor) -> Part:
    """A value laid out anew."""
    return _elements(node, "none", Activation(), _same, tensor, node.inputs)


def _elements(
    node: Node,
    function: str,
    activation: Activation,
    views: Views,
    tensor: Tensor,
    inputs: tuple[str, ...],
    output: str = "",
) -> Part:
    work = Elements(function, activation, views, tensor.size)
    return Part(work, inputs, output or node.outputs[0], tensor)


def _same(
    sources: Sequence[NDArray], out: NDArray
) -> list[tuple[NDArray, NDArray | None, NDArray]]:
    return [(sources[0], None, out)]


def _whole_sum(node: Node, given: Sequence[Tensor], made: Tensor) -> tuple[Part, ...] | None:
    """Bytes and float32 of one size, all of which lie alike."""
    if not made.size or any(t.shape != made.shape or t.value is not None for t in given):
        return None
    n: SumNumbers = node.attributes["numbers"]
    work = WholeSum(n.summands, made.size, n.step, n.shift, n.dtype, n.low, n.high)
    wants: Format | None = "channels_last" if len(made.shape) == 4 else None
    return (Part(work, node.inputs, node.outputs[0], made, wants),)


# Windows


def _pool(node: Node, x: Tensor, made: Sequence[Tensor]) -> tuple[Part, ...] | None:
    if len(x.shape) != 4 or len(made) != 1:
        return None
    windows, kind = _POOLS[node.operator](node, x.shape)
    counts = windows.counts(x.shape[2:])
    divisors, share = None, 1.0
    if kind == "mean":
        each = divisors_of(node, windows, x.shape[2:])
        share = 1 / float(each.flat[0])
        divisors = each.astype(np.float32) if (each != each.flat[0]).any() else None
    images, channels, height, width = x.shape
    down, across = windows.kernel
    work = Pool(
        kind,
        (images, channels, height, width),
        (down, across),
        (windows.strides[0], windows.strides[1]),
        (windows.dilations[0], windows.dilations[1]),
        (windows.pads[0], windows.pads[1]),
        (counts[0], counts[1]),
        divisors,
        share,
    )
    return (Part(work, node.inputs[:1], node.outputs[0], made[0], "channels_last"),)


def _of_attributes(kind: str) -> Callable[[Node, Shape], tuple[Windows, str]]:
    def found(node: Node, shape: Shape) -> tuple[Windows, str]:
        return windows_of(
            node.attributes, tuple(node.attributes["kernel_shape"]), shape[2:]
        ), kind  # fmt: skip

    return found


def _of_all(kind: str) -> Callable[[Node, Shape], tuple[Windows, str]]:
    return lambda node, shape: (Windows(shape[2:], (1, 1), (1, 1), (0, 0, 0, 0)), kind)


_POOLS = {
    "MaxPool": _of_attributes("largest"),
    "AveragePool": _of_attributes("mean"),
    "GlobalMaxPool": _of_all("largest"),
    "GlobalAveragePool": _of_all("mean"),
}


# Along an axis


def _resized(
    node: Node, tensors: Mapping[str, Tensor], made: Tensor, lies: Callable[[str], Format]
) -> tuple[Part, ...] | None:
    """One axis after another, in the definition's order; values between have names of their own."""
    x = tensors[node.inputs[0]]
    given = [tensors[name].value if name else None for name in node.inputs[1:]]
    absent = any(name and tensors[name].value is None for name in node.inputs[1:])
    steps = None if absent or len(x.shape) != 4 else steps_of(node, given, x.shape)
    if not steps:
        return None
    form = lies(node.inputs[0])
    order = (0, 2, 3, 1) if form == "channels_last" else (0, 1, 2, 3)
    shape, name, parts = x.shape, node.inputs[0], []
    for number, (axis, places, weights) in enumerate(steps, 1):
        new = (*shape[:axis], len(places), *shape[axis + 1 :])
        at = order.index(axis)
        sizes = [shape[one] for one in order]
        work = Blend(math.prod(sizes[:at]), sizes[at], math.prod(sizes[at + 1 :]), places, weights)
        last = number == len(steps)
        output = node.outputs[0] if last else f"{node.outputs[0]}, axis {axis}"
        parts.append(Part(work, (name,), output, replace(made, shape=new), form))
        shape, name = new, output
    return tuple(parts)


# Elements


def _pair(node: Node, tensors: Mapping[str, Tensor], made: Tensor) -> tuple[Part, ...] | None:
    """Two operands, broadcast."""
    if len(node.inputs) != 2 or any(tensors[name].dtype != "float32" for name in node.inputs):
        return None

    def views(
        sources: Sequence[NDArray], out: NDArray
    ) -> list[tuple[NDArray, NDArray | None, NDArray]]:
        a, b = (np.broadcast_to(one, out.shape) for one in sources)
        return [(a, b, out)]

    return (_elements(node, _PAIRS[node.operator], Activation(), views, made, node.inputs),)


def _joined(node: Node, given: Sequence[Tensor], made: Tensor) -> tuple[Part, ...] | None:
    axis = node.attributes["axis"] % len(made.shape)
    if not all(tensor.size for tensor in given):
        return None
    ends = [0, *itertools.accumulate(tensor.shape[axis] for tensor in given)]

    def views(
        sources: Sequence[NDArray], out: NDArray
    ) -> list[tuple[NDArray, NDArray | None, NDArray]]:
        front = (slice(None),) * axis
        pairs = zip(sources, itertools.pairwise(ends), strict=True)
        return [(one, None, out[(*front, slice(*part))]) for one, part in pairs]

    return (_elements(node, "none", Activation(), views, made, node.inputs),)


def _in_turns(node: Node, made: Tensor) -> tuple[Part, ...]:
    """Each source to its own channels."""
    count = len(node.inputs)

    def views(
        sources: Sequence[NDArray], out: NDArray
    ) -> list[tuple[NDArray, NDArray | None, NDArray]]:
        return [(one, None, out[:, at::count]) for at, one in enumerate(sources)]

    return (_elements(node, "none", Activation(), views, made, node.inputs),)


def _split(node: Node, x: Tensor, made: Sequence[Tensor]) -> tuple[Part, ...] | None:
    axis = node.attributes["axis"] % len(x.shape)
    names = [name for name in node.outputs if name]
    if len(names) != len(node.outputs):
        return None
    ends = [0, *itertools.accumulate(tensor.shape[axis] for tensor in made)]

    def taken(begin: int, end: int) -> Views:
        place = (*(slice(None),) * axis, slice(begin, end))
        return lambda sources, out: [(sources[0][place], None, out)]

    return tuple(
        _elements(node, "none", Activation(), taken(*part), tensor, node.inputs[:1], name)
        for name, tensor, part in zip(names, made, itertools.pairwise(ends), strict=True)
    )


def _gathered(node: Node, tensors: Mapping[str, Tensor], made: Tensor) -> tuple[Part, ...] | None:
    """One slice, its place known."""
    place = tensors[node.inputs[1]].value
    if place is None or place.shape != () or not made.shape:
        return None
    rank = len(tensors[node.inputs[0]].shape)
    taken = (*(slice(None),) * (node.attributes["axis"] % rank), int(place))

    def views(
        sources: Sequence[NDArray], out: NDArray
    ) -> list[tuple[NDArray, NDArray | None, NDArray]]:
        return [(sources[0][taken], None, out)]

    return (_elements(node, "none", Activation(), views, made, node.inputs[:1]),)


def _moved(node: Node, tensors: Mapping[str, Tensor], made: Tensor) -> tuple[Part, ...] | None:
    """The same elements at other places."""
    if any(tensors[name].value is None for name in node.inputs[1:] if name):
        return None
    shape = tensors[node.inputs[0]].shape
    rest = [tensors[name].value if name else None for name in node.inputs[1:]]
    if node.operator in _VIEWS:
        operator = operator_of(node)

        def views(
            sources: Sequence[NDArray], out: NDArray
        ) -> list[tuple[NDArray, NDArray | None, NDArray]]:
            return [(operator.compute(np, node, sources[0], *rest), None, out)]

        return (_elements(node, "none", Activation(), views, made, node.inputs[:1]),)
    if node.operator in _RESHAPED:
        sizes = _refined(shape, made.shape)
        order = None if sizes is None else tuple(range(len(sizes)))
    else:
        sizes, order = _blocks(node, shape)
    if sizes is None or order is None or sum(size > 1 for size in sizes) > _MOST:
        return None

    def turned(
        sources: Sequence[NDArray], out: NDArray
    ) -> list[tuple[NDArray, NDArray | None, NDArray]]:
        split = _view(sources[0], sizes).transpose(order)
        return [(split, None, _view(out, split.shape))]

    return (_elements(node, "none", Activation(), turned, made, node.inputs[:1]),)


def _view(array: NDArray, sizes: Shape) -> NDArray:
    """An array under sizes that split its own: never a copy."""
    view = array.reshape(sizes)
    assert np.may_share_memory(view, array)
    return view


def _refined(old: Shape, new: Shape) -> Shape | None:
    """Sizes that both are made of by joining neighbours; None where their bounds do not nest."""
    bounds = sorted({math.prod(shape[at:]) for shape in (old, new) for at in range(len(shape) + 1)})
    if any(larger % smaller for smaller, larger in itertools.pairwise(bounds)):
        return None
    return tuple(larger // smaller for smaller, larger in itertools.pairwise(bounds))[::-1]


def _blocks(node: Node, shape: Shape) -> tuple[Shape, tuple[int, ...]]:
    """A pixel shuffle, or its way back: sizes that x is split into, and their order."""
    images, channels, height, width = shape
    b = node.attributes["blocksize"]
    by_block = node.attributes.get("mode", "DCR") == "DCR"
    if node.operator == "SpaceToDepth":
        sizes = (images, channels, height // b, b, width // b, b)
        return sizes, ((0, 3, 5, 1, 2, 4) if by_block else (0, 1, 3, 5, 2, 4))
    left = channels // (b * b)
    if by_block:
        return (images, b, b, left, height, width), (0, 3, 4, 1, 5, 2)
    return (images, left, b, b, height, width), (0, 1, 4, 2, 5, 3)
