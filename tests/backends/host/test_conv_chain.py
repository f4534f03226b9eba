"""`winograd_chain`: chains of 3x3 convolutions by Winograd's transforms, strip by strip."""

from __future__ import annotations

import os
import threading
import time
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.conv_model import onnx_model
from tests.support.convolutions import chain, empty_result, expected, picture
from tilewright.arrays.array import NDArray
from tilewright.backends.host import BACKEND, compiled
from tilewright.backends.host.conv import CONV_ENGINES
from tilewright.backends.host.conv_bound import BoundChain
from tilewright.backends.host.conv_chain import WinogradChain
from tilewright.backends.host.conv_plan import plan_chain
from tilewright.engines.choose import choose
from tilewright.engines.conv import ACTIVATIONS, Activation, Conv, ConvOperands, ConvWork

pytest.importorskip("numba")

ENGINE = WinogradChain()
HOST = BACKEND.devices()[0]
# Of the result's largest number: F(2x2, 3x3) rounds about as plain sums do, F(4x4, 3x3) more.
TOLERANCE = {True: 2e-6, False: 4e-6}


def run(work: ConvWork, x: NDArray, cores: int = 2, **cut: Any) -> NDArray:
    out = empty_result(work)
    bound(work, x, out, cores, **cut)()
    return out


def bound(work: ConvWork, x: NDArray, out: NDArray, cores: int = 2, **cut: Any) -> BoundChain:
    plan = plan_chain(work, 2 if work.exact else 4, cores, **cut)
    return BoundChain(work, plan, ConvOperands(x, out))


def check(work: ConvWork, x: NDArray, out: NDArray) -> None:
    want = expected(work, x)
    assert out.shape == want.shape
    worst = np.abs(out - want).max(initial=0.0)
    assert worst <= TOLERANCE[work.exact] * np.abs(want).max(initial=1e-6)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    "channels",
    [
        (1, 16, 16, 4),
        (3, 28, 48, 12),
        (5, 1, 3, 64, 2),
        (17, 33),
        (64, 80, 7),
        (128, 4),
        (2, 100, 128, 3),
        (4, 4),
    ],
)
def test_any_counts_of_channels(channels: tuple[int, ...], exact: bool) -> None:
    work = chain(channels, 13, 37, exact=exact)
    x = picture(work)
    check(work, x, run(work, x))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 6, 7, 66])
@pytest.mark.parametrize("height", [1, 2, 3, 5, 8, 31])
def test_any_height_and_width(height: int, width: int, exact: bool) -> None:
    for channels, shuffle in (((1, 16, 20, 4), 2), ((20, 9, 18), 3)):
        work = chain(channels, height, width, images=2, shuffle=shuffle, exact=exact)
        x = picture(work)
        check(work, x, run(work, x))


@pytest.mark.parametrize("exact", [False, True])
def test_bits_are_the_same_however_the_picture_is_cut(exact: bool) -> None:
    work = chain((3, 20, 33, 12), 50, 131, images=2, shuffle=2, exact=exact)
    x = picture(work)
    whole = run(work, x, cores=1, across=1, down=1)
    check(work, x, whole)
    for cores, across, down in ((2, 2, 1), (2, 5, 1), (3, 1, 4), (4, 33, 2), (2, 7, 25)):
        assert np.array_equal(run(work, x, cores, across=across, down=down), whole)


def test_what_memory_held_before_does_not_matter() -> None:
    work = chain((3, 20, 18, 4), 11, 30, shuffle=2)
    x, out = picture(work), empty_result(work)
    call = bound(work, x, out)
    call()
    first = out.copy()
    for rubbish in (0x7F, 0xFF, 0x00):
        for memory in call.memories:
            memory[:] = rubbish
        out[:] = np.nan
        call()
        assert np.array_equal(out, first)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("channels", [(1, 16, 16, 4), (17, 33, 5), (6, 4)])
def test_infinities_and_nan_stay_within_their_windows(
    channels: tuple[int, ...], exact: bool
) -> None:
    work = chain(channels, 21, 40, exact=exact)
    for value in (np.nan, np.inf, -np.inf):
        x = picture(work)
        for place in ((0, 0), (3, 3), (9, 18), (20, 39), (8, 4)):
            x[0, -1][place] = value
        want, out = expected(work, x), run(work, x)
        assert np.array_equal(np.isnan(out), np.isnan(want))
        assert np.array_equal(np.isinf(out), np.isinf(want))
        there = np.isfinite(want)
        assert np.array_equal(out[~there], want[~there].astype(np.float32), equal_nan=True)
        worst = np.abs(out[there] - want[there]).max()
        assert worst <= TOLERANCE[exact] * np.abs(want[there]).max()


