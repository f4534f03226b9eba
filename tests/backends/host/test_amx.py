"""Batches of bfloat16 and int8 on AMX's tiles: run where there are any, by stand-ins elsewhere."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from typing import Any

import pytest

from tilewright.backends.host import amx, compiled
from tilewright.backends.host.narrow import KINDS

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.skipif(not compiled.available(), reason="needs Numba"),
    pytest.mark.skipif(
        platform.machine() not in ("x86_64", "AMD64") or sys.platform != "linux",
        reason="AMX is of x86's processors, and is asked for as Linux has it",
    ),
]
# Every edge of a tile and of a line, long k in several chains, bound and listed.
RUN = """
from importlib.util import find_spec
from tests.backends.host.test_grouped_narrow import *
sizes = EDGES + tuple(
    (m, n, k) for m in (15, 16, 31, 32, 33, 64) for n in (16, 31, 32, 64) for k in (31, 32, 64, 100)
) + ((64, 32, 512), (48, 64, 1024), (50, 40, 1500), (33, 32, 4160), (16, 64, 2048))
for make, check, poison in ((bytes_, assert_sums, -1), (halves, assert_near, float("nan"))):
    for how in ("rows", "columns", "gaps"):
        a, b = drawn(make, how, sizes)
        kind = torch.int32 if make is bytes_ else torch.bfloat16
        out = [torch.full((x.shape[0], y.shape[1]), poison).to(kind) for x, y in zip(a, b)]
        grouped_matmul(a, b, out=out, **NATIVE)
        check(out, a, b)
    test_a_long_product_among_small_ones_is_cut(make, check)
test_least_and_largest_bytes_and_sums_that_32_bits_do_not_hold()
test_what_ends_a_product_of_int8_is_whole_numbers()
for activation in ("none", "relu", "gelu"):
    test_what_ends_a_product_of_bfloat16_happens_before_its_rounding(activation)
test_infinities_and_nan_come_through()
for m, n, k in ((64, 64, 512), (100, 90, 1000), (33, 40, 4097)):
    x, y = halves(m, k, seed=k), halves(k, n, seed=n)
    ours = torch.full((m, n), float("nan")).bfloat16()
    grouped_matmul([x], [y], out=[ours], **NATIVE)
    exact = x.double() @ y.double()
    error, theirs = ((z.double() - exact).abs().max() for z in (ours, torch.mm(x, y)))
    assert error <= 2 * theirs + 1e-6
for turned in (False, True):
    test_nothing_behind_an_operand_or_a_result_is_touched(1, turned)
    if find_spec("ml_dtypes"):
        test_nothing_behind_an_operand_or_a_result_is_touched(2, turned)
"""


def ran(before: str, code: str, after: str = "", **told: str) -> str:
    """What a process prints that keeps no machine code."""
    done = subprocess.run(
        [sys.executable, "-c", before + code + after],
        env={**os.environ, "TILEWRIGHT_CACHE": "off", **told},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def why_none() -> str | None:
    """Why tiles cannot run here."""
    if not compiled.available():
        return "needs Numba"
    if not compiled.kernels("grouped_amx").THERE:
        return "this processor has no AMX, or Numba compiles for another"
    return None if amx.is_granted() else "Linux does not let this process use AMX"


@pytest.mark.skipif(why_none() is not None, reason=str(why_none()))
def test_tiles_give_right_results_at_every_edge() -> None:
    before = "from tests.support import amx_stand_ins as by_hand; by_hand.use_always()\n"
    ran(before, RUN)


@pytest.mark.skipif(why_none() is not None, reason=str(why_none()))
def test_tiles_are_taken_where_they_are_there() -> None:
    from tilewright import plan_grouped

    for dtype, item in (("bfloat16", 2), ("int8", 1)):
        assert KINDS[dtype].code_of_tiles() == amx.code_of_products(item) != 0
        plan = plan_grouped([64], [64], [64], dtype=dtype, device="host")
        kind: Any = getattr(torch, dtype)
        bound = plan.bind([torch.ones(64, 64).to(kind)], [torch.ones(64, 64).to(kind)])
        assert (bound()[0] == 64).all()


needs_lines = pytest.mark.skipif(
    compiled.available() and not compiled.kernels("whole_dot").WIDE,
    reason="rows are copied by AVX-512",
)


@pytest.fixture(scope="module")
def by_stand_ins() -> dict[str, list[int]]:
    """What was configured, released and multiplied by either rule, all of it right."""
    before = "from tests.support import amx_stand_ins as by_hand\nby_hand.install()\n"
    turns = ("always", 1), ("where it suits", 0)
    code = "".join(
        f"by_hand.counts[:] = 0\nby_hand.always[0] = {switch}\n{RUN}print(*by_hand.counts)\n"
        for _, switch in turns
    )
    printed = ran(before, code).splitlines()
    counted = [list(map(int, line.split())) for line in printed]
    return dict(zip((name for name, _ in turns), counted, strict=True))


@needs_lines
@pytest.mark.parametrize("rule", ["always", "where it suits"])
def test_what_lies_around_tiles_is_right_at_every_edge(
    rule: str, by_stand_ins: dict[str, list[int]]
) -> None:
    set_, dropped, multiplied = by_stand_ins[rule]
    assert set_ == dropped > 0
    assert multiplied > 0


@needs_lines
def test_tiles_multiply_less_where_vectors_are_sooner(by_stand_ins: dict[str, list[int]]) -> None:
    assert by_stand_ins["where it suits"][2] < by_stand_ins["always"][2]


def made_for(processor: str) -> str:
    """The assembly of both types' largest products, and of configuring and releasing."""
    from llvmlite import binding, ir

    tiles, narrow = map(compiled.kernels, ("grouped_amx", "grouped_narrow_tile"))
    module = ir.Module()
    for kind in (narrow.BRAIN, narrow.BYTE):
        tiles.product(module, kind, 2, 2).linkage = "external"
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), ()), "around")
    builder = ir.IRBuilder(function.append_basic_block())
    tiles.set_tiles(builder)
    tiles.drop_tiles(builder)
    builder.ret_void()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu=processor, opt=3)
    text: str = machine.emit_assembly(binding.parse_assembly(str(module)))
    return text


