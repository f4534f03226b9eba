"""Chooses the engine that runs a batch on a GPU, and has it make the batch ready to launch.

Engines are found by folder: a package here with an `ENGINES` tuple (hopper, tiled, vendor). Nothing
else lists them. What is particular to GPUs: many equal problems are judged by the first of them, an
engine that finds no memory or no compiler gives way to the next (`giving_way.py`), and launches go
onto torch's current stream (`guards.py`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import numpy as np

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.giving_way import first_that_can
from tilewright.backends.cuda.guards import anywhere, guarded
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.backends.cuda.machine.placing import moved
from tilewright.backends.cuda.machine.replay import replayed
from tilewright.backends.cuda.work import BatchEngine, Enqueue, Ints, Launch, Moving, Prepared, Work
from tilewright.engines import choose
from tilewright.engines.contract import Planner
from tilewright.errors import ArgumentError, DeviceError, DtypeError
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal, Verdict

P = TypeVar("P")

_FOLDER = __name__.rpartition(".")[0]
_LITTLE = 2e9  # flops: 0.1 ms of an H200 in fp32
_HOST_EACH = 1e-6  # seconds of the host for a matrix product in a list; 2e-6 is measured
_MANY = 4096  # of so many equal problems the first are planned for all


@dataclass(frozen=True, slots=True)
class Bound:
    """A callable that only launches, and the engine behind it."""

    launch: Launch
    engine: str


@dataclass(frozen=True, slots=True)
class Movable:
    """A planned batch for any addresses that are as aligned: `run(places)` launches it.

    `places` are those of all problems, as `placing.places` numbers them. `bytes` are the host's.
    `one(a, b, c)` is the same on the current GPU, for a batch that needs no table of each run.
    """

    run: Callable[[Ints], None]
    engine: str
    bytes: int
    one: Callable[[int, int, int], None] | None = None


@cache
def engines() -> tuple[BatchEngine, ...]:
    """Every engine of every folder here."""
    package = importlib.import_module(_FOLDER)
    folders = sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.ispkg)
    modules = [importlib.import_module(f"{_FOLDER}.{name}") for name in folders]
    found = [engine for module in modules for engine in getattr(module, "ENGINES", ())]
    return tuple(sorted(found, key=lambda engine: engine.effort))


def names() -> tuple[str, ...]:
    """What `kernel=` takes for arrays on a GPU."""
    return tuple(engine.name for engine in engines())


def judge(
    work: Work, device: Device, wanted: str | None = None, *, hurried: bool = False
) -> Verdict:
    """What the engines say of a batch, or the only one that is wanted.

    `hurried`: none plans that cannot be the best, as others are faster than its least seconds.

    Of many equal problems the first speak for all: 200,000 products of 16 x 16 took every engine
    together 1 s to plan. Their proposals hold no decisions, and are made again to be bound.

    Raises KernelError where the wanted one does not take the batch, DtypeError for a dtype that the
    device lacks and ArgumentError for a precision that no engine of it has.
    """
    sample, ratio = _without_depth(work), 1.0
    if len(work.m) > _MANY and _is_uniform(work):
        sample, ratio = sample.take(np.arange(_MANY)), len(work.m) / _MANY
    least = _least(sample, device) if hurried else None
    verdict = choose.choose(sample, device, engines(), wanted, enough=work.enough, least=least)
    if verdict.proposals:
        return verdict if ratio == 1.0 else _scaled(verdict, ratio)
    if work.dtype not in device.dtypes:
        raise DtypeError(f"dtype={work.dtype!r}: {device.name}: {verdict.reasons}")
    raise ArgumentError(
        f"precision={work.precision!r}: no engine on {device.name} takes this batch"
        f" ({verdict.reasons})"
    )


def _least(work: Work, device: Device) -> Callable[[Planner[Work]], float]:
    known = {engine.name: engine for engine in engines()}
    return lambda engine: known[engine.name].least(work, device)


def _scaled(verdict: Verdict, ratio: float) -> Verdict:
    def scaled(one: Proposal) -> Proposal:
        seconds = None if one.seconds is None else one.seconds * ratio
        return replace(one, seconds=seconds, scratch=int(one.scratch * ratio), decisions=None)

    return replace(verdict, proposals=tuple(map(scaled, verdict.proposals)))


def _is_uniform(work: Work) -> bool:
    """Whether all problems are of one size and lie alike, at equal distances."""
    parts = (work.a, work.b, work.c, *(() if work.bias is None else (work.bias,)))
    equal = (work.m, work.n, work.k, work.alpha, work.beta)
    if any((column != column[0]).any() for column in equal):
        return False
    columns = (column for part in parts for column in (part.row, part.col, np.diff(part.address)))
    return all(bool((column == column[:1]).all()) for column in columns)


def _without_depth(work: Work) -> Work:
    """The batch with k = 0 where alpha is 0, as in BLAS: A and B are not read there."""
    none = work.alpha == 0
    if not none.any():
        return work
    return replace(work, a=replace(work.a, cols=np.where(none, 0, work.k)))


def bind(work: Work, device: Device, wanted: str | None = None, *, often: bool = False) -> Bound:
    """Prepare a batch; it will run on torch's current stream of the device.

    What runs `often` is recorded as a CUDA graph (replay.py). On an H200 that took 70 to 220 us and
    some 100 KiB of the device, once, so a call whose checks alone take longer does without.

    Problems without rows or columns are left out. Which engine gives way to which says
    `giving_way.py`; not where `wanted` names it: its error is raised.
    """
    live = np.flatnonzero((work.m > 0) & (work.n > 0))
    if not len(live):
        return Bound(lambda: None, "none")
    if len(live) < len(work.m):
        work = work.take(live)
    with driver.need().cuda.device(work.ordinal):
        nvrtc.enter(work.ordinal)
        found, ready = _first(work, device, wanted, lambda proposal: prepared(proposal, work))
        enqueue = _few_calls(ready, work.ordinal) if often else ready.enqueue
        return Bound(guarded(enqueue, work.ordinal, ready.memory), found.engine)


def move(work: Work, device: Device, wanted: str | None = None) -> Movable:
    """Prepare a batch for whatever addresses it will have, as aligned as these.

    Which engine gives way to which is as `bind` has it.
    """
    count = len(work.m)
    live = np.flatnonzero((work.m > 0) & (work.n > 0))
    if not len(live):
        return Movable(lambda places: None, "none", 0)
    work, some = replace(_unsorted(work), keep=()), len(live) < count
    if some:
        columns = 3 if work.bias is None else 4
        index = np.append((live + count * np.arange(columns)[:, np.newaxis]).reshape(-1), -1)
        work = work.take(live)
    with driver.need().cuda.device(work.ordinal):
        nvrtc.enter(work.ordinal)
        try:
            found, moving = _first_to_move(work, device, wanted)
        except DeviceError:
            if not work.enough:
                raise
            found, moving = _first_to_move(replace(work, enough=0.0), device, wanted)
    run = anywhere(moving.run, work.ordinal)
    chosen = (lambda places: run(places[index])) if some else run
    return Movable(chosen, found.engine, moving.bytes, None if some else moving.one)


def _unsorted(work: Work) -> Work:
    """Little work in the order given: to find a better one takes the host longer than it saves.

    Nor is any plan sought whose kernels would be done while the host still makes the call; but for
    problems that lie alike, which a library may take with no table of theirs: on an H200 that of
    200,000 took the host 16 ms a call.
    """
    flops = 2.0 * float(np.sum(work.m.astype(np.float64) * work.n * work.k))
    if work.order != "auto" or flops >= _LITTLE:
        return work
    alike = len(work.m) > 1 and _is_uniform(work)
    enough = 0.0 if alike else _HOST_EACH * len(work.m)
    return replace(work, order="given", enough=enough)


def _first_to_move(work: Work, device: Device, wanted: str | None) -> tuple[Proposal, Moving]:
    return _first(work, device, wanted, lambda proposal: _moving(proposal, work))


def _first(
    work: Work, device: Device, wanted: str | None, prepare: Callable[[Proposal], P]
) -> tuple[Proposal, P]:
    """The best proposal, prepared; where it cannot be, the next, and now all engines are asked."""
    import torch

    best = judge(work, device, wanted, hurried=True).best
    try:
        return best, prepare(best)
    except (DeviceError, torch.OutOfMemoryError):
        return first_that_can(judge(work, device, wanted), prepare)


def prepared(proposal: Proposal, work: Work) -> Prepared:
    """The launches of a proposal for this batch. Raises DeviceError, torch's OutOfMemoryError."""
    engine, proposal, work = _in_full(proposal, work)
    return engine.bind(proposal, work)