def test_a_layer_without_bias_and_limits_of_an_activation() -> None:
    for activation in (Activation("clip", low=-0.1, high=0.3), Activation("none")):
        work = chain((3, 16, 20, 6), 9, 14, activation=activation)
        layers = tuple(replace(layer, bias=None) for layer in work.layers)
        layers = (*layers[:-1], replace(layers[-1], activation=activation))
        work = replace(work, layers=layers)
        x = picture(work)
        check(work, x, run(work, x))


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_every_activation(kind: str) -> None:
    slopes = np.linspace(-0.2, 0.4, 20, dtype=np.float32) if kind == "prelu" else None
    activation = Activation(kind, low=0.2, high=0.5, slopes=slopes)
    work = chain((3, 20, 20, 4), 9, 22, activation=activation, images=2)
    last = replace(
        work.layers[-1],
        activation=replace(activation, slopes=None if slopes is None else slopes[:4]),
    )
    x = picture(work)
    for layers in (work.layers, (*work.layers[:-1], last), work.layers[:1]):
        found = replace(work, layers=layers)
        check(found, x, run(found, x))


@pytest.mark.parametrize("last", [False, True])
def test_residuals_are_added_before_the_activation(last: bool) -> None:
    work = chain((3, 20, 33, 8), 14, 45, images=2, shuffle=2)
    layers = tuple(replace(layer, adds=True) for layer in work.layers)
    work = replace(work, layers=layers)
    x = picture(work)
    rng = np.random.default_rng(5)
    residuals = []
    for layer in layers:
        one = rng.standard_normal((2, 14, 45, layer.outputs)).astype(np.float32)
        moved = one.transpose(0, 3, 1, 2)
        residuals.append(moved if last else np.ascontiguousarray(moved))
    out = empty_result(work)
    plan = plan_chain(work, 4, 2)
    BoundChain(work, plan, ConvOperands(x, out, tuple(residuals)))()
    want = expected(work, x, residuals)
    assert np.abs(out - want).max() <= TOLERANCE[False] * np.abs(want).max()


def test_pictures_and_results_may_lie_channels_last() -> None:
    work = chain((36, 24, 50), 12, 59, images=3)
    x = picture(work)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    out = empty_result(work).transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    bound(work, last, out)()
    assert np.array_equal(out, run(work, x))


@pytest.mark.parametrize("sizes", [(0, 8, 8), (2, 0, 8), (2, 8, 0)])
def test_an_empty_batch_is_computed_at_once(sizes: tuple[int, int, int]) -> None:
    images, height, width = sizes
    work = chain((3, 16, 4), height, width, images=images)
    proposal = ENGINE.propose(work, HOST)
    ENGINE.bind(proposal, ConvOperands(picture(work), empty_result(work)))()


def test_it_is_chosen_and_states_its_memory() -> None:
    work = chain((1, 16, 16, 4), 30, 40, shuffle=2)
    verdict = choose(work, HOST, CONV_ENGINES, "winograd_chain")
    assert verdict.best.engine == "winograd_chain"
    assert "F(4x4, 3x3)" in verdict.best.reason
    assert "F(2x2, 3x3)" in ENGINE.propose(replace(work, exact=True), HOST).reason
    x, out = picture(work), empty_result(work)
    call = ENGINE.bind(verdict.best, ConvOperands(x, out))
    call()
    check(work, x, out)
    assert isinstance(call, BoundChain)
    assert sum(len(memory) for memory in call.memories) == verdict.best.scratch


def test_more_pictures_take_longer_by_prediction() -> None:
    seconds = [
        ENGINE.propose(chain((1, 16, 4), height, 64), HOST).seconds for height in (60, 120, 600)
    ]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 64])
