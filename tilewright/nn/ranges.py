"""Finds the ranges that values of a network take on samples: what whole numbers have to hold.

    minmax      all that was seen
    percentile  all but the outermost share of what was seen
    squares     the part of it whose rounding and cutting cost least, in squared differences

The last two look at the samples twice: for the ends, then into bins between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.nn import evaluate
from tilewright.nn.graph import Input
from tilewright.nn.infer import operator_of
from tilewright.nn.kinds import to_numpy
from tilewright.nn.net import Network
from tilewright.wording import short

METHODS = ("minmax", "percentile", "squares")
_BINS = 4096
# Ends nearer than this are taken as they are: float32 has no numbers left for bins between them.
_NARROW = _BINS * float(np.finfo(np.float32).tiny)
_SHARES = np.linspace(0.3, 1.0, 71)  # of the whole range, that `squares` tries
Range = tuple[float, float]


def ranges_of(
    net: Network, names: Sequence[str], given: Sequence[Mapping[str, NDArray]], method: str,
    percentile: float,
) -> dict[str, Range]:  # fmt: skip
    """Ends of the values by name, 0 among them, for inputs that `inputs_of` gave."""
    ends: dict[str, Range] = dict.fromkeys(names, (0.0, 0.0))
    for values in _values(net, names, given):
        for name, value in values.items():
            low, high = ends[name]
            ends[name] = (
                min(low, float(value.min(initial=0))),
                max(high, float(value.max(initial=0))),
            )
    wrong = [name for name, (low, high) in ends.items() if not np.isfinite(high - low)]
    if wrong:
        raise ArgumentError(f"samples: value {wrong[0]!r} is not finite; accepted are finite ones")
    if method == "minmax":
        return ends
    counts = {name: np.zeros(_BINS) for name in names}
    for values in _values(net, names, given):
        for name, value in values.items():
            if _is_wide(ends[name]):
                counts[name] += np.histogram(value, _BINS, ends[name])[0]
    choose: Callable[[NDArray, Range], Range] = (
        _least_squares if method == "squares" else lambda c, e: _within(c, e, percentile)
    )
    return {name: choose(counts[name], end) if _is_wide(end) else end for name, end in ends.items()}


def _is_wide(ends: Range) -> bool:
    return ends[1] - ends[0] > _NARROW


def inputs_of(net: Network, samples: Any) -> list[dict[str, NDArray]]:
    """Samples as inputs by name, checked.

    Halves are widened for inputs of float32.

    samples: an array, cut into batches of the first input's; or a list of what a run takes: arrays,
    tuples of them, or mappings by name.

    Raises ArgumentError where there is none, or one has NaN or infinities.
    """
    if not hasattr(samples, "shape") and (
        not isinstance(samples, Iterable) or isinstance(samples, str | bytes | Mapping)
    ):
        raise ArgumentError(f"samples={short(samples)}: accepted are an array, or a list of inputs")
    listed = pieces(net, samples) if hasattr(samples, "shape") else list(samples)
    if not listed:
        raise ArgumentError("samples: none; accepted are one and more")
    found = []
    for at, sample in enumerate(listed):
        by_name = sample if isinstance(sample, Mapping) else None
        inputs = () if by_name is not None else sample if isinstance(sample, tuple) else (sample,)
        names = {source.name: source for source in net.inputs}
        inputs = tuple(map(_wide, names.values(), inputs)) + inputs[len(names) :]
        by_name = {n: _wide(names.get(n), x) for n, x in (by_name or {}).items()}
        checked = net.checked(inputs, by_name)
        given = {name: to_numpy(array, f"input {name!r}") for name, array in checked.items()}
        for name, array in given.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                place = np.argwhere(~np.isfinite(array))[0].tolist()
                raise ArgumentError(
                    f"samples[{at}]: input {name!r} has {array[tuple(place)]} at {place};"
                    " accepted are finite numbers"
                )
        found.append(given)
    return found


def _wide(source: Input | None, array: Any) -> Any:
    """Halves as float32 where an input holds that; anything else as it is."""
    wants = source is not None and source.dtype == "float32"
    if wants and isinstance(array, np.ndarray) and array.dtype == np.float16:
        return array.astype(np.float32)
    return array


def pieces(net: Network, samples: Any) -> list[Any]:
    """An array along its first axis, in pieces that the first input takes."""
    shape = net.inputs[0].shape
    if not len(samples.shape):
        raise ArgumentError(f"samples={short(samples)}: accepted are arrays of inputs")
    size = shape[0] if shape and isinstance(shape[0], int) else 1
    return [samples[at : at + size] for at in range(0, len(samples) - size + 1, size)]


def _values(
    net: Network, names: Sequence[str], given: Sequence[Mapping[str, NDArray]]
) -> Iterator[dict[str, NDArray]]:
    """The values of each sample."""
    for inputs in given:
        yield evaluate.run(net.graph, operator_of, net.types, inputs, names)


def _within(counts: NDArray, ends: Range, percentile: float) -> Range:
    """The ends without the outermost share at either side."""
    low, high = ends
    share = np.cumsum(counts) / counts.sum()
    out = (100 - percentile) / 100
    edges = np.linspace(low, high, _BINS + 1)
    first = int(np.searchsorted(share, out, side="right"))
    last = min(_BINS, int(np.searchsorted(share, 1 - out)) + 1)
    return min(0.0, float(edges[first])), max(0.0, float(edges[last]))


def _least_squares(counts: NDArray, ends: Range) -> Range:
    """The part around 0 that is cheapest: cut values cost their distance, others a rounding."""
    low, high = ends
    edges = np.linspace(low, high, _BINS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    best: tuple[float, Range] = (np.inf, ends)
    for share in _SHARES:
        one, other = low * share, high * share
        beyond = np.maximum(0, middles - other) + np.maximum(0, one - middles)
        step = (other - one) / 255
        cost = float((counts * np.where(beyond > 0, beyond**2, step**2 / 12)).sum())
        best = min(best, (cost, (float(one), float(other))))
    return best[1]
