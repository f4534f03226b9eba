"""Joins the layers of networks of bits into passes over memory, each a node.

conv -> add -> sign                       PassOfBits(x, residual) -> reals, bits
what other nodes read of them             UnpackedBits
"""

from __future__ import annotations

from typing import Any

from tilewright.nn.graph import Graph, Node
from tilewright.nn.joined import Pass, plan_passes
from tilewright.nn.operators.bits import LAYER, PASS, UNPACKED
from tilewright.nn.value import Value


def joined_bits(graph: Graph) -> Graph:
    """The graph with a node for each pass; layers whose inputs other passes renamed stay alone."""
    mine = {id(node): node for node in graph.nodes if _is_plain(node)}
    if not mine:
        return graph
    layers = [node.attributes["layer"] for node in mine.values()]
    values: dict[str, Value] = {}
    for node in mine.values():
        values.update(node.attributes["values"])
    others = {name for node in graph.nodes if id(node) not in mine for name in node.inputs}
    outside = others | set(graph.outputs)
    given = {source.name for source in graph.inputs}
    passes = {item.layers[0].name: item for item in plan_passes(layers, values, outside, given)}
    nodes: list[Node] = []
    names: dict[str, str] = {}  # of values as they lie between passes
    for node in graph.nodes:
        if id(node) not in mine:
            nodes.append(node)
        elif node.outputs[0] in passes:
            nodes += _nodes(passes[node.outputs[0]], names, outside)
    return graph.with_nodes(nodes)


def _nodes(item: Pass, names: dict[str, str], outside: set[str]) -> list[Node]:
    """The node of a pass, and what makes its values readable for others."""
    for name in item.stores:
        names[name] = f"{name}, {'packed' if item.values[name].kind == 'bits' else 'in lanes'}"
    given = tuple(names.get(name, name) for name in item.reads)
    made = tuple(names[name] for name in item.stores)
    attributes: dict[str, Any] = {"pass": item, "parts": tuple((name,) for name in item.covers)}
    nodes = [Node(PASS, 1, given, made, attributes, item.layers[0].name)]
    for name in item.stores:
        if name in outside:
            value = {"value": item.values[name]}
            nodes.append(Node(UNPACKED, 1, (names[name],), (name,), value, f"unpack {name}"))
    return nodes


def _is_plain(node: Node) -> bool:
    return node.operator == LAYER and node.inputs == node.attributes["layer"].inputs
