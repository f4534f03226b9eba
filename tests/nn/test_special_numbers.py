"""NaN, infinities, -0 and denormals through every compiled step, as NumPy has them.

Networks refuse such numbers at their input; inside they arise by overflow. So programs are given
them directly. Where a network keeps a value, every bit of it is compared, NaN as NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilewright import onebit
from tilewright.backends.host import compiled
from tilewright.nn.layers.base import evaluate
from tilewright.nn.network_of_bits import of_bits
from tilewright.nn.window import Window
from tilewright.onebit.layers import (
    Add,
    Affine,
    AveragePool,
    BitConv,
    Clamp,
    Flatten,
    Layer,
    MaxPool,
    RealConv,
    Sign,
)

NDArray = npt.NDArray[Any]
pytestmark = pytest.mark.skipif(not compiled.available(), reason="Numba is not installed")
SPECIAL = np.array(
    [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-39, 3e38, -3e38, 1.0, -2.5],
    np.float32,
)
CHANNELS = 21
IN, ONE = ("input",), Window((1, 1))
_DRAW = np.random.default_rng(0)


def vector(*values: float) -> NDArray:
    """A number for each channel, the given ones in turn."""
    return np.resize(np.array(values, np.float32), CHANNELS)


def halves(groups: int = 1) -> NDArray:
    """One tap and one channel that counts: no sum whose order matters."""
    weights = np.zeros((CHANNELS, 1, 1, CHANNELS // groups), np.float16)
    each = CHANNELS // groups
    weights[np.arange(CHANNELS), 0, 0, np.arange(CHANNELS) % each] = _DRAW.choice([-2, 1, 3])
    return weights


def bits(depth: int = CHANNELS) -> onebit.BitMatrix:
    return onebit.pack(_DRAW.choice(np.array([-1, 1], np.int8), (CHANNELS, 3, 3, depth)))


AROUND = Window((3, 3), pads=(1, 1, 1, 1))
STEPS: dict[str, tuple[Layer, ...]] = {
    "affine": (
        Affine(name="y", inputs=IN, scale=vector(1, -1, 0, 2, 1e-38), shift=vector(0, -0.0, 3)),
    ),
    "affine that overflows": (
        Affine(name="y", inputs=IN, scale=vector(3e38, -3e38), shift=vector(0, 3e38)),
    ),
    "relu": (Clamp(name="y", inputs=IN, low=0.0),),
    "relu from -0": (Clamp(name="y", inputs=IN, low=-0.0),),
    "clamp": (Clamp(name="y", inputs=IN, low=-1.0, high=1.0),),
    "clamp above": (Clamp(name="y", inputs=IN, high=-0.0),),
    "clamp of nothing": (Clamp(name="y", inputs=IN),),
    "add": (
        Affine(name="a", inputs=IN, scale=vector(-1, 1), shift=vector(0)),
        Add(name="y", inputs=("a", "input")),
    ),
    "add alone": (Add(name="y", inputs=("input", "input")),),
    "mean": (AveragePool(name="y", inputs=IN, window=Window((2, 2))),),
    "padded mean": (AveragePool(name="y", inputs=IN, window=AROUND, count_padding=True),),
    "mean of all": (AveragePool(name="y", inputs=IN),),
    "flatten": (Flatten(name="y", inputs=IN),),
    "real convolution": (
        RealConv(
            name="y", inputs=IN, weights=halves(), window=ONE, scale=vector(1, 0, -1, 1e38),
            shift=vector(0, -0.0, 1),
        ),
    ),
    "groups": (RealConv(name="y", inputs=IN, weights=halves(7), window=ONE, groups=7),),
    "bit convolution": (
        Sign(name="s", inputs=IN),
        BitConv(
            name="y", inputs=("s",), weights=bits(), window=AROUND, scale=vector(1e-45, -0.0, 3e38),
            shift=vector(-0.0, 0, 3e38),
        ),
    ),
    "residual and sign": (
        Affine(name="a", inputs=IN, scale=vector(3e38), shift=vector(0)),
        Add(name="b", inputs=("a", "input")),
        Sign(name="y", inputs=("b",), cut=vector(0, np.inf, -np.inf, 1e-45)),
    ),
    "sign": (Sign(name="y", inputs=IN, cut=vector(0, -0.0, np.inf, -np.inf)),),
    "bits of a sign in groups": (
        Sign(name="s", inputs=IN),
        BitConv(name="y", inputs=("s",), weights=bits(3), window=AROUND, groups=7),
    ),
}  # fmt: skip


def run(layers: tuple[Layer, ...], x: NDArray) -> tuple[NDArray, NDArray]:
    """What is compiled, and what NumPy gives."""
    network = onebit.Network(x.shape[1:], layers)
    bound = of_bits(network).bind(x.shape, device="host")
    with np.errstate(all="ignore"):
        got = bound(x).astype(np.float32).reshape(len(x), *sizes(network))
        return got, evaluate(layers, {"input": x})["y"].astype(np.float32)


def sizes(network: onebit.Network) -> tuple[int, int, int]:
    value = network.values[network.output]
    return value.height, value.width, value.channels


def same(got: NDArray, truth: NDArray) -> bool:
    """Every bit, but for which NaN it is."""
    nan = np.isnan(truth)
    left, right = (np.where(nan, np.float32(0), a).view(np.uint32) for a in (got, truth))
    return np.array_equal(np.isnan(got), nan) and np.array_equal(left, right)


def images(make: Callable[[tuple[int, ...]], NDArray]) -> NDArray:
    return make((2, 6, 5, CHANNELS)).astype(np.float32)


@pytest.mark.parametrize("step", STEPS)
def test_special_numbers_go_through_a_step_as_through_numpy(step: str) -> None:
    got, truth = run(STEPS[step], images(lambda shape: _DRAW.choice(SPECIAL, shape)))
    assert same(got, truth)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("value", SPECIAL, ids=str)
def test_an_image_of_one_special_number_too(step: str, value: float) -> None:
    got, truth = run(STEPS[step], images(lambda shape: np.full(shape, value)))
    assert same(got, truth)


@pytest.mark.parametrize("first", range(4))
def test_the_largest_of_a_window_with_a_nan_is_nan_wherever_it_lies(first: int) -> None:
    """Which of 0 and -0 is the larger is not NumPy's to say either."""
    layers = (MaxPool(name="y", inputs=IN, window=Window((2, 2), (2, 2))),)
    x = images(lambda shape: _DRAW.choice(SPECIAL[2:], shape))
    x[:, first // 2 :: 2, first % 2 :: 2, ::3] = np.nan
    got, truth = run(layers, x[:, :6, :4])
    assert np.isnan(truth).any()
    assert np.array_equal(got, truth, equal_nan=True)


def test_sums_that_overflow_on_the_way_are_nan_in_both() -> None:
    big, zero = np.full(1, 3e38, np.float32), np.zeros(1, np.float32)
    layers = (
        Affine(name="a", inputs=IN, scale=big, shift=zero),
        Affine(name="b", inputs=IN, scale=-big, shift=zero),
        Add(name="c", inputs=("a", "b")),
        Affine(name="d", inputs=("c",), scale=np.ones(1, np.float32), shift=zero),
    )
    network = onebit.Network((1, 1, 1), layers)
    assert np.isnan(network.run(np.full((1, 1, 1, 1), 5.0, np.float32))).all()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows", [2, 40])
def test_special_scales_and_shifts_of_a_product(dtype: str, rows: int) -> None:
    a, b = (onebit.pack(_DRAW.choice([-1.0, 1.0], (n, 70))) for n in (rows, 52))
    scale, shift = (np.resize(values, 52) for values in (SPECIAL, SPECIAL[::-1]))
    with np.errstate(all="ignore"):
        got, truth = (
            onebit.matmul(a, b, scale=scale, shift=shift, dtype=dtype, kernel=kernel)
            for kernel in ("numba", "numpy")
        )
    assert same(got.astype(np.float32), truth.astype(np.float32))
