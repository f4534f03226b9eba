"""The vendor's products: each layout told rightly, and no switch of torch followed or touched.

cuBLAS is stood in for by NumPy here, which takes its arguments as cuBLAS's manual has them.
"""

from __future__ import annotations

import ast
import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.support.triton_proof import CUDA_H200
from tilewright.arrays.addresses import Columns, row_major
from tilewright.backends.cuda.machine import driver
from tilewright.backends.cuda.vendor import cublas, engine
from tilewright.backends.cuda.work import Work
from tilewright.errors import DeviceError
from tilewright.facts.dtypes import ITEMSIZE

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
KINDS = {0: np.float32, 1: np.float64, 2: np.float16, 4: np.complex64, 5: np.complex128}
ROOT = Path(tilewright.__file__).parent


def at_place(address: int, kind: int, rows: int, cols: int, lead: int) -> Any:
    """A column-major matrix of the host's memory."""
    dtype = np.dtype(KINDS[kind])
    count = lead * (cols - 1) + rows
    raw = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    steps = (dtype.itemsize, lead * dtype.itemsize)
    return np.ndarray((rows, cols), dtype, raw, strides=steps)


class Library:
    """As much of cuBLAS as is called; notes the mode and what was summed in."""

    def __init__(self) -> None:
        self.mode = -1
        self.computed: list[tuple[int, int]] = []
        self.status = 0

    def cublasSetMathMode(self, handle: Any, mode: Any) -> int:  # noqa: N802
        assert handle.value == 77
        self.mode = mode.value
        return 0

    def cublasGemmEx_64(self, handle: Any, *given: Any) -> int:  # noqa: N802
        ta, tb, m, n, k, alpha, a, ka, lda, b, kb, ldb, beta, c, kc, ldc, compute, how = given
        lies = ((a, ka, lda, 0), (b, kb, ldb, 0), (c, kc, ldc, 0))
        return self.gemm(ta, tb, (m, n, k), alpha, beta, lies, 1, compute, how)

    def cublasGemmStridedBatchedEx_64(self, handle: Any, *given: Any) -> int:  # noqa: N802
        ta, tb, m, n, k, alpha, a, ka, lda, sa, b, kb, ldb, sb, beta, c, kc, ldc, sc, *rest = given
        count, compute, how = rest
        lies = ((a, ka, lda, sa.value), (b, kb, ldb, sb.value), (c, kc, ldc, sc.value))
        return self.gemm(ta, tb, (m, n, k), alpha, beta, lies, count.value, compute, how)

    def gemm(
        self,
        ta: Any,
        tb: Any,
        sizes: Any,
        alpha: Any,
        beta: Any,
        lies: Any,
        count: int,
        compute: Any,
        how: Any,
    ) -> int:
        assert how.value == -1
        self.computed.append((self.mode, compute.value))
        m, n, k = (size.value for size in sizes)
        turned = (ta.value, tb.value)
        shapes = [(k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n), (m, n)]
        for at in range(count):
            mats = []
            for (place, kind, lead, apart), (rows, cols) in zip(lies, shapes, strict=True):
                assert lead.value >= max(rows, 1)
                item = np.dtype(KINDS[kind.value]).itemsize
                mats.append(
                    at_place(place.value + at * apart * item, kind.value, rows, cols, lead.value)
                )
            a, b, c = mats
            a, b = a.T if turned[0] else a, b.T if turned[1] else b
            wide = np.result_type(a, np.float64)
            scale, keep = number(alpha), number(beta)
            c[...] = scale * (a.astype(wide) @ b.astype(wide)) + (keep * c if keep else 0)
        return self.status


def number(given: Any) -> complex:
    """A factor: one number, or a real and an imaginary part."""
    held = given._obj
    return complex(*held) if isinstance(held, ctypes.Array) else held.value


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library()
    monkeypatch.setattr(cublas, "_library", lambda: made)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentBlasHandle", lambda: 77, raising=False)
    return made


