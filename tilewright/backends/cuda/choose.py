"""Which engine runs a batch: every family of kernels is asked, the fewest predicted seconds win.

Engines are found by folder: a package here with an `ENGINES` tuple (hopper, tiled, vendor). Nothing
else lists them.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import numpy as np

from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.backends.cuda.machine.placing import moved
from tilewright.backends.cuda.machine.replay import replayed
from tilewright.backends.cuda.work import (
    Engine,
    Enqueue,
    Ints,
    Launch,
    Moving,
    Prepared,
    Proposal,
    Work,
)
from tilewright.errors import (
    ArgumentError,
    DeviceError,
    DeviceMemoryError,
    DeviceWarning,
    DtypeError,
    KernelError,
)
from tilewright.facts.device import Device

_FOLDER = __name__.rpartition(".")[0]
_FIRST = ("hopper", "vendor")  # are asked first: one that is fast enough ends the asking
_LITTLE = 2e9  # flops: 0.1 ms of an H200 in fp32
_HOST_EACH = 1e-6  # seconds of the host for a matrix product in a list; 2e-6 is measured
_MANY = 4096  # of so many equal problems the first are planned for all
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the engines said of a batch: proposals, the best first, and why the others cannot."""

    proposals: tuple[Proposal, ...]
    refusals: tuple[tuple[str, str], ...]

    @property
    def best(self) -> Proposal:
        """The one that will run."""
        return self.proposals[0]


@dataclass(frozen=True, slots=True)
class Bound:
    """A callable that only launches, the engine behind it and the scratch that it holds."""

    launch: Launch
    engine: str
    scratch: int


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
def engines() -> tuple[Engine, ...]:
    """Every engine of every folder here."""
    package = importlib.import_module(_FOLDER)
    folders = [m.name for m in pkgutil.iter_modules(package.__path__) if m.ispkg]
    names = sorted(folders, key=lambda name: (name not in _FIRST, name))
    modules = [importlib.import_module(f"{_FOLDER}.{name}") for name in names]
    return tuple(engine for module in modules for engine in getattr(module, "ENGINES", ()))


def names() -> tuple[str, ...]:
    """What `kernel=` takes for arrays on a GPU."""
    return tuple(engine.name for engine in engines())


def judge(work: Work, device: Device, wanted: str | None = None) -> Verdict:
    """Ask every engine, or only the one wanted; none after one that is fast enough for the work.

    Raises KernelError where none, or not the wanted one, takes the batch, DtypeError for a dtype
    that the device lacks and ArgumentError for a precision that no engine of it has.
    """
    work = _without_depth(work)
    asked = [engine for engine in engines() if wanted in (None, engine.name)]
    if not asked:
        known = ", ".join(map(repr, names()))
        raise KernelError(f"kernel={wanted!r}: {device.id!r} knows {known}")
    many = len(work.m) > _MANY and _is_uniform(work)
    ask = _by_sample if many else _whole
    answers: list[tuple[str, Proposal | str]] = []
    for engine in asked:
        answer = ask(engine, work, device)
        answers.append((engine.name, answer))
        if isinstance(answer, Proposal) and answer.seconds <= work.enough:
            break
    proposals = [answer for _, answer in answers if isinstance(answer, Proposal)]
    refusals = tuple((name, answer) for name, answer in answers if isinstance(answer, str))
    if not proposals:
        reasons = "; ".join(f"{name}: {why}" for name, why in refusals)
        if wanted is not None:
            raise KernelError(f"kernel={wanted!r}: {device.name}: {reasons}")
        if work.dtype not in device.dtypes:
            raise DtypeError(f"dtype={work.dtype!r}: {device.name}: {reasons}")
        raise ArgumentError(
            f"precision={work.precision!r}: no engine on {device.name} takes this batch ({reasons})"
        )
    return Verdict(tuple(sorted(proposals, key=lambda found: found.seconds)), refusals)


def _whole(engine: Engine, work: Work, device: Device) -> Proposal | str:
    return engine.propose(work, device)


