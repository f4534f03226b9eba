"""ragged_dot and its gradients are those of float64, and of jax.lax.ragged_dot, wherever JAX runs.

On a processor here; where JAX reaches a GPU the same tests run there.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch wants memory, too
pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.support import later
from tilewright.errors import ArgumentError, DeviceError, DtypeError, OperandError, ShapeError

jax = later.library("jax", reason="JAX is not installed: pip install jax")
jnp = later.Later("jax.numpy")

SIZES = {
    "usual": (40, 16, 24, [10, 0, 15, 9]),
    "all rows": (33, 8, 16, [33]),
    "none": (7, 5, 3, [0, 0]),
    "odd": (131, 37, 29, [1, 64, 0, 65, 1]),
    "too many": (20, 8, 8, [15, 15, 3]),
    "below zero": (20, 8, 8, [5, -3, 6]),
    "no rows": (0, 8, 8, [0, 0]),
    "no depth": (9, 0, 8, [4, 5]),
    "long": (3000, 64, 128, [1000, 1, 999, 800]),
}
ERRORS = {"bfloat16": 2**-7, "float16": 2**-9, "float32": 2e-6}


def ragged_dot(*given: Any, **options: Any) -> Any:
    """Ours, which loads JAX."""
    from tilewright.jax import ragged_dot as ours

    return ours(*given, **options)


def drawn(name: str, dtype: str) -> tuple[Any, Any, Any]:
    rows, k, n, sizes = SIZES[name]
    draw = np.random.default_rng(0)
    x, w = draw.standard_normal((rows, k)), draw.standard_normal((len(sizes), k, n))
    return jnp.array(x, dtype), jnp.array(w, dtype), jnp.array(sizes, jnp.int32)


def exact(x: Any, w: Any, sizes: Any, pull: Any) -> list[np.ndarray]:
    """The product and both gradients in float64."""
    x, w, pull = (np.asarray(one, np.float64) for one in (x, w, pull))
    out, of_x, of_w = np.zeros((len(x), w.shape[2])), np.zeros(x.shape), np.zeros(w.shape)
    begin = 0
    for i, size in enumerate(np.asarray(sizes)):
        rows = slice(begin, min(begin + max(int(size), 0), len(x)))
        out[rows], of_x[rows] = x[rows] @ w[i], pull[rows] @ w[i].T
        of_w[i] = x[rows].T @ pull[rows]
        begin = rows.stop
    return [out, of_x, of_w]


def assert_close(found: Any, wanted: np.ndarray, dtype: str) -> None:
    assert found.dtype == dtype
    assert found.shape == wanted.shape
    scale = np.sqrt(np.mean(wanted**2)) if wanted.size else 0.0
    apart = np.abs(np.asarray(found, np.float64) - wanted)
    assert (apart <= ERRORS[dtype] * (4 * scale + np.abs(wanted))).all()


HALVES = [(name, dtype) for name in ("usual", "odd") for dtype in ("bfloat16", "float16")]


@pytest.mark.parametrize(("name", "dtype"), [*((name, "float32") for name in SIZES), *HALVES])
def test_products_and_gradients_are_those_of_float64(name: str, dtype: str) -> None:
    x, w, sizes = drawn(name, dtype)
    pull = jnp.array(np.random.default_rng(1).standard_normal((len(x), w.shape[2])), dtype)

    @jax.jit
    def everything(x: Any, w: Any, sizes: Any, pull: Any) -> Any:
        out, back = jax.vjp(lambda x, w: ragged_dot(x, w, sizes), x, w)
        return out, *back(pull)

    for found, wanted in zip(everything(x, w, sizes, pull), exact(x, w, sizes, pull), strict=True):
        assert_close(found, wanted, dtype)
    assert_close(ragged_dot(x, w, sizes), exact(x, w, sizes, pull)[0], dtype)


MOST = 2**31 - 1


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        ([MOST, MOST, MOST], "int32"),
        ([3, MOST, 5], "int32"),
        ([3, MOST + 1, 5], "uint32"),
        ([100, 127, 100], "int8"),
        ([200, 250, -0], "uint8"),
        ([-128, 127, -1], "int8"),
        ([-MOST - 1, 2, MOST], "int32"),
    ],
)
@pytest.mark.parametrize("rows", [300, 2**30])
def test_sizes_of_any_dtype_are_cut_off_at_the_rows(
    sizes: list[int], dtype: str, rows: int
) -> None:
    """Though their sum is none of their dtype, or of int32."""
    from tilewright.jax import ragged

    wanted = np.minimum(np.cumsum(np.maximum(np.array(sizes, np.int64), 0)), rows)
    given = jnp.asarray(np.array(sizes, dtype))
    np.testing.assert_array_equal(jax.jit(ragged._ends, static_argnums=1)(given, rows), wanted)
    many = jnp.concatenate([jnp.zeros(5, given.dtype), given])
    np.testing.assert_array_equal(ragged._ends(many, rows)[5:], wanted)
    if rows == 300:
        x, w = jnp.ones((rows, 1)), jnp.arange(1.0, 4.0).reshape(3, 1, 1)
        parts = np.diff(wanted, prepend=0)
        right = np.repeat([1.0, 2.0, 3.0, 0.0], [*parts, rows - parts.sum()])
        np.testing.assert_array_equal(ragged_dot(x, w, given)[:, 0], right)


def test_it_is_the_product_of_jax_in_its_place_in_a_program() -> None:
    x, w, sizes = drawn("usual", "float32")

    def loss(dot: Any, x: Any, w: Any) -> Any:
        hidden = jax.nn.silu(dot(x, w, sizes))
        return (dot(hidden, jnp.swapaxes(w, 1, 2), sizes) ** 2).sum()

    ways = [
        jax.jit(jax.grad(partial(loss, dot), (0, 1))) for dot in (ragged_dot, jax.lax.ragged_dot)
    ]
    for ours, theirs in zip(*(way(x, w) for way in ways), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-2, atol=2e-2 * float(abs(theirs).max()))


def test_gradients_of_gradients_are_those_of_a_product_a_row() -> None:
    x, w, sizes = drawn("usual", "float32")

    def second(dot: Any) -> Any:
        def first(x: Any, w: Any) -> Any:
            return sum(
                (one**2).sum()
                for one in jax.grad(lambda *a: (dot(*a, sizes) ** 3).sum(), (0, 1))(x, w)
            )

        return jax.jit(jax.grad(first, (0, 1)))(x, w)

    def by_row(x: Any, w: Any, sizes: Any) -> Any:
        group = jnp.repeat(jnp.arange(len(sizes)), sizes, total_repeat_length=34)
        return jnp.einsum("tk,tkn->tn", x[:34], w[group])

    with jax.default_matmul_precision("highest"):
        for ours, theirs in zip(second(ragged_dot), second(by_row), strict=True):
            scale = float(abs(theirs).max())
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale)


def test_calls_in_a_row_read_what_the_one_before_wrote() -> None:
    x, _, sizes = drawn("usual", "float32")
    square = jnp.array(np.random.default_rng(2).standard_normal((4, 16, 16)) / 4, jnp.float32)

    @jax.jit
    def many(x: Any) -> Any:
        return jax.lax.fori_loop(0, 30, lambda _, y: ragged_dot(y, square, sizes), x)

    wanted = np.asarray(x, np.float64)
    for _ in range(30):
        wanted = exact(wanted, square, sizes, np.zeros((40, 16)))[0]
    assert_close(many(x) / float(np.abs(wanted).max()), wanted / np.abs(wanted).max(), "float32")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_program_that_runs_again_reads_what_lies_there_then(dtype: str) -> None:
    """On a GPU launches are kept by places, which XLA gives again to other numbers and sizes."""

    @jax.jit
    def step(x: Any, w: Any, sizes: Any) -> Any:
        out, back = jax.vjp(lambda x, w: ragged_dot(x, w, sizes), x, w)
        return out, *back(out)

    draw = np.random.default_rng(3)
    for _ in range(4):
        x, w = draw.standard_normal((48, 32)), draw.standard_normal((3, 32, 16))
        sizes = draw.multinomial(40, [0.2, 0.5, 0.3])
        given = jnp.array(x, dtype), jnp.array(w, dtype), jnp.array(sizes, jnp.int32)
        out, *others = step(*given)
        wanted = exact(*given, np.asarray(out, np.float64))
        for found, right in zip((out, *others), wanted, strict=True):
            assert_close(found, right, dtype)


def ones() -> tuple[Any, Any, Any]:
    return jnp.ones((4, 3)), jnp.ones((2, 3, 5)), jnp.array([2, 2])


REFUSED = [
    (lambda x, w, sizes: ragged_dot(None, w, sizes), OperandError, r"lhs=None: accepted"),
    (lambda x, w, sizes: ragged_dot(x, w, ["2", "2"]), OperandError, r"group_sizes=.*accepted"),
    (lambda x, w, sizes: ragged_dot(x[0], w, sizes), ShapeError, r"lhs.shape=\(3,\)"),
    (lambda x, w, sizes: ragged_dot(x, w[:, :2], sizes), ShapeError, r"rhs.shape=\(2, 2, 5\)"),
    (lambda x, w, sizes: ragged_dot(x, w, sizes[:1]), ShapeError, r"group_sizes.shape=\(1,\)"),
    (
        lambda x, w, sizes: ragged_dot(x.astype(int), w.astype(int), sizes),
        DtypeError,
        "lhs.dtype='int32'",
    ),
    (
        lambda x, w, sizes: ragged_dot(x, w.astype("bfloat16"), sizes),
        DtypeError,
        "rhs.dtype='bfloat16'",
    ),
    (lambda x, w, sizes: ragged_dot(x, w, sizes * 1.0), DtypeError, "group_sizes.dtype='float32'"),
    (
        lambda x, w, sizes: ragged_dot(x, w, sizes, None, "bfloat16"),
        DtypeError,
        "preferred_element_type",
    ),
    (
        lambda x, w, sizes: ragged_dot(x, w, sizes, group_offset=sizes),
        ArgumentError,
        "group_offset",
    ),
    (
        lambda x, w, sizes: ragged_dot(x, w, sizes, "bfloat16"),
        ArgumentError,
        "precision='bfloat16'",
    ),
    (
        lambda x, w, sizes: jax.vmap(lambda x: ragged_dot(x, w, sizes))(x[None]),
        ArgumentError,
        "vmap",
    ),
    (
        lambda x, w, sizes: jax.jvp(lambda x: ragged_dot(x, w, sizes), (x,), (x,)),
        TypeError,
        "forward-mode",
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_what_is_refused_is_named(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(*ones())


def test_another_back_end_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax.default_backend", lambda: "tpu")
    with pytest.raises(DeviceError, match=r"default_backend.*'tpu'"):
        ragged_dot(*ones())


def test_what_fails_while_a_program_runs_is_raised_with_its_words() -> None:
    from tilewright.jax import ffi

    def fail(inputs: Any, results: Any, stream: Any) -> None:
        raise DtypeError("x.dtype: made up")

    for platform in ("cpu", "CUDA"):
        ffi.register("tilewright_made_up_failure", fail, platform)
    out = jax.ShapeDtypeStruct((2,), jnp.float32)
    with pytest.raises(Exception, match=r"DtypeError: x\.dtype: made up"):
        jax.ffi.ffi_call("tilewright_made_up_failure", out)(ones()[0][0]).block_until_ready()


def test_full_precision_is_given_where_jax_is_asked_for_some() -> None:
    x, w, sizes = drawn("odd", "float32")
    wanted = exact(x, w, sizes, np.zeros((len(x), w.shape[2])))[0]
    for precision in (jax.lax.Precision.DEFAULT, "highest"):
        assert_close(ragged_dot(x, w, sizes, precision), wanted, "float32")
    rounded = np.asarray(ragged_dot(x, w, sizes, "tensorfloat32"))
    assert np.abs(rounded - wanted).max() < 2**-8 * np.abs(wanted).max()
