"""The importer's numbers in worked examples: pads, thresholds, limits of a comparison, memory."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.onnx_graphs import Graph
from tilewright.errors import ArgumentError, FileError, ShapeError
from tilewright.nn.buffers import lanes
from tilewright.nn.layers.conv import RealConv
from tilewright.nn.layers.maps import Affine
from tilewright.nn.onnx.check import _input, _network_bytes
from tilewright.nn.onnx.compare import Limits, compare, largest_of, limits_of, merged
from tilewright.nn.onnx.drafts import AffineDraft, ConvDraft, SignDraft, fold
from tilewright.nn.onnx.file import parsed_file, peak
from tilewright.nn.onnx.load import import_onnx
from tilewright.nn.onnx.windows import pads_of, window_of
from tilewright.nn.value import Value
from tilewright.nn.window import Window

WINDOWS = list(itertools.product((1, 2, 3, 4), (1, 2, 3), (1, 2), (4, 5, 7, 8)))


def node(**attributes: Any) -> Any:
    return SimpleNamespace(attributes={"auto_pad": "NOTSET", **attributes})


@pytest.mark.parametrize("way", ["SAME_UPPER", "SAME_LOWER"])
def test_same_pads_are_the_fewest_that_give_a_window_a_step(way: str) -> None:
    """As many windows as steps fit into the image; of an odd number of pads the last side, or the
    first, has one more. Rows and columns each by their own."""
    for kernel, stride, dilation, size in WINDOWS:
        given = {"strides": [stride, 1], "dilations": [dilation, 1], "auto_pad": way}
        window = window_of(node(**given), (kernel, 1), (size, 9))
        reach = dilation * (kernel - 1) + 1
        wanted = -(-size // stride)
        fewest = next(pads for pads in range(99) if size + pads >= reach + (wanted - 1) * stride)
        before = fewest // 2 if way == "SAME_UPPER" else fewest - fewest // 2
        assert window.pads == (before, 0, fewest - before, 0), (kernel, stride, dilation, size)
        assert window.output(size, 9) == (wanted, 9)


def test_rounding_up_counts_windows_that_begin_in_the_image_or_before_it() -> None:
    for (kernel, stride, _, size), first, last in itertools.product(WINDOWS, (0, 1), (0, 1)):
        if kernel > size + first + last or max(first, last) >= kernel:
            continue
        given = {"strides": [1, stride], "pads": [0, first, 0, last], "ceil_mode": 1}
        window = window_of(node(**given), (1, kernel), (6, size))
        whole = -(-(size + first + last - kernel) // stride) + 1
        wanted = min(whole, len(range(-first, size, stride)))
        assert window.output(6, size) == (6, wanted), (kernel, stride, size, first, last)
        assert window.pads[:2] == (0, first)


@pytest.mark.parametrize(
    ("pads", "fine"),
    [
        ([0, 0, 1, 2, 0, 0, 3, 4096], True),
        ([0, 0, 1, 2, 0, 0, 3, 4097], False),
        *(([int(at == one) for at in range(8)], one in (2, 3, 6, 7)) for one in range(8)),
        ([0, 0, -1, 0, 0, 0, 0, 0], False),
        ([0, 0, 1, 1], False),
    ],
)
def test_pads_lie_around_rows_and_columns(pads: list[int], fine: bool) -> None:
    for given in (node(pads=pads, value=2.5), node()):
        amounts = None if "pads" in given.attributes else np.array(pads)
        if fine:
            found = pads_of(given, (amounts, None, None))
            assert found == ((pads[2], pads[3], pads[6], pads[7]), 2.5 if amounts is None else 0.0)
        else:
            with pytest.raises(FileError, match="pads="):
                pads_of(given, (amounts, None, None))
    if fine:
        assert pads_of(node(), (np.array(pads), np.array([3.0]), None))[1] == 3.0


@pytest.mark.parametrize(
    ("value", "fine"),
    [([1, 65535], True), ([0, 1], False), ([1, 65536], False), ([1], False), ([1, 1, 1], False)],
)
def test_whole_numbers_of_attributes_are_below_65536(value: list[int], fine: bool) -> None:
    given = node(strides=value)
    if fine:
        assert window_of(given, (1, 1), (3, 3)).stride == tuple(value)
        return
    with pytest.raises((ShapeError, ArgumentError), match="stride"):
        window_of(given, (1, 1), (3, 3))


# Thresholds and folding.


def bits_of(**more: Any) -> ConvDraft:
    weights = np.ones((len(more["scale"]), 1, 1, 40))
    return ConvDraft(
        name="conv", inputs=("x",), weights=weights, binary=True, window=Window(), groups=1,
        outside="zero", **more,
    )  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
def test_a_threshold_decides_every_sum_as_the_floats_would(strict: bool) -> None:
    draw = np.random.default_rng(8)
    scale = draw.choice([-2.0, -1.0, -0.75, 0.0, 0.1, 1 / 3, 1.0, 3.0, 1e-3, 1e-12, -1e-12], 300)
    shift, cut = draw.integers(-99, 99, 300) / 4, draw.integers(-9, 10, 300) / 4
    sign = SignDraft(name="sign", inputs=("conv",), cut=cut, strict=strict)
    found = bits_of(scale=scale, shift=shift).joined(sign)
    assert isinstance(found, ConvDraft)
    assert found.threshold is not None
    assert (found.name, found.scale, found.shift) == ("sign", None, None)
    np.testing.assert_array_equal(found.weights[:, 0, 0, 0], np.where(scale < 0, -1, 1))
    for dot in range(-40, 41):
        value = np.abs(scale) * dot  # of weights that a negative scale has turned
        truth = value > cut - shift if strict else value >= cut - shift
        np.testing.assert_array_equal(dot >= found.threshold, truth, err_msg=str(dot))
    assert found.joined(sign) is None


def test_only_a_binary_convolution_takes_a_sign_and_only_once_nobody_reads_between() -> None:
    conv = bits_of(scale=np.ones(3), shift=None)
    norm = AffineDraft(name="norm", inputs=("conv",), scale=np.full(3, 2.0), shift=np.ones(3))
    twice = AffineDraft(name="twice", inputs=("norm",), scale=np.full(3, 5.0), shift=np.zeros(3))
    sign = SignDraft(name="sign", inputs=("twice",))
    (whole,) = fold([conv, norm, twice, sign], "sign")
    assert isinstance(whole, ConvDraft)
    np.testing.assert_array_equal(whole.threshold, [0, 0, 0])  # 10 x + 5 >= 0 of whole x
    names = [one.name for one in fold([conv, norm, twice, sign], "norm")]
    assert names == ["norm", "twice", "sign"]
    reader = AffineDraft(name="other", inputs=("norm",), scale=np.ones(3), shift=np.ones(3))
    assert [one.name for one in fold([conv, norm, reader, twice], "twice")] == [
        "norm", "other", "twice"
    ]  # fmt: skip
    joined = norm.joined(twice)
    assert isinstance(joined, AffineDraft)
    np.testing.assert_array_equal((joined.scale, joined.shift), ([10.0] * 3, [5.0] * 3))


@pytest.mark.parametrize("strict", [False, True])
def test_a_cut_is_the_least_single_that_counts(strict: bool) -> None:
    cuts = np.array([0.1, -0.1, 0.5, 0.0, 1e-50, 3e38])
    layer: Any = SignDraft(name="s", inputs=("x",), cut=cuts, strict=strict).layer()
    for cut, found in zip(cuts, layer.cut, strict=True):
        below = np.nextafter(found, np.float32(-np.inf))
        assert (float(found) > cut) if strict else (float(found) >= cut)
        assert not ((float(below) > cut) if strict else (float(below) >= cut))
    plain: Any = SignDraft(name="s", inputs=("x",)).layer()
    assert plain.cut is None
    assert SignDraft(name="s", inputs=("x",), cut=0.5).layer().cut.tolist() == [0.5]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("largest", "power"),
    [
        (1.0, None), (2.0**-9, None), (2.0**15, None), (0.0, None),
        (2.0**-9 * 0.99, 2.0**-9), (2.0**15 * 1.01, 2.0**16), (2.0**-10, 2.0**-10),
    ],
)  # fmt: skip
def test_weights_outside_of_half_precisions_range_get_a_power_of_two(
    largest: float, power: float | None
) -> None:
    weights = np.full((1, 1, 1, 2), largest)
    weights[..., 1] /= 2
    draft = ConvDraft(
        name="c", inputs=("x",), weights=weights, binary=False, window=Window(), groups=1,
        scale=np.array([3.0]), shift=np.zeros(1), outside="zero",
    )  # fmt: skip
    layer: Any = draft.layer()
    assert layer.scale.tolist() == [3.0 * (power or 1.0)]
    assert layer.shift is None
    np.testing.assert_allclose(
        layer.weights.ravel().astype(float) * (power or 1.0), weights.ravel(), 1e-3
    )


# What may differ, and what is counted.


def affine(**more: Any) -> Affine:
    return Affine(name="one", inputs=("x",), scale=np.ones(1, np.float32), **more)


def test_a_reals_limit_is_two_millionths_of_the_largest_term() -> None:
    layer = affine(shift=np.array([-3.0], np.float32))
    found = limits_of(layer, [np.array([9.0])], np.array([1.0, -5.0]))
    assert found.rounding == pytest.approx(2e-6 * (5 + 3))
    assert float(found.weights) == 0
    endless = limits_of(layer, [np.zeros(1)], np.array([np.inf]))
    assert endless.rounding == 0.0
    assert (largest_of(np.array([-4.0, 3.0])), largest_of(np.zeros(0))) == (4.0, 0.0)


def test_reals_differ_beyond_rounding_and_are_wrong_beyond_sixteen_times_it() -> None:
    value = Value("reals", 1, 1, 6)
    truth = np.array([1.0, 2.0, 0.0, -8.0, 1.0, 1.0])
    off = np.array([0.0, 0.25, 0.2501, 4.0, 4.01, np.nan])
    layer = affine(shift=np.zeros(1, np.float32))
    found = compare(layer, value, truth + off, truth, Limits(0.25, np.zeros(())))
    assert (found.elements, found.differing, found.zeros, found.wrong) == (6, 4, 0, 2)
    assert found.scale == 8.0
    loose = compare(layer, value, truth + off, truth, Limits(0.25, np.full(6, 0.02)))
    assert loose.wrong == 1  # 4.01 is within 16 x 0.25 + 1.01 x 0.02; nothing explains NaN


def test_bits_differ_wherever_they_do_and_are_spared_at_zero_and_near_a_cut() -> None:
    value = Value("bits", 1, 1, 5)
    layer = affine(shift=np.zeros(1, np.float32))
    truth, made = np.array([1.0, -1.0, 0.0, 1.0, 1.0]), np.array([1.0, 1.0, 1.0, -1.0, -1.0])
    near = np.array([False, False, False, True, False])
    found = compare(layer, value, made, truth, Limits(9.0, np.zeros(())), near)
    assert (found.differing, found.zeros, found.wrong, found.largest) == (4, 1, 2, 2.0)
    assert compare(layer, value, made, truth, Limits(9.0, np.zeros(()))).wrong == 3
    both = merged([found, compare(layer, value, truth, truth, Limits(0.0, np.zeros(())))])
    assert (both.elements, both.differing, both.wrong, both.largest) == (10, 4, 2, 2.0)


# Memory.


def test_values_of_a_comparison_are_counted_with_four_arrays_beside_them() -> None:
    """A chain of three values of 2 x 8 reals: 64 bytes each, of which two are alive at once."""
    g = Graph(8)
    g.node("Relu", g.node("Relu", "x"))
    file = parsed_file(g.bytes(batch=2), 1 << 20, "small")
    first, second = file.graph.nodes
    most, where = peak(file, file.tensors, {"x": 0, first.outputs[0]: 1})
    assert (most, where) == (2 * 64 + 4 * 2 * 64, first)
    most, where = peak(file, file.tensors, {"x": 1, first.outputs[0]: 1})
    assert (most, where) == (3 * 64 + 4 * 2 * 64, second)


def test_a_layer_holds_its_result_and_each_input_once() -> None:
    g = Graph(3, 4, 5)
    a = g.node("Relu", "x")
    g.node("Add", a, a)
    network, _ = import_onnx(g.bytes())
    sizes = {
        name: 4 * 2 * one.height * one.width * lanes(one.channels)
        for name, one in network.values.items()
    }
    layer = network.layers[-1]
    found, name = _network_bytes(network, 2)
    assert name in {one.name for one in network.layers}
    assert found == sizes[layer.name] + sizes[layer.inputs[0]]


def real_conv(**more: Any) -> RealConv:
    weights = np.array([[0.5, -2.0]], np.float16).reshape(1, 1, 1, 2)
    return RealConv(name="c", inputs=("x",), weights=weights, **more)


def test_rounded_weights_explain_half_of_their_last_bit_times_what_they_meet() -> None:
    """2^-11 of each weight and 2^-25, times the input's magnitude, times the scale's."""
    x = np.array([3.0, -1.0], np.float32).reshape(1, 1, 1, 2)
    one = 3 * (0.5 * 2.0**-11 + 2.0**-25) + (2.0 * 2.0**-11 + 2.0**-25)
    made = np.array([[[[5.0]]]])
    assert limits_of(real_conv(), [x], made).weights.item() == pytest.approx(one, rel=1e-6)
    scaled = real_conv(scale=np.array([-4.0], np.float32))
    assert limits_of(scaled, [x], made).weights.item() == pytest.approx(4 * one, rel=1e-6)


def test_weights_that_lie_in_a_pad_meet_nothing_and_explain_nothing() -> None:
    weights = np.full((1, 3, 3, 1), 2.0, np.float16)
    window = Window((3, 3), pads=(1, 1, 1, 1))
    layer = RealConv(name="c", inputs=("x",), weights=weights, window=window)
    x = np.ones((1, 3, 4, 1), np.float32)
    each = 2.0 * 2.0**-11 + 2.0**-25
    met = np.array([[4, 6, 6, 4], [6, 9, 9, 6], [4, 6, 6, 4]])  # taps inside the image
    found = limits_of(layer, [x], np.ones((1, 3, 4, 1))).weights
    np.testing.assert_allclose(found[0, :, :, 0], met * each, rtol=1e-6)


def test_sums_of_more_than_1024_terms_may_be_off_by_the_root_of_their_number() -> None:
    for depth, factor in ((1024, 1.0), (4096, 2.0), (10, 1.0)):
        weights = np.ones((1, 1, 1, depth), np.float16)
        layer = RealConv(name="c", inputs=("x",), weights=weights)
        x = np.zeros((1, 1, 1, depth), np.float32)
        assert limits_of(layer, [x], np.array([[[[7.0]]]])).rounding == pytest.approx(
            2e-6 * 7 * factor
        )


# Operators at their edges, beside somebody else's implementation.


@pytest.mark.parametrize(("low", "high"), [(-0.25, None), (None, 0.25), (None, None), (-1.0, 0.5)])
@pytest.mark.parametrize("opset", [6 + 1, 13])
def test_a_clip_has_either_limit_both_or_none(
    low: float | None, high: float | None, opset: int
) -> None:
    g = Graph(5, 3, 3)
    given = {"min": low, "max": high}
    if opset < 11:
        g.node("Clip", "x", **{name: v for name, v in given.items() if v is not None})
    else:
        limits = ["" if v is None else g.const(np.float32(v)) for v in given.values()]
        g.node("Clip", "x", *limits)
    network, report = import_onnx(g.bytes(opset))
    assert report.exact
    x = np.random.default_rng(0).standard_normal((1, 3, 3, 5)).astype(np.float32)
    np.testing.assert_array_equal(
        network.run(x),
        np.clip(x, -np.inf if low is None else low, np.inf if high is None else high),
    )


@pytest.mark.parametrize("shape", [(2,), (1, 2)])
def test_a_limit_is_a_single_number(shape: tuple[int, ...]) -> None:
    g = Graph(5, 3, 3)
    g.node("Clip", "x", g.const(np.zeros(shape, np.float32)))
    with pytest.raises(FileError, match="Clip"):
        import_onnx(g.bytes())


def test_a_node_of_two_outputs_is_refused() -> None:
    g = Graph(5, 4, 4)
    g.node("MaxPool", "x", kernel_shape=[2, 2])
    g.nodes[-1].output.append("indices")
    with pytest.raises(FileError, match="more than one output"):
        import_onnx(g.bytes())


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("left", [False, True])
def test_a_constant_stands_on_either_side_of_what_may_be_turned(op: str, left: bool) -> None:
    g = Graph(3, 2, 2)
    vector = np.array([0.5, -2.0, 4.0], np.float32).reshape(3, 1, 1)
    constant = g.const(vector)
    g.node(op, *((constant, "x") if left else ("x", constant)))
    if op == "Div" and left:
        with pytest.raises(FileError, match="division by a value"):
            import_onnx(g.bytes())
        return
    network, _ = import_onnx(g.bytes())
    x = np.random.default_rng(0).standard_normal((1, 2, 2, 3)).astype(np.float32)
    truth = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[op]
    wide = vector.reshape(1, 1, 1, 3)
    wanted = truth(wide, x) if left else truth(x, wide)
    np.testing.assert_allclose(network.run(x), wanted, rtol=1e-6)
    zero = Graph(3, 2, 2)
    zero.node("Div", "x", zero.const(vector * np.float32([[[1]], [[0]], [[1]]])))
    with pytest.raises(FileError, match="or by 0"):
        import_onnx(zero.bytes())


def test_a_sign_is_where_of_two_single_constants() -> None:
    for size, fine in ((1, True), (5, False)):
        g = Graph(3, 4, 5)
        over = g.node("Greater", "x", g.const(g.reals(3, 1, 1)))
        ends = [g.const(np.full((size,), value, np.float32)) for value in (1, -1)]
        g.node("Where", over, *ends)
        if fine:
            import_onnx(g.bytes())
            continue
        with pytest.raises(FileError, match="accepted is Where"):
            import_onnx(g.bytes())


@pytest.mark.parametrize("shape", [(1, 1, 2), (2, 2), (2, 1)])
def test_a_gemm_adds_one_number_to_each_column(shape: tuple[int, ...]) -> None:
    g = Graph(3)
    weights, added = g.const(g.reals(3, 2)), g.const(np.ones(shape, np.float32))
    g.node("Gemm", "x", weights, added)
    with pytest.raises(FileError, match="C "):
        import_onnx(g.bytes())


def test_a_sign_that_meets_zero_is_one() -> None:
    """As its layer takes it, whichever value the other library gave for a sign of 0."""
    given = {"signs": np.array([[-1.0, 0.0, 1.0]], np.float32)}
    item: Any = SimpleNamespace(
        network=SimpleNamespace(values={"s": Value("bits", 1, 1, 3)}),
        sources={"s": ("signs", None)},
    )
    assert _input(item, "s", given, {}).ravel().tolist() == [-1, 1, 1]


def test_weights_that_depend_on_the_input_are_refused_by_name() -> None:
    g = Graph(3, 2, 2)
    g.node("Conv", "x", g.node("Relu", "x"))
    with pytest.raises(FileError, match="weights that depend on the input"):
        import_onnx(g.bytes())
