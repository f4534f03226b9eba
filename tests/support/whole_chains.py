"""Chains of int8 convolutions drawn from a seed, and what they are by the definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Conv, ConvOperands, ConvWork, Format, Whole
from tilewright.nn.operators.convs import layer_of

LAST: Format = "channels_last"
FIRST: Format = "channels_first"
GUARD, WRONG = 128, 77


def layer(rng: np.random.Generator, inputs: int, outputs: int, **facts: Any) -> Conv:
    """A convolution of 3x3, padded by 1 unless told otherwise, whose results fill a byte.

    `whole` holds what is not drawn of the `Whole`; a step of None gives float32.
    """
    height, width = facts.pop("kernel", (3, 3))
    facts.setdefault("pads", (1, 1, 1, 1))
    told = facts.pop("whole", {})
    terms = height * width * inputs // facts.get("groups", 1)
    weights = rng.integers(-127, 128, (outputs, terms // height // width, height, width), np.int8)
    scale = rng.uniform(0.5, 1.5, outputs).astype(np.float32) / np.float32(90 * terms**0.5)
    drawn: dict[str, Any] = {"zero": 0, "scale": scale, "low": 0.0}
    if told.get("step", 1) is not None:
        drawn |= {"step": 0.4, "dtype": "uint8"}
    bias = rng.integers(-3000, 3000, outputs).astype(np.int32)
    return Conv(weights, bias, whole=Whole(**(drawn | told)), **facts)


def chain(
    channels: Sequence[int], size: tuple[int, int, int], seed: int = 0, **whole: Any
) -> ConvWork:
    """3x3 layers from float32 to float32, shuffled by 2 where four channels are left."""
    rng = np.random.default_rng(seed)
    layers = [
        layer(rng, *pair, whole={"shift": 3 * at}) for at, pair in enumerate(pairwise(channels))
    ]
    for at, (one, after) in enumerate(pairwise(layers)):
        layers[at + 1] = replace(after, whole=replace(after.whole, zero=one.whole.shift))
    layers[0] = replace(layers[0], whole=replace(layers[0].whole, zero=7, taken=0.01, **whole))
    last = replace(layers[-1].whole, step=None, shift=0, dtype="float32", low=-np.inf)
    layers[-1] = replace(layers[-1], whole=last, shuffle=2 if channels[-1] == 4 else 1)
    return ConvWork(tuple(layers), *size, "uint8", source=FIRST, result=FIRST)


def drawn(work: ConvWork, seed: int = 1) -> NDArray:
    """x of all values there are, in the format of the work."""
    rng = np.random.default_rng(seed)
    sizes = (work.images, *work.sizes[0])
    if work.source_dtype == "float32":
        x: NDArray = rng.uniform(-0.5, 3, sizes).astype(np.float32)
    else:
        ends = np.iinfo(work.source_dtype)
        x = rng.integers(ends.min, ends.max + 1, sizes, work.source_dtype)
    return laid(x, work.source)


def laid(x: NDArray, form: str) -> NDArray:
    """The same numbers in memory as the format says."""
    if form == FIRST:
        return np.ascontiguousarray(x)
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def operands(work: ConvWork, seed: int = 1) -> ConvOperands:
    """x and a result full of what is wrong, `GUARD` elements of it before and after."""
    x = drawn(work, seed)
    wrong = np.nan if work.result_dtype == "float32" else WRONG
    channels, height, width = work.sizes[-1]
    size = work.images * channels * height * width
    room = np.full(size + 2 * GUARD, wrong, work.result_dtype)
    flat, rng = room[GUARD:-GUARD], np.random.default_rng(seed)
    sizes = (work.images, channels, height, width)
    adds = work.layers[-1].adds
    more = (laid(rng.uniform(-4, 4, sizes).astype(np.float32), work.result),) if adds else ()
    if work.result == FIRST:
        return ConvOperands(x, flat.reshape(sizes), more)
    last = flat.reshape(work.images, height, width, channels)
    return ConvOperands(x, last.transpose(0, 3, 1, 2), more)


def is_guarded(out: NDArray) -> bool:
    """Whether nothing was written before and after a result of `operands`."""
    room = out
    while room.base is not None:
        room = room.base
    ends = np.concatenate([room[:GUARD], room[-GUARD:]])
    return bool(np.isnan(ends).all() if ends.dtype == np.float32 else (ends == WRONG).all())


def right(work: ConvWork, x: NDArray, residual: NDArray | None = None) -> NDArray:
    """By the definition, layer after layer; the residual goes to the one that adds it."""
    value = x
    for one in work.layers:
        value = layer_of(np, one, value, residual if one.adds else None)
    return value


def any_chain(seed: int) -> ConvWork | None:
    """One to three layers of any windows, groups, pads, numbers and ends; None where none fit.

    Strides pass windows, pads pass pictures, weights reach -128, limits stop everything.
    """
    rng = np.random.default_rng(seed)
    count, height, width = (int(n) for n in rng.integers((1, 1, 1), (4, 16, 36)))
    inputs, source = int(rng.choice((1, 3, 4, 8, 16, 17, 32))), _small(rng)
    zero = _any_number(rng, source)
    layers, sizes = [], (height, width)
    for at in range(count):
        last = at == count - 1
        groups = int(rng.choice([n for n in range(1, inputs + 1) if inputs % n == 0]))
        outputs = groups * int(rng.choice((1, 2, 16, 33) if groups < 5 else (1, 2)))
        made = str(rng.choice(("float32", "uint8", "int8"))) if last else _small(rng)
        low, high = ((-np.inf, np.inf), (0.0, np.inf), (-2.0, 3.0))[rng.integers(3)]
        told: dict[str, Any] = {"zero": zero, "low": low, "high": high, "source": source}
        told |= {"dtype": made, "step": None}
        if made != "float32":
            zero, source = _any_number(rng, made), made
            told |= {"shift": zero, "step": float(rng.choice((0.4, 0.5, 1e-30, 1e30)))}
        strides, dilations, kernel = rng.integers(1, 4, (3, 2)).tolist()
        one = layer(
            rng, inputs, outputs, groups=groups, kernel=tuple(kernel), strides=tuple(strides),
            dilations=tuple(dilations), pads=tuple(rng.integers(0, 5, 4).tolist()), whole=told,
        )  # fmt: skip
        if rng.random() < 0.2:
            one.weights[...] = -128
        layers.append(one)
        sizes, inputs = one.sums(*sizes), outputs
        if min(sizes) < 1:
            return None
    first, ends = layers[0].whole, (FIRST, LAST)
    assert first is not None
    result = ends[rng.integers(2)] if made == "float32" else LAST
    form = ends[rng.integers(2)]
    images = int(rng.integers(1, 3))
    return ConvWork(tuple(layers), images, height, width, first.source, source=form, result=result)


def _small(rng: np.random.Generator) -> str:
    return str(rng.choice(("uint8", "int8")))


def _any_number(rng: np.random.Generator, dtype: str) -> int:
    ends = np.iinfo(dtype)
    return int(rng.choice((ends.min, 0, ends.max, rng.integers(ends.min, ends.max + 1))))
