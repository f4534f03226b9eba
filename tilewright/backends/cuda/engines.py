"""Which engine runs a batch: every family of kernels is asked, the fewest predicted seconds win.

Engines are found by folder: a package here with an `ENGINES` tuple (portable, hopper). Nothing else
lists them.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np

from tilewright.backends.cuda import driver
from tilewright.backends.cuda.engine import Engine, Launch, Proposal, Work
from tilewright.device import Device
from tilewright.errors import (
    ArgumentError,
    DeviceMemoryError,
    DeviceWarning,
    DtypeError,
    KernelError,
)

_FOLDER = __name__.rpartition(".")[0]


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


@cache
def engines() -> tuple[Engine, ...]:
    """Every engine of every folder here."""
    package = importlib.import_module(_FOLDER)
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.ispkg)
    modules = [importlib.import_module(f"{_FOLDER}.{name}") for name in names]
    return tuple(engine for module in modules for engine in getattr(module, "ENGINES", ()))


def names() -> tuple[str, ...]:
    """What `kernel=` takes for arrays on a GPU."""
    return tuple(engine.name for engine in engines())


def judge(work: Work, device: Device, wanted: str | None = None) -> Verdict:
    """Ask every engine, or only the one wanted.

    Raises KernelError where none, or not the wanted one, takes the batch, DtypeError for a dtype
    that the device lacks and ArgumentError for a precision that no engine of it has.
    """
    asked = [engine for engine in engines() if wanted in (None, engine.name)]
    if not asked:
        known = ", ".join(map(repr, names()))
        raise KernelError(f"kernel={wanted!r}: {device.id!r} knows {known}")
    answers = [(engine.name, engine.propose(work, device)) for engine in asked]
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


def bind(work: Work, device: Device, wanted: str | None = None) -> Bound:
    """Prepare a batch; it will run on torch's current stream of the device.

    Problems without rows or columns are left out. An engine whose scratch does not fit the memory
    makes room for the next that needs less, with a DeviceWarning that says so.
    """
    live = np.flatnonzero((work.m > 0) & (work.n > 0))
    if not len(live):
        return Bound(_nothing, "none", 0)
    if len(live) < len(work.m):
        work = work.take(live)
    with driver.need().cuda.device(work.ordinal):
        found, launch = _first_that_fits(judge(work, device, wanted), device)
        return Bound(_guarded(launch, work.ordinal), found.engine, found.scratch)


def _nothing() -> None:
    """The launch of a batch without a single element."""


def _first_that_fits(verdict: Verdict, device: Device) -> tuple[Proposal, Launch]:
    torch = driver.need()
    full: Proposal | None = None
    for proposal in verdict.proposals:
        if full is not None and proposal.scratch >= full.scratch:
            continue
        try:
            launch = proposal.bind()
        except torch.OutOfMemoryError:
            full = proposal
            continue
        if full is not None:
            warnings.warn(
                f"{device.id}: {full.engine} needs {full.scratch} bytes of scratch, more than is"
                f" free; {proposal.engine} runs the batch without",
                DeviceWarning,
                stacklevel=4,
            )
        return proposal, launch
    needed = 0 if full is None else full.scratch
    raise DeviceMemoryError(
        f"device={device.id!r}: cannot give {needed} bytes of scratch, or its tables"
    )


def _guarded(launch: Launch, ordinal: int) -> Launch:
    """`launch` with its device made the current one where it is not, and its tables there.

    Tables are uploaded on the stream of `bind`. A launch on another stream waits for that upload
    once; while a graph is captured it need not, as captures begin with everything done.
    """
    torch = driver.need()
    device_of, stream_of = torch._C._cuda_getDevice, torch._C._cuda_getCurrentRawStream
    known = {stream_of(ordinal)}
    uploaded = torch.cuda.Event()
    if not torch.cuda.is_current_stream_capturing():
        uploaded.record()

    def elsewhere(stream: int) -> None:
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream(ordinal).wait_event(uploaded)
            known.add(stream)

    def run() -> None:
        stream = stream_of(ordinal)
        if device_of() == ordinal:
            if stream not in known:
                elsewhere(stream)
            launch()
        else:
            with torch.cuda.device(ordinal):
                if stream not in known:
                    elsewhere(stream)
                launch()

    return run
