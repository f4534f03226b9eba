"""int8 convolutions on the host: any window, every ending, the definition's bytes one for one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.whole_chains import (
    FIRST,
    LAST,
    any_chain,
    chain,
    is_guarded,
    layer,
    operands,
    right,
)
from tilewright.backends import conv_engines
from tilewright.backends.host import conv_whole_pack as pack
from tilewright.backends.host.conv_whole import Int8Chain
from tilewright.backends.host.conv_whole_plan import plan_whole, sums_of
from tilewright.backends.host.native import host
from tilewright.engines.choose import choose
from tilewright.engines.conv import ConvWork

pytest.importorskip("numba")
INT8 = Int8Chain()


def work(
    inputs: int, outputs: int, size: tuple[int, int, int], source: Any = LAST, result: Any = LAST,
    **facts: Any,
) -> ConvWork:  # fmt: skip
    """A single layer."""
    single = layer(np.random.default_rng(5), inputs, outputs, **facts)
    assert single.whole is not None
    return ConvWork((single,), *size, single.whole.source, source=source, result=result)


def check(one: ConvWork) -> Any:
    """The definition's numbers, twice; nothing beside the result is written. What was bound."""
    assert INT8.why_not(one, host()) is None
    given = operands(one)
    bound = INT8.bind(INT8.propose(one, host()), given)
    wanted = right(one, given.x, *given.residuals)
    for _ in range(2):
        given.out[...] = 99
        bound()
        np.testing.assert_array_equal(given.out, wanted)
        assert is_guarded(given.out)
    return bound


POINT: dict[str, Any] = {"kernel": (1, 1), "pads": (0, 0, 0, 0)}
FLOAT: dict[str, Any] = {"step": None, "low": -2.0, "high": 5.0}
SIGNED: dict[str, Any] = {
    "source": "int8", "zero": -5, "dtype": "int8", "shift": -20, "low": -30.0, "high": 22.0,
}  # fmt: skip
WINDOWS = {
    "3x3": work(16, 40, (1, 15, 13)),
    "a zero that is not 0, and limits": work(
        16, 16, (1, 9, 9), whole={"zero": 131, "shift": 9, "low": 3.0, "high": 60.0}
    ),
    "signed bytes": work(16, 40, (1, 15, 13), whole=SIGNED),
    "signed bytes of three channels first": work(3, 8, (2, 9, 8), FIRST, whole=SIGNED),
    "limits that cross": work(8, 8, (1, 8, 8), whole={"low": 30.0, "high": 20.0}),
    "results beyond a byte": work(16, 32, (1, 8, 9), whole={"step": 0.01, "low": -np.inf}),
    "stride 2, pads that differ": work(24, 20, (2, 9, 11), strides=(2, 2), pads=(0, 1, 2, 1)),
    "1x1 read as it lies": work(32, 64, (2, 14, 14), **POINT),
    "1x1 at stride 2": work(32, 24, (1, 15, 14), strides=(2, 2), **POINT),
    "narrower than a group": work(32, 60, (1, 9, 3)),
    "one pixel": work(8, 8, (1, 1, 1)),
    "odd channels": work(5, 7, (1, 9, 10)),
    "dilation": work(12, 33, (1, 19, 13), dilations=(2, 2)),
    "dilation across alone": work(12, 33, (1, 9, 23), dilations=(1, 3)),
    "groups": work(32, 64, (1, 12, 12), groups=4),
    "groups of odd sizes": work(15, 21, (1, 8, 8), groups=3),
    "channels by themselves": work(24, 24, (1, 12, 12), groups=24),
    "70 channels by themselves at a step of 2": work(
        70, 70, (2, 13, 19), groups=70, strides=(2, 2), whole={"zero": 9, "shift": 5}
    ),
    "130 signed channels by themselves": work(130, 130, (1, 8, 7), groups=130, whole=SIGNED),
    "5x3, dilated down": work(
        64, 64, (1, 12, 9), groups=64, kernel=(5, 3), dilations=(2, 1), pads=(4, 1, 4, 1)
    ),
    "as many groups as fill a vector, wide": work(16, 16, (1, 5, 37), groups=16, kernel=(3, 4)),
    "float32 results": work(16, 40, (1, 15, 13), whole=FLOAT),
    "float32 results, channels first": work(16, 40, (2, 15, 13), FIRST, FIRST, whole=FLOAT),
    "float32 results shuffled by 3": work(8, 18, (1, 8, 9), LAST, LAST, whole=FLOAT, shuffle=3),
    "four float32 results": work(16, 4, (1, 15, 31), FIRST, FIRST, whole=FLOAT),
    "three float32 results, narrow": work(16, 3, (1, 15, 5), FIRST, FIRST, whole=FLOAT),
    "four float32 results shuffled": work(32, 4, (1, 9, 30), LAST, FIRST, whole=FLOAT, shuffle=2),
    "float32 of three channels, 7x7": work(
        3, 48, (2, 33, 31), FIRST, kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3),
        whole={"taken": 0.02, "zero": 3},
    ),
    "float32 channels last": work(3, 8, (1, 9, 8), whole={"taken": 0.02, "zero": 3}),
    "float32 to signed bytes": work(
        1, 8, (1, 9, 8), FIRST, whole={"taken": 0.02, "zero": 3, "source": "int8"}
    ),
    "a residual": work(16, 40, (2, 15, 13), whole=FLOAT, adds=True),
    "a residual, channels first": work(16, 20, (2, 9, 13), FIRST, FIRST, whole=FLOAT, adds=True),
    "a residual of few": work(16, 4, (1, 9, 30), FIRST, FIRST, whole=FLOAT, adds=True),
    "a residual of channels by themselves": work(
        24, 24, (1, 12, 11), groups=24, whole=FLOAT, adds=True
    ),
    "sums past what float32 counts": work(700, 20, (1, 5, 8), whole={"step": 0.3}),
}  # fmt: skip
SOME = (
    "3x3",
    "signed bytes",
    "narrower than a group",
    "groups of odd sizes",
    "four float32 results",
)


