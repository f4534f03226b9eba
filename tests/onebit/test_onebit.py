"""One-bit products: every case on every engine equals the integer product, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import tilewright
from tests.conftest import find_device
from tests.support.onebit_cases import CASES, EMPTY, Case, NDArray, Operands, expected, operands
from tests.support.processors import HASWELL
from tilewright import Device, onebit
from tilewright.backends import places
from tilewright.backends.opencl.bits_engines import OpenCLBits
from tilewright.cli import app
from tilewright.engines.bits import BitEngine, BitProblem, BitWork
from tilewright.errors import ArgumentError, DtypeError, KernelError, OperandError, ShapeError
from tilewright.inputs.devices import host
from tilewright.onebit import rates
from tilewright.report import onebit_bench

HOST = ("numba", "numpy")
OPENCL = ("carry_save", "popcount", "bytes", "lanes")
WAYS = [("host", name) for name in HOST]
WAYS += [(driver, name) for driver in ("intel", "pocl") for name in OPENCL]

_AVX512 = f"+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512cd,+avx512vnni,{HASWELL}"
SETS = {
    "haswell": (HASWELL, "vpshufb of AVX2"),
    "cascadelake": (_AVX512, "vpshufb of AVX-512BW"),
}


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(way), scope="module")
def way(request: pytest.FixtureRequest) -> tuple[Device, str]:
    """A device and the name of one of its engines."""
    where, name = request.param
    if name == "numba":
        pytest.importorskip("numba")
    return host() if where == "host" else _device(where), name


@cache
def _device(driver: str) -> Device:
    return find_device(driver)


def packed(given: Operands) -> tuple[onebit.BitMatrix, onebit.BitMatrix]:
    return onebit.pack(given.a), onebit.pack(given.b)


def as_numbers(result: Any) -> NDArray:
    """A result as NumPy; of bits booleans, once their tail is found to be zeros."""
    if not isinstance(result, onebit.BitMatrix):
        return np.asarray(result)
    words = np.asarray(result.to("host").words)
    return onebit.unpack(onebit.BitMatrix.of_words(words, result.k), dtype=bool)


def assert_same(result: Any, wanted: NDArray) -> None:
    """Shape, type and every bit: -0 is not 0 here."""
    values = as_numbers(result)
    assert values.shape == wanted.shape
    assert values.dtype == wanted.dtype
    assert values.tobytes() == np.ascontiguousarray(wanted).tobytes()


# ---------------------------------------------------------------- products


@pytest.mark.parametrize("case", CASES + EMPTY, ids=str)
def test_every_engine_equals_the_integer_product(way: tuple[Device, str], case: Case) -> None:
    device, name = way
    asked = operands(case)
    a, b = packed(asked)
    assert_same(onebit.matmul(a, b, device=device, kernel=name, **asked.options), expected(asked))


def test_bits_on_the_device_give_results_on_the_device(way: tuple[Device, str]) -> None:
    device, name = way
    for case in (Case(33, 63, 321), Case(35, 65, 321, out="bits"), Case(3, 5, 9, out="float16")):
        asked = operands(case)
        a, b = (bits.to(device) for bits in packed(asked))
        result = onebit.matmul(a, b, kernel=name, **asked.options)
        where = result.device if case.out == "bits" else places()[device.backend].device(result)
        assert where == device
        assert_same(result, expected(asked))


def test_results_overwrite_whatever_memory_held(way: tuple[Device, str]) -> None:
    device, name = way
    engine = engine_of(device, name)
    for case in (Case(5, 33, 70), Case(5, 33, 70, out="bits"), Case(5, 33, 70, out="float32")):
        asked = operands(case)
        a, b = packed(asked)
        words = -(-case.n // 64)
        shape, dtype = ((5, words), np.uint64) if case.out == "bits" else ((5, 33), case.out)
        out = np.full(shape, 2**64 - 1 if case.out == "bits" else -77, dtype)
        problem = BitProblem(case.m, case.n, case.k, out=case.out)
        vectors: dict[str, Any] = {}
        if case.out == "bits":
            assert asked.threshold is not None
            vectors = {
                "threshold": asked.threshold.astype(np.int32),
                "flip": asked.flip.view(np.uint8),  # type: ignore[union-attr]
            }
        work = BitWork(problem, a.words, b.words, None, None, out, **vectors)
        engine.bind(engine.propose([problem], device), [work])()
        result = onebit.BitMatrix.of_words(out, case.n) if case.out == "bits" else out
        assert_same(result, expected(asked))


def engine_of(device: Device, name: str) -> BitEngine:
    engines = places()[device.backend].engines(device)
    return next(engine for engine in engines if engine.name == name)


@settings(max_examples=150)
@given(
    m=st.integers(1, 70),
    n=st.integers(1, 140),
    k=st.integers(1, 1500),
    out=st.sampled_from(["int32", "bits", "float32"]),
    form=st.sampled_from(["xor", "and"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size_on_the_host(m: int, n: int, k: int, out: str, form: str, seed: int) -> None:
    pytest.importorskip("numba")
    asked = operands(Case(m, n, k, form, out, scale=True, shift=True), seed)
    if out != "float32":
        asked = replace(asked, scale=None, shift=None)
    a, b = packed(asked)
    assert_same(onebit.matmul(a, b, kernel="numba", **asked.options), expected(asked))


@settings(max_examples=60)
@given(
    m=st.integers(1, 40),
    n=st.integers(1, 70),
    k=st.integers(1, 2200),
    name=st.sampled_from(OPENCL),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size_through_opencl(m: int, n: int, k: int, name: str, seed: int) -> None:
    asked = operands(Case(m, n, k), seed)
    a, b = packed(asked)
    result = onebit.matmul(a, b, device=_device("intel"), kernel=name)
    assert_same(result, expected(asked))


def test_31_sums_of_8_fit_a_byte_and_32_do_not() -> None:
    device = _device("intel")
    bytes_of = OpenCLBits("bytes", "bits_bytes", "uchar", (("BYTES_A_FLUSH", 32),), ())
    reason = bytes_of.propose([], device).reason
    assert reason == "typical rates of a CPU; not measured on this device yet"
    for k, right in ((8 * 31, True), (8 * 32, False)):
        a, b = packed(operands(Case(1, 1, k, fill="opposite")))
        out = np.zeros((1, 1), np.int32)
        problem = BitProblem(1, 1, k)
        work = BitWork(problem, a.words, b.words, None, None, out)
        bytes_of.bind(bytes_of.propose([problem], device), [work])()
        assert (out[0, 0] == -k) is np.True_ if right else out[0, 0] != -k
        assert onebit.matmul(a, b, device=device, kernel="bytes")[0, 0] == -k


def test_leading_dimensions_and_vectors_are_those_of_numpy() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.choice([-1.0, 1.0], (2, 3, 70)), generator.choice([-1.0, 1.0], (70, 5))
    a, b = onebit.pack(x), onebit.pack(y, axis=0)
    np.testing.assert_array_equal(onebit.matmul(a, b), x @ y)
    row = onebit.pack(x[0, 0])
    np.testing.assert_array_equal(onebit.matmul(row, b), x[0, 0] @ y)
    np.testing.assert_array_equal(onebit.matmul(a, row), x @ x[0, 0])
    assert onebit.matmul(a, b, threshold=0).shape == (2, 3, 5)


def test_out_is_written_and_returned() -> None:
    asked = operands(Case(9, 11, 100))
    a, b = packed(asked)
    out = np.full((9, 11), -77, np.int32)
    assert onebit.matmul(a, b, out=out) is out
    assert_same(out, expected(asked))


@pytest.mark.parametrize("lead", [(), (9,), (2, 2), (7, 9)])
def test_out_has_the_dimensions_of_the_result(way: tuple[Device, str], lead: Any) -> None:
    device, name = way
    a, b = packed(operands(Case(int(np.prod(lead)), 11, 100)))
    a = a.reshape(*lead, 100)
    for right, shape in ((b, (*lead, 11)), (onebit.BitMatrix(b.words[0], 100), lead)):
        out = np.full(shape, -77, np.int32)
        assert onebit.matmul(a, right, out=out, device=device, kernel=name) is out
        assert_same(out, np.asarray(onebit.matmul(a, right)))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "uint64"])
def test_thresholds_beyond_every_product_are_never_or_always_reached(dtype: str) -> None:
    a, b = packed(operands(Case(5, 3, 70)))
    floats = dtype.startswith("float")
    most = np.inf if floats else np.iinfo(dtype).max
    reached = onebit.unpack(onebit.matmul(a, b, threshold=np.array(most, dtype)))
    assert (reached == -1).all()
    if floats:
        low = onebit.unpack(onebit.matmul(a, b, threshold=np.array(-np.inf, dtype)))
        assert (low == 1).all()


def test_a_result_of_bits_multiplies_again() -> None:
    first, second = operands(Case(8, 77, 130, out="bits")), operands(Case(1, 6, 77))
    a, b = packed(first)
    hidden = onebit.matmul(a, b, threshold=first.threshold, flip=first.flip)
    wanted = (2 * expected(first).astype(int) - 1) @ (2 * second.b.astype(int) - 1).T
    np.testing.assert_array_equal(onebit.matmul(hidden, onebit.pack(second.b)), wanted)


def test_changed_weights_are_not_taken_for_the_old_ones() -> None:
    """B's layout is remembered for as long as B lives, and an address lives longer."""
    a = onebit.pack(np.ones((8, 100)))
    for _ in range(50):
        signs = np.random.default_rng(_).choice([-1.0, 1.0], (40, 100))
        assert_same(
            onebit.matmul(a, onebit.pack(signs)), np.tile(signs.sum(1), (8, 1)).astype("i4")
        )


