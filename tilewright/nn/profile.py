"""How much work each node of a graph is, and the least time that a device can do it in.

flops      operations, as each operator counts its own: an addition and a multiplication are two
bytes      every value that is read and every one that is given, once, weights among them
intensity  flops / bytes
least      seconds at the measured ceilings of a device: its roof (facts/ceilings.py)

Pure: a graph and sizes in, rows out. What is known before a run (the sizes that Shape gives, what
constants alone decide) and what moves nothing (Reshape) counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.engines.conv import Conv
from tilewright.facts.ceilings import Ceilings
from tilewright.facts.dtypes import VALUES
from tilewright.nn.graph import Graph, Node, Shape, Tensor
from tilewright.nn.infer import operator_of
from tilewright.nn.operators.bits import PASS, layers_of
from tilewright.nn.operators.product import NAME as PRODUCT

VIEWS = ("Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
LAYOUT = "layout"  # what a step that lays a value out anew is called


@dataclass(frozen=True, slots=True)
class Row:
    """The work of one node, and how long it took where that was measured.

    name      of the node, the first of those it covers
    covers    names of the nodes of the file that it does; none where it lays a value out anew
    operator  as ONNX has it; of a chain of convolutions how many there are
    shape     sizes of what it gives first
    dtype     that its arithmetic is counted in
    flops     multiplications and additions
    bytes     moved at least
    engine    what ran it, "" where nothing did
    seconds   median, None where nothing was measured
    predicted   seconds by what chose the engine, None where nobody predicts; `reason` is its own
    """

    name: str
    operator: str
    covers: tuple[str, ...]
    shape: Shape
    dtype: str
    flops: float
    bytes: int
    engine: str = ""
    seconds: float | None = None
    predicted: float | None = None
    reason: str = ""

    @property
    def intensity(self) -> float:
        """Operations a byte; 0 where nothing moves."""
        return self.flops / self.bytes if self.bytes else 0.0

    def least(self, ceilings: Ceilings) -> float:
        """The fewest seconds in which the device can do it; 0 where there is nothing to do."""
        return ceilings.seconds(self.flops, self.bytes, self.dtype) if self.bytes else 0.0

    def bound(self, ceilings: Ceilings) -> str:
        """What its roof is: "arithmetic", "memory", or "nothing" where there is nothing to do."""
        least, peak = self.least(ceilings), ceilings.peak(self.dtype)
        if not least:
            return "nothing"
        return "arithmetic" if peak and self.flops / peak.value >= least else "memory"

    def share(self, ceilings: Ceilings) -> float | None:
        """Least time / measured time: 1 is on the roof. None where nothing was measured."""
        return self.least(ceilings) / self.seconds if self.seconds else None

    def timed(self, seconds: float) -> Row:
        """The row with what was measured."""
        return replace(self, seconds=seconds)


def rows(graph: Graph, tensors: Mapping[str, Tensor]) -> tuple[Row, ...]:
    """A row for each node, in order; `tensors` of `infer.tensors` for the same graph."""
    return tuple(row(node, tensors, (node.name,)) for node in graph.nodes)


def row(
    node: Node, tensors: Mapping[str, Tensor], covers: tuple[str, ...], engine: str = ""
) -> Row:
    """The row of a node, or of a step that does the nodes `covers` of a file.

    A step that does none of them lays a value out anew: it reads it and writes it.
    """
    given = [tensors[name] if name else None for name in node.inputs]
    made = [tensors[name] for name in node.outputs if name]
    layers: Sequence[Conv] = node.attributes.get("layers", ())
    shown = node.operator if covers else LAYOUT
    if node.operator == PASS:
        shown = node.attributes["pass"].kind
    elif node.operator == PRODUCT:
        shown = node.attributes["ends"].operator
    if layers:
        shown = "Conv" if len(layers) == 1 else f"{len(layers)} Conv"
    flops, size = 0.0, 0
    if any(t.value is None for t in made) and not (node.operator in VIEWS and covers):
        flops = operator_of(node).flops(node, given, made) if covers else 0.0
        size = _moved(node, tensors) + _weights(layers, made[0].dtype)
        size += sum(layer.bytes for layer in layers_of(node))
    kind = _arithmetic(given, made)
    name = covers[0] if covers else node.name
    return Row(name, shown, covers, made[0].shape, kind, flops, size, engine)


def matched(before: Iterable[Row], measured: Iterable[Row]) -> tuple[Row, ...]:
    """The rows of a file's nodes with the times of steps that do one node each.

    What is computed before a run takes no time; steps that lay values out come last.
    """
    steps: dict[str, list[Row]] = {}
    layouts = []
    for step in measured:
        if step.covers:
            steps.setdefault(step.covers[0], []).append(step)
        else:
            layouts.append(step)
    found = []
    for node in before:
        same = steps.get(node.name)
        done = same.pop(0) if same else replace(node, seconds=0.0)
        made = replace(node, seconds=done.seconds, engine=done.engine)
        found.append(replace(made, predicted=done.predicted, reason=done.reason))
    return (*found, *layouts)


def parameters(graph: Graph) -> tuple[int, int]:
    """Numbers that were trained, and their bytes: constants of real numbers, or of few bits."""
    found = [t for t in graph.constants.values() if t.dtype not in ("int64", "int32", "bool")]
    layers = [layer for node in graph.nodes for layer in layers_of(node)]
    count = sum(t.size for t in found) + sum(layer.parameters for layer in layers)
    return count, sum(t.bytes for t in found) + sum(layer.bytes for layer in layers)


def by_operator(some: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows with the same operator together, in the order in which operators are met."""
    found: dict[str, list[Row]] = {}
    for row in some:
        found.setdefault(row.operator, []).append(row)
    return found


def _moved(node: Node, tensors: Mapping[str, Tensor]) -> int:
    """Bytes of the values that a node reads and gives, each once."""
    names = dict.fromkeys(name for name in (*node.inputs, *node.outputs) if name)
    return sum(tensors[name].bytes for name in names)


def _weights(layers: Sequence[Conv], dtype: str) -> int:
    """Bytes of what a chain of convolutions holds itself."""
    biases = sum(layer.outputs for layer in layers if layer.bias is not None)
    return VALUES[dtype] * (sum(int(layer.weights.size) for layer in layers) + biases)


def _arithmetic(given: Sequence[Tensor | None], made: Sequence[Tensor]) -> str:
    """The element type that is computed in: of the first input that is no truth value."""
    kinds = [tensor.dtype for tensor in (*given, *made) if tensor is not None]
    return next((kind for kind in kinds if kind != "bool"), "bool")
