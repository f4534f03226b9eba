"""Convolutions of bits: equal to whole-number convolution for every size, border and way."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import onebit
from tilewright.backends.host import compiled
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.nn import buffers

NDArray = npt.NDArray[Any]
HERE = compiled.available()


@dataclass(frozen=True)
class Case:
    """A convolution; channels and outputs are of all groups together."""

    size: tuple[int, int]
    channels: int
    outputs: int
    kernel: tuple[int, int] = (3, 3)
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    images: int = 1

    def __str__(self) -> str:
        return (
            f"{self.images}x{self.size[0]}x{self.size[1]}x{self.channels}-{self.outputs}"
            f"-k{self.kernel[0]}x{self.kernel[1]}-s{self.stride}-p{self.padding}-d{self.dilation}"
            f"-g{self.groups}".replace(" ", "")
        )


CASES = (
    Case((1, 1), 1, 1, (1, 1)),
    Case((3, 3), 64, 32),
    # A word, and one bit less and more; channels that fill no register.
    Case((6, 5), 63, 31, padding=1),
    Case((6, 5), 65, 33, padding=1),
    Case((5, 7), 128, 16, padding=1, images=3),
    Case((4, 4), 200, 70, (1, 1)),
    Case((9, 8), 3, 10, (5, 2), padding=(2, 1)),
    # Borders wider than the image, and unlike on every side.
    Case((2, 2), 70, 5, (3, 3), padding=2),
    Case((7, 6), 64, 40, (4, 3), padding=(3, 0, 1, 2)),
    Case((11, 10), 96, 8, stride=2, padding=1),
    Case((11, 10), 96, 8, (2, 3), stride=(3, 1), padding=(0, 2)),
    Case((9, 9), 40, 9, dilation=2, padding=2),
    Case((9, 12), 64, 9, (3, 2), dilation=(1, 4), stride=2, padding=(1, 2)),
    # Groups that fill their words, and groups that share one.
    Case((5, 5), 128, 64, groups=2, padding=1),
    Case((5, 5), 60, 12, groups=3, padding=1),
    Case((5, 5), 7, 14, groups=7, padding=1),
    # More pixels than a task takes at once, and a number that no tile divides.
    Case((23, 29), 64, 64, padding=1),
)


def draw(case: Case, seed: int = 0) -> tuple[NDArray, NDArray]:
    generator = np.random.default_rng(seed)
    depth = case.channels // case.groups
    x = generator.choice(np.array([-1, 1], np.int8), (case.images, *case.size, case.channels))
    w = generator.choice(np.array([-1, 1], np.int8), (case.outputs, *case.kernel, depth))
    return x, w


def truth(case: Case, x: NDArray, w: NDArray, padding_value: str) -> NDArray:
    """Every window times every weight, as whole numbers; PyTorch is not everywhere."""
    padding, outside = case.padding, 0 if padding_value == "zero" else -1
    if isinstance(padding, int):
        padding = (padding, padding)
    if len(padding) == 2:
        padding = (*padding, *padding)
    top, left, bottom, right = padding
    sides = ((0, 0), (top, bottom), (left, right), (0, 0))
    image = np.pad(x.astype(np.int64), sides, constant_values=outside)
    down, across = _pair(case.stride)
    apart, aside = _pair(case.dilation)
    reach = (apart * (case.kernel[0] - 1) + 1, aside * (case.kernel[1] - 1) + 1)
    windows = np.lib.stride_tricks.sliding_window_view(image, reach, axis=(1, 2))
    windows = windows[:, ::down, ::across, :, ::apart, ::aside]
    depth, each = case.channels // case.groups, case.outputs // case.groups
    made = [
        np.einsum(
            "nhwcij,oijc->nhwo",
            windows[:, :, :, depth * group : depth * (group + 1)],
            w[each * group : each * (group + 1)].astype(np.int64),
            optimize=True,
        )
        for group in range(case.groups)
    ]
    return np.concatenate(made, axis=-1)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def make(case: Case, w: NDArray, **options: Any) -> onebit.Conv2d:
    return onebit.Conv2d(
        w,
        stride=case.stride,
        padding=case.padding,
        dilation=case.dilation,
        groups=case.groups,
        **options,
    )


@pytest.mark.parametrize("padding_value", ["zero", "minus_one"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_convolution_of_whole_numbers(case: Case, padding_value: str) -> None:
    x, w = draw(case)
    got = make(case, w, padding_value=padding_value)(onebit.pack(x))
    assert got.dtype == np.int32
    assert np.array_equal(got, truth(case, x, w, padding_value))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_product_of_gathered_windows_gives_the_same(case: Case) -> None:
    x, w = draw(case)
    for padding_value in ("zero", "minus_one"):
        conv = make(case, w, padding_value=padding_value)
        got = conv(onebit.pack(x), kernel="numpy")
        assert got.dtype == np.int32
        assert np.array_equal(got, truth(case, x, w, padding_value))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_scale_and_bias_are_each_rounded_once(case: Case) -> None:
    x, w = draw(case)
    generator = np.random.default_rng(1)
    scale, bias = generator.standard_normal((2, case.outputs)).astype(np.float32)
    conv = make(case, w, scale=scale, bias=bias)
    expected = truth(case, x, w, "zero").astype(np.float32) * scale + bias
    for got in (conv(onebit.pack(x)), conv(onebit.pack(x), kernel="numpy")):
        assert got.dtype == np.float32
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_threshold_gives_bits(case: Case) -> None:
    x, w = draw(case)
    dots = truth(case, x, w, "zero")
    generator = np.random.default_rng(1)
    # Values that are reached exactly, so that a strict comparison would be found out.
    threshold = generator.choice(dots.reshape(-1), case.outputs).astype(np.int32)
    conv = make(case, w, threshold=threshold)
    for got in (conv(onebit.pack(x)), conv(onebit.pack(x), kernel="numpy")):
        assert isinstance(got, onebit.BitMatrix)
        onebit.BitMatrix.of_words(got.words, got.k)  # bits past the channels are 0
        assert np.array_equal(onebit.unpack(got) > 0, dots >= threshold)


@pytest.mark.parametrize("extreme", [np.iinfo(np.int32).min, np.iinfo(np.int32).max])
def test_thresholds_beyond_every_sum_decide_alone(extreme: int) -> None:
    case = CASES[2]
    x, w = draw(case)
    got = make(case, w, threshold=np.full(case.outputs, extreme, np.int32))(onebit.pack(x))
    assert np.all(onebit.unpack(got) == (1 if extreme < 0 else -1))


def test_the_two_paddings_differ_by_the_weights_that_hang_over() -> None:
    case = Case((6, 6), 64, 8, padding=1)
    x, w = draw(case)
    zero, minus = (make(case, w, padding_value=v)(onebit.pack(x)) for v in ("zero", "minus_one"))
    assert np.array_equal(zero[:, 1:-1, 1:-1], minus[:, 1:-1, 1:-1])
    over = w[:, 0].sum(axis=(1, 2), dtype=np.int64)  # above the image: the window's first row
    assert np.array_equal((zero - minus)[0, 0, 2], over)
    assert not np.array_equal(zero, minus)


@pytest.mark.skipif(not HERE, reason="Numba is not installed")
def test_no_im2col_is_needed_and_memory_may_hold_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results do not depend on what the buffers held; borders and unused bits are ours."""
    plain = buffers.aligned

    def poisoned(count: int, dtype: Any, *, clear: bool = False) -> NDArray:
        array = plain(count, dtype, clear=clear)
        if not clear:
            array.view(np.uint8)[...] = 0xFF  # NaN in float32
        return array

    monkeypatch.setattr(buffers, "aligned", poisoned)
    for case in CASES:
        x, w = draw(case)
        assert np.array_equal(make(case, w)(onebit.pack(x)), truth(case, x, w, "zero"))


