"""How a chain is cut into kernels, and where a kernel's things lie: planned without a GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.support.conv_chains import chain, layer
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda.conv import chain_pack, chain_plan
from tilewright.backends.cuda.conv.chain import CHAIN, CHAIN_MMA
from tilewright.backends.cuda.conv.chain_plan import Machine
from tilewright.backends.cuda.conv.engines import CONV_ENGINES
from tilewright.engines.choose import choose
from tilewright.engines.conv import Activation, ConvWork
from tilewright.errors import KernelError

HD = (1, 1080, 1920)
H200 = CHAIN.machine(CUDA_H200)
SMALL = replace(H200, shared=99 * 1024)  # a GPU of the kind that people have at home
S, M = (1, 16, 16, 16, 16, 4), (1, 32, 32, 32, 32, 32, 4)
C64 = (1, 64, 64, 64, 64, 64, 4)
L = (1, *[64] * 9, 4)
NETS = (S, M, C64, L, (64, 64), (3, 20, 64, 30, 5, 33), (2, *[16] * 30, 2), (5, 64, 3), (48, 7))


def test_small_chains_are_one_kernel_and_those_of_64_channels_have_two_such_layers_each() -> None:
    assert [len(part.layers) for part in chain_plan.cut(chain(M, HD), H200)] == [6]
    assert [len(part.layers) for part in chain_plan.cut(chain(S, HD), H200)] == [5]
    parts = chain_plan.cut(chain(C64, HD), H200)
    assert [len(part.layers) for part in parts] == [3, 3]
    assert [(part.inputs, part.planes) for part in parts] == [(1, True), (0, False)]


@pytest.mark.parametrize("machine", [H200, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("channels", NETS)
def test_parts_hold_every_layer_once_and_fit_a_multiprocessor(
    channels: tuple[int, ...], machine: Machine
) -> None:
    work = chain(channels, HD)
    parts = chain_plan.cut(work, machine)
    assert tuple(one for part in parts for one in part.layers) == work.layers
    for part in parts:
        assert part.fits
        assert part.places["SHARED"] <= machine.shared
        assert part.threads <= 1024
        assert part.useful > 0
    for before, after in pairwise(parts):
        assert before.planes
        assert after.inputs == 0
        assert before.channels[-1] == after.channels[0]


@pytest.mark.parametrize("channels", NETS)
def test_nothing_in_shared_memory_lies_on_something_else(channels: tuple[int, ...]) -> None:
    for part in chain_plan.cut(chain(channels, HD), H200):
        at = list(part.places.values())
        assert at == sorted(at)
        assert not any(place % 16 for place in at)
        macros = dict(chain_plan.defines(part, "float16", pairs=False))
        assert macros["BLOB"] == macros["SHARED_RING0"]
        windows = 16 * 48 * part.units * (3 * part.inputs + 1) if part.inputs else 0
        assert part.places["SHARED"] - macros["SHARED_WINDOWS"] == windows


@pytest.mark.parametrize("channels", [S, M, C64])
@pytest.mark.parametrize(
    "size", [HD, (1, 360, 640), (1, 1, 5), (7, 3, 200), (2, 357, 611), (900, 1, 60)]
)
def test_every_row_belongs_to_one_block_and_all_blocks_take_about_as_long(
    channels: tuple[int, ...], size: tuple[int, int, int]
) -> None:
    work = chain(channels, size)
    for part in chain_plan.cut(work, H200):
        at = chain_plan.shares(part, work, 132)
        rows = work.images * work.height * chain_plan.strips(part, work.width)
        assert at[0] == 0
        assert at[-1] == rows
        assert (np.diff(at) >= 0).all()
        layers = len(part.products)
        even = -(-chain_plan.counted(part, work) // chain_plan.grid(part, work, 132))
        assert chain_plan.steps(part, work, 132) <= even + 3 * layers + 1


def test_packed_rows_times_a_window_are_the_convolution() -> None:
    rng = np.random.default_rng(0)
    one = layer(rng, 20, 30)
    tiles = chain_pack.rows(one, 32, 32)
    assert tiles.shape == (3, 4, 3, 32, 8)
    picture = rng.standard_normal((32, 3, 3)).astype(np.float32)
    found = sum(
        tiles[dx, c, 2 - dy] @ picture[8 * c : 8 * c + 8, dy, dx]
        for dx in range(3)
        for c in range(4)
        for dy in range(3)
    )
    exact = np.einsum("oikl,ikl->o", one.weights, picture[:20])
    np.testing.assert_allclose(found[:30], exact, rtol=1e-4, atol=1e-5)
    assert not np.any(found[30:])


def test_packed_windows_times_the_sources_weights_are_the_convolution() -> None:
    rng = np.random.default_rng(0)
    one = layer(rng, 3, 20)
    tiles = chain_pack.first(one, 32, 32)
    window = rng.standard_normal((3, 3, 3)).astype(np.float32)
    k = np.concatenate([window.ravel(), np.ones(5, np.float32)]).reshape(4, 8)
    found = np.einsum("coe,ce->o", tiles, k)
    exact = np.einsum("oikl,ikl->o", one.weights, window)
    np.testing.assert_allclose(found[:20], exact, rtol=1e-4, atol=1e-5)
    assert not np.any(found[20:])


def test_a_blob_holds_halves_and_biases_where_the_plan_says() -> None:
    pytest.importorskip("torch")
    work = chain(M, HD)
    (part,) = chain_plan.cut(work, H200)
    blob = chain_pack.packed(part, "float16").numpy()
    assert len(blob) == part.places["BLOB"]
    for index, one in enumerate(work.layers):
        at = part.places[f"BIAS{index}"]
        assert one.bias is not None
        bias = blob[at : at + 4 * one.outputs].view(np.float32)
        np.testing.assert_array_equal(bias, one.bias)
    at = part.places["WEIGHTS2"]
    halves = blob[at : at + 18 * 32 * 32].view(np.float16)
    exact = chain_pack.rows(work.layers[2], 32, 32).astype(np.float16)
    np.testing.assert_array_equal(halves, exact.ravel())


def _changed(facts: dict[str, Any]) -> ConvWork:
    work = chain((8, 16, 16), HD)
    return replace(work, layers=(replace(work.layers[0], **facts), work.layers[1]))


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (chain(M, HD, "float32"), "float32"),
        (chain((1, 65, 4), HD), "65"),
        (chain((1, 8), HD), "1 layers"),
        (_changed({"strides": (2, 2)}), "strides=(2, 2)"),
        (_changed({"dilations": (2, 1)}), "dilations=(2, 1)"),
        (_changed({"pads": (0, 0, 0, 0)}), "pads=(0, 0, 0, 0)"),
        (_changed({"groups": 2, "weights": np.zeros((16, 4, 3, 3), np.float32)}), "groups=2"),
        (_changed({"activation": Activation("gelu")}), "gelu"),
        (_changed({"adds": True}), "layers[0]"),
        (_changed({"shuffle": 2}), "layers[0]"),
        (chain(M, (0, 5, 5)), "nothing"),
        (chain(M, (1 << 15, 1 << 12, 1 << 12)), "32 bits"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_such_chain_is_refused_by_name(work: ConvWork, told: str) -> None:
    assert told in str(CHAIN.why_not(work, CUDA_H200))


def test_a_gpu_without_wgmma_is_refused_and_another_engine_takes_the_chain() -> None:
    device = replace(CUDA_H200, features=CUDA_H200.features - {"wgmma"}, version="sm_86")
    assert "wgmma" in str(CHAIN.why_not(chain(M, HD), device))
    assert CHAIN_MMA.why_not(chain(M, HD), device) is None
    assert choose(chain(M, HD), device, CONV_ENGINES).best.engine != "chain"


def test_layers_that_are_no_chain_are_given_to_whom_they_were_measured_faster_with() -> None:
    rng = np.random.default_rng(0)

    def chosen(size: tuple[int, int, int], inputs: int, outputs: int, **facts: Any) -> str:
        one = layer(rng, inputs, outputs, **facts)
        last: Any = {"source": "channels_last", "result": "channels_last"}
        work = ConvWork((one,), *size, "float16", **last)
        return choose(work, CUDA_H200, CONV_ENGINES).best.engine

    assert chosen((4, 180, 320), 64, 64) == "chain"
    alone: Any = {"kernel": (1, 1), "pads": (0, 0, 0, 0)}
    assert chosen((4, 56, 56), 256, 512, **alone) == "triton"
    assert chosen((8, 28, 28), 512, 512) == "cudnn"
    assert chosen((4, 112, 112), 144, 144, groups=144) == "triton"


@pytest.mark.parametrize("channels", [S, M, C64])
@pytest.mark.parametrize("size", [HD, (1, 360, 640), (8, 360, 640)])
def test_a_chain_is_one_kernel_of_rings_whatever_others_say(
    channels: tuple[int, ...], size: tuple[int, int, int]
) -> None:
    assert choose(chain(channels, size), CUDA_H200, CONV_ENGINES).best.engine == "chain"


def test_wide_strips_are_taken_for_a_large_picture_of_few_channels_and_not_for_a_small_one() -> (
    None
):
    assert [part.units for part in chain_plan.cut(chain(S, HD), H200)] == [2]
    assert [part.units for part in chain_plan.cut(chain(S, (1, 90, 160)), H200)] == [1]


def test_a_gpu_whose_shared_memory_holds_no_layer_is_told() -> None:
    with pytest.raises(KernelError, match="1024 shared bytes"):
        chain_plan.cut(chain(M, HD), replace(H200, shared=1024))