def operand(
    draw: np.random.Generator, count: int, rows: int, cols: int, turned: bool, kind: str
) -> tuple[Any, Columns]:
    """[count, rows, cols] with gaps between rows, or columns, and between problems."""
    run, runs = (rows, cols) if turned else (cols, rows)
    memory = np.full((count, runs + 1, run + int(draw.integers(0, 3))), np.nan, kind)
    drawn = draw.standard_normal((2, count, runs, run))
    memory[:, :runs, :run] = drawn[0] + 1j * drawn[1] if kind.startswith("complex") else drawn[0]
    seen = memory[:, :runs, :run]
    seen = seen.transpose(0, 2, 1) if turned else seen
    at = memory.ctypes.data + np.arange(count) * seen.strides[0]
    return seen, Columns(at, *(np.full(count, x) for x in (rows, cols, *seen.strides[1:])))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("turned", [*itertools.product((False, True), repeat=3)])
def test_every_layout_is_told_to_cublas_as_it_lies(
    turned: tuple[bool, bool, bool], count: int, library: Library
) -> None:
    draw = np.random.default_rng(0)
    for m, n, k in ((5, 7, 3), (1, 7, 3), (5, 1, 3), (5, 7, 1), (1, 1, 4), (4, 4, 4)):
        for kind, alpha, beta in (
            ("float64", 1.0, 0.0),
            ("float32", -2.0, 0.5),
            ("complex64", 1 - 2j, 0.5j),
            ("complex128", 1j, 0.0),
        ):
            a, of_a = operand(draw, count, m, k, turned[0], kind)
            b, of_b = operand(draw, count, k, n, turned[1], kind)
            c, of_c = operand(draw, count, m, n, turned[2], kind)
            wanted = alpha * (a.astype("D") @ b.astype("D")) + (beta * c if beta else 0)
            scale, keep = np.full(count, alpha), np.full(count, beta)
            work = Work(ordinal=0, a=of_a, b=of_b, c=of_c, alpha=scale, beta=keep, dtype=kind)
            assert engine._why_untaken(work) is None
            call = engine.gemm(work)
            call(*(int(part.address[0]) for part in (of_a, of_b, of_c)))
            np.testing.assert_allclose(c, wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "precision", "told"),
    [
        ("float32", "ieee", (0, 68)),
        ("float32", "fp32x", (0, 68)),
        ("float32", "tf32", (0, 77)),
        ("float64", "ieee", (0, 70)),
        ("float64", "tf32", (0, 70)),
        ("complex64", "ieee", (0, 68)),
        ("complex128", "ieee", (0, 70)),
        ("float16", "ieee", (16, 68)),
        ("float16", "tf32", (16, 68)),
    ],
)
def test_what_is_summed_in_is_said_with_each_call(
    dtype: str, precision: str, told: tuple[int, int], library: Library
) -> None:
    """Halves in whole float32, also across blocks (16); float32 in tf32 (77) only where asked."""
    lies = cublas.Matrix(turned=False, lead=1, apart=0)
    memory = np.ones(3, dtype)
    call = cublas.product(dtype, precision, (1, 1, 1), 1, (lies, lies, lies), 1.0, 0.0)
    call(*(memory.ctypes.data + at * memory.itemsize for at in range(3)))
    assert library.computed == [told]
    library.status = 13
    with pytest.raises(DeviceError, match="cuBLAS: status 13"):
        call(*(memory.ctypes.data + at * memory.itemsize for at in range(3)))