@pytest.mark.parametrize("name", WINDOWS)
def test_every_window_gives_the_definitions_numbers(name: str) -> None:
    check(WINDOWS[name])


@pytest.mark.parametrize(
    "one",
    [
        chain((1, 16, 16, 4), (1, 23, 45)),
        chain((1, 32, 20, 32, 4), (2, 20, 31)),
        chain((3, 16, 5, 24, 9), (1, 33, 9), seed=2),
        chain((1, 16, 16, 4), (1, 9, 20), source="int8"),
    ],
)
def test_a_chain_gives_the_definitions_numbers(one: ConvWork) -> None:
    check(one)


def test_layers_of_any_windows_follow_each_other() -> None:
    rng = np.random.default_rng(3)
    layers = (
        layer(rng, 3, 24, strides=(2, 2), kernel=(5, 5), pads=(2, 2, 2, 2)),
        layer(rng, 24, 48, **POINT),
        layer(rng, 48, 48, groups=48, strides=(2, 1)),
        layer(rng, 48, 10, dilations=(2, 1), pads=(0, 0, 0, 0)),
    )
    check(ConvWork(layers, 2, 41, 30, "uint8", source=FIRST, result=LAST))


def test_rows_that_are_read_outside_pictures_alone_are_not_computed() -> None:
    rng = np.random.default_rng(4)
    outside = layer(rng, 8, 8, kernel=(1, 1), strides=(3, 3), pads=(2, 0, 1, 3))
    one = ConvWork((layer(rng, 3, 8), layer(rng, 8, 8), outside), 1, 1, 9, "uint8", source=LAST)
    one = replace(one, result=LAST)
    assert plan_whole(one, 2).rows == (0, 0, 0, 0)
    check(one)


@pytest.mark.parametrize("seed", range(4))
def test_chains_of_any_layers_give_the_definitions_numbers(seed: int) -> None:
    drawn = [any_chain(number) for number in range(40 * seed, 40 * seed + 40)]
    fitting = [one for one in drawn if one is not None and INT8.why_not(one, host()) is None]
    assert len(fitting) > 15
    for one in fitting:
        check(one)


@pytest.mark.parametrize("source", ["uint8", "int8"])
@pytest.mark.parametrize("form", [FIRST, LAST])
def test_what_is_no_number_is_rounded_as_the_definition_does(source: str, form: Any) -> None:
    one = work(3, 8, (1, 9, 20), form, whole={"taken": 0.02, "zero": 3, "source": source})
    given = operands(one)
    for at, number in enumerate((np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e36, -1e36, 1e-45)):
        given.x[:, :, at, at::3] = number
    INT8.bind(INT8.propose(one, host()), given)()
    np.testing.assert_array_equal(given.out, right(one, given.x))


