"""Checks of arguments, function by function: what each accepts, refuses and makes of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.arrays.views import on_gpu, view_host
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError, TilewrightError
from tilewright.facts.limits import MOST
from tilewright.inputs import batch as batches
from tilewright.inputs import checks, matrices, place_host, product
from tilewright.inputs.batch_place_host import BatchOnHost

RAMP = np.arange(24, dtype=np.float32)


def verdict(call: Any, *given: Any, **more: Any) -> Any:
    """What it gives, or the kind of its error."""
    try:
        return call(*given, **more)
    except TilewrightError as error:
        return type(error)


@pytest.mark.parametrize(
    ("call", "given", "found"),
    [
        (checks.checked_number, (2, "n"), 2.0),
        (checks.checked_number, (np.float32(0.5), "n"), 0.5),
        (checks.checked_number, (True, "n"), ArgumentError),
        (checks.checked_number, (10**309, "n"), ArgumentError),
        (checks.checked_flag, (np.True_, "n"), True),
        (checks.checked_flag, (1, "n"), ArgumentError),
        (checks.checked_name, ("n", "a", ("a", "b")), "a"),
        (checks.checked_name, ("n", "c", ("a", "b")), ArgumentError),
        (checks.checked_activation, (None,), "none"),
        (checks.checked_activation, ("relu",), "relu"),
        (checks.check_options, ({"a": 1}, ("a", "b")), None),
        (checks.check_options, ({"a": 1, "c": 1}, ("a", "b")), ArgumentError),
        (checks.checked_shape, (3,), (3,)),
        (checks.checked_shape, ((np.int64(2), 0),), (2, 0)),
        (checks.checked_shape, ((2, -1),), ShapeError),
        (checks.checked_shape, ((2.0,),), ShapeError),
        (checks.checked_dtype, ("float64",), np.dtype("float64")),
        (checks.checked_dtype, (np.float16,), np.dtype("float16")),
        (checks.checked_dtype, (">f4",), DtypeError),
        (checks.checked_dtype, ("int32",), DtypeError),
        (checks.checked_dtype, (object(),), DtypeError),
        (checks.checked_precision, (None, "float32", ()), "ieee"),
        (checks.checked_precision, ("tf32", "float32", ("ieee", "tf32")), "tf32"),
        (checks.checked_precision, ("tf32", "float32", ()), ArgumentError),
        (checks.checked_precision, ("tf32", "float16", ("ieee", "tf32")), ArgumentError),
        (checks.checked_precision, ("fp32x", "float32", ("ieee", "tf32")), ArgumentError),
        (checks.checked_sums, (None, "float16"), "float32"),
        (checks.checked_sums, (None, "bfloat16"), "float32"),
        (checks.checked_sums, (None, "float64"), "float64"),
        (checks.checked_sums, ("fp16", "float16"), "float16"),
        (checks.checked_sums, ("fp16", "float32"), ArgumentError),
        (checks.checked_sums, ("fp32", "float16"), ArgumentError),
        (checks.check_shape, ("c", [2, 3], (2, 3)), None),
        (checks.check_shape, ("c", (3, 2), (2, 3)), ShapeError),
        (checks.check_pair, ((2, 3), (3, 4)), None),
        (checks.check_pair, ((2, 3), (4, 3)), ShapeError),
        (checks.check_pair, ((5, 1, 2, 3), (7, 3, 4)), None),
        (checks.check_pair, ((5, 2, 3), (1, 3, 4)), None),
        (checks.check_pair, ((5, 2, 3), (4, 3, 4)), ShapeError),
        (checks.check_pair, ((5, 4, 2, 3), (4, 3, 4)), None),
        (checks.check_pair, ((4, 5, 2, 3), (4, 3, 4)), ShapeError),
    ],
)
def test_a_check_gives_what_it_accepts_and_names_what_it_does_not(
    call: Any, given: tuple[Any, ...], found: Any
) -> None:
    assert verdict(call, *given) == found


def test_beta_needs_what_it_scales() -> None:
    scalars = checks.checked_scalars(2, 0, None, "float32")
    assert (scalars.alpha, scalars.beta) == (2.0, 0.0)
    assert checks.checked_scalars(1, 0.5, RAMP, "float32").beta == 0.5
    assert verdict(checks.checked_scalars, 1, 0.5, None, "float32") is ArgumentError


def test_the_largest_size_is_accepted_and_no_larger_one() -> None:
    a, b = view_host(RAMP.reshape(4, 6)), view_host(RAMP.reshape(6, 4))
    assert checks.result_shape(a, b, 6) == (4, 4)
    assert verdict(checks.result_shape, a, b, 5) is ShapeError
    assert checks.result_shape(a, b, None) == (4, 4)
    many = view_host(np.zeros((3, 1, 4, 6), np.float32))
    assert checks.result_shape(many, view_host(np.zeros((5, 6, 2), np.float32)), 6) == (3, 5, 4, 2)


@pytest.mark.parametrize("row", [True, False])
def test_a_vector_is_a_row_of_a_and_a_column_of_b(row: bool) -> None:
    seen = checks.matrix_view(view_host(RAMP[::3]), False, row=row)
    assert seen.shape == ((1, 8) if row else (8, 1))
    assert seen.strides == ((24, 3) if row else (3, 1))
    assert seen.memory.shape == seen.shape
    whole = view_host(RAMP.reshape(4, 6))
    assert checks.matrix_view(whole, True, row=row).shape == (6, 4)
    assert checks.matrix_view(whole, False, row=row) is whole
    nothing = replace(view_host(RAMP), shape=(), strides=())
    assert verdict(checks.matrix_view, nothing, False, row=row) is ShapeError
    assert verdict(checks.matrix_view, whole, 1, row=row) is ArgumentError


@pytest.mark.parametrize(
    ("vectors", "given", "shape"),
    [
        ((False, False), (2, 3), (2, 3)),
        ((True, False), (3,), (1, 3)),
        ((False, True), (2,), (2, 1)),
        ((True, True), (), (1, 1)),
        ((True, False), (4, 3), (4, 1, 3)),
        ((False, True), (4, 2), (4, 2, 1)),
    ],
)
def test_out_gets_back_the_dimensions_that_vectors_dropped(
    vectors: tuple[bool, bool], given: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    out = np.arange(np.prod(given, dtype=int), dtype=np.float32).reshape(given)
    found = checks.output_matrix(view_host(out), shape, vectors)
    assert found.shape == shape
    np.testing.assert_array_equal(found.memory, out.reshape(shape))


def test_repeated_matrices_have_no_stride_and_others_keep_theirs() -> None:
    one = view_host(RAMP.reshape(4, 1, 3, 2))
    found = checks.broadcast_view(one, (7, 4, 5, 3, 9))
    assert (found.shape, found.strides) == ((7, 4, 5, 3, 2), (0, 6, 0, 2, 1))
    np.testing.assert_array_equal(found.memory[3, 2, 1], RAMP.reshape(4, 3, 2)[2])
    assert checks.broadcast_view(one, (4, 1, 3, 9)) is one


def test_a_bias_is_copied_where_it_has_gaps_and_a_device_refuses_it() -> None:
    gaps = view_host(RAMP[::2])
    assert checks.contiguous(gaps, "bias").strides == (1,)
    on_device = replace(gaps, host=False)
    assert verdict(checks.contiguous, on_device, "bias") is OperandError
    dense = replace(view_host(RAMP), host=False)
    assert checks.contiguous(dense, "bias") is dense
    single = replace(on_device, shape=(1,))
    assert checks.contiguous(single, "bias") is single


# Batches.


def batch(*shapes: tuple[int, int], dtype: Any = np.float32) -> matrices.Matrices:
    return matrices.matrices([np.zeros(shape, dtype) for shape in shapes], "a")


def test_a_number_is_everybodys_or_one_each() -> None:
    per_problem = partial(matrices.per_problem, dtype=np.dtype("f"))
    assert per_problem(2, 3, "alpha").tolist() == [2, 2, 2]
    assert per_problem([1, 2.5], 2, "alpha").tolist() == [1, 2.5]
    assert matrices.flags(True, 2, "t").tolist() == [True, True]
    assert matrices.flags([True, False], 2, "t").tolist() == [True, False]
    for call, wrong in (
        (per_problem, [1, 2, 3]),
        (per_problem, [[1, 2]]),
        (per_problem, "2"),
        (per_problem, [True, False]),
        (matrices.flags, [True]),
        (matrices.flags, 1),
        (matrices.flags, [1, 0]),
    ):
        assert verdict(call, wrong, 2, "x") is ArgumentError, wrong


def test_pairs_fit_by_problem_and_the_first_that_does_not_is_named() -> None:
    a = batch((2, 3), (4, 5))
    matrices.check_pairs(a, batch((3, 7), (5, 1)))
    with pytest.raises(ShapeError, match=r"b\[1\]: has 4 rows; must have 5"):
        matrices.check_pairs(a, batch((3, 7), (4, 1)))
    assert verdict(matrices.check_pairs, a, batch((3, 7), (5, 1), dtype=np.float64)) is DtypeError
    at = a.at
    for size, fine in ((MOST, True), (MOST + 1, False)):
        rows = np.array([2, size])
        long = replace(a, at=type(at)(at.address, rows, at.cols, at.row, at.col))
        assert (verdict(matrices.check_pairs, long, batch((3, 7), (5, 1))) is None) is fine


def test_results_have_the_sizes_of_their_products_and_can_be_written() -> None:
    a, b = batch((2, 3), (4, 5)), batch((3, 7), (5, 1))
    right = batch((2, 7), (4, 1))
    matrices.check_results(right, a, b)
    with pytest.raises(ShapeError, match=r"out\[1\].shape=\(4, 2\): must be \(4, 1\)"):
        matrices.check_results(batch((2, 7), (4, 2)), a, b)
    assert verdict(matrices.check_results, batch((2, 7)), a, b) is ShapeError
    assert verdict(matrices.check_results, batch((2, 7), (4, 1), dtype=np.float64), a, b) is (
        DtypeError
    )
    right.held[1].flags.writeable = False
    with pytest.raises(OperandError, match=r"out\[1\]: is read-only"):
        matrices.check_results(right, a, b)
    summed = batch((4, 1))
    matrices.check_results(summed, a, b, np.array([1]))
    assert verdict(matrices.check_results, summed, a, b, np.array([0])) is ShapeError


def test_transposes_turn_the_marked_matrices_alone() -> None:
    a = batch((2, 3), (4, 5))
    assert matrices.transposed(a, np.array([False, False])) is a
    turned = matrices.transposed(a, np.array([False, True])).at
    assert (turned.rows.tolist(), turned.cols.tolist()) == ([2, 5], [3, 4])
    assert turned.row.tolist() == [a.at.row[0], a.at.col[1]]


def test_factors_are_checked_together() -> None:
    a, b = batch((2, 3), (4, 5)), batch((3, 7), (5, 1))
    plain = {"alpha": 1, "beta": 0, "transpose_a": False, "transpose_b": False, "out": None}

    def made(**more: Any) -> Any:
        return verdict(matrices.factors, a, b, **{**plain, **more})

    assert made()[2].tolist() == [1, 1]
    assert made(beta=[0, 2]) is ArgumentError
    assert made(beta=[0, 2], out=[1])[3].tolist() == [0, 2]
    assert made(beta=[3], out=[1], results=1)[3].tolist() == [3]
    assert made(alpha=[1]) is ArgumentError
    assert verdict(matrices.factors, a, batch((3, 7)), **plain) is ShapeError
    assert matrices.bias_vectors([None, None], 2) == [None, None]
    assert verdict(matrices.bias_vectors, [None], 2) is ShapeError
    assert verdict(matrices.bias_vectors, 3, 2) is ArgumentError


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ((1, 2, 3), (5, 3, 4), (5, 2, 4)),
        ((5, 2, 3), (1, 3, 4), (5, 2, 4)),
        ((7, 1, 2, 3), (5, 3, 4), (7, 5, 2, 4)),
        ((2, 3), (5, 3, 4), (5, 2, 4)),
        ((5, 2, 3), (3, 4), (5, 2, 4)),
        ((2, 3), (3, 4), (2, 4)),
    ],
)
def test_leading_dimensions_of_a_result_are_those_that_both_broadcast_to(
    a: tuple[int, ...], b: tuple[int, ...], found: tuple[int, ...]
) -> None:
    left, right = (view_host(np.empty(shape, np.float32)) for shape in (a, b))
    assert checks.result_shape(left, right, None) == found


def test_a_host_array_is_seen_from_its_own_first_element() -> None:
    seen = view_host(RAMP[5::3])
    assert (seen.offset, seen.strides, seen.memory[0]) == (0, (3,), RAMP[5])


@pytest.mark.parametrize(("kind", "number", "found"), [(1, 2, False), (2, 0, True), (2, 1, True)])
def test_where_an_array_lies_is_its_kind_of_device_and_not_the_number(
    kind: int, number: int, found: bool
) -> None:
    assert on_gpu(SimpleNamespace(__dlpack_device__=lambda: (kind, number))) == found


def test_a_call_that_names_no_option_is_of_plain_operands() -> None:
    """Whoever leaves an option out gets what the public function has by default."""
    a, b = RAMP.reshape(4, 6), RAMP.reshape(6, 4)
    one = product.checked(place_host.place_and_views, a, b[:, :3])
    assert (one.scalars.alpha, one.scalars.beta) == (1.0, 0.0)
    assert (one.shape, one.activation, one.precision, one.kernel) == ((4, 3), "none", "ieee", None)
    assert one.views["a"].strides == (6, 1)
    place = BatchOnHost()
    many = batches.checked(place, [a, a[:2]], [b, b[:, :3]], None)
    assert (many.alpha.tolist(), many.beta.tolist()) == ([1, 1], [0, 0])
    assert (many.c.at.rows.tolist(), many.c.at.cols.tolist()) == ([4, 2], [4, 3])
    assert (many.activation, many.bias, many.sums) == ("none", None, None)
