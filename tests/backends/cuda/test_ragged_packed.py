"""Ragged products of fp32, and of operands that no copy engine reads where they lie."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.backends.cuda.test_hopper_compile import needs_nvrtc
from tests.support import machine_code
from tilewright.backends.cuda.machine import driver

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from tests.support.triton_proof import CUDA_H200  # noqa: E402
from tilewright.backends.cuda.ragged import engine, single  # noqa: E402
from tilewright.backends.cuda.ragged.work import LEFT, RIGHT, RaggedWork  # noqa: E402
from tilewright.facts.gates import GATES  # noqa: E402

on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing())),
]
SIZES = [40, 0, 1, 129, 64, 200]
TOLERANCE = {"float32": 3e-5, "bfloat16": 0.25, "float16": 0.04, "float64": 1e-11}
FORMS = [
    {"FORM": 1, "X_ACROSS": 0, "W_ALONG": along, "X_EACH": 1, "W_EACH": each}
    for along, each in ((0, 4), (0, 1), (1, 1))
] + [
    {"FORM": 2, "X_ACROSS": across, "W_ALONG": along, "X_EACH": x_each, "W_EACH": w_each}
    for across, along, x_each, w_each in ((1, 0, 4, 4), (1, 0, 1, 1), (0, 0, 1, 4), (1, 1, 4, 1))
]


THIRDS = [{"THIRDS": 1, "SIDE": 64, "RESIDENT": 3, **form} for form in FORMS[:3]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """Instructions of every form for an architecture, compiled when it is first asked for."""

    @functools.cache
    def of(arch: str) -> list[str]:
        macros = [{"STAGES": 2, "RESIDENT": 6, "BAND": 8, **form} for form in FORMS + THIRDS]
        codes = [machine_code.compiled("ragged_single", one, arch) for one in macros]
        return machine_code.instructions(codes, arch, tmp_path_factory.mktemp(arch))

    return of


@needs_nvrtc
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_kernel_compiles_copies_while_it_multiplies_and_spills_nothing(
    arch: str, form: dict[str, int], compiled: Callable[[str], list[str]]
) -> None:
    found = compiled(arch)[FORMS.index(form)]
    assert found.count("FFMA") >= 8 * 8 * 16
    assert found.count("LDS.128") >= 4 * 16
    assert "LDGSTS" in found
    chains = 2 * 16  # instructions that put aside what a chain, or all of many, gave
    assert found.count("STL") <= chains + 4, "next to nothing else, and outside the loop over k"


@needs_nvrtc
@pytest.mark.parametrize("form", THIRDS, ids=str)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_tiles_of_thirds_multiply_on_tensor_cores_and_spill_nothing_there(
    arch: str, form: dict[str, int], compiled: Callable[[str], list[str]]
) -> None:
    found = compiled(arch)[len(FORMS) + THIRDS.index(form)]
    assert found.count("HMMA.16816.F32.BF16") == 6 * 2 * 4 * 2
    assert "LDGSTS" in found
    first, last = found.index("HMMA"), found.rindex("HMMA")
    assert "STL" not in found[first:last], "sums stay in registers"
    assert "LDL" not in found[first:last]


@pytest.mark.parametrize(
    ("precision", "version", "rows", "thirds"),
    [
        ("fp32x", "sm_90", True, True),
        ("fp32x", "sm_80", True, True),
        ("fp32x", "sm_86", True, False),
        ("fp32x", "sm_90", False, False),
        ("ieee", "sm_90", True, False),
    ],
)
def test_fp32x_of_rows_is_by_tensor_cores_where_those_are_fast(
    precision: str, version: str, rows: bool, thirds: bool
) -> None:
    x = torch.empty(4096, 64, device="meta")
    w = torch.empty(8, 64, 96, device="meta") if rows else torch.empty(64, 96, device="meta")
    work = RaggedWork(x, w, None, None, x.new_empty(4096, 96), precision)
    device = replace(CUDA_H200, version=version)
    proposal = single.SingleRows().propose(work, device)
    assert ("tensor cores" in proposal.reason) == thirds
    assert (proposal.decisions.shared(False, True) > 0) == thirds


def laid(shape: tuple[int, ...], dtype: Any, lie: str) -> Any:
    """Drawn numbers that lie so: dense, turned, or one column of many off alignment."""
    draw = torch.Generator("cuda").manual_seed(sum(shape))
    made = torch.randn(*shape, generator=draw, device="cuda", dtype=torch.float64).to(dtype)
    if lie == "turned":
        return made.mT.contiguous().mT
    if lie == "shifted":
        wide = torch.full((*shape[:-1], shape[-1] + 3), float("nan"), device="cuda", dtype=dtype)
        wide[..., 1:-2] = made
        return wide[..., 1:-2]
    if lie == "apart":
        wide = torch.full((*shape, 2), float("nan"), device="cuda", dtype=dtype)
        wide[..., 0] = made
        return wide[..., 0]
    return made


def ends() -> Any:
    return torch.tensor(SIZES, device="cuda").cumsum(0).to(torch.int32)


def bounds() -> list[tuple[int, int]]:
    return list(itertools.pairwise([0, *itertools.accumulate(SIZES)]))


LIES = ("dense", "turned", "shifted", "apart")


@pytest.mark.parametrize("sides", [(64, 96), (37, 75), (1, 9)], ids=str)
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16", "float64"])
class TestOnAGpu:
    pytestmark = on_gpu

    @pytest.mark.parametrize("chosen", [False, True])
    def test_rows_are_right_however_operands_lie(
        self, kind: str, sides: tuple[int, int], chosen: bool
    ) -> None:
        dtype, (k, n), total = getattr(torch, kind), sides, sum(SIZES)
        for x_lies, w_lies in itertools.product(LIES, LIES):
            x = laid((total, k), dtype, x_lies)
            w = laid((len(SIZES), k, n), dtype, w_lies)
            index = torch.arange(total, device="cuda").flip(0).to(torch.int32)
            out = torch.full((total, n), float("nan"), device="cuda", dtype=dtype)
            engine.rows(x, w, ends(), None, out, "ieee", False, index=index if chosen else None)
            given = (x[index] if chosen else x).double()
            right = [given[i:j] @ w[g].double() for g, (i, j) in enumerate(bounds())]
            close(out, torch.cat(right), kind, (x_lies, w_lies))

    @pytest.mark.parametrize("chosen", [0, LEFT, RIGHT])
    def test_depths_are_right_however_operands_lie(
        self, kind: str, sides: tuple[int, int], chosen: int
    ) -> None:
        dtype, (m, n), total = getattr(torch, kind), sides, sum(SIZES)
        for x_lies, y_lies in itertools.product(LIES, LIES):
            x = laid((total, m), dtype, x_lies).t()
            y = laid((total, n), dtype, y_lies)
            index = torch.arange(total, device="cuda").flip(0).to(torch.int32)
            out = torch.full((len(SIZES), m, n), float("nan"), device="cuda", dtype=dtype)
            more = {"index": index, "chosen": chosen} if chosen else {}
            engine.depths(x, y, ends(), out, "ieee", **more)
            left = (x[:, index] if chosen == LEFT else x).double()
            right = (y[index] if chosen == RIGHT else y).double()
            wanted = torch.stack([left[:, i:j] @ right[i:j] for i, j in bounds()])
            close(out, wanted, kind, (x_lies, y_lies))

    @pytest.mark.parametrize("gate", ["swiglu", "gelu"])
    def test_gated_rows_by_index_are_right_and_so_is_what_they_are_made_of(
        self, kind: str, sides: tuple[int, int], gate: str
    ) -> None:
        dtype, (k, n), total = getattr(torch, kind), sides, sum(SIZES)
        wide = GATES[gate].width(n)
        x, w = laid((total, k), dtype, "shifted"), laid((len(SIZES), k, wide), dtype, "turned")
        index = torch.randint(0, total, (total,), device="cuda", dtype=torch.int32)
        for keep in (False, True):
            h = torch.empty(total, wide, device="cuda", dtype=dtype) if keep else None
            out = torch.full((total, n), float("nan"), device="cuda", dtype=dtype)
            engine.rows(x, w, ends(), None, out, "ieee", False, index=index, h=h, gate=GATES[gate])
            given = x[index].double()
            product = torch.cat([given[i:j] @ w[g].double() for g, (i, j) in enumerate(bounds())])
            if h is not None:
                close(h, product, kind, "h")
            halves = product.to(dtype).double()
            right = (
                torch.nn.functional.silu(halves[:, :n]) * halves[:, n:]
                if gate == "swiglu"
                else torch.nn.functional.gelu(halves)
            )
            close(out, right, kind, "out")


def close(found: Any, right: Any, kind: str, which: Any) -> None:
    atol = TOLERANCE[kind] * max(1.0, float(right.abs().max()) / 8)
    torch.testing.assert_close(
        found.double(), right, rtol=0, atol=atol, msg=lambda m: f"{which}: {m}"
    )


@pytest.mark.gpu
@pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing()))
def test_what_a_launch_is_prepared_with_is_not_kept() -> None:
    x = torch.randn(sum(SIZES), 37, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(len(SIZES), 37, 75, device="cuda", dtype=torch.bfloat16)
    offsets = ends()
    engine._ways.clear()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    out = torch.empty(sum(SIZES), 75, device="cuda", dtype=torch.bfloat16)
    engine.rows(x, w, offsets, None, out, "ieee", True)
    del out
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before <= 1024, "a flag of faults, and nothing else"


@pytest.mark.parametrize(
    ("kind", "sides", "rows", "index", "who"),
    [
        ("float32", (2048, 1024), 4096, False, "single"),
        ("float32", (2047, 1023), 4096, False, "single"),
        ("float32", (2048, 1024), 4096, True, "packed"),
        ("float32", (2048, 1024), 400, False, "triton"),
        ("float64", (2048, 1024), 4096, False, "triton"),
        ("bfloat16", (2048, 1024), 4096, False, "hopper"),
        ("bfloat16", (2047, 1023), 4096, False, "packed"),
        ("bfloat16", (2047, 1024), 4096, True, "packed"),
        ("bfloat16", (2048, 1024), 4096, True, "hopper by index"),
        ("bfloat16", (2047, 1023), 400, False, "triton"),
    ],
)
@pytest.mark.gpu
@pytest.mark.skipif(driver.missing() is not None, reason=str(driver.missing()))
def test_who_multiplies_rows(
    kind: str, sides: tuple[int, int], rows: int, index: bool, who: str
) -> None:
    dtype, (k, n) = getattr(torch, kind), sides
    x, w = (torch.empty(*of, device="cuda", dtype=dtype) for of in ((rows, k), (64, k, n)))
    out, offsets = x.new_empty(rows, n), torch.zeros(64, dtype=torch.int32, device="cuda")
    chosen = torch.zeros(rows, dtype=torch.int32, device="cuda") if index else None
    work = RaggedWork(x, w, offsets, None, out, "ieee", index=chosen)
    verdict = engine.choose(work, driver.device_of(0), engine._ENGINES["rows"])
    assert verdict.best.engine == who, verdict.reasons
