"""The kernels of chains compile with no GPU: no product waits for another, nothing is spilled."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support import whole_chains
from tests.support.conv_chains import chain, prelu
from tests.support.nvrtc_log import log_of
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda.conv import chain_plan
from tilewright.backends.cuda.conv.chain import CHAIN, CHAIN_MMA
from tilewright.engines.conv import Activation, ConvWork

HD = (1, 1080, 1920)
CHAINS = {
    "S": chain((1, 16, 16, 16, 16, 4), HD, shuffle=2),
    "M": chain((1, 32, 32, 32, 32, 32, 4), HD, shuffle=2),
    "C64": chain((1, 64, 64, 64, 64, 64, 4), HD, "bfloat16", shuffle=2),
    "L": chain((1, *[64] * 9, 4), HD, shuffle=2),
    "colours of many widths": chain((3, 20, 64, 30, 5, 33), HD, adds=True),
    "48 channels": chain((3, 48, 48, 48, 48, 48, 12), HD, shuffle=2),
    "48 to 48": chain((48, 48, 48, 48), HD),
    "prelu": prelu((3, 64, 64, 12), HD),
    "M, int8": whole_chains.chain((1, 32, 32, 32, 32, 32, 4), HD),
    "wide, leaky": chain((64, 64, 64), HD, activation=Activation("leaky", 0.1)),
}


H200, MMA = CHAIN.machine(CUDA_H200), CHAIN_MMA.machine(CUDA_H200)
# Targets of the other kernel, and the shared memory of the smallest chip of each.
SHARED = {"sm_80": 163, "sm_86": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99}


@pytest.mark.parametrize("name", CHAINS)
def test_no_product_waits_for_another_and_no_register_is_spilled(name: str) -> None:
    work: ConvWork = CHAINS[name]
    parts = chain_plan.cut(work, H200)
    pairs = work.layers[-1].shuffle == 2
    # NVRTC keeps what it compiled lately, and has nothing to say of it.
    for macros in {chain_plan.defines(part, work.dtype, pairs=pairs) for part in parts}:
        log = log_of("chain_wgmma", dict(macros), "sm_90a")
        assert not re.search("serialized|wait_group is injected", log), log
        assert "warning" not in log, log
        assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", log), log


@pytest.mark.parametrize("target", SHARED)
@pytest.mark.parametrize("name", ["M", "wide, leaky"])
def test_other_gpus_have_a_kernel_that_spills_few_registers(name: str, target: str) -> None:
    work: ConvWork = CHAINS[name]
    for part in chain_plan.cut(work, replace(MMA, shared=SHARED[target] * 1024)):
        macros = dict(chain_plan.defines(part, work.dtype, pairs=part.layers[-1].shuffle == 2))
        log = log_of("chain_mma", macros, target)
        assert "warning" not in log, log
        spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
        assert spilled
        assert max(map(int, spilled.groups())) <= 256, log
