"""8-bit products with scales: by Hopper's tensor cores, or in Triton on every other GPU.

What is compiled and decided for operands is kept by how they lie, not by their addresses or by the
number of rows.
"""

from __future__ import annotations

from typing import Any

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.fp8 import hopper, triton
from tilewright.backends.cuda.fp8.launch import is_long as is_long
from tilewright.backends.cuda.fp8.work import Fp8Work, Way
from tilewright.backends.cuda.giving_way import first_that_can
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.backends.cuda.ragged.engine import INTERPRETER
from tilewright.engines.choose import choose, named
from tilewright.engines.contract import Engine
from tilewright.remember import Shelf

_ENGINES: tuple[Engine[Fp8Work, Fp8Work, Way], ...] = (hopper.Hopper(), triton.Triton())
_WAY = 1 << 13  # bytes of the host that a prepared launch holds, about
_ways: Shelf[tuple[Any, ...], Way] = Shelf("launches of 8-bit products", most=4 << 20)


def run(work: Fp8Work) -> None:
    """Write the product, on the current stream. Raises DeviceError."""
    given, a = work.operands, work.operands.a
    if not work.groups:
        if work.clear:
            given.out.zero_()
        return
    if not a.is_cuda:  # Triton's interpreter
        _way(work)(0, given)
        return
    torch, ordinal = driver.need(), a.device.index
    if private.current_device(torch)() != ordinal:
        with torch.cuda.device(ordinal):
            run(work)
        return
    key = _key(work)
    way = _ways.get(key)
    if way is None:
        nvrtc.enter(ordinal)
        way = _ways.keep(key, _way(work), size=_WAY)
    way(private.raw_stream(torch)(ordinal), given)


def known(work: Fp8Work) -> Way | None:
    """The launches of what has run, which serve operands that lie alike at any addresses."""
    return _ways.get(_key(work)) if work.groups and work.operands.a.is_cuda else None


def _key(work: Fp8Work) -> tuple[Any, ...]:
    a, b, offsets, scale_a, scale_b, out = work.operands
    rows = a.shape[1 if work.depths else 0]
    if work.depths:
        kinds = _kind(a, 0), _kind(b, 1), _kind(scale_a, 0), _kind(scale_b, 2)
        results: tuple[Any, ...] = out.shape, out.stride()
    else:
        kinds = _kind(a, 1), (b.shape, b.stride(), _kind(b)), _kind(scale_a, 1), _kind(scale_b, 1)
        results = out.shape[1], out.stride()
    places = offsets.shape, offsets.stride(), offsets.dtype, out.dtype, out.data_ptr() % 16
    some = bool(rows), is_long(rows, work.groups), hopper.why_not_scaled(work)
    return work.scales, work.depths, work.clear, a.get_device(), *some, *kinds, *results, *places


def _kind(tensor: Any, *sizes: int) -> tuple[Any, ...]:
    """What is compiled and decided for how a tensor lies; of its sizes only those of `sizes`."""
    steps = (
        step if step in (0, 1) else "sixteens" if step % 16 == 0 else "any"
        for step in tensor.stride()
    )
    large = tensor.numel() >= 2**31 or max(tensor.stride(), default=0) >= 2**31
    counted = (tensor.shape[at] for at in sizes)
    return tensor.dim(), tensor.dtype, tensor.data_ptr() % 16, large, *steps, *counted


def _way(work: Fp8Work) -> Way:
    """The launches of a product, by the first engine that takes it and can be had."""
    a = work.operands.a
    device = driver.device_of(a.device.index) if a.is_cuda else INTERPRETER
    verdict = choose(work, device, _ENGINES)
    _, way = first_that_can(
        verdict, lambda proposal: named(_ENGINES, proposal.engine, device).bind(proposal, work)
    )
    return way