def _moving(proposal: Proposal, work: Work) -> Moving:
    engine, proposal, work = _in_full(proposal, work)
    found = engine.move(proposal, work)
    return _rebound(engine, work, proposal.device) if found is None else found


def _in_full(proposal: Proposal, work: Work) -> tuple[BatchEngine, Proposal, Work]:
    """The engine of a proposal, which is made again where the first problems spoke for all."""
    work = _without_depth(work)
    engine = choose.named(engines(), proposal.engine, proposal.device)
    if proposal.decisions is None:
        proposal = _again(engine, work, proposal.device)
    return engine, proposal, work


def _again(engine: BatchEngine, work: Work, device: Device) -> Proposal:
    """What an engine that took some of a batch, or the same elsewhere, proposes for this one."""
    verdict = choose.choose(work, device, (engine,))
    if not verdict.proposals:
        raise DeviceError(verdict.reasons)
    return verdict.best


def _rebound(engine: BatchEngine, work: Work, device: Device) -> Moving:
    """For an engine that binds a batch anew each time."""
    alone = replace(work, keep=())

    def run(stream: int, places: Ints) -> None:
        there = moved(alone, places)
        engine.bind(_again(engine, there, device), there).enqueue(stream)

    return Moving(run, 256 * len(work.m))


def _few_calls(ready: Prepared, ordinal: int) -> Enqueue:
    """Through a graph where the kernels are ours, on NVIDIA's GPUs."""
    if not ready.count or not nvrtc.is_cuda(ordinal):
        return ready.enqueue
    import torch
    from cuda.bindings import driver as calls

    is_captured = private.is_capturing(torch)
    return replayed(ready.enqueue, ordinal, calls, is_captured)
