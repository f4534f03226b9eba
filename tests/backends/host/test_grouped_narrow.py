"""Batches of bfloat16 and int8 on the host's own micro-kernels: exact sums, one rounding."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.processors import TOLD
from tilewright import grouped_matmul, plan_grouped
from tilewright.backends.host import compiled
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(not compiled.available(), reason="needs Numba")
Array = npt.NDArray[Any]
X86 = platform.machine() in ("x86_64", "AMD64")
NATIVE: dict[str, Any] = {"kernel": "native"}
EDGES = (
    *((m, n, k) for m in (1, 7, 8, 9, 17) for n in (1, 15, 16, 33) for k in (1, 3, 4, 6, 35)),
    *((0, 4, 5), (4, 0, 5), (4, 5, 0), (60, 70, 600), (200, 300, 40), (3, 33, 2051)),
)


def lying(array: Any, how: str) -> Any:
    """The same numbers in rows, in columns, or with gaps between them."""
    if how == "columns":
        return array.T.contiguous().T if hasattr(array, "numpy") else np.asfortranarray(array)
    if how == "gaps":
        wide = torch.zeros(array.shape[0], 2 * array.shape[1], dtype=array.dtype)
        wide[:, ::2] = array
        return wide[:, ::2]
    return array


def bytes_(*shape: int, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8)


def halves(*shape: int, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(torch.bfloat16)


def drawn(make: Any, how: str = "rows", sizes: Any = EDGES) -> tuple[list[Any], list[Any]]:
    a = [lying(make(m, k, seed=3 * i), how) for i, (m, _, k) in enumerate(sizes)]
    b = [lying(make(k, n, seed=3 * i + 1), how) for i, (_, n, k) in enumerate(sizes)]
    return a, b


def ints(array: Any) -> Array:
    return np.asarray(array).astype(np.int64)


def assert_sums(found: Any, a: Any, b: Any) -> None:
    for x, y, z in zip(a, b, found, strict=True):
        assert z.dtype in (torch.int32, np.int32)
        np.testing.assert_array_equal(ints(z), ints(x) @ ints(y))


def assert_near(found: Any, a: Any, b: Any) -> None:
    """As near as one rounding to bfloat16 and sums in float32 are."""
    for x, y, z in zip(a, b, found, strict=True):
        wide, other = (one.double().numpy() for one in (x, y))
        exact, size = wide @ other, np.abs(wide) @ np.abs(other)
        assert z.dtype is torch.bfloat16
        assert (np.abs(z.double().numpy() - exact) <= 2**-8 * np.abs(exact) + 1e-5 * size).all()


@pytest.mark.parametrize("how", ["rows", "columns", "gaps"])
def test_int8_is_exact_at_every_edge_however_it_lies(how: str) -> None:
    a, b = drawn(bytes_, how)
    out = [torch.full((x.shape[0], y.shape[1]), -1, dtype=torch.int32) for x, y in zip(a, b)]  # noqa: B905
    assert grouped_matmul(a, b, out=out, **NATIVE) is out
    assert_sums(out, a, b)


@pytest.mark.parametrize("how", ["rows", "columns", "gaps"])
def test_bfloat16_is_rounded_once_at_every_edge_however_it_lies(how: str) -> None:
    a, b = drawn(halves, how)
    nan = float("nan")
    out = [torch.full((x.shape[0], y.shape[1]), nan).bfloat16() for x, y in zip(a, b)]  # noqa: B905
    assert grouped_matmul(a, b, out=out, **NATIVE) is out
    assert_near(out, a, b)


def test_least_and_largest_bytes_and_sums_that_32_bits_do_not_hold() -> None:
    low = np.full((9, 140_000), -128, np.int8)
    high = np.full((140_000, 5), 127, np.int8)
    found = grouped_matmul([low, low], [high, low[:5].T], **NATIVE)
    for made, exact in zip(found, (-128 * 127 * 140_000, 128 * 128 * 140_000), strict=True):
        assert (made == (exact + 2**31) % 2**32 - 2**31).all()


@pytest.mark.parametrize(("make", "check"), [(bytes_, assert_sums), (halves, assert_near)])
def test_a_long_product_among_small_ones_is_cut(make: Any, check: Any) -> None:
    sizes = [(5, 6, 7)] * 20 + [(17, 9, 60_000)]
    a, b = drawn(make, sizes=sizes)
    dtype = "int8" if make is bytes_ else torch.bfloat16
    plan = plan_grouped(*zip(*sizes, strict=True), dtype=dtype, device="host")
    assert plan.layout is not None
    assert plan.layout.parts[-1] > 1
    check(plan.bind(a, b)(), a, b)


def test_what_ends_a_product_of_int8_is_whole_numbers() -> None:
    a, b = drawn(bytes_)
    bias = [
        torch.arange(y.shape[1], dtype=torch.int32) - 7 if i % 2 else None for i, y in enumerate(b)
    ]
    out = [torch.full((x.shape[0], y.shape[1]), 11, dtype=torch.int32) for x, y in zip(a, b)]  # noqa: B905
    options: dict[str, Any] = {"alpha": 3, "beta": -2, "bias": bias, "activation": "relu"}
    turned = [x.T.contiguous() for x in a]
    grouped_matmul(turned, b, out=out, transpose_a=True, **options, **NATIVE)
    for x, y, shift, z in zip(a, b, bias, out, strict=True):
        sums = 3 * (ints(x) @ ints(y)) - 22
        np.testing.assert_array_equal(
            ints(z), np.maximum(sums + (0 if shift is None else ints(shift)), 0)
        )


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_what_ends_a_product_of_bfloat16_happens_before_its_rounding(activation: str) -> None:
    a, b = drawn(halves)
    bias = [halves(y.shape[1], seed=i) if i % 2 else None for i, y in enumerate(b)]
    out = [
        halves(x.shape[0], y.shape[1], seed=i) for i, (x, y) in enumerate(zip(a, b, strict=True))
    ]
    before = [one.clone() for one in out]
    options = {"alpha": 0.5, "beta": 2.0, "bias": bias, "activation": activation}
    grouped_matmul(a, b, out=out, **options, **NATIVE)
    made = {"none": lambda x: x, "relu": torch.relu, "gelu": torch.nn.functional.gelu}[activation]
    for x, y, shift, old, z in zip(a, b, bias, before, out, strict=True):
        value = 0.5 * (x.double() @ y.double()) + 2 * old.double()
        value = made(value if shift is None else value + shift.double())
        torch.testing.assert_close(z.double(), value, rtol=2**-8, atol=1e-4)


def test_infinities_and_nan_come_through() -> None:
    a = torch.zeros(3, 5, dtype=torch.bfloat16)
    a[0, 4], a[1, 0], a[2, 1] = float("inf"), float("nan"), -float("inf")
    b = torch.ones(5, 40, dtype=torch.bfloat16)
    (found,) = grouped_matmul([a], [b], **NATIVE)
    assert torch.equal(found[0], torch.full((40,), float("inf"), dtype=torch.bfloat16))
    assert found[1].isnan().all()
    assert torch.equal(found[2], torch.full((40,), -float("inf"), dtype=torch.bfloat16))


def guarded(shape: tuple[int, int], kind: Any) -> Array:
    """An array that ends where memory that may be touched does."""
    page, size = mmap.PAGESIZE, shape[0] * shape[1] * np.dtype(kind).itemsize
    there = -(-size // page) * page
    memory = np.frombuffer(mmap.mmap(-1, there + page), np.uint8)
    start = memory.__array_interface__["data"][0]
    libc: Any = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(start + there), page, 0) == 0
    made: Array = memory[there - size : there].view(kind).reshape(shape)
    made[...] = np.arange(shape[0] * shape[1]).reshape(shape) % 7 - 3
    return made


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page by Linux's mprotect")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("item", [1, 2])
def test_nothing_behind_an_operand_or_a_result_is_touched(item: int, turned: bool) -> None:
    kind: Any = np.int8 if item == 1 else pytest.importorskip("ml_dtypes").bfloat16
    small = (3, 17, 5), (9, 33, 7), (1, 1, 1), (8, 16, 2), (5, 21, 75), (2, 3, 64)
    for m, n, k in (*small, (16, 16, 32), (17, 31, 33), (32, 32, 64), (48, 40, 70), (33, 64, 1100)):
        a, b = guarded((m, k), kind), guarded((n, k) if turned else (k, n), kind)
        b = b.T if turned else b
        out = guarded((m, n), np.int32 if item == 1 else kind)
        grouped_matmul([a], [b], out=[out], **NATIVE)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(out.astype(np.float64), exact, rtol=2**-8 if item == 2 else 0)


def test_ml_dtypes_arrays_give_arrays_of_their_kind() -> None:
    kind: Any = pytest.importorskip("ml_dtypes").bfloat16
    a, b = np.eye(40, dtype=np.float32).astype(kind), np.arange(80).reshape(40, 2).astype(kind)
    (found,) = grouped_matmul([a], [b])
    assert found.dtype == kind
    assert (found == b).all()


def test_plain_lists_of_int8_are_multiplied_and_those_of_bfloat16_stay_differentiable() -> None:
    a, b = drawn(bytes_)
    assert_sums(grouped_matmul(a, b), a, b)
    plain = [[one.numpy() for one in part] for part in (a, b)]
    assert_sums(grouped_matmul(*plain), *plain)
    a, b = drawn(halves, sizes=[(3, 4, 5)])
    a[0].requires_grad_()
    grouped_matmul(a, b)[0].sum().backward()
    assert a[0].grad is not None


@pytest.mark.parametrize("at", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("name", ["a", "b", "out", "bias"])
def test_subclasses_of_arrays_of_int8_are_multiplied_wherever_they_stand(
    name: str, at: int
) -> None:
    class Mine(np.ndarray):
        pass

    given: dict[str, list[Any]] = {
        "a": [bytes_(3, 5, seed=one).numpy() for one in range(2)],
        "b": [bytes_(5, 4, seed=one + 2).numpy() for one in range(2)],
        "out": [np.full((3, 4), 7, np.int32) for _ in range(2)],
        "bias": [np.full(4, one, np.int32) for one in range(2)],
    }
    each = zip(given["a"], given["b"], given["bias"], strict=True)
    wanted = [x.astype(np.int32) @ y + z for x, y, z in each]
    given[name][at] = given[name][at].view(Mine)
    for found, want in zip(grouped_matmul(**given), wanted, strict=True):
        np.testing.assert_array_equal(found, want)


def test_an_array_of_int8_with_a_mask_is_refused() -> None:
    masked = np.ma.array(np.ones((3, 3), np.int8), mask=np.eye(3))
    with pytest.raises(OperandError, match=r"a\[0\]=MaskedArray: its mask would be lost"):
        grouped_matmul([masked], [np.ones((3, 3), np.int8)])


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"alpha": 0.5}, ArgumentError, r"alpha=0.5: accepted are whole numbers of 32 bits"),
        ({"activation": "gelu"}, ArgumentError, r"activation='gelu': .*int8"),
        ({"out": [np.zeros((3, 4), np.int8)]}, DtypeError, r"out.dtype='int8': must be 'int32'"),
        (
            {"out": [np.zeros((3, 4), np.float32)]},
            DtypeError,
            r"out.dtype='float32': must be 'int32'",
        ),
        ({"bias": [np.zeros(4, np.int8)]}, DtypeError, r"bias\[0\].dtype='int8': must be int32"),
        ({"bias": [np.zeros(3, np.int32)]}, ShapeError, r"bias\[0\].shape=\(3,\): must be \(4,\)"),
    ],
)
def test_what_does_not_fit_int8_is_named(more: dict[str, Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        grouped_matmul([np.zeros((3, 5), np.int8)], [np.zeros((5, 4), np.int8)], **more)


def test_mixed_types_are_refused_with_what_there_is() -> None:
    byte, half = bytes_(3, 3, seed=0), halves(3, 3, seed=0)
    with pytest.raises(DtypeError, match=r"b.dtype='bfloat16': must equal a.dtype='int8'"):
        grouped_matmul([byte], [half])
    with pytest.raises(DtypeError, match=r"a\[1\].dtype='uint8': must equal the first's, int8"):
        grouped_matmul([byte.numpy(), byte.numpy().view(np.uint8)], [byte.numpy()] * 2)
    with pytest.raises((OperandError, DtypeError), match=r"a\[[01]\]"):
        grouped_matmul([byte, byte.to("meta")], [byte, byte])
    plan = plan_grouped([3], [3], [3], dtype="int8", device="host")
    with pytest.raises(DtypeError, match=r"a.dtype='bfloat16': the plan was made for 'int8'"):
        plan.bind([half], [half])


@pytest.mark.parametrize(
    ("told", "makes"),
    [
        # Without bfloat16's instructions; int8's there are those of `whole_dot`, tested there.
        pytest.param(TOLD, "halves", marks=pytest.mark.skipif(not X86, reason="x86's AVX2")),
        ({"NUMBA_DISABLE_JIT": "1"}, "bytes_, halves"),
    ],
)
def test_other_processors_and_no_compiler_give_right_results(
    told: dict[str, str], makes: str
) -> None:
    code = (
        "from tests.backends.host.test_grouped_narrow import *\n"
        "sizes = [one for one in EDGES if one[0] in (1, 9, 60)]\n"
        f"for make in ({makes},):\n"
        "    for how in ('rows', 'columns'):\n"
        "        a, b = drawn(make, how, sizes)\n"
        "        columns = zip(*sizes, strict=True)\n"
        "        dtype = str(a[0].dtype).removeprefix('torch.')\n"
        "        found = plan_grouped(*columns, dtype=dtype, device='host').bind(a, b)()\n"
        "        (assert_sums if make is bytes_ else assert_near)(found, a, b)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
