"""Products of networks on a GPU: engines of batches, asked before there are addresses.

    ProductWork --places that are made up, as aligned as planned memory is--> Work --> engines
    bound: the same at its addresses

A library that takes no epilogue is asked a second time, for the product alone, passes behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilewright.arrays.views import View
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.machine import driver
from tilewright.backends.cuda.work import BatchEngine, Work
from tilewright.calls.dense_work_gpu import batch_of
from tilewright.engines.product import Matrices, ProductEngine, ProductOperands, ProductWork
from tilewright.facts.device import Device
from tilewright.facts.dtypes import ITEMSIZE, TYPES
from tilewright.facts.scalars import Scalars
from tilewright.facts.verdict import Proposal

_APART = 1 << 40  # bytes between the places that stand for operands before there are any
_PASS = 4e-6  # seconds that a pass of torch's takes at least, recorded in a graph
_MEMORY = 2e12  # bytes a second of a pass where nothing was measured


@dataclass(frozen=True, slots=True)
class OnBatches:
    """An engine of batches, asked for a network's product."""

    engine: BatchEngine

    @property
    def name(self) -> str:
        """The engine's own."""
        return self.engine.name

    def why_not(self, work: ProductWork, device: Device) -> str | None:
        """What the engine says of such a batch."""
        return _why_none(work, device) or self.engine.why_not(_batch(work, device), device)

    def propose(self, work: ProductWork, device: Device) -> Proposal:
        """What the engine would do; it decides again at the operands' own places."""
        found = self.engine.propose(_batch(work, device), device)
        return replace(found, decisions=work)

    def bind(self, proposal: Proposal, operands: ProductOperands) -> Callable[[], None]:
        """Tables and programs; the launch goes onto torch's current stream."""
        work: ProductWork = proposal.decisions
        launch = _bound(work, operands, proposal.device, self.name)
        return launch if operands.added is None else _after(operands, launch)


@dataclass(frozen=True, slots=True)
class WithPasses:
    """The same for the product alone; C, the bias and the activation are passes of torch's."""

    engine: BatchEngine

    @property
    def name(self) -> str:
        """The engine's with what follows it."""
        return f"{self.engine.name}, then passes"

    def why_not(self, work: ProductWork, device: Device) -> str | None:
        """Where there is no epilogue the engine itself is asked."""
        if not (work.bias or work.activation != "none"):
            return "there is nothing to do behind the product"
        none = _why_none(work, device)
        return none or self.engine.why_not(_batch(_alone(work), device), device)

    def propose(self, work: ProductWork, device: Device) -> Proposal:
        """The engine's time, and C read and written once more for each pass."""
        found = self.engine.propose(_batch(_alone(work), device), device)
        passes = work.bias + (work.activation != "none")
        m, n, _ = work.sizes
        moved = 2.0 * ITEMSIZE[work.dtype] * work.count * m * n
        memory = None if device.ceilings is None else device.ceilings.memory(moved)
        rate = _MEMORY if memory is None else memory.value
        seconds = None if found.seconds is None else found.seconds
        if seconds is not None:
            seconds += passes * (_PASS + moved / rate)
        reason = f"{found.reason}; passes behind it: {passes}"
        return replace(found, engine=self.name, seconds=seconds, reason=reason, decisions=work)

    def bind(self, proposal: Proposal, operands: ProductOperands) -> Callable[[], None]:
        """The engine's launch, then torch's, all on its current stream."""
        work: ProductWork = proposal.decisions
        launch = _bound(_alone(work), operands, proposal.device, self.engine.name)
        if operands.added is not None:
            launch = _after(operands, launch)
        ends = _ends(work, operands)

        def run() -> None:
            launch()
            for end in ends:
                end()

        return run


@cache
def product_engines() -> tuple[ProductEngine, ...]:
    """Every engine of batches, and the vendor's with passes."""
    found = choose.engines()
    vendors = tuple(WithPasses(engine) for engine in found if engine.name == "vendor")
    return (*map(OnBatches, found), *vendors)


def _why_none(work: ProductWork, device: Device) -> str | None:
    if work.dtype not in device.dtypes:
        return f"dtype={work.dtype!r}: {device.name} has {', '.join(device.dtypes)}"
    return None


def _alone(work: ProductWork) -> ProductWork:
    return replace(work, bias=False, activation="none")


def _after(operands: ProductOperands, launch: Callable[[], None]) -> Callable[[], None]:
    """What is added goes to its place before the launch."""

    def run() -> None:
        operands.out.copy_(operands.added.expand_as(operands.out))
        launch()

    return run


def _ends(work: ProductWork, operands: ProductOperands) -> list[Callable[[], Any]]:
    """Bias and activation, where the result lies."""
    import torch

    out, bias = operands.out, operands.bias
    made: list[Callable[[], Any]] = []
    if work.bias:
        made.append(lambda: out.add_(bias))
    if work.activation == "relu":
        made.append(lambda: torch.relu_(out))
    if work.activation == "gelu":
        made.append(lambda: out.copy_(torch.nn.functional.gelu(out)))
    return made


def _bound(
    work: ProductWork, operands: ProductOperands, device: Device, engine: str
) -> Callable[[], None]:
    """The engine's launch at these places; the memory lives as long as it does."""
    tensors = {"a": operands.a, "b": operands.b, "c": operands.out}
    if work.bias:
        tensors["bias"] = operands.bias
    size = ITEMSIZE[work.dtype]
    starts = {name: one.data_ptr() // size for name, one in tensors.items()}
    batch = replace(_work(work, device, starts), keep=tuple(tensors.values()))
    return choose.bind(batch, device, engine).launch


def _batch(work: ProductWork, device: Device) -> Work:
    """The batch at places that are made up."""
    starts = {name: at * _APART for at, name in enumerate(("a", "b", "c", "bias"), 1)}
    return _work(work, device, {n: at // ITEMSIZE[work.dtype] for n, at in starts.items()})


def _work(work: ProductWork, device: Device, starts: dict[str, int]) -> Work:
    """The batch whose operands begin at these elements of memory."""

    def view(name: str, one: Matrices) -> View:
        return View(None, starts[name], one.sizes, one.steps, TYPES[work.dtype], False)

    views = {"a": view("a", work.a), "b": view("b", work.b), "c": view("c", work.c)}
    if work.bias:
        views["bias"] = view("bias", Matrices((work.sizes[1],), (1,)))
    scalars = Scalars(work.alpha, work.beta)
    how = (work.activation, work.dtype, "ieee")
    return batch_of(views, driver.ordinal_of(device), scalars, *how)