def test_words_that_change_after_they_were_taken_change_nothing() -> None:
    words = np.zeros((3, 1), np.uint64)
    a, b = onebit.pack(np.ones((8, 64))), onebit.BitMatrix.of_words(words, 64)
    before = onebit.matmul(a, b)
    words[:] = 2**64 - 1
    assert_same(onebit.matmul(a, b), before)
    assert b.counts.tolist() == [0, 0, 0]


def test_a_kernel_whose_probe_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def stretch(engine: BitEngine, device: Device, *, measure: bool) -> None:
        if engine.name == "carry_save":
            raise KernelError("its compiler fails")

    monkeypatch.setattr(rates, "stretch", stretch)
    text = onebit.explain(BITS, BITS, device=_device("intel"))
    assert "engine     popcount" in text
    assert "carry_save: its compiler fails" in text


def test_counts_of_two_rows_of_2_to_the_30_ones_do_not_fit() -> None:
    engine = engine_of(host(), "numba")
    pytest.importorskip("numba")
    assert "2^30" in str(engine.why_not([BitProblem(1, 1, 2**30, "and")], host()))
    assert engine.why_not([BitProblem(1, 1, 2**30 - 1, "and")], host()) is None


def test_grouped_problems_of_every_size(way: tuple[Device, str]) -> None:
    device, name = way
    sizes = ((1, 1, 1), (5, 70, 130), (0, 3, 4), (33, 2, 64), (3, 9, 1000))
    given = [operands(Case(*size, scale=True)) for size in sizes]
    pairs = [packed(asked) for asked in given]
    a, b = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    results = onebit.grouped_matmul(
        a, b, scale=[asked.scale for asked in given], device=device, kernel=name
    )
    assert len(results) == len(sizes)
    for result, asked in zip(results, given, strict=True):
        wanted = replace(asked, case=replace(asked.case, out="float32"))
        assert_same(result, expected(wanted))
    assert onebit.grouped_matmul([], []) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_a_processor_without_a_native_popcount_gets_the_same_results(name: str) -> None:
    """Compiled for others' instructions, where bits are counted by table."""
    pytest.importorskip("numba")
    from tilewright.backends.host.kernels.popcounts import NATIVE

    if not NATIVE:
        pytest.skip("every test here is of such a processor: no AVX-512 VPOPCNTDQ")
    code = (
        "from tests.onebit.test_onebit import *\n"
        "from tests.nn.test_of_bits import *\n"
        "from tests.support.onebit_networks import NETWORKS\n"
        "from tilewright.backends.host.kernels import popcounts\n"
        f"assert popcounts.scheme() == {SETS[name][1]!r}\n"
        "for case in CASES:\n"
        "    asked = operands(case)\n"
        "    result = onebit.matmul(*packed(asked), kernel='numba', **asked.options)\n"
        "    assert_same(result, expected(asked))\n"
        "for make in NETWORKS: test_bound_layers_of_bits_give_the_same_bits(make)\n"
    )
    target = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": SETS[name][0]}
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **target},
        cwd=Path(__file__).parents[2],
        capture_output=True,
    )
    assert run.returncode == 0, run.stderr.decode()


