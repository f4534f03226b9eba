"""A network made ready for a device and sizes: steps that are called one after another.

    bind(plan) -> memory, weights laid out, kernels compiled      once
    bound(x)   -> x in, step, step, step, result out               every time

One run at a time: threads take turns. What is kept belongs to the bound network and goes with it.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tilewright.arrays.views import loaded_torch
from tilewright.engines.choose import named
from tilewright.engines.contract import Engine
from tilewright.engines.conv import ConvOperands, Format
from tilewright.engines.product import ProductEngine
from tilewright.engines.values import ValueOperands
from tilewright.errors import ArgumentError, OperandError
from tilewright.facts.verdict import Verdict
from tilewright.nn import passed
from tilewright.nn.again import Again
from tilewright.nn.apart import check_apart
from tilewright.nn.engine_of_bits import ENGINES, PassOperands
from tilewright.nn.evaluate import computed
from tilewright.nn.evaluate import named as named_errors
from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.homes import Home
from tilewright.nn.infer import operator_of
from tilewright.nn.lowered import Part
from tilewright.nn.multiplied import operands
from tilewright.nn.operators.bits import PASS
from tilewright.nn.plan import Plan, Step, makes_new
from tilewright.nn.profile import Row, row
from tilewright.nn.show import explained
from tilewright.remember import open_after_fork
from tilewright.wording import short

AnyEngine = Engine[Any, Any, Callable[[], None]]


@dataclass(frozen=True, slots=True, eq=False)
class BoundStep:
    """One step: `node` of the bound graph, by which engine, and `run`, which does it alone.

    covers   names of the nodes of the file that it does
    flops    multiplications and additions
    seconds  predicted, None where nobody does
    """

    node: Node
    engine: str
    covers: tuple[str, ...]
    flops: float
    seconds: float | None
    run: Callable[[], None]


class Bound:
    """A network on one device for inputs of one size. Made by `Network.bind`.

    Calling it and `run` are the same. Threads take turns.
    """

    def __init__(
        self,
        plan: Plan,
        home: Home,
        engines: Sequence[AnyEngine],
        products: Sequence[ProductEngine],
        title: str,
    ) -> None:
        self._plan, self._home, self._title = plan, home, title
        asked: tuple[Engine[Any, Any, Callable[[], None]], ...] = (*engines, *ENGINES)
        self._by_name, self._products = {engine.name: engine for engine in asked}, products
        self._lock = open_after_fork(threading.RLock())
        self._fixed = {
            name: home.laid(begin, plan.tensors[name], plan.formats[name])
            for name, begin in plan.places.items()
        }
        self._constants = {name: home.held(t) for name, t in plan.graph.constants.items()}
        for name in set(self._fixed) & set(self._constants):
            home.copied(self._fixed[name], self._constants[name])
        self._values: dict[str, Any] = {}
        self._calls = home.prepared([partial(self._bound, step) for step in plan.steps])
        self._ends = _ends(plan)
        self._stretches = _stretches(self._calls)
        torch = loaded_torch()
        # torch.compile breaks its graph there instead of following calls into drivers.
        self._entry = self._run if torch is None else torch.compiler.disable(self._run)
        self._recorded = home.recorded(self._launched)
        self._again: Again | None = None

    @property
    def peak_bytes(self) -> int:
        """The most that values take at once; weights and engines' scratch come to that."""
        return self._plan.peak_bytes

    @property
    def scratch_bytes(self) -> int:
        """What engines take besides, as they say: rings, transformed pictures, packed copies."""
        return self._plan.scratch_bytes

    @property
    def weight_bytes(self) -> int:
        """Constants as the file has them, those inside convolutions too."""
        layers = [la for s in self._plan.steps for la in s.node.attributes.get("layers", ())]
        inside: int = sum(la.weights.nbytes + getattr(la.bias, "nbytes", 0) for la in layers)
        passes = [s.node.attributes["pass"] for s in self._plan.steps if s.node.operator == PASS]
        inside += sum(layer.bytes for item in passes for layer in item.layers)
        return inside + sum(t.bytes for t in self._plan.graph.constants.values())

    @property
    def held_bytes(self) -> int:
        """What it holds: planned values, weights, and what steps say that they hold besides."""
        beside = sum(getattr(call, "bytes", 0) for call in self._calls)
        return self._plan.arena + self.weight_bytes + beside

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Arrays that inputs are copied to: who fills one and passes it saves that copy.

        Later values take the same memory, so it is filled anew before each run. Inputs that no
        engine reads have none. Where halves are computed in float32 these arrays are float32.
        """
        names = (source.name for source in self._plan.graph.inputs)
        return {name: self._fixed[name] for name in names if name in self._fixed}

    @property
    def results(self) -> Mapping[str, Any]:
        """Arrays that outputs are copied from: who passes one as `out` saves that copy.

        The next run writes them anew. Outputs that no engine writes have none. Where halves are
        computed in float32 these arrays are, and hold results that are not rounded yet.
        """
        return {n: self._fixed[n] for n in self._plan.graph.outputs if n in self._fixed}

    @property
    def graph(self) -> Graph:
        """What is computed, after all passes."""
        return self._plan.graph

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Sizes and types of every value, those between pieces of a chain among them."""
        return self._plan.tensors

    @property
    def steps(self) -> tuple[BoundStep, ...]:
        """What is done, in order. Steps run alone inside `with bound.kept(...)`."""
        return tuple(
            BoundStep(
                step.node,
                step.engine,
                step.covers,
                step.flops,
                step.seconds,
                call,
            )
            for step, call in zip(self._plan.steps, self._calls, strict=True)
        )

    @property
    def rows(self) -> tuple[Row, ...]:
        """The work of every step: operations, bytes, and by whom it is done."""
        tensors = self._plan.tensors
        return tuple(
            replace(row(s.node, tensors, s.covers, s.engine), predicted=s.seconds, reason=s.reason)
            for s in self._plan.steps
        )

    @contextmanager
    def kept(self, *inputs: Any, **named: Any) -> Iterator[Mapping[str, Any]]:
        """One run whose values all stay until the block is left, by name.

        Planned memory serves several values: of those the last that was written is there.
        """
        given = passed.inputs_of(self._plan, inputs, named)
        with self._turn():
            self._home.begin()
            self._fill(given)
            try:
                for call in self._calls:
                    call()
                yield self._values
            finally:
                self._values.clear()
                self._home.end()

    def _turn(self) -> Any:
        """The lock, as all runs share memory and values. Raises OperandError where this thread
        would wait for itself."""
        if self._lock._is_owned():
            raise OperandError(
                f"{self._title}: this thread is in the middle of a run of it (a signal handler or a"
                " finalizer calls it, or a block of kept() is open); accepted are another bound"
                " network, and calls one by one"
            )
        return self._lock

    def wait(self) -> None:
        """Wait for what was begun on a GPU."""
        self._home.wait()

    def explain(self) -> str:
        """Every step: what of the file it does, by which engine, predicted seconds, and why."""
        return explained(self._plan, self._title)

    def run(self, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """The outputs for some inputs.

        Args:
            inputs: arrays of NumPy, torch, CuPy, pyopencl or tilewright, in the order of the
                network's inputs; float32 is rounded to halves that the network was bound for, and
                halves are widened to float32.
            out: an array for the result, or a tuple of them where there are several outputs.
            named: arrays by the names of inputs.

        Returns:
            `out`, or a new array of the kind of the first input; a tuple of several outputs.

        Raises ArgumentError, OperandError, OverlapError, ShapeError, DtypeError: before anything is
        written.
        """
        if self._again is not None and not named:
            made = self._again(inputs, out)
            if made is not None:
                return made
        return self._entry(inputs, out, named)

    def _run(self, inputs: tuple[Any, ...], out: Any, named: Mapping[str, Any]) -> Any:
        given = passed.inputs_of(self._plan, inputs, named)
        outs = passed.outs_of(self._plan, out, self._fixed)
        # Inputs in planned memory, as a state among `results`, are copied before it is written.
        own = {name: one for name, one in given.items() if not self._home.is_planned(one)}
        check_apart(outs, own)
        with self._turn():
            self._home.begin()
            try:
                self._fill(given)
                self._compute()
                made = self._results(given, outs)
            finally:
                self._values.clear()
                self._home.end()
        return made[0] if len(made) == 1 else made

    __call__ = run

    def __reduce__(self) -> Any:
        raise OperandError(
            f"{self._title} bound to {self._plan.device.id!r}: neither copied nor pickled; accepted"
            " is its Network, to be bound again"
        )

    def __repr__(self) -> str:
        return f"<{self._title} bound to {self._plan.device.id}, {len(self._calls)} steps>"

    def between(self, fill: Callable[[], object], read: Callable[[], Any]) -> Any:
        """What `read` gives after `fill` and every step, while other threads wait.

        For who fills `inputs` and reads `results`, where both are planned: nothing is checked.
        """
        with self._turn():
            self._home.begin()
            try:
                fill()
                if len(self._stretches) == 1 and not self._ends:
                    self._stretches[0][1]()
                else:
                    self._values.update(self._constants)
                    self._values.update(self._fixed)
                    self._compute()
                return read()
            finally:
                self._values.clear()
                self._home.end()

    def _compute(self) -> None:
        """Every step."""
        if self._recorded is None:
            self._values.update(self._launched())
            return
        made = self._recorded()
        self._values.update(made)
        if self._recorded.is_recorded and self._again is None:
            inputs = [self._fixed[source.name] for source in self._plan.graph.inputs]
            results = [self._recorded.made[name] for name in self._plan.graph.outputs]
            self._again = self._home.again(self._lock, self._recorded, inputs, results)

    def _launched(self) -> dict[str, Any]:
        """The outputs, step by step; values of definitions go after their last reader."""
        for at, call in self._stretches:
            call()
            for name in self._ends.get(at, ()):
                self._values.pop(name, None)
        return {name: self._values[name] for name in self._plan.graph.outputs}

    def profile(self, *inputs: Any, repeats: int = 10, **named: Any) -> tuple[Row, ...]:
        """The work of every step, and its median seconds among the others, after a run to warm up.

        Seconds on a GPU are its own: launches are not among them. Raises as `run` does.
        """
        if not isinstance(repeats, int) or repeats < 1:
            raise ArgumentError(f"repeats={short(repeats)}: accepted are whole numbers from 1")
        given = passed.inputs_of(self._plan, inputs, named)
        times: list[list[float]] = [[] for _ in self._calls]
        with self.kept(*inputs, **named):
            for _ in range(repeats):
                self._fill(given)
                for call, found in zip(self._calls, times, strict=True):
                    found.append(self._home.seconds(call))
        return tuple(
            work.timed(statistics.median(found))
            for work, found in zip(self.rows, times, strict=True)
        )

    def _fill(self, given: Mapping[str, Any]) -> None:
        """Inputs into planned memory, or as they are."""
        self._values.update(self._constants)
        for name, value in self._taken(given).items():
            fixed = self._fixed.get(name)
            if fixed is not None:
                self._home.copied(fixed, value)
                value = fixed
            self._values[name] = value
        self._values.update(self._fixed)

    def _taken(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs as arrays of the home, but those that lie at their own places.

        What lies elsewhere in the planned memory is copied: filling one input may overwrite it.
        """
        found = {}
        for name, array in given.items():
            if array is self._fixed.get(name):
                continue
            value = self._home.taken(array, f"input {name!r}", self._plan.dtype_of(name))
            found[name] = self._apart(value) if self._home.is_planned(value) else value
        return found

    def _apart(self, value: Any) -> Any:
        return self._home.xp.asarray(value, copy=True)

    def _results(self, given: Mapping[str, Any], outs: tuple[Any, ...]) -> tuple[Any, ...]:
        like = next(iter(given.values()), None)
        names = self._plan.graph.outputs
        values = [self._values[name] for name in names]
        pairs = list(zip(values, outs, strict=True))
        if any(out is not value and self._home.is_planned(out) for value, out in pairs):
            values = [self._apart(value) for value in values]  # writing one could spoil another
        made = []
        again = self._recorded is not None and self._recorded.is_recorded
        for name, value, out in zip(names, values, outs, strict=True):
            alone = names.count(name) == 1 and name not in self._constants and name not in given
            fresh = alone and name not in self._fixed and not again
            if out is not None and out is value:
                made.append(out)
                continue
            made.append(self._home.given(value, self._plan.dtype_of(name), like, out, fresh))
        return tuple(made)

    # Steps

    @np.errstate(all="ignore")  # weights may be infinite, and their sums not be numbers
    def _bound(self, step: Step) -> Callable[[], None]:
        if step.verdict is None:
            return self._definition(step)
        if step.part is not None:
            return self._values_step(step, step.part, step.verdict)
        proposal = step.verdict.best
        if step.product is not None:
            given = [self._there(name) for name in step.node.inputs]
            there = operands(self._home.xp, step.node, given, self._fixed[step.node.outputs[0]])
            return named(self._products, proposal.engine, proposal.device).bind(proposal, there)
        return self._by_name[proposal.engine].bind(proposal, self._operands(step))

    def _operands(self, step: Step) -> ConvOperands | PassOperands:
        """Arrays at their places, as the step's engine takes them."""
        node, fixed = step.node, self._fixed
        if step.segment is None:
            given, made = (tuple(fixed[n] for n in names) for names in (node.inputs, node.outputs))
            return PassOperands(given, made)
        x, *residuals = node.inputs
        return ConvOperands(
            self._home.laid(self._plan.places[x], self._plan.tensors[x], step.segment.work.source),
            fixed[node.outputs[0]],
            tuple(fixed[name] for name in residuals),
        )

    def _there(self, name: str) -> Any:
        """A value's array at its planned place, or a constant's, in one piece."""
        if name in self._fixed:
            return self._fixed[name]
        held = self._constants[name]
        return np.ascontiguousarray(held) if isinstance(held, np.ndarray) else held.contiguous()

    def _values_step(self, step: Step, part: Part, verdict: Verdict) -> Callable[[], None]:
        """A step of an engine of values: at planned places, or of constants."""
        sources = tuple(
            self._lying(name, part.wants) if name in self._fixed else self._constants[name]
            for name in step.node.inputs
        )
        operands = ValueOperands(sources, self._lying(step.node.outputs[0], part.wants))
        return self._by_name[verdict.best.engine].bind(verdict.best, operands)

    def _lying(self, name: str, wanted: Format | None) -> Any:
        """A value's array, of a picture of one pixel or channel as it is wanted."""
        plan = self._plan
        return self._home.laid(plan.places[name], plan.tensors[name], wanted or plan.formats[name])

    def _definition(self, step: Step) -> Callable[[], None]:
        """A step that computes by the definition and keeps what it gives."""
        node, operator, home = step.node, operator_of(step.node), self._home
        dtypes = [self._plan.tensors[n].dtype if n else "" for n in node.outputs]
        apart = makes_new(node) and any(name in self._fixed for name in node.inputs)

        def call() -> None:
            values = self._values
            given = [values[name] if name else None for name in node.inputs]
            called = home.called(node, given)
            if called is None:
                with named_errors(node):
                    called = computed(home.xp, operator, node, given, dtypes)
            else:
                called = [called]
            for name, value in zip(node.outputs, called, strict=False):
                fixed = self._fixed.get(name)
                if fixed is not None:
                    home.copied(fixed, value)
                elif name:
                    values[name] = (
                        home.xp.asarray(value, copy=True)
                        if apart and home.is_planned(value)
                        else value
                    )

        return call


def _ends(plan: Plan) -> dict[int, list[str]]:
    """The values that go after each step: those of definitions, read there for the last time."""
    ends: dict[int, list[str]] = {}
    for name, at in plan.lasts.items():
        if name not in plan.formats and name not in plan.graph.constants:
            ends.setdefault(at, []).append(name)
    return ends


def _stretches(calls: Sequence[Callable[[], None]]) -> tuple[tuple[int, Callable[[], None]], ...]:
    """Calls, with the step that each ends with: what can go on with the next step does.

    A call says so by `and_then(other)`: both as one call, or None. No value ends between engines.
    """
    made: list[tuple[int, Callable[[], None]]] = []
    for at, call in enumerate(calls):
        go_on = getattr(made[-1][1], "and_then", None) if made else None
        both = None if go_on is None else go_on(call)
        if both is None:
            made.append((at, call))
        else:
            made[-1] = (at, both)
    return tuple(made)