def test_every_core_has_a_share_and_planning_is_quick(cores: int) -> None:
    device = replace(HOST, compute_units=cores)
    begun = time.thread_time()
    for sizes in ((360, 640), (1080, 1920), (14, 14), (1, 1)):
        work = chain((1, 32, 32, 32, 32, 4), *sizes, images=1)
        work, plan = ENGINE.propose(work, device).decisions
        last = [strip[-1] for strip in plan.strips]
        area = sum((right - left) * (bottom - top) for left, right, top, bottom in last)
        assert area == -(-sizes[1] // 4) * 4 * plan.bands
        if sizes[0] == 1080:
            assert plan.workers == cores
    assert time.thread_time() - begun < 5


@pytest.mark.parametrize("cores", [1, 3, 8])
def test_as_many_pictures_as_a_file_may_claim_are_planned_without_a_list_of_them(
    cores: int,
) -> None:
    device = replace(HOST, compute_units=cores)

    def seconds(images: int) -> float:
        return ENGINE.propose(chain((1, 16, 4), 30, 40, images=images), device).seconds

    for images in (60 * cores, 64 * cores, 70 * cores, 100 * cores):
        assert seconds(2 * images) == pytest.approx(2 * seconds(images), rel=0.04)
    tracemalloc.start()
    try:
        assert seconds(2**40) == pytest.approx(2**30 * seconds(2**10), rel=0.04)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_it_does_not_take_is_said() -> None:
    plain = chain((8, 8, 8), 8, 8)
    first, second = plain.layers
    for layers, word in (
        ((Conv(np.zeros((8, 8, 5, 5), np.float32)),), "kernel=(5, 5)"),
        ((first, replace(second, strides=(2, 2))), "layer 2: strides=(2, 2)"),
        ((replace(first, dilations=(2, 2)),), "dilations=(2, 2)"),
        ((replace(first, pads=(0, 0, 0, 0)),), "pads=(0, 0, 0, 0)"),
        ((Conv(np.zeros((8, 4, 3, 3), np.float32), pads=(1, 1, 1, 1), groups=2),), "groups=2"),
        ((replace(first, shuffle=2), second), "layer 1: shuffle=2"),
    ):
        why = ENGINE.why_not(replace(plain, layers=layers), HOST)
        assert why is not None
        assert word in why
    why = ENGINE.why_not(replace(plain, dtype="float16"), HOST)
    assert why is not None
    assert "float32" in why
    assert ENGINE.why_not(plain, HOST) is None


def test_two_threads_may_call_two_chains_or_one() -> None:
    works = [chain((3, 16, 16, 4), 40, 60, shuffle=2, seed=seed) for seed in (0, 1)]
    xs = [picture(work) for work in works]
    outs = [empty_result(work) for work in works]
    calls = [bound(*each) for each in zip(works, xs, outs, strict=True)]
    for call in calls:
        call()
    wanted = [out.copy() for out in outs]
    for targets in ((calls[0], calls[1]), (calls[0], calls[0])):
        for out in outs:
            out[:] = 0
        threads = [
            threading.Thread(target=lambda call=call: [call() for _ in range(5)], daemon=True)
            for call in targets
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert np.array_equal(outs[0], wanted[0])
    calls[1]()
    assert np.array_equal(outs[1], wanted[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_child_computes_the_same() -> None:
    work = chain((3, 16, 4), 40, 60, shuffle=2)
    x, out = picture(work), empty_result(work)
    call = bound(work, x, out)
    call()
    wanted = out.copy()
    child = os.fork()
    if not child:
        out[:] = 0
        call()
        os._exit(0 if np.array_equal(out, wanted) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("channels", [(1, 16, 16, 16, 4), (1, 32, 32, 32, 4), (64, 64)])
def test_errors_are_at_most_twice_onnxruntimes_or_four_times(
    channels: tuple[int, ...], exact: bool
) -> None:
    """Twice for F(2x2, 3x3), four times for F(4x4, 3x3); root mean square and all but 1 in 10,000.

    The largest of 500,000 is drawn by chance: beside onnxruntime's sums for AVX2 it was 4.9 times
    theirs, while the mean was 2.4 times. It is held to 3e-6 of the result.
    """
    runtime = pytest.importorskip("onnxruntime")
    work = chain(channels, 48, 160, exact=exact)
    x = picture(work)
    want = expected(work, x)
    peer = runtime.InferenceSession(onnx_model(work), providers=["CPUExecutionProvider"])
    times = 2 if exact else 4
    ours, theirs = (np.abs(result - want) for result in (run(work, x), peer.run(None, {"x": x})[0]))
    assert np.sqrt((ours**2).mean()) <= times * np.sqrt((theirs**2).mean())
    assert np.quantile(ours, 0.9999) <= times * np.quantile(theirs, 0.9999)
    assert ours.max() <= 3e-6 * np.abs(want).max()


def test_a_plan_says_when_something_has_yet_to_be_compiled(monkeypatch: Any) -> None:
    work = chain((3, 16, 4), 8, 8)
    for kept in (True, False):
        monkeypatch.setattr(compiled, "is_kept", lambda name, kept=kept: kept)
        assert ("compiled first" in ENGINE.propose(work, HOST).reason) is not kept


def test_compiled_kernels_are_found_again() -> None:
    work = chain((3, 4), 8, 8)
    run(work, picture(work))
    assert compiled.is_kept("conv_chain")
    assert not compiled.is_kept("no_such_kernels")