def _by_sample(engine: Engine, work: Work, device: Device) -> Proposal | str:
    """What an engine says of the first of many equal problems, for all of them.

    200,000 products of 16 x 16 took every engine together 1 s to plan.
    """
    answer = engine.propose(work.take(np.arange(_MANY)), device)
    if isinstance(answer, str):
        return answer
    ratio = len(work.m) / _MANY

    def whole() -> Proposal:
        found = engine.propose(work, device)
        if isinstance(found, str):
            raise DeviceError(f"{engine.name}: {found}")
        return found

    def move() -> Moving:
        found = whole()
        return _rebound(engine, work, device) if found.move is None else found.move()

    return replace(
        answer,
        seconds=answer.seconds * ratio,
        scratch=int(answer.scratch * ratio),
        bind=lambda: whole().bind(),
        move=move,
    )


def _is_uniform(work: Work) -> bool:
    """Whether all problems are of one size and lie alike, at equal distances."""
    parts = (work.a, work.b, work.c, *(() if work.bias is None else (work.bias,)))
    equal = (work.m, work.n, work.k, work.alpha, work.beta)
    if any((column != column[0]).any() for column in equal):
        return False
    columns = (column for part in parts for column in (part.row, part.col, np.diff(part.address)))
    return all(bool((column == column[:1]).all()) for column in columns)


def _rebound(engine: Engine, work: Work, device: Device) -> Moving:
    """For an engine that binds a batch anew each time."""
    alone = replace(work, keep=())

    def run(stream: int, places: Ints) -> None:
        found = engine.propose(moved(alone, places), device)
        if isinstance(found, str):
            raise DeviceError(f"{engine.name}: {found}")
        found.bind().enqueue(stream)

    return Moving(run, 256 * len(work.m))


def _without_depth(work: Work) -> Work:
    """The batch with k = 0 where alpha is 0, as in BLAS: A and B are not read there."""
    none = work.alpha == 0
    return replace(work, k=np.where(none, 0, work.k)) if none.any() else work


def bind(work: Work, device: Device, wanted: str | None = None, *, often: bool = False) -> Bound:
    """Prepare a batch; it will run on torch's current stream of the device.

    What runs `often` is recorded as a CUDA graph (replay.py). On an H200 that took 70 to 220 us and
    some 100 KiB of the device, once, so a call whose checks alone take longer does without.

    Problems without rows or columns are left out. An engine whose scratch does not fit the memory
    makes room for the next that needs less, and one whose kernels cannot be compiled or loaded for
    the next, with a DeviceWarning that says so; not where `wanted` names it: its error is raised.
    """
    live = np.flatnonzero((work.m > 0) & (work.n > 0))
    if not len(live):
        return Bound(_nothing, "none", 0)
    if len(live) < len(work.m):
        work = work.take(live)
    with driver.need().cuda.device(work.ordinal):
        nvrtc.enter(work.ordinal)
        found, prepared = _first_that_fits(
            judge(work, device, wanted), device, lambda proposal: proposal.bind()
        )
        enqueue = _few_calls(prepared, work.ordinal) if often else prepared.enqueue
        return Bound(_guarded(enqueue, work.ordinal), found.engine, found.scratch)


def move(work: Work, device: Device, wanted: str | None = None) -> Movable:
    """Prepare a batch for whatever addresses it will have, as aligned as these.

    Which engine gives way to which is as `bind` has it.
    """
    count = len(work.m)
    live = np.flatnonzero((work.m > 0) & (work.n > 0))
    if not len(live):
        return Movable(lambda places: None, "none", 0)
    work, some = replace(_unsorted(work), keep=()), len(live) < count
    columns = 3 if work.bias is None else 4
    index = np.append((live + count * np.arange(columns)[:, np.newaxis]).reshape(-1), -1)
    if some:
        work = work.take(live)
    with driver.need().cuda.device(work.ordinal):
        nvrtc.enter(work.ordinal)
        try:
            found, moving = _first_to_move(work, device, wanted)
        except DeviceError:
            if not work.enough:
                raise
            found, moving = _first_to_move(replace(work, enough=0.0), device, wanted)
    run = _anywhere(moving.run, work.ordinal)
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
    verdict = judge(work, device, wanted)
    return _first_that_fits(verdict, device, lambda found: _moving(found, work, device))


