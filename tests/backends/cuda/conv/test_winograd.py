"""Winograd's kernel with no GPU: its source run on the host, compiled for GPUs, planned."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import conv_chains
from tests.support.conv_chains import chain, layer
from tests.support.nvrtc_log import log_of
from tests.support.triton_proof import CUDA_H200
from tests.support.winograd_cases import CASES, allowed
from tilewright.backends.cuda.conv import winograd_launch
from tilewright.backends.cuda.conv.winograd import WinogradConv, shape_of
from tilewright.backends.cuda.conv.winograd_launch import Shape
from tilewright.backends.cuda.machine import nvrtc
from tilewright.engines.conv import ConvWork

torch: Any = pytest.importorskip("torch")
COMPILER = shutil.which("c++")
ENGINE = WinogradConv()


def on_the_host(work: ConvWork, shape: Shape, x: Any, out: Any, added: Any, folder: Path) -> None:
    """The kernel's own source, its threads the host's; parameters as a launch has them."""
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    (one,) = work.layers
    macros = winograd_launch.macros(one, shape, x)
    source, made = Path(__file__).with_name("winograd_on_the_host.cpp"), folder / "winograd.so"
    options = ["-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", *nvrtc.include_paths()]
    options = [one.replace("--include-path=", "-I") for one in options]
    words = [f"-D{name}={value}" for name, value in macros]
    made_so = subprocess.run(
        [COMPILER, *options, *words, str(source), "-o", str(made)], capture_output=True, text=True
    )
    if made_so.returncode and "barrier" in made_so.stderr:
        pytest.skip("a C++ compiler without std::barrier")
    assert not made_so.returncode, made_so.stderr
    library = ctypes.CDLL(str(made))
    assert library.shared_bytes() == shape.shared
    held = winograd_launch.held_of(one, shape, "cpu")
    filled = winograd_launch.parameters(one, shape, x, out, added, held)
    library.run(ctypes.byref(filled))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("odd", Shape(4, 8)), ("a residual", Shape(4, 4)), ("channels first", Shape(2, 8))],
)
def test_the_kernel_is_as_right_as_promised(name: str, shape: Shape, tmp_path: Path) -> None:
    work = CASES[name]
    x, out, residuals = conv_chains.drawn(work)
    on_the_host(work, shape, x, out, residuals[0] if residuals else None, tmp_path)
    exact = conv_chains.reference(work, x, residuals)
    assert conv_chains.error(out, exact) <= allowed(work, shape.tile, residuals, x, exact)


def test_what_is_not_finite_stays_in_its_receptive_field(tmp_path: Path) -> None:
    work = CASES["odd pads, shuffled"]
    work = replace(work, layers=(replace(work.layers[0], shuffle=1),), height=19, width=40)
    x, out, _ = conv_chains.drawn(work)
    x[0, 3, 9, 20], x[0, 1, 18, 39], x[0, 2, 0, 0] = float("nan"), float("inf"), 3e38
    on_the_host(work, Shape(4, 8), x, out, None, tmp_path)
    right = conv_chains.reference(work, x)
    assert torch.equal(torch.isnan(out), torch.isnan(right))
    assert torch.equal(torch.isinf(out), torch.isinf(right.float()))
    far = right[..., 4:, 4:]
    there = torch.isfinite(far)
    assert conv_chains.error(out[..., 4:, 4:][there], far[there]) < 1e-6


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_90a", "sm_100", "sm_120"])
@pytest.mark.parametrize("tile", [2, 4])
def test_it_compiles_and_spills_few_registers(tile: int, target: str) -> None:
    chunk = 4 if target in ("sm_80", "sm_86", "sm_120") else 8
    one = CASES["whole blocks"].layers[0]
    x = torch.zeros(1, 16, 9, 9).contiguous(memory_format=torch.channels_last)
    log = log_of("winograd", dict(winograd_launch.macros(one, Shape(tile, chunk), x)), target)
    assert "warning" not in log, log
    spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert spilled
    assert max(map(int, spilled.groups())) <= 128, log


def test_pictures_wider_than_32_bits_count_are_told_apart() -> None:
    far = torch.empty_strided((1, 4, 3, 5), (1, 1, 1 << 30, 4), device="meta")
    (one,) = CASES["whole blocks"].layers
    assert dict(winograd_launch.macros(one, Shape(4), far))["FAR_APART"]
    assert not dict(winograd_launch.macros(one, Shape(4), far[:, :, :2]))["FAR_APART"]


def test_exact_takes_tiles_whose_error_is_that_of_plain_sums() -> None:
    work = chain((64, 64), (1, 1080, 1920), "float32")
    assert shape_of(work, 0, CUDA_H200).tile == 4
    assert shape_of(replace(work, exact=True), 0, CUDA_H200).tile == 2


def test_a_multiprocessor_of_less_memory_takes_fewer_channels_at_a_time() -> None:
    work = chain((64, 64), (1, 1080, 1920), "float32")
    small = replace(CUDA_H200, version="sm_86", local_memory=99 * 1024)
    assert ENGINE.why_not(work, small) is None
    assert shape_of(work, 0, CUDA_H200) == Shape(4, 8)
    assert shape_of(work, 0, small) == Shape(4, 4)


def test_others_are_told_why() -> None:
    import numpy as np

    one = layer(np.random.default_rng(0), 8, 8, strides=(2, 1))
    assert "strides" in str(ENGINE.why_not(ConvWork((one,), 1, 9, 9, "float32"), CUDA_H200))
    work = chain((8, 8), (1, 9, 9))
    assert "float32" in str(ENGINE.why_not(work, CUDA_H200))
    old = replace(CUDA_H200, version="sm_75")
    assert "sm_80" in str(ENGINE.why_not(replace(work, dtype="float32"), old))
    amd = replace(CUDA_H200, version="gfx942")
    assert "sm_80" in str(ENGINE.why_not(replace(work, dtype="float32"), amd))
