"""Single convolutions on the host: any window, group, format and epilogue, beside float64."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.conv_chains import drawn, layer, reference
from tests.support.processors import TOLD
from tilewright.backends.host.conv_direct import SINGLE_ENGINES
from tilewright.backends.host.native import host
from tilewright.backends.host.program import Program, joined
from tilewright.engines.choose import choose, named
from tilewright.engines.conv import ACTIVATIONS, Activation, ConvOperands, ConvWork

pytest.importorskip("numba")
pytest.importorskip("torch")

LAST, FIRST = "channels_last", "channels_first"


def work(
    inputs: int, outputs: int, size: tuple[int, int, int], source: Any = LAST, result: Any = LAST,
    **facts: Any,
) -> ConvWork:  # fmt: skip
    """A single layer."""
    single = layer(np.random.default_rng(5), inputs, outputs, **facts)
    return ConvWork((single,), *size, source=source, result=result)


def bound(one: ConvWork, engine: Any, seed: int = 1) -> tuple[Program, Any, Any]:
    """A program, where it writes, and what is right."""
    x, out, residuals = drawn(one, seed)
    last = [r.contiguous() for r in residuals]
    if one.result == LAST:
        last = [r.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) for r in residuals]
    arrays = tuple(r.numpy() for r in last)
    operands = ConvOperands(x.numpy(), out.numpy(), arrays)
    program = engine.bind(engine.propose(one, host()), operands)
    return program, operands.out, reference(one, x, residuals).numpy()


def check(one: ConvWork) -> list[str]:
    """Every engine that takes it is right, twice with the same bits; their names."""
    takers = [engine for engine in SINGLE_ENGINES if engine.why_not(one, host()) is None]
    for engine in takers:
        program, out, right = bound(one, engine)
        program()
        first = out.copy()
        np.testing.assert_allclose(first, right, rtol=0, atol=3e-6 * max(1, np.abs(right).max()))
        out[...] = np.nan
        program()
        np.testing.assert_array_equal(out, first)
    return [engine.name for engine in takers]


WINDOWS = {
    "3x3": work(16, 40, (1, 15, 13)),
    "stride 2, pads that differ": work(24, 20, (2, 9, 11), strides=(2, 2), pads=(0, 1, 2, 1)),
    "first layer, channels first": work(3, 32, (1, 33, 31), FIRST, strides=(2, 2)),
    "7x7 of three channels to channels first": work(
        3, 48, (2, 33, 31), FIRST, FIRST, kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3)
    ),
    "one channel": work(1, 16, (1, 20, 17), FIRST),
    "long sums": work(600, 33, (1, 7, 7)),
    "dilation in a picture of 5": work(64, 70, (1, 7, 5), dilations=(2, 2)),
    "1x5": work(16, 40, (1, 40, 13), kernel=(1, 5), strides=(2, 1), dilations=(1, 2)),
    "5x1": work(16, 40, (1, 40, 13), kernel=(5, 1), strides=(2, 3), dilations=(3, 2)),
    "one row": work(8, 5, (1, 1, 20)),
    "one column": work(8, 5, (1, 20, 1)),
    "groups": work(32, 64, (1, 12, 12), groups=4),
    "several results of each channel": work(12, 24, (1, 12, 12), groups=12),
    "channels by themselves, channels first": work(20, 20, (1, 9, 9), FIRST, groups=20),
    "weights too heavy for a cache": work(256, 300, (1, 7, 7)),
    "shuffle by 3": work(16, 36, (2, 12, 11), shuffle=3, result=FIRST),
    "shuffle by 2, channels last": work(16, 16, (1, 12, 11), shuffle=2),
    "shuffle by 3, channels last, slopes": work(
        5,
        45,
        (2, 7, 9),
        shuffle=3,
        activation=Activation("prelu", slopes=np.linspace(-1, 1, 45, dtype=np.float32)),
    ),
    "pads that cut": work(16, 16, (1, 12, 11), pads=(-1, -2, 1, 0)),
}
POINTS = {
    "wide": work(32, 96, (2, 10, 12), kernel=(1, 1), pads=(0,) * 4),
    "long": work(960, 160, (1, 7, 7), kernel=(1, 1), pads=(0,) * 4),
    "odd": work(17, 33, (1, 5, 7), kernel=(1, 1), pads=(0,) * 4),
    "with a residual": work(96, 24, (1, 28, 28), kernel=(1, 1), pads=(0,) * 4, adds=True),
    "channels first": work(24, 21, (1, 9, 7), LAST, FIRST, kernel=(1, 1), pads=(0,) * 4),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_any_window_is_right(name: str) -> None:
    assert check(WINDOWS[name]) == ["direct"]


@pytest.mark.parametrize("name", POINTS)
def test_every_pixel_for_itself_is_right(name: str) -> None:
    assert check(POINTS[name]) == ["pointwise", "direct"]


def test_strided_points_are_read_where_they_lie() -> None:
    one = work(32, 96, (1, 17, 17), kernel=(1, 1), pads=(0,) * 4, strides=(2, 2))
    assert check(one) == ["direct"]
    assert not SINGLE_ENGINES[2].propose(one, host()).decisions.layout.copied


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_channels_by_themselves_are_right(kernel: int, stride: int) -> None:
    half = kernel // 2
    one = work(
        40, 40, (2, 15, 14), kernel=(kernel, kernel), strides=(stride, stride), pads=(half,) * 4,
        groups=40, activation=Activation("clip", -0.5, 1.0),
    )  # fmt: skip
    assert check(one) == ["depthwise", "direct"]


@pytest.mark.parametrize(
    "facts",
    [
        {"dilations": (2, 2), "adds": True},
        {"kernel": (5, 3), "pads": (4, 0, 0, 2)},
        {"kernel": (5, 5), "pads": (6, 6, 6, 6)},
    ],
)
def test_channels_by_themselves_with_odd_edges_are_right(facts: dict[str, Any]) -> None:
    assert check(work(24, 24, (1, 7, 6), groups=24, **facts)) == ["depthwise", "direct"]


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_every_activation_is_right_wherever_results_go(kind: str) -> None:
    slopes = np.linspace(-1, 1, 40, dtype=np.float32) if kind == "prelu" else None
    numbers = {"leaky": (0.1, 0.0), "clip": (-0.3, 0.6), "hard_sigmoid": (0.2, 0.5)}
    activation = Activation(kind, *numbers.get(kind, (0.0, 0.0)), slopes)
    check(work(16, 40, (1, 8, 9), activation=activation, adds=True))
    check(work(16, 40, (1, 8, 9), result=FIRST, activation=activation, adds=True))
    check(work(40, 40, (1, 8, 9), groups=40, activation=activation))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("groups", [1, 16])
def test_what_is_no_number_stays_in_its_field(value: float, groups: int) -> None:
    one = work(16, 16, (1, 9, 10), groups=groups, activation=Activation("relu"))
    engine = choose(one, host(), SINGLE_ENGINES).best.engine
    x, out, _ = drawn(one)
    x[0, 3, 4, 5] = value
    chosen = named(SINGLE_ENGINES, engine, host())
    chosen.bind(chosen.propose(one, host()), ConvOperands(x.numpy(), out.numpy()))()
    field = np.zeros((9, 10), bool)
    field[3:6, 4:7] = True
    strange = ~np.isfinite(out.numpy()) if np.isinf(value) else np.isnan(out.numpy())
    assert not strange[:, :, ~field].any()
    assert np.isfinite(x.numpy()).sum() == x.numel() - 1
    right = reference(one, x).numpy()
    np.testing.assert_array_equal(np.isnan(out.numpy()), np.isnan(right))


def test_a_program_of_many_steps_gives_what_each_gives() -> None:
    """Values pass from step to step; the threads wait for each other."""
    first, second, third = (
        work(16, 32, (1, 30, 30)),
        work(32, 32, (1, 30, 30), groups=32, kernel=(5, 5), pads=(2,) * 4),
        work(32, 16, (1, 30, 30), kernel=(1, 1), pads=(0,) * 4),
    )
    x, out, _ = drawn(first)
    values = [x.numpy(), out.numpy(), drawn(second)[1].numpy(), drawn(third)[1].numpy()]
    programs = []
    for one, source, result in zip((first, second, third), values[:3], values[1:], strict=True):
        engine = named(SINGLE_ENGINES, choose(one, host(), SINGLE_ENGINES).best.engine, host())
        programs.append(engine.bind(engine.propose(one, host()), ConvOperands(source, result)))
    for program in programs:
        program()
    right = values[-1].copy()
    whole = joined(programs)
    for value in values[1:]:
        value[...] = np.nan
    whole()
    np.testing.assert_array_equal(values[-1], right)


@pytest.mark.parametrize("own", [0, 1, 2])
def test_a_thread_alone_does_the_shares_of_those_that_never_come(own: int) -> None:
    one, engine = WINDOWS["3x3"], SINGLE_ENGINES[2]
    x, out, _ = drawn(one)
    proposal = engine.propose(one, replace(host(), compute_units=3))
    program = engine.bind(replace(proposal, seconds=1.0), ConvOperands(x.numpy(), out.numpy()))
    program.part(own)()
    right = reference(one, x).numpy()
    np.testing.assert_allclose(out.numpy(), right, rtol=0, atol=3e-6 * np.abs(right).max())


def test_threads_that_call_one_program_take_turns() -> None:
    program, out, right = bound(WINDOWS["3x3"], SINGLE_ENGINES[2])
    threads = [threading.Thread(target=lambda: [program() for _ in range(50)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(out, right, rtol=0, atol=1e-5)


def test_results_do_not_depend_on_how_many_threads_there_are() -> None:
    one = work(64, 96, (1, 28, 28))
    engine = SINGLE_ENGINES[2]
    results = []
    for cores in (1, 2, 5):
        x, out, _ = drawn(one)
        device = replace(host(), compute_units=cores)
        engine.bind(engine.propose(one, device), ConvOperands(x.numpy(), out.numpy()))()
        results.append(out.numpy().copy())
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_refusals_name_what_is_taken() -> None:
    pointwise, depthwise, direct = SINGLE_ENGINES
    one = work(16, 16, (1, 9, 9))
    assert "1 x 1" in str(pointwise.why_not(one, host()))
    assert "groups=1" in str(depthwise.why_not(one, host()))
    assert "float32" in str(direct.why_not(replace(one, dtype="float16"), host()))
    assert "one layer" in str(direct.why_not(replace(one, layers=one.layers * 2), host()))


@pytest.mark.skipif(sys.platform == "win32", reason="the name of a processor is LLVM's")
def test_processors_with_narrow_registers_are_right() -> None:
    """Compiled for Haswell: sixteen registers of eight floats."""
    from tilewright.backends.host.kernels.features import features

    if "avx512f" not in features():
        pytest.skip("every test here is compiled for such: no AVX-512")
    here = ("tests/backends/host/test_conv_single.py", "tests/backends/host/test_conv_expand.py")
    here += ("tests/nn/test_products.py",)
    some = "3x3 or groups or shuffle or odd or no_number or strided or attention_is"
    some += " or unknown_panels"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *here,
        "-k",
        some,
    ]
    found = subprocess.run(
        command, env={**os.environ, **TOLD}, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout[-2000:]