def _moving(proposal: Proposal, work: Work, device: Device) -> Moving:
    if proposal.move is not None:
        return proposal.move()
    engine = next(engine for engine in engines() if engine.name == proposal.engine)
    return _rebound(engine, work, device)


def _anywhere(run: Callable[[int, Ints], None], ordinal: int) -> Callable[[Ints], None]:
    """Launches on torch's current stream of a device, made the current one where it is not."""
    torch = driver.need()
    device_of, stream_of = torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream

    def launch(places: Ints) -> None:
        if device_of() != ordinal:
            with torch.cuda.device(ordinal):
                nvrtc.enter(ordinal)
                run(stream_of(ordinal), places)
            return
        try:
            run(stream_of(ordinal), places)
        except DeviceError:  # a thread that the driver does not know yet
            if not nvrtc.enter(ordinal):
                raise
            run(stream_of(ordinal), places)

    return launch


def _nothing() -> None:
    """The launch of a batch without a single element."""


def _first_that_fits(
    verdict: Verdict, device: Device, prepare: Callable[[Proposal], P]
) -> tuple[Proposal, P]:
    """The best proposal that can be prepared; what it stands in for is said in a warning.

    Raises what the best engine raised where none can, DeviceMemoryError where memory was all.
    """
    torch = driver.need()
    full: Proposal | None = None
    broken: list[tuple[Proposal, DeviceError]] = []
    for proposal in verdict.proposals:
        if full is not None and proposal.scratch >= full.scratch:
            continue
        try:
            prepared = prepare(proposal)
        except torch.OutOfMemoryError:
            full = proposal
        except DeviceError as error:
            broken.append((proposal, error))
        else:
            _say_what_failed(device, full, broken, proposal)
            return proposal, prepared
    if broken:
        raise broken[0][1]
    needed = 0 if full is None else full.scratch
    raise DeviceMemoryError(
        f"device={device.id!r}: cannot give {needed} bytes of scratch, or its tables"
    )


def _say_what_failed(
    device: Device,
    full: Proposal | None,
    broken: list[tuple[Proposal, DeviceError]],
    taken: Proposal,
) -> None:
    said = [
        f"{device.id}: {failed.engine} cannot be used here ({str(error).partition(chr(10))[0]});"
        f" {taken.engine} runs the batch"
        for failed, error in broken
    ]
    if full is not None:
        said.append(
            f"{device.id}: {full.engine} needs {full.scratch} bytes of scratch, more than is free;"
            f" {taken.engine} runs the batch without"
        )
    for message in said:
        warnings.warn(message, DeviceWarning, stacklevel=5)


def _guarded(enqueue: Enqueue, ordinal: int) -> Launch:
    """Launches on torch's current stream of a device, made the current one where it is not.

    Tables are uploaded on the stream of `bind`. A launch on another stream waits for that upload
    once; while a graph is captured it need not, as captures begin with everything done.
    """
    torch = driver.need()
    device_of, stream_of = torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream
    known = {stream_of(ordinal)}
    uploaded = torch.cuda.Event()
    if not torch.cuda.is_current_stream_capturing():
        uploaded.record()

    def run() -> None:
        stream = stream_of(ordinal)
        if stream in known and device_of() == ordinal:
            try:
                enqueue(stream)
            except DeviceError:  # a thread that the driver does not know yet
                if not nvrtc.enter(ordinal):
                    raise
                enqueue(stream)
        else:
            elsewhere(stream)

    def elsewhere(stream: int) -> None:
        with torch.cuda.device(ordinal):
            nvrtc.enter(ordinal)
            if stream not in known and not torch.cuda.is_current_stream_capturing():
                torch.cuda.current_stream(ordinal).wait_event(uploaded)
                known.add(stream)
            enqueue(stream)

    return run


def _few_calls(prepared: Prepared, ordinal: int) -> Enqueue:
    """Through a graph where the kernels are ours, on NVIDIA's GPUs."""
    if not prepared.count or not nvrtc.is_cuda(ordinal):
        return prepared.enqueue
    import torch
    from cuda.bindings import driver as calls

    is_captured = torch._C._cuda_isCurrentStreamCapturing
    return replayed(prepared.enqueue, ordinal, calls, is_captured)