def test_a_layer_takes_images_of_other_sizes_in_turn() -> None:
    small, large = Case((5, 6), 70, 9, padding=1), Case((9, 4), 70, 9, padding=1, images=2)
    _, w = draw(small)
    conv = make(small, w)
    for _ in range(2):
        for case in (small, large):
            x, _ = draw(case)
            assert np.array_equal(conv(onebit.pack(x)), truth(case, x, w, "zero"))


def test_one_image_without_a_batch() -> None:
    case = CASES[2]
    x, w = draw(case)
    got = make(case, w)(onebit.pack(x[0]))
    assert np.array_equal(got, truth(case, x, w, "zero")[0])
    bits = make(case, w, threshold=np.zeros(case.outputs, np.int32))(onebit.pack(x[0]))
    assert bits.shape == got.shape


def test_no_images_give_no_results() -> None:
    case = CASES[2]
    x, w = draw(case)
    got = make(case, w)(onebit.pack(x[:0]))
    assert got.shape == (0, 6, 5, 31)
    assert got.dtype == np.int32


@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.integers(1, 130),
    st.integers(1, 40),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 3),
    st.integers(0, 3),
    st.sampled_from(["zero", "minus_one"]),
)
def test_equals_it_for_shapes_beyond_the_list(
    size: tuple[int, int],
    channels: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: int,
    padding: int,
    padding_value: str,
) -> None:
    if any(s + 2 * padding < k for s, k in zip(size, kernel, strict=True)):
        return
    case = Case(size, channels, outputs, kernel, stride, padding)
    x, w = draw(case, seed=channels)
    got = make(case, w, padding_value=padding_value)(onebit.pack(x))
    assert np.array_equal(got, truth(case, x, w, padding_value))


