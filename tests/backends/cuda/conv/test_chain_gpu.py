"""Chains as one kernel on a GPU: as right as torch's own halves, every edge, any chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support import conv_chains, whole_chains
from tests.support.conv_chains import chain, prelu
from tilewright.backends.cuda.conv.chain import CHAIN, CHAIN_MMA, Chained
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.engines.conv import Activation, ConvOperands, ConvWork

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=f"no GPU: {driver.missing()}"),
    pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing())),
]

S, M = (1, 16, 16, 16, 16, 4), (1, 32, 32, 32, 32, 32, 4)
CHAINS = {
    "S": chain(S, (1, 357, 611), shuffle=2),
    "M": chain(M, (1, 357, 611), shuffle=2),
    "M with a residual": chain(M, (1, 60, 130), shuffle=2, adds=True),
    "M, bfloat16": chain(M, (1, 60, 130), "bfloat16", shuffle=2),
    "M, one row": chain(M, (1, 1, 611)),
    "M, five columns": chain(M, (1, 300, 5)),
    "M, one pixel": chain(M, (1, 1, 1), shuffle=2),
    "M, images of few rows": chain(M, (7, 3, 200), shuffle=2),
    "S, two images": chain(S, (2, 357, 211), shuffle=2),
    "many layers of 16": chain((2, *[16] * 11, 3), (2, 70, 150)),
    "64 channels, in two kernels": chain((1, 64, 64, 64, 64, 64, 4), (1, 150, 250), shuffle=2),
    "48 channels": chain((3, 48, 48, 48, 40), (2, 67, 131)),
    "64 to 64": chain((64, 64, 64), (2, 67, 131)),
    "M, wider than high": chain(M, (1, 12, 2111), shuffle=2),
    "16 channels, wide strips": chain(S, (1, 700, 1300), shuffle=2),
    "one layer": chain((24, 40), (2, 67, 131)),
    "widths that differ": chain((3, 20, 64, 30, 5, 33), (2, 67, 131)),
    "colours, shuffled by three": chain((3, 32, 32, 27), (1, 67, 131), shuffle=3),
    "leaky": chain((4, 32, 32, 8), (1, 67, 131), activation=Activation("leaky", 0.1)),
    "prelu, all layers": prelu((3, 32, 64, 16, 8), (2, 67, 131)),
    "clipped": chain((4, 32, 32, 8), (1, 67, 131), activation=Activation("clip", 0.1, 0.8)),
    "linear": chain((2, 16, 8, 8), (1, 67, 131), activation=Activation()),
}


def bound(work: ConvWork, x: Any, out: Any, residuals: Any = (), engine: Chained = CHAIN) -> Any:
    device = driver.found()[0]
    why = engine.why_not(work, device)
    if why is not None:
        pytest.skip(why)
    proposal = engine.propose(work, device)
    return engine.bind(proposal, ConvOperands(x, out, residuals))


def on_gpu(work: ConvWork) -> tuple[Any, Any, tuple[Any, ...]]:
    x, out, residuals = conv_chains.drawn(work)
    return x.cuda(), out.cuda(), tuple(one.cuda() for one in residuals)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("memory", ["channels_first", "channels_last"])
@pytest.mark.parametrize("engine", [CHAIN, CHAIN_MMA], ids=lambda one: one.name)
def test_a_chain_is_as_right_as_torchs_and_every_run_the_same(
    name: str, memory: Any, engine: Chained
) -> None:
    import torch

    work = replace(conv_chains.rounded(CHAINS[name]), source=memory, result=memory)
    x, out, residuals = on_gpu(work)
    run = bound(work, x, out, residuals, engine)
    run()
    once = out.clone()
    exact = conv_chains.reference(work, x, residuals)
    theirs = conv_chains.reference(work, x, residuals, x.dtype)
    assert not torch.isnan(once).any()
    assert conv_chains.error(once, exact) <= 1.01 * conv_chains.error(theirs, exact) + 1e-6
    out.fill_(float("nan"))
    run()
    assert torch.equal(out, once)


@pytest.mark.parametrize("name", ["S", "64 channels, in two kernels", "widths that differ"])
@pytest.mark.parametrize("engine", [CHAIN, CHAIN_MMA], ids=lambda one: one.name)
def test_a_nan_stays_in_its_receptive_field(name: str, engine: Chained) -> None:
    import torch

    work = CHAINS[name]
    x, out, _ = on_gpu(work)
    run = bound(work, x, out, engine=engine)
    run()
    clean = out.clone()
    row, column, reach, r = 40, 61, len(work.layers), work.layers[-1].shuffle
    x[0, 0, row, column] = float("nan")
    run()
    touched = torch.isnan(out)
    field = torch.zeros_like(touched)
    rows = slice((row - reach) * r, (row + reach + 1) * r)
    field[0, :, rows, (column - reach) * r : (column + reach + 1) * r] = True
    assert torch.equal(touched, field)
    assert torch.equal(out[~field], clean[~field])


def test_tensors_that_are_parts_of_others_are_read_and_written_where_they_lie() -> None:
    import torch

    work = chain(M, (2, 40, 77))
    x, out, _ = on_gpu(work)
    wide = torch.full((2, 4, 40, 99), 7.0, dtype=x.dtype, device="cuda")
    source = torch.full((2, 3, 41, 80), float("nan"), dtype=x.dtype, device="cuda")
    source[:, 1:2, 1:, 3:] = x
    bound(work, x, out)()
    bound(work, source[:, 1:2, 1:, 3:], wide[..., 5:82])()
    assert torch.equal(wide[..., 5:82], out)
    assert (wide[..., :5] == 7).all()
    assert (wide[..., 82:] == 7).all()


def bytes_out(work: ConvWork, dtype: str) -> ConvWork:
    """The same whose result is whole as well."""
    last = work.layers[-1]
    whole = replace(last.whole, step=3.0, shift=11, dtype=dtype)
    return replace(work, layers=(*work.layers[:-1], replace(last, whole=whole)))


def bytes_in(work: ConvWork) -> ConvWork:
    first = work.layers[0]
    whole = replace(first.whole, taken=None)
    return replace(work, layers=(replace(first, whole=whole), *work.layers[1:]))


WHOLE = {
    "S": whole_chains.chain(S, (1, 157, 331)),
    "M, two images": whole_chains.chain(M, (2, 60, 130)),
    "64 channels, in several kernels": whole_chains.chain((1, 64, 64, 64, 64, 4), (1, 50, 90)),
    "widths that differ": whole_chains.chain((3, 20, 48, 30, 5, 33), (2, 37, 71)),
    "from bytes": bytes_in(whole_chains.chain((2, 16, 24, 8), (1, 30, 70))),
    "to bytes": bytes_out(whole_chains.chain((1, 32, 32, 12), (1, 30, 70)), "uint8"),
    "to int8, shuffled": bytes_out(whole_chains.chain((1, 32, 32, 4), (1, 30, 70)), "int8"),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("memory", ["channels_first", "channels_last"])
@pytest.mark.parametrize("engine", [CHAIN, CHAIN_MMA], ids=lambda one: one.name)
def test_whole_numbers_have_the_bits_of_the_definition(
    name: str, memory: Any, engine: Chained
) -> None:
    import torch

    work = replace(WHOLE[name], source=memory, result=memory)
    x = whole_chains.drawn(work)
    wanted = conv_chains.whole_reference(work, x)
    out = torch.full(wanted.shape, 99, dtype=getattr(torch, work.result_dtype), device="cuda")
    out, given = (conv_chains.laid(one, memory) for one in (out, torch.from_numpy(x).cuda()))
    bound(work, given, out, engine=engine)()
    np.testing.assert_array_equal(out.cpu().numpy(), wanted)