# ---------------------------------------------------------------- packing


@pytest.mark.parametrize("length", [0, 1, 5, 63, 64, 65, 128, 1000])
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int32", "int64", "uint8", "float16", "float32", "float64"]
)
def test_packing_keeps_signs_and_masks_the_tail(dtype: str, length: int) -> None:
    generator = np.random.default_rng(length)
    x = generator.integers(-3, 4, (3, length)).astype(dtype)
    for zero in (1, -1):
        ones = x.astype(np.float64) >= 0 if zero == 1 else x.astype(np.float64) > 0
        if dtype == "bool":
            ones = x
        bits = onebit.pack(x, zero=zero)
        assert bits.shape == (3, length)
        assert_same(bits, ones)
        np.testing.assert_array_equal(bits.counts, ones.sum(1))
        assert bits.counts.dtype == np.int32
        signs = onebit.unpack(bits)
        np.testing.assert_array_equal(signs, np.where(ones, 1, -1))


def test_words_are_laid_out_as_documented() -> None:
    bits = onebit.pack(np.array([3.0, -1.0, -7.0, 2.0, 1.0]))
    assert bits.words.tolist() == [0b11001]
    bits = onebit.pack(np.r_[np.full(64, -1.0), 1.0])
    assert bits.words.tolist() == [0, 1]
    assert (bits.k, bits.nbytes) == (65, 16)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_the_packed_axis_comes_last_and_goes_back(axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((4, 5, 70)).astype(np.float32)
    bits = onebit.pack(x, axis=axis)
    assert_same(bits, np.moveaxis(x, axis, -1) > 0)
    np.testing.assert_array_equal(onebit.unpack(bits, axis=axis), np.sign(x))


def test_infinities_have_a_sign_and_views_may_be_strided() -> None:
    x = np.array([[np.inf, -np.inf, 1e-45, -1e-45, 65504]], np.float32)
    assert_same(onebit.pack(x), x > 0)
    x = np.random.default_rng(0).standard_normal((9, 300))[::2, ::-3]
    assert_same(onebit.pack(x), x > 0)


def test_other_libraries_arrays_are_packed_where_they_lie(opencl_device: Device) -> None:
    x = np.random.default_rng(0).standard_normal((5, 70)).astype(np.float32)
    held = tilewright.asarray(x, device=opencl_device)
    bits = onebit.pack(held)
    assert bits.device == opencl_device
    assert_same(bits, x > 0)
    np.testing.assert_array_equal(np.asarray(bits.counts), (x > 0).sum(1))
    torch = pytest.importorskip("torch")
    assert_same(onebit.pack(torch.from_numpy(x)), x > 0)


def test_pyopencl_arrays_in_and_out(opencl_device: Device) -> None:
    import pyopencl as cl
    import pyopencl.array

    from tilewright.backends.opencl.runtime import session

    opened = session(opencl_device)
    queue = cl.CommandQueue(opened.context, opened.cl_device)
    asked = operands(Case(9, 70, 130))
    a, b = (
        onebit.pack(cl.array.to_device(queue, np.where(x, 1, -1).astype(np.float32)))
        for x in (asked.a, asked.b)
    )
    result = onebit.matmul(a, b)
    assert isinstance(result, cl.array.Array)
    assert_same(result.get(), expected(asked))


def test_bits_are_equal_by_content_and_reshape_by_rows() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 70))
    bits = onebit.pack(x)
    assert bits == onebit.pack(x)
    assert bits != onebit.pack(-x)
    assert bits.reshape(6, 70) == onebit.pack(x.reshape(6, 70))
    with pytest.raises(ShapeError, match="shape="):
        bits.reshape(2, 210)


