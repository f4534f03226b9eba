"""`winograd`: wide 3x3 convolutions by transforms of all tiles at once, beside float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.conv_chains import drawn, layer, reference
from tilewright.backends.host.conv import CONV_ENGINES
from tilewright.backends.host.conv_winograd import Winograd
from tilewright.backends.host.native import host
from tilewright.backends.host.program import joined
from tilewright.engines.choose import choose
from tilewright.engines.conv import ACTIVATIONS, Activation, ConvOperands, ConvWork

pytest.importorskip("numba")
pytest.importorskip("torch")

ENGINE, LAST = Winograd(), "channels_last"


def work(
    inputs: int, outputs: int, size: tuple[int, int, int], exact: bool = False, **facts: Any
) -> ConvWork:
    """A single layer."""
    single = layer(np.random.default_rng(5), inputs, outputs, **facts)
    return ConvWork((single,), *size, exact=exact, source=LAST, result=LAST)


def bound(one: ConvWork, cores: int = 2, strange: dict[Any, float] | None = None) -> Any:
    """A program, where it writes, and what is right."""
    x, out, residuals = drawn(one)
    for place, value in (strange or {}).items():
        x[place] = value
    last = (r.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) for r in residuals)
    operands = ConvOperands(x.numpy(), out.numpy(), tuple(r.numpy() for r in last))
    proposal = ENGINE.propose(one, replace(host(), compute_units=cores))
    return ENGINE.bind(proposal, operands), operands.out, reference(one, x, residuals).numpy()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("channels", "size", "facts"),
    [
        ((16, 40), (1, 15, 13), {}),
        ((64, 64), (2, 14, 14), {"adds": True, "activation": Activation("relu")}),
        ((33, 49), (1, 7, 7), {"adds": True}),
        ((20, 96), (3, 5, 9), {"pads": (0, 1, 2, 0)}),
        ((24, 17), (1, 30, 1), {"pads": (2, 2, 2, 2)}),
        ((24, 17), (1, 12, 11), {"pads": (-1, 0, 1, -2)}),
        ((300, 32), (1, 14, 14), {}),
        ((16, 16), (1, 1, 1), {}),
    ],
)
def test_any_channels_sizes_and_pads_are_right(
    channels: tuple[int, int], size: tuple[int, int, int], facts: dict[str, Any], exact: bool
) -> None:
    program, out, right = bound(work(*channels, size, exact, **facts))
    for _ in range(2):
        out[...] = np.nan
        program()
        allowed = (1e-6 if exact else 4e-6) * np.abs(right).max()
        np.testing.assert_allclose(out, right, rtol=0, atol=allowed)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_every_activation_comes_after_the_residual(kind: str) -> None:
    slopes = np.linspace(-1, 1, 40, dtype=np.float32) if kind == "prelu" else None
    numbers = {"leaky": (0.1, 0.0), "clip": (-0.3, 0.6), "hard_sigmoid": (0.2, 0.5)}
    activation = Activation(kind, *numbers.get(kind, (0.0, 0.0)), slopes)
    for adds in (False, True):
        program, out, right = bound(work(16, 40, (1, 8, 9), activation=activation, adds=adds))
        program()
        np.testing.assert_allclose(out, right, rtol=0, atol=1e-5)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_field(value: float, exact: bool) -> None:
    one = work(32, 24, (2, 9, 11), exact, activation=Activation("relu"), adds=True)
    places = {(0, 3, 0, 0): value, (0, 31, 4, 6): value, (1, 0, 8, 10): value}
    program, out, right = bound(one, strange=places)
    program()
    np.testing.assert_array_equal(np.isnan(out), np.isnan(right))
    np.testing.assert_array_equal(np.isinf(out), np.isinf(right))
    finite = np.isfinite(right)
    np.testing.assert_allclose(out[finite], right[finite], rtol=0, atol=1e-5)


def test_results_do_not_depend_on_how_many_threads_there_are() -> None:
    results = []
    for cores in (1, 2, 5):
        program, out, _ = bound(work(64, 96, (1, 28, 28)), cores)
        program()
        results.append(out.copy())
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_layers_of_one_program_share_the_memory_between_their_steps() -> None:
    programs, outs, rights = zip(
        *(bound(work(32, 48, (1, 20, 20))), bound(work(64, 16, (2, 7, 9)))), strict=True
    )  # fmt: skip
    whole = joined(programs)
    assert whole.planes == max(program.planes for program in programs)
    whole()
    for out, right in zip(outs, rights, strict=True):
        np.testing.assert_allclose(out, right, rtol=0, atol=1e-5)


def test_wide_layers_of_small_pictures_are_its_and_narrow_ones_the_chains() -> None:
    assert choose(work(128, 128, (1, 28, 28)), host(), CONV_ENGINES).best.engine == "winograd"
    assert choose(work(32, 32, (1, 180, 320)), host(), CONV_ENGINES).best.engine != "winograd"
    # 36 numbers of weights for 9 take longer to read than plain sums to compute.
    assert choose(work(512, 512, (1, 7, 7)), host(), CONV_ENGINES).best.engine == "direct"


def test_refusals_name_what_is_taken() -> None:
    assert "16" in str(ENGINE.why_not(work(8, 64, (1, 9, 9)), host()))
    assert "(1, 1)" in str(ENGINE.why_not(work(16, 16, (1, 9, 9), strides=(2, 2)), host()))
    first = replace(work(16, 16, (1, 9, 9)), source="channels_first")
    assert "channels last" in str(ENGINE.why_not(first, host()))
