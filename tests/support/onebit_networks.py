"""Small networks that between them have every layer, every kind of input and every shortcut.

Weights, scales and images are small whole numbers, so that sums are exact in float32 in any order:
the compiled program and plain NumPy must agree in every bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import onebit
from tilewright.nn.window import Window
from tilewright.onebit.layers import (
    Add,
    Affine,
    AveragePool,
    BitConv,
    Clamp,
    Flatten,
    MaxPool,
    RealConv,
    Sign,
)

NDArray = npt.NDArray[Any]
THREE = Window((3, 3), pads=(1, 1, 1, 1))
_RNG = np.random.default_rng(0)


def bits(*shape: int) -> onebit.BitMatrix:
    return onebit.pack(_RNG.choice(np.array([-1, 1], np.int8), shape))


def halves(*shape: int) -> NDArray:
    return _RNG.integers(-3, 4, shape).astype(np.float16)


def numbers(count: int) -> NDArray:
    return _RNG.integers(-5, 6, count).astype(np.float32)


def image(network: onebit.Network, images: int, seed: int = 0) -> NDArray:
    shape = (images, *network.input_shape)
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def shortcuts() -> onebit.Network:
    """Bi-Real's block: real shortcuts round binary convolutions, one of them through a 1x1."""
    return onebit.Network(
        (8, 8, 3),  # so that means divide by powers of two
        (
            RealConv(name="stem", inputs=("input",), weights=halves(40, 3, 3, 3), window=THREE),
            Sign(name="s0", inputs=("stem",)),
            BitConv(
                name="c0",
                inputs=("s0",),
                weights=bits(40, 3, 3, 40),
                window=THREE,
                scale=numbers(40),
            ),
            Add(name="a0", inputs=("c0", "stem")),
            Sign(name="s1", inputs=("a0",), cut=numbers(40)),
            AveragePool(name="half", inputs=("a0",), window=Window((2, 2), (2, 2))),
            RealConv(
                name="wide", inputs=("half",), weights=halves(70, 1, 1, 40), shift=numbers(70)
            ),
            BitConv(
                name="c1",
                inputs=("s1",),
                weights=bits(70, 3, 3, 40),
                window=Window((3, 3), (2, 2), pads=(1, 1, 0, 0)),
                scale=numbers(70),
                shift=numbers(70),
            ),
            Add(name="a1", inputs=("wide", "c1")),
            AveragePool(name="mean", inputs=("a1",)),
            RealConv(name="dense", inputs=("mean",), weights=halves(10, 1, 1, 70)),
        ),
    )


def thresholds() -> onebit.Network:
    """Bits to bits: thresholds, pools of bits, groups, both paddings."""
    return onebit.Network(
        (9, 9, 65),
        (
            Sign(name="s", inputs=("input",), cut=numbers(65)),
            BitConv(
                name="b0",
                inputs=("s",),
                weights=bits(66, 3, 3, 65),
                window=THREE,
                threshold=_RNG.integers(-30, 30, 66).astype(np.int32),
            ),
            MaxPool(name="p0", inputs=("b0",), window=Window((2, 2), (2, 2), pads=(0, 0, 1, 1))),
            BitConv(
                name="b1",
                inputs=("p0",),
                weights=bits(9, 3, 3, 22),
                window=Window((3, 3), dilation=(2, 1), pads=(2, 1, 2, 1)),
                groups=3,
                padding="minus_one",
                threshold=_RNG.integers(-30, 30, 9).astype(np.int32),
            ),
            Flatten(name="f", inputs=("b1",)),
            BitConv(name="d", inputs=("f",), weights=bits(10, 1, 1, 225)),
        ),
    )


def maps() -> onebit.Network:
    """Chains of maps, two signs of one value, bits that are added and convolved as reals."""
    return onebit.Network(
        (6, 8, 5),
        (
            Affine(name="scaled", inputs=("input",), scale=numbers(5), shift=numbers(5)),
            Clamp(name="clamped", inputs=("scaled",), low=-4.0, high=6.0),
            Sign(name="s0", inputs=("clamped",)),
            Sign(name="s1", inputs=("clamped",), cut=numbers(5)),
            Add(name="both", inputs=("s0", "s1")),
            MaxPool(name="top", inputs=("both",), window=THREE),
            Add(name="twice", inputs=("top", "top")),
            AveragePool(
                name="mean",
                inputs=("twice",),
                window=Window((2, 4), (2, 4), pads=(0, 0, 0, 0)),
                count_padding=True,
            ),
            RealConv(name="ones", inputs=("s0",), weights=halves(6, 3, 3, 5), window=THREE),
            Flatten(name="f0", inputs=("mean",)),
            Flatten(name="f1", inputs=("ones",)),
            RealConv(name="d0", inputs=("f0",), weights=halves(7, 1, 1, 30)),
            RealConv(name="d1", inputs=("f1",), weights=halves(7, 1, 1, 288)),
            Add(name="sum", inputs=("d0", "d1")),
        ),
    )


def grouped() -> onebit.Network:
    """Groups of reals, groups of bits with scales, and a residual after them."""
    return onebit.Network(
        (7, 5, 12),
        (
            RealConv(
                name="g", inputs=("input",), weights=halves(12, 3, 3, 4), window=THREE, groups=3,
                scale=numbers(12),
            ),
            Sign(name="s", inputs=("g",)),
            BitConv(
                name="b", inputs=("s",), weights=bits(12, 3, 3, 3), window=THREE, groups=4,
                scale=numbers(12), shift=numbers(12),
            ),
            Add(name="a", inputs=("g", "b")),
            Sign(name="out", inputs=("a",)),
        ),
    )  # fmt: skip


def vector() -> onebit.Network:
    """Features alone; the output is wanted by a later layer too."""
    return onebit.Network(
        (100,),
        (
            Sign(name="s", inputs=("input",)),
            BitConv(name="d0", inputs=("s",), weights=bits(50, 1, 1, 100), scale=numbers(50)),
            Sign(name="s1", inputs=("d0",)),
            BitConv(name="d1", inputs=("s1",), weights=bits(50, 1, 1, 50), shift=numbers(50)),
            Add(name="a", inputs=("d1", "d0")),
        ),
        output="d1",
    )


NETWORKS: tuple[Callable[[], onebit.Network], ...] = (
    shortcuts,
    thresholds,
    maps,
    grouped,
    vector,
)
