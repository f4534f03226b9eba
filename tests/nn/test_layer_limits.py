"""What layers take and refuse, at both sides of every limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import onebit
from tilewright.errors import FileError, TilewrightError
from tilewright.nn.layers import bit_conv
from tilewright.nn.value import Value
from tilewright.nn.window import Layout, Window, four, pair, tables
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
from tilewright.onebit.matrix import BitMatrix

REAL, BITS = Value("real", 6, 6, 4), Value("bits", 6, 6, 4)
DRAW = np.random.default_rng(3)


def refused(make: Any, *given: Any) -> bool:
    try:
        make(*given)
    except TilewrightError:
        return True
    return False


def pool(kind: Any, **window: Any) -> Any:
    return kind(name="p", inputs=("x",), window=Window(**window))


@pytest.mark.parametrize("kind", [MaxPool, AveragePool])
def test_every_window_of_a_pool_meets_the_image(kind: Any) -> None:
    """A pad may be one short of the kernel, and the last window begins in the image."""
    for pads, fine in (((1, 0, 0, 0), True), ((2, 0, 0, 0), False), ((0, 2, 0, 0), False)):
        layer = pool(kind, kernel=(2, 2), pads=pads)
        assert refused(layer.output, [REAL]) is not fine, pads
    for after, stride, fine in ((1, 1, True), (2, 1, False), (1, 6, True), (2, 6, False)):
        layer = pool(kind, kernel=(2, 2), stride=(stride, stride), pads=(0, 0, after, after))
        assert refused(layer.output, [REAL]) is not fine, (after, stride)
    assert refused(pool(kind, kernel=(2, 2), dilation=(1, 2)).output, [REAL])
    assert pool(kind, kernel=(6, 5)).output([REAL]) == Value("real", 1, 2, 4)
    assert refused(pool(kind, kernel=(7, 1)).output, [REAL])


def test_a_mean_divides_by_the_elements_in_the_image_or_by_all_of_the_window() -> None:
    x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1) + 1
    window = Window((2, 2), (2, 2), (1, 1), (1, 1, 0, 0))
    inside = AveragePool(name="p", inputs=("x",), window=window).compute(x)
    np.testing.assert_allclose(inside.ravel(), [1, 2.5, 5.5, 7])
    whole = AveragePool(name="p", inputs=("x",), window=window, count_padding=True).compute(x)
    np.testing.assert_allclose(whole.ravel(), [0.25, 1.25, 2.75, 7])
    everything = AveragePool(name="p", inputs=("x",))
    assert everything.compute(x).ravel().tolist() == [5.0]
    assert everything.output([REAL]) == Value("real", 1, 1, 4)


def conv(weights: Any, **more: Any) -> Any:
    kind = RealConv if weights.dtype == np.float16 else BitConv
    kept = weights if kind is RealConv else onebit.pack(weights)
    return kind(name="c", inputs=("x",), weights=kept, window=Window((3, 3)), **more)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_groups_divide_outputs_and_multiply_the_channels_that_come_in(dtype: Any) -> None:
    weights = np.ones((6, 3, 3, 2), dtype)
    value = REAL if dtype == np.float16 else BITS
    for groups, fine in ((2, True), (1, False), (3, False)):
        layer = conv(weights, groups=groups)
        assert refused(layer.output, [value]) is not fine
    for groups in (4, 0, -1, True, 2.0):
        assert refused(lambda groups=groups: conv(weights, groups=groups)), groups
    assert conv(weights, groups=2).output([value]) == Value("real", 4, 4, 6)
    assert conv(weights, groups=2).terms == 18
    wrong = np.ones((6, 3, 2, 2), dtype)
    assert refused(conv, wrong)


def test_a_threshold_has_a_number_an_output_and_no_scale_beside_it() -> None:
    weights = np.ones((5, 3, 3, 4), np.float32)
    right = np.arange(5, dtype=np.int32)
    layer = conv(weights, threshold=right)
    assert layer.output([BITS]) == Value("bits", 4, 4, 5)
    x = DRAW.choice([-1, 1], (1, 6, 6, 4)).astype(np.int8)
    dots = conv(weights).compute(x)
    np.testing.assert_array_equal(layer.compute(x), np.where(dots >= right, 1, -1))
    one = np.ones(5, np.float32)
    for more in (
        {"threshold": right[:4]},
        {"threshold": right.astype(np.int64)},
        {"threshold": right.tolist()},
        {"threshold": right, "scale": one},
        {"threshold": right, "shift": one},
        {"scale": one[:4]},
        {"scale": one.astype(np.float64)},
        {"shift": one * np.inf},
        {"padding": "one"},
    ):
        assert refused(lambda more=more: conv(weights, **more)), more
    assert refused(layer.output, [REAL])


def test_pads_and_what_lies_in_them_count_in_every_sum() -> None:
    x = np.ones((1, 1, 1, 2), np.int8)
    weights = np.ones((1, 3, 3, 2), np.float32)
    for padding, total in (("zero", 2), ("minus_one", 2 - 16)):
        layer = BitConv(
            name="c", inputs=("x",), weights=onebit.pack(weights),
            window=Window((3, 3), pads=(1, 1, 1, 1)), padding=padding,
        )  # fmt: skip
        assert layer.compute(x).ravel().tolist() == [total]
        assert layer.border == 1
    uneven = BitConv(
        name="c", inputs=("x",), weights=onebit.pack(weights),
        window=Window((3, 3), pads=(0, 2, 1, 0)),
    )  # fmt: skip
    assert uneven.border == 2


def test_names_inputs_and_vectors_are_checked() -> None:
    ones = np.ones(4, np.float32)
    for more, fine in (
        ({"name": "a", "inputs": ("x",)}, True),
        ({"name": "", "inputs": ("x",)}, False),
        ({"name": 3, "inputs": ("x",)}, False),
        ({"name": "a", "inputs": ["x"]}, False),
        ({"name": "a", "inputs": ("x", "y")}, False),
        ({"name": "a", "inputs": (1,)}, False),
    ):
        assert refused(lambda more=more: Affine(scale=ones, shift=ones, **more)) is not fine, more
    affine = Affine(name="a", inputs=("x",), scale=ones, shift=ones)
    assert affine.output([REAL]) == REAL
    assert refused(affine.output, [Value("real", 6, 6, 5)])
    np.testing.assert_array_equal(affine.compute(np.full((1, 1, 1, 4), 2.0, np.float32)), 3.0)


# Windows and their tables.


@pytest.mark.parametrize(
    ("field", "value", "fine"),
    [
        ("kernel", (1, 1), True), ("kernel", (0, 1), False), ("kernel", (65535, 1), True),
        ("kernel", (65536, 1), False), ("kernel", (1,), False), ("kernel", [1, 1], False),
        ("stride", (1, 0), False), ("dilation", (0, 1), False), ("pads", (0, 0, 0, 0), True),
        ("pads", (0, 0, 0, -1), False), ("pads", (0, 0), False), ("pads", (0, 0, 0, 65535), True),
        ("kernel", (True, 1), False), ("stride", (1.0, 1), False),
    ],
)  # fmt: skip
def test_sizes_of_a_window_are_whole_numbers_in_their_range(
    field: str, value: Any, fine: bool
) -> None:
    assert refused(lambda: Window(**{field: value})) is not fine


def test_an_image_with_its_borders_has_fewer_than_2_to_the_28_elements() -> None:
    assert Window().output(2**14, 2**14 - 1) == (2**14, 2**14 - 1)
    assert refused(Window().output, 2**14, 2**14)
    assert refused(Window(pads=(0, 0, 0, 1)).output, 2**14, 2**14 - 2)
    assert Window((2, 2), (1, 1), (2, 3)).output(3, 4) == (1, 1)
    assert refused(Window((2, 2), (1, 1), (2, 3)).output, 3, 3)
    assert Window().is_point
    assert not any(
        Window(**one).is_point  # type: ignore[arg-type]
        for one in ({"kernel": (1, 2)}, {"stride": (2, 1)}, {"pads": (0, 0, 1, 0)})
    )


def test_numbers_pairs_and_fours_are_read_alike() -> None:
    assert (pair(3, "n"), pair([1, 2], "n")) == ((3, 3), (1, 2))
    assert (four(1, "n"), four((1, 2), "n"), four([1, 2, 3, 4], "n")) == (
        (1, 1, 1, 1), (1, 2, 1, 2), (1, 2, 3, 4)
    )  # fmt: skip
    for wrong in (True, 1.0, (1,), (1, 2, 3), "12", (1, None), None):
        assert refused(pair, wrong, "n"), wrong
        assert refused(four, wrong, "n"), wrong


def test_tables_find_each_element_of_each_window() -> None:
    """Beside a loop over images, windows and elements."""
    window = Window((2, 3), (2, 1), (1, 2), (1, 0, 0, 1))
    layout = Layout(images=2, height=5, width=6, pitch=10, border=1)
    source = np.zeros((2, 7, 8, 10))
    source[:, 1:6, 1:7] = DRAW.standard_normal((2, 5, 6, 10))
    assert layout.size == source.size
    pieces = np.array([3, 7])
    found = tables(window, layout, pieces)
    flat, at = source.ravel(), 0
    height, width = window.output(5, 6)
    for image in range(2):
        for top in range(height):
            for left in range(width):
                taps = [
                    (2 * top - 1 + row, left + 2 * column) for row in (0, 1) for column in (0, 1, 2)
                ]
                wanted = [source[image, 1 + y, 1 + x, piece] for y, x in taps for piece in pieces]
                assert flat[found.origins[at] + found.taps].tolist() == wanted
                inside = [0 <= y < 5 and 0 <= x < 6 for y, x in taps]
                assert found.inside[found.classes[at]].tolist() == inside
                at += 1
    np.testing.assert_array_equal(flat[layout.places()], source[:, 1:6, 1:7, 0].ravel())
    assert refused(tables, Window(pads=(0, 2, 0, 0)), layout, pieces)


@pytest.mark.parametrize(
    "shape", [[0, 1, 1, 1], [2, 0, 3, 3], [2, 1, 3, 0], [2, 1, 3], [2, 1, 3, 3.0]]
)
def test_weights_of_bits_have_four_sizes_of_one_and_more(shape: list[Any]) -> None:
    whole = [int(size) for size in shape]
    octets = np.zeros((whole[0], -(-int(np.prod(whole[1:])) // 8)), np.uint8)
    with pytest.raises(FileError, match="accepted are four sizes"):
        bit_conv._bits(octets, shape, "c")
    assert bit_conv._bits(np.zeros((2, 1), np.uint8), [2, 1, 3, 2], "c").shape == (2, 1, 3, 2)


def test_what_a_layer_costs_follows_from_its_elements() -> None:
    """Operations for a result, numbers that were trained, and bytes of a file."""
    window, names = Window((2, 3)), {"name": "l", "inputs": ("x",)}
    four_, size = np.ones(4, np.float32), 2 * 5 * 4
    value = Value("real", 2, 5, 4)
    reals = RealConv(weights=np.ones((4, 2, 3, 3), np.float16), window=window, scale=four_, **names)
    bits = BitConv(
        weights=onebit.pack(np.ones((4, 2, 3, 3))), window=window, scale=four_, shift=four_, **names
    )
    for layer, flops, parameters, bytes_ in (
        (Add(name="l", inputs=("x", "y")), size, 0, 0),
        (Affine(scale=four_, shift=four_, **names), 2 * size, 8, 32),
        (Clamp(low=0.0, **names), 2 * size, 0, 0),
        (Sign(cut=four_, **names), size, 4, 16),
        (Flatten(**names), 0, 0, 0),
        (MaxPool(window=window, **names), 6 * size, 0, 0),
        (reals, 2 * 18 * size, 4 * 18 + 4, 2 * 72 + 16),
        (bits, 2 * 18 * size, 4 * 18 + 8, 4 * 3 + 32),  # 18 bits are three bytes
    ):
        assert layer.flops(value) == flops, layer
        assert (layer.parameters, layer.bytes) == (parameters, bytes_), layer


def test_a_sum_of_bits_has_fewer_than_2_to_the_24_terms() -> None:
    for depth, fine in ((1 << 24, False), ((1 << 24) - 1, True)):
        words = np.zeros((1, 1, 1, -(-depth // 64)), np.int64)
        weights = BitMatrix(words, depth)
        assert refused(lambda w=weights: BitConv(name="c", inputs=("x",), weights=w)) is not fine


@pytest.mark.parametrize(
    ("low", "high", "fine"),
    [
        (0.0, 0.0, True), (1.0, 0.5, False), (-np.inf, np.inf, True), (np.nan, 1.0, False),
        (-3.4028234663852886e38, 3.4028234663852886e38, True), (0.0, 3.5e38, False),
        (-3.5e38, 0.0, False), (0, 1, True), ("0", 1.0, False), (np.float32(0), 6.0, True),
    ],
)  # fmt: skip
def test_limits_are_float32_numbers_or_none_the_least_first(
    low: Any, high: Any, fine: bool
) -> None:
    assert refused(lambda: Clamp(name="c", inputs=("x",), low=low, high=high)) is not fine


def test_vectors_are_finite_but_for_a_cut_that_nothing_or_all_reaches() -> None:
    for number, affine, cut in ((1.0, True, True), (np.inf, False, True), (np.nan, False, False)):
        array = np.array([1, number], np.float32)
        ones = np.ones(2, np.float32)
        for given in ({"scale": array, "shift": ones}, {"scale": ones, "shift": array}):
            made = lambda given=given: Affine(name="a", inputs=("x",), **given)  # noqa: E731
            assert refused(made) is not affine
        assert refused(lambda array=array: Sign(name="s", inputs=("x",), cut=array)) is not cut
    assert refused(lambda: Sign(name="s", inputs=("x",), cut=np.ones((1, 2), np.float32)))
    assert refused(lambda: Sign(name="s", inputs=("x",), cut=np.ones(2)))


def test_bits_past_the_last_are_none() -> None:
    """Of 18 bits three bytes, the last with six bits that must be 0."""
    octets = np.array([[255, 1, 0b11]], np.uint8)
    found = bit_conv._bits(octets, [1, 2, 3, 3], "c")
    np.testing.assert_array_equal(onebit.unpack(found).ravel(), [1] * 9 + [-1] * 7 + [1, 1])
    for wrong in (
        np.array([[255, 1, 0b111]], np.uint8),
        np.array([[255, 1, 0b10000000]], np.uint8),
        np.array([[255, 1]], np.uint8),
        np.array([[255, 1, 0, 0]], np.uint8),
        np.array([[255, 1, 0b11]]).astype(np.int8),
        np.array([[255, 1, 0b11]] * 2, np.uint8),
    ):
        with pytest.raises(FileError, match="weights"):
            bit_conv._bits(wrong, [1, 2, 3, 3], "c")
    assert bit_conv._bits(np.full((2, 3), 255, np.uint8), [2, 1, 1, 24], "c").k == 24


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_in_groups_end_for_themselves(groups: int) -> None:
    layer = conv(np.ones((4, 3, 3, 4 // groups), np.float32), groups=groups)
    assert layer.may_go_on(REAL) is (groups == 1)
    assert not layer.may_go_on(BITS)
    assert not Flatten(name="f", inputs=("x",)).may_go_on(REAL)