@pytest.mark.parametrize(("kind", "dot"), [("bfloat16", "tdpbf16ps"), ("int8", "tdpbssd")])
def test_a_line_of_k_takes_four_products_and_four_loads_of_tiles(kind: str, dot: str) -> None:
    text = made_for("sapphirerapids")
    body = text[text.index(f"tilewright_amx_{kind}_2x2:") :]
    body = body[: body.index("retq")]
    loop = next(
        block
        for label, block in re.findall(r"^(\.L\w+):(.*?)(?=^\.L)", body, re.MULTILINE | re.DOTALL)
        if dot in block and re.search(rf"^\s+j\w+\s+{re.escape(label)}\b", block, re.MULTILINE)
    )
    first = [line.split()[0] for line in loop.splitlines() if line.strip()]
    assert first.count(dot) == first.count("tileloadd") == 4, loop
    assert not {"tilestored", "tilezero", "ldtilecfg"} & set(first), loop
    assert "(%rsp)" not in loop
    assert len(first) <= 16, loop
    assert body.count("tilestored") == 4
    around = text[text.index("around:") :]
    assert around.count("ldtilecfg") == around.count("tilerelease") == 1
    assert "ldtilecfg" not in body


def test_where_linux_refuses_vectors_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "is_granted", lambda: False)
    monkeypatch.setattr(compiled.kernels("grouped_amx"), "has", lambda item: True)
    for dtype in ("bfloat16", "int8"):
        assert not KINDS[dtype].has_tiles()
        assert KINDS[dtype].code_of_tiles() == 0


def test_a_process_that_is_held_to_another_processor_has_no_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiles: Any = compiled.kernels("grouped_amx")
    every = {"amx-tile", "amx-int8", "amx-bf16"}
    monkeypatch.setattr(tiles, "WIDE", True)
    monkeypatch.setattr(tiles, "features", lambda: every)
    monkeypatch.setattr(tiles.config, "CPU_FEATURES", None)
    monkeypatch.setattr(tiles.config, "CPU_NAME", None)
    assert [tiles.has(item) for item in (1, 2, 4)] == [True, True, False]
    monkeypatch.setattr(tiles.config, "CPU_NAME", "haswell")
    assert not tiles.has(1)
    monkeypatch.setattr(tiles.config, "CPU_FEATURES", "+avx2")
    monkeypatch.setattr(tiles, "features", lambda: {"avx2"})
    assert not tiles.has(2)


def test_a_type_that_has_no_tiles_stays_with_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles: Any = compiled.kernels("grouped_amx")
    monkeypatch.setattr(tiles, "WIDE", True)
    monkeypatch.setattr(tiles, "features", lambda: {"amx-tile", "amx-int8"})
    monkeypatch.setattr(tiles, "_is_held", lambda: False)
    assert tiles.has(1)
    assert not tiles.has(2)


@pytest.mark.parametrize("item", [1, 2])
def test_small_products_and_single_rows_stay_with_vectors(item: int) -> None:
    sooner = compiled.kernels("grouped_amx").is_sooner.py_func
    assert not sooner(item, 1, 512, 512)
    assert not sooner(item, 8, 8, 8)
    assert not sooner(item, 64, 64, 0)
    assert sooner(item, 64, 64, 64)
    assert sooner(item, 256, 32, 1000)


def test_rows_of_tiles_planned_for_vectors_are_cut_as_vectors_take_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan may come from a process that has no AMX, and go to one."""
    from tilewright import plan_grouped
    from tilewright.backends.host import grouped as native

    kind, rows = KINDS["int8"], compiled.kernels("grouped_amx").ROWS
    block = compiled.kernels("grouped").BLOCK
    vectors = plan_grouped([100], [100], [100], dtype="int8", device="host").layout
    monkeypatch.setattr(amx, "is_there", lambda item: True)
    tiled = plan_grouped([101], [100], [100], dtype="int8", device="host").layout
    assert vectors is not None
    assert tiled is not None
    if why_none() is not None:  # else the first plan was made for tiles
        assert native._block(vectors, kind) == block
    assert native._block(tiled, kind) == rows
    assert all(m % rows == m % block == 0 for m, *_ in native._TILED_SHAPES)