def test_no_switch_of_torch_is_set_anywhere() -> None:
    """Neither `torch.backends.….x = …`, nor setattr on it, nor its functions that set."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            names = [ast.unparse(one) for one in targets if isinstance(one, ast.Attribute)]
            if isinstance(node, ast.Call):
                call = ast.unparse(node.func)
                names += [call] if "set_float32_matmul_precision" in call else []
                names += [ast.unparse(one) for one in node.args[:1] if call == "setattr"]
            found += [f"{path.name}: {one}" for one in names if "backends.cuda" in one]
            found += [f"{path.name}: {one}" for one in names if "set_float32" in one]
    assert "fp32_precision" not in "".join(p.read_text("utf-8") for p in ROOT.rglob("*.py"))
    assert not found


def test_on_rocm_float32_is_left_to_others_where_a_switch_could_round_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rocm = replace(CUDA_H200, platform="ROCm")
    work = square("float32")
    monkeypatch.delenv("HIPBLASLT_ALLOW_TF32", raising=False)
    assert engine._why_not_here(work, rocm) is None
    monkeypatch.setenv("HIPBLASLT_ALLOW_TF32", "1")
    assert "HIPBLASLT_ALLOW_TF32" in str(engine._why_not_here(work, rocm))
    assert engine._why_not_here(square("float16"), rocm) is None


def square(dtype: str) -> Work:
    one, side = np.ones(1), np.array([64])
    lies = row_major(side, side, np.array([256]), ITEMSIZE[dtype])
    return Work(ordinal=0, a=lies, b=lies, c=lies, alpha=one, beta=0 * one, dtype=dtype)


# On a GPU: what torch is told by others changes nothing of ours, and ours nothing of theirs.

on_a_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing())),
]


def gpu(test: Callable[..., None]) -> Callable[..., None]:
    for mark in on_a_gpu:
        test = mark(test)
    return test


def error_of(found: Any, a: Any, b: Any) -> float:
    truth = a.double() @ b.double()
    return float((found.double() - truth).norm() / truth.norm())


@gpu
def test_switches_of_torch_change_nothing_and_are_left_as_they_were() -> None:
    switches = torch.backends.cuda.matmul
    a, b = (torch.randn(300, 4000, device="cuda"), torch.randn(4000, 200, device="cuda"))
    before = torch.backends.fp32_precision
    try:
        for wide in ("ieee", "tf32"):
            torch.backends.fp32_precision = wide
            assert error_of(tilewright.matmul(a, b, kernel="vendor"), a, b) < 1e-6
            rounded = tilewright.matmul(a, b, kernel="vendor", precision="tf32")
            assert 1e-5 < error_of(rounded, a, b) < 1e-3
            assert switches.fp32_precision == wide  # still follows the wider switch
    finally:
        torch.backends.fp32_precision = before
    half, other = a.half(), b.half()
    plain = tilewright.matmul(half, other, kernel="vendor")
    allowed = switches.allow_fp16_accumulation
    switches.allow_fp16_accumulation = True
    try:
        assert torch.equal(tilewright.matmul(half, other, kernel="vendor"), plain)
    finally:
        switches.allow_fp16_accumulation = allowed


@gpu
def test_threads_of_two_precisions_get_each_their_own() -> None:
    a = torch.randn(256, 256, device="cuda")
    wanted = {p: tilewright.matmul(a, a, precision=p, kernel="vendor") for p in ("tf32", None)}
    plain, wrong = a @ a, []

    def go(precision: str | None) -> None:
        for _ in range(300):
            found = tilewright.matmul(a, a, precision=precision, kernel="vendor")
            if not torch.equal(found, wanted[precision]) or not torch.equal(a @ a, plain):
                wrong.append(precision)

    threads = [threading.Thread(target=go, args=(p,)) for p in wanted for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@gpu
@pytest.mark.parametrize("activation", ["none", "relu"])
def test_what_ran_in_inference_mode_runs_outside_of_it(activation: str) -> None:
    a, b, out = (torch.randn(512, 512, device="cuda") for _ in range(3))
    how = {"out": out, "kernel": "vendor", "activation": activation}
    with torch.inference_mode():
        tilewright.matmul(a, b, **how)
    first = out.clone()
    out.fill_(float("nan"))
    tilewright.matmul(a, b, **how)
    assert torch.equal(out, first)


@gpu
def test_a_captured_product_runs_with_later_values() -> None:
    a, b, out = (torch.randn(512, 512, device="cuda") for _ in range(3))
    tilewright.matmul(a, b, out=out, kernel="vendor")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tilewright.matmul(a, b, out=out, kernel="vendor")
    a.copy_(torch.randn_like(a))
    graph.replay()
    torch.cuda.synchronize()
    assert error_of(out, a, b) < 1e-6
