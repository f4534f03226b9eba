"""Sizes of a network's inputs: what a caller says, and what the file leaves free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from tilewright.errors import ArgumentError, ShapeError
from tilewright.nn.graph import Graph, Input, Shape
from tilewright.wording import short


def sizes_of(graph: Graph, shape: Any) -> dict[str, Shape]:
    """The sizes of every input. Raises ShapeError, ArgumentError.

    shape: {name: sizes}, or the sizes of the one input, or None where none is free.
    """
    names = [source.name for source in graph.inputs]
    if shape is None:
        given: Mapping[str, Any] = {}
    elif isinstance(shape, Mapping):
        given = shape
    elif len(names) == 1:
        given = {names[0]: shape}
    else:
        raise ArgumentError(f"shape={short(shape)}: accepted is {{name: sizes}} for {names}")
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ArgumentError(f"shape: no input {unknown[0]!r}; there are {names}")
    learnt: dict[str, int] = {}
    found = {s.name: _numbers(s.name, given[s.name]) for s in graph.inputs if s.name in given}
    for source in graph.inputs:
        if source.name in found:
            check_shape(source, found[source.name], learnt)
    for source in graph.inputs:
        if source.name not in found:
            found[source.name] = _filled(source, learnt)
    return found


def _numbers(name: str, sizes: Any) -> Shape:
    """Whole numbers of Python, of NumPy or of an array of them."""
    try:
        listed = sizes.tolist() if hasattr(sizes, "tolist") else sizes
    except RuntimeError:  # of tensors that are sparse or have no memory
        listed = None
    fits = isinstance(listed, Iterable) and not isinstance(listed, str | bytes)
    found = tuple(listed) if fits else (None,)
    if not all(isinstance(s, Integral) and not isinstance(s, bool) and int(s) >= 0 for s in found):
        raise ShapeError(f"shape of {name!r}: {short(sizes)}; accepted are whole numbers from 0")
    return tuple(int(size) for size in found)


def _filled(source: Input, learnt: Mapping[str, int]) -> Shape:
    """Sizes from the file, free ones as other inputs have them."""
    sizes = source.shape
    free = [] if sizes is None else [s for s in sizes if isinstance(s, str) and s not in learnt]
    if sizes is None or free:
        said = "unknown" if sizes is None else list(sizes)
        raise ShapeError(
            f"input {source.name!r}: sizes {said} are free; accepted is shape={{{source.name!r}:"
            " sizes}"
        )
    return tuple(learnt[s] if isinstance(s, str) else s for s in sizes)


def check_shape(source: Input, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Raise ShapeError for sizes that an input does not take; learn those of free dimensions."""
    wanted = source.shape
    fits = wanted is None or (
        len(wanted) == len(shape)
        and all(
            size == (sizes.setdefault(free, size) if isinstance(free, str) else free)
            for free, size in zip(wanted, shape, strict=True)
        )
    )
    if not fits:
        learnt = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise ShapeError(
            f"input {source.name!r}: shape {list(shape)}; accepted is {list(wanted or ())}"
            + (f" where {learnt}" if learnt else "")
        )
