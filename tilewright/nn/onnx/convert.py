"""ONNX nodes as drafts of layers, one after another; operators/ has a converter for each operator.

A node that no layer can be made of is refused by its name, as is one whose value is neither images
nor rows of features.
"""

from __future__ import annotations

from tilewright.errors import FileError
from tilewright.nn.onnx.graph import Graph, Node
from tilewright.nn.onnx.importer import Importer, Traced
from tilewright.nn.onnx.operators import OPERATORS
from tilewright.nn.onnx.values import Facts


def convert(graph: Graph, facts: Facts) -> Importer:
    """Drafts of all nodes; the last one gives the output."""
    at = Importer(graph, facts)
    for node in graph.nodes:
        facts.learn(node)
        if node.output not in facts.constants:
            at.found[node.output] = _converted(at, node)
    last = at.found.get(graph.output)
    if last is None or last.condition is not None or last.pads is not None or not at.made:
        raise FileError(f"{graph.label}: the output does not depend on the input")
    if last.order is not None or at.made[-1].name != last.draft:
        raise FileError(
            f"{graph.label}: the output {graph.output!r} must be the last node's, and"
            " no flattened image"
        )
    return at


def _converted(at: Importer, node: Node) -> Traced:
    try:
        value = OPERATORS[node.op].convert(at, node)
    except (FileError, ValueError, TypeError, IndexError, KeyError) as error:
        raise at.graph.refuse(node, str(error)) from None
    sizes = at.facts.shape(node.output)
    if len(sizes) not in (2, 4) or sizes[0] != at.facts.batch:
        raise at.graph.refuse(
            node,
            f"gives {list(sizes)}; accepted are images and rows of features,"
            f" {at.facts.batch} of them as of the input",
        )
    return value