# ---------------------------------------------------------------- bad input

BITS = onebit.pack(np.ones((3, 5)))
OTHER = onebit.pack(np.ones((4, 6)))
WRONG: tuple[tuple[str, type[Exception], Any], ...] = (
    ("x: NaN at .0, 2", ArgumentError, lambda: onebit.pack(np.array([[1, 2, np.nan]]))),
    ("shape=.-1, -3, 5.", ShapeError, lambda: BITS.reshape(-1, -3, 5)),
    ("x: NaN", ArgumentError, lambda: onebit.pack(np.array([1, np.nan], "f2"), zero=1)),
    ("x: 0 at .1,.*zero=1", ArgumentError, lambda: onebit.pack(np.array([1.0, 0.0]))),
    ("x: 0 at .70,", ArgumentError, lambda: onebit.pack(np.r_[np.ones(70), -0.0])),
    ("x: 0 at", ArgumentError, lambda: onebit.pack(np.zeros(3, np.int8))),
    ("zero=2", ArgumentError, lambda: onebit.pack(np.ones(3), zero=2)),
    ("axis=2", ShapeError, lambda: onebit.pack(np.ones((3, 3)), axis=2)),
    (r"x.shape=\(\)", ShapeError, lambda: onebit.pack(np.array(1.0))),
    ("complex", DtypeError, lambda: onebit.pack(np.ones(3, complex))),
    ("x='text'", OperandError, lambda: onebit.pack("text")),
    ("axis=1", ShapeError, lambda: onebit.unpack(onebit.pack(np.ones(3)), axis=1)),
    ("dtype='uint8'", DtypeError, lambda: onebit.unpack(BITS, dtype="uint8")),
    ("bits=", OperandError, lambda: onebit.unpack(np.ones(3))),
    ("(?s)a=.*pack", OperandError, lambda: onebit.matmul(np.ones((3, 5)), BITS)),
    ("b.k=6.*a.k=5", ShapeError, lambda: onebit.matmul(BITS, OTHER)),
    ("b.shape", ShapeError, lambda: onebit.matmul(BITS, onebit.pack(np.ones((2, 3, 5))))),
    ("form='or'", ArgumentError, lambda: onebit.matmul(BITS, BITS, form="or")),
    ("scale.shape", ShapeError, lambda: onebit.matmul(BITS, BITS, scale=np.ones(2))),
    ("shift=", DtypeError, lambda: onebit.matmul(BITS, BITS, shift="1")),
    ("threshold=", DtypeError, lambda: onebit.matmul(BITS, BITS, threshold=0.5)),
    ("flip=", ArgumentError, lambda: onebit.matmul(BITS, BITS, flip=True)),
    ("flip=", DtypeError, lambda: onebit.matmul(BITS, BITS, threshold=0, flip=1)),
    ("scale=", ArgumentError, lambda: onebit.matmul(BITS, BITS, threshold=0, scale=1.0)),
    ("dtype='float64'", DtypeError, lambda: onebit.matmul(BITS, BITS, dtype="float64")),
    ("dtype='int32'", DtypeError, lambda: onebit.matmul(BITS, BITS, scale=1.0, dtype="int32")),
    ("out.shape", ShapeError, lambda: onebit.matmul(BITS, BITS, out=np.empty((3, 4), "i4"))),
    ("out.dtype", DtypeError, lambda: onebit.matmul(BITS, BITS, out=np.empty((3, 3), "i8"))),
    ("out:", OperandError, lambda: onebit.matmul(BITS, BITS, out=np.empty((3, 3), "i4").T)),
    ("b: 1 entries", ShapeError, lambda: onebit.grouped_matmul([BITS] * 2, [BITS])),
    ("problem 1: b.k", ShapeError, lambda: onebit.grouped_matmul([BITS] * 2, [BITS, OTHER])),
    ("words.shape", ShapeError, lambda: onebit.BitMatrix.of_words(np.zeros((2, 2), "u8"), 64)),
    ("past k=5", ArgumentError, lambda: onebit.BitMatrix.of_words(np.array([32], "u8"), 5)),
    ("words=", DtypeError, lambda: onebit.BitMatrix.of_words(np.zeros((2, 2), "i8"), 128)),
)