def test_convolves_on_an_opencl_device(device: Any) -> None:
    case = CASES[3]
    x, w = draw(case)
    got = make(case, w)(onebit.pack(x), device=device)
    assert np.array_equal(got, truth(case, x, w, "zero"))


def test_thresholds_beyond_int32_are_never_or_always_reached() -> None:
    x = onebit.pack(np.ones((1, 5, 5, 8)))
    conv = onebit.Conv2d(WEIGHTS, threshold=np.array([2**40, -(2**40), 2**31, 0]))
    assert onebit.unpack(conv(x))[0, 0, 0].tolist() == [-1, 1, -1, 1]


WEIGHTS = np.ones((4, 3, 3, 8), np.int8)
WRONG: tuple[tuple[str, Callable[[], object], type[Exception], str], ...] = (
    ("weights", lambda: onebit.Conv2d(WEIGHTS[0]), ShapeError, "weights.shape"),
    ("zeros", lambda: onebit.Conv2d(0 * WEIGHTS), ArgumentError, "no sign"),
    ("nan", lambda: onebit.Conv2d(np.nan * WEIGHTS), ArgumentError, "NaN"),
    ("stride", lambda: onebit.Conv2d(WEIGHTS, stride=0), ArgumentError, "stride"),
    ("stride of three", lambda: onebit.Conv2d(WEIGHTS, stride=(1, 1, 1)), ArgumentError, "stride"),
    ("padding", lambda: onebit.Conv2d(WEIGHTS, padding=-1), ArgumentError, "pads"),
    ("padding text", lambda: onebit.Conv2d(WEIGHTS, padding="same"), ArgumentError, "padding"),
    ("dilation", lambda: onebit.Conv2d(WEIGHTS, dilation=1.5), ArgumentError, "dilation"),
    ("groups", lambda: onebit.Conv2d(WEIGHTS, groups=3), ShapeError, "groups=3"),
    ("scale text", lambda: onebit.Conv2d(WEIGHTS, scale="a"), DtypeError, "scale='a'"),
    ("one scale", lambda: onebit.Conv2d(WEIGHTS, scale=2.0), ShapeError, "scale.shape=()"),
    ("short bias", lambda: onebit.Conv2d(WEIGHTS, bias=[1, 2]), ShapeError, "bias.shape=(2,)"),
    ("bias nan", lambda: onebit.Conv2d(WEIGHTS, bias=[np.nan] * 4), ArgumentError, "bias: has NaN"),
    ("large scale", lambda: onebit.Conv2d(WEIGHTS, scale=[1e300] * 4), ArgumentError, "scale: has"),
    ("value", lambda: onebit.Conv2d(WEIGHTS, padding_value="one"), ArgumentError, "minus_one"),
    ("scale", lambda: onebit.Conv2d(WEIGHTS, scale=[1.0]), ShapeError, "scale.shape"),
    ("nan scale", lambda: onebit.Conv2d(WEIGHTS, scale=[np.nan] * 4), ArgumentError, "scale"),
    ("threshold", lambda: onebit.Conv2d(WEIGHTS, threshold=[0.5] * 4), DtypeError, "threshold"),
    (
        "both",
        lambda: onebit.Conv2d(WEIGHTS, threshold=[1] * 4, scale=[1.0] * 4),
        ArgumentError,
        "excludes",
    ),
    ("numbers", lambda: onebit.Conv2d(WEIGHTS)(WEIGHTS), OperandError, "pack"),
    (
        "channels",
        lambda: onebit.Conv2d(WEIGHTS)(onebit.pack(np.ones((1, 5, 5, 9)))),
        ShapeError,
        "its input has 9",
    ),
    (
        "image",
        lambda: onebit.Conv2d(WEIGHTS)(onebit.pack(np.ones((1, 2, 5, 8)))),
        ShapeError,
        "smaller than the window",
    ),
    ("rank", lambda: onebit.Conv2d(WEIGHTS)(onebit.pack(np.ones(8))), ShapeError, "x.shape"),
)


@pytest.mark.parametrize(
    ("call", "error", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_what_does_not_fit_is_one_clear_error(
    call: Callable[[], object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)):
        call()