def test_where_a_multiplication_misses_a_tie_sums_are_divided() -> None:
    one = work(16, 16, (1, 20, 20))
    assert one.layers[0].whole is not None
    assert pack.is_exact(one.layers[0])
    for told in ({"step": 3e-20}, {"step": 1e25}, {"scale": np.full(16, 1e-9, np.float32)}):
        whole = replace(one.layers[0].whole, **told)
        other = replace(one, layers=(replace(one.layers[0], whole=whole),))
        assert not pack.is_exact(other.layers[0])
        check(other)


def test_a_multiplication_with_its_rest_is_a_division() -> None:
    rng = np.random.default_rng(7)
    y = rng.uniform(-300, 300, 1 << 18).astype(np.float32)
    for step in rng.uniform(0.5, 2, 8).astype(np.float32):
        np.testing.assert_array_equal(pack._multiplied(y, step), y / step)


def test_results_do_not_depend_on_how_rows_are_cut() -> None:
    one = chain((1, 16, 16, 4), (1, 40, 30))
    given = operands(one)
    proposal = INT8.propose(one, host())
    results = []
    for cores in (1, 3, 7):
        plan = plan_whole(one, cores)
        INT8.bind(replace(proposal, decisions=(one, plan)), given)()
        results.append(given.out.copy())
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_every_row_is_computed_after_what_it_reads_and_before_its_ring_forgets_that() -> None:
    one = chain((1, 16, 16, 16, 4), (1, 50, 30))
    plan = plan_whole(one, 3)
    done = []
    for jobs in plan.strips:
        ends = [0] * (len(one.layers) + 1)
        begins = {at: first for at, first, _ in reversed(jobs)}
        for at, first, last in jobs:
            assert ends[at] in (0, first)
            ends[at] = last
            if at:
                lowest, highest = max(0, first - 1), min(50, last + 1)
                assert begins[at - 1] <= lowest
                assert ends[at - 1] >= highest
                assert ends[at - 1] - lowest <= plan.rows[at - 1]
        done += [row for at, a, b in jobs if at == len(one.layers) for row in range(a, b)]
    assert sorted(done) == list(range(sums_of(one)[-1][0]))


def test_it_wins_where_whole_numbers_are_asked_for_and_says_why_not_elsewhere() -> None:
    one = chain((1, 16, 4), (1, 20, 20))
    verdict = choose(one, host(), conv_engines("host"))
    assert verdict.best.engine == "int8_chain"
    assert verdict.best.seconds is not None
    assert (
        verdict.best.scratch == verdict.best.decisions[1].workers * verdict.best.decisions[1].memory
    )
    first = work(8, 8, (1, 8, 8))
    assert first.layers[0].whole is not None
    for other, said in (
        (replace(first, dtype="float32"), "layers hold float32"),
        (replace(first, result="channels_first"), "channels last alone"),
        (work(8, 8, (1, 8, 8), shuffle=2), "shuffle=2"),
        (work(8, 8, (1, 8, 8), pads=(-1, 0, 0, 0)), "pads="),
        (work(8, 8, (1, 8, 8), whole={"scale": np.zeros(8, np.float32)}), "scale"),
        (work(8, 8, (1, 8, 8), whole={"step": np.inf}), "step=inf"),
        (work(1, 8, (1, 80, 8), kernel=(65, 1)), "kernel="),
        (work(16, 8, (1, 8, 8), adds=True), "residual"),
        (
            replace(
                first, layers=(replace(first.layers[0], bias=np.full(8, 2**31 - 1, np.int32)),)
            ),
            "int32",
        ),
    ):
        why = INT8.why_not(other, host())
        assert why is not None
        assert said in why


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="of x86")
@pytest.mark.parametrize("features", ["+avx2,+fma", "+avx2,+fma,+avxvnni", "+sse4.2"])
def test_other_instructions_give_the_same_numbers(features: str) -> None:
    """In a process of its own; what the processor has not, or nothing beyond, is left out."""
    has = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if "avxvnni" in features and "avx_vnni" not in has:
        pytest.skip("no AVX-VNNI here")
    if features == "+avx2,+fma" and not ("avx_vnni" in has or "avx512f" in has):
        pytest.skip("every test here is of these: no AVX-512, no AVX-VNNI")
    code = (
        "from tests.backends.host.test_conv_whole import SOME, WINDOWS, chain, check\n"
        "for name in SOME: check(WINDOWS[name])\n"
        "check(chain((1, 16, 20, 4), (1, 13, 22)))"
    )
    told = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **told}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