@pytest.mark.parametrize(("message", "error", "call"), WRONG, ids=[row[0] for row in WRONG])
def test_what_is_wrong_is_named(message: str, error: type[Exception], call: Any) -> None:
    with pytest.raises(error, match=message):
        call()


def test_operands_lie_on_one_device(opencl_device: Device) -> None:
    there = BITS.to(opencl_device)
    with pytest.raises(OperandError, match="another device"):
        onebit.matmul(there, BITS)
    with pytest.raises(OperandError, match="device='host'"):
        onebit.matmul(there, there, device="host")
    assert there.to("host") == BITS


# ---------------------------------------------------------------- the table


def test_the_table_has_every_way_and_says_where_it_pays(without_rest: None) -> None:
    (shape,) = onebit_bench.measure(host(), [(16, 17, 60_000)], rounds=1)  # bf16 rounds
    assert {"one-bit int32", "one-bit bits", "packed and multiplied", "fp32"} <= set(shape.seconds)
    assert all(seconds > 0 for seconds in shape.seconds.values())
    best = min(shape.seconds[name] for name in onebit_bench.PEERS if name in shape.seconds)
    assert shape.gain("one-bit int32") == best / shape.seconds["one-bit int32"]
    content = json.loads(json.dumps(shape.as_dict()))
    assert content["gops"]["fp32"] == pytest.approx(
        2 * 16 * 17 * 60_000 / shape.seconds["fp32"] / 1e9
    )
    assert onebit_bench.table([shape]).row_count == 1
    assert len(onebit_bench.verdict([shape])) == 2


def test_bench_prints_the_table_and_writes_every_figure(tmp_path: Path, without_rest: None) -> None:
    path = tmp_path / "bench.json"
    line = ["onebit", "bench", "--device", "host", "--shapes", "3x5x70", "--json", str(path)]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert "3 × 5 × 70" in result.output
    assert json.loads(path.read_text(encoding="utf-8"))["shapes"][0]["k"] == 70


@pytest.mark.parametrize("shapes", ["3x5", "3x5x0", "axbxc", "1000000x1000000x1000000"])
def test_bench_refuses_shapes_that_are_none(shapes: str) -> None:
    result = CliRunner().invoke(app, ["onebit", "bench", "--shapes", shapes])
    assert result.exit_code == 2
    assert f"--shapes={shapes!r}" in result.output
