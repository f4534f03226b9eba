"""Sizes of outputs in the words of free ones: `2·h` where a network doubles a height named h.

Sizes are found for a few numbers in the place of each name; what follows all of them exactly is
said, anything else is "?". Nothing of a network is computed but sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from tilewright.errors import TilewrightError
from tilewright.nn.graph import Dimensions, Graph, Shape
from tilewright.nn.infer import tensors

_BASE = 96  # a size that halving five times divides
_STEPS = (96, 32, 7)  # how far one name is moved alone: 7 tells h / 2 from what is rounded
_LEAST = 2  # probes of a name that fitted, without which nothing is said of it


def outputs_by_name(graph: Graph) -> dict[str, Dimensions | None]:
    """The sizes of every output: numbers, names of free sizes, multiples of these, "?".

    None where an input's number of dimensions is not known, or no sizes that were tried fit.
    """
    nothing: dict[str, Dimensions | None] = dict.fromkeys(graph.outputs)
    if any(source.shape is None for source in graph.inputs):
        return nothing
    shapes = [source.shape or () for source in graph.inputs]
    names = list(dict.fromkeys(s for shape in shapes for s in shape if isinstance(s, str)))
    base = dict.fromkeys(names, _BASE)
    first = _shapes(graph, base)
    if first is None:
        return nothing
    moved = {
        name: [(_BASE + step, _shapes(graph, {**base, name: _BASE + step})) for step in _STEPS]
        for name in names
    }
    return {
        output: tuple(_said(output, at, first, moved) for at in range(len(first[output])))
        for output in graph.outputs
    }


_Shapes = dict[str, Shape]


def _shapes(graph: Graph, sizes: Mapping[str, int]) -> _Shapes | None:
    """Of the outputs where names have these sizes; None where those do not fit the network."""
    given = {
        source.name: tuple(sizes[s] if isinstance(s, str) else s for s in source.shape or ())
        for source in graph.inputs
    }
    try:
        found = tensors(graph, given)
    except TilewrightError:
        return None
    return {name: found[name].shape for name in graph.outputs}


def _said(
    output: str,
    at: int,
    first: _Shapes,
    moved: Mapping[str, Sequence[tuple[int, _Shapes | None]]],
) -> int | str:
    """One size of an output."""
    size = first[output][at]
    followed = None
    for name, probes in moved.items():
        seen = [(value, found[output]) for value, found in probes if found is not None]
        if len(seen) < _LEAST or any(len(shape) != len(first[output]) for _, shape in seen):
            return "?"
        if any(shape[at] != size for _, shape in seen):
            if followed is not None:
                return "?"
            followed = name, [(value, shape[at]) for value, shape in seen]
    if followed is None:
        return size
    return _line(*followed, size)


def _line(name: str, seen: Sequence[tuple[int, int]], size: int) -> str:
    """What a name is multiplied by and what is added, where all sizes lie on that line."""
    value, there = seen[0]
    factor = Fraction(there - size, value - _BASE)
    added = size - factor * _BASE
    if factor <= 0 or added.denominator > 1 or any(t != factor * v + added for v, t in seen):
        return "?"
    over = f"{factor.numerator}·{name}" if factor.numerator > 1 else name
    text = over if factor.denominator == 1 else f"{over}/{factor.denominator}"
    return text if not added else f"{text} {'+' if added > 0 else '-'} {abs(int(added))}"
