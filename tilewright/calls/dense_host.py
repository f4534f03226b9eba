"""A checked product on its way down: views, problem, plan, and how the result goes back up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright import remember, settings
from tilewright.arrays.array import Array, NDArray
from tilewright.arrays.views import View, like, view, view_host
from tilewright.backends.cuda.backend import refuse
from tilewright.errors import (
    ArgumentError,
    BuildError,
    DeviceMemoryError,
    DtypeError,
    KernelError,
    OperandError,
    ShapeError,
)
from tilewright.facts.device import Device
from tilewright.facts.kernel import Kernel, Plan
from tilewright.facts.problem import Problem
from tilewright.facts.scalars import Scalars
from tilewright.inputs.checks import (
    bias_view,
    broadcast_view,
    checked_activation,
    checked_scalars,
    common_dtype,
    common_kind,
    matrix_view,
    output_matrix,
    result_shape,
)
from tilewright.inputs.devices import backend_of, host, resolve
from tilewright.inputs.overlap import check_apart, check_overlap
from tilewright.planning.classes import UNMEASURED, Boundaries, describe
from tilewright.planning.cost import Measured
from tilewright.planning.dense import plan, plan_host, plan_kernel
from tilewright.planning.explain import NOT_MEASURED
from tilewright.planning.quick import HOST_ALONE, Bounds
from tilewright.remember import Shelf
from tilewright.tuning import crossover, tuned

# No launch of any device is cheaper than 64 x 64 x 64 in a BLAS (about 5 µs): never ask.
ALWAYS_HOST = 2 * 64**3


_PlanKey = tuple[Problem, Device, str | None, bool]
_plans: Shelf[_PlanKey, Plan] = Shelf("plans of products", most=8 << 20)
_PLAN_BYTES = 6000  # measured: a plan of three launches with its rejected alternatives
# Bounds, and whether they hold until somebody forgets them.
_bounds: Shelf[tuple[str, str | None], tuple[Bounds, bool]] = Shelf(
    "bounds of plain products", most=1 << 18
)


@dataclass(frozen=True, slots=True)
class Call:
    """A checked product: where it will run, on what, and how the result goes back."""

    plan: Plan
    views: dict[str, View]
    scalars: Scalars
    result: Callable[[], Any]
    host_operands: bool
    learns: bool = False

    def run(self) -> Any:
        """Compute, unless the result is empty, and hand the result over."""
        problem = self.plan.problem
        if problem.m and problem.n and self.views["c"].shape.count(0) == 0:
            name = "host" if self.plan.kernel == "host" else self.plan.device.backend
            device = host() if name == "host" else self.plan.device
            began = time.perf_counter()
            self._multiply(device)
            if self.learns:
                seconds = time.perf_counter() - began if self.host_operands else None
                crossover.after(self.plan, backend_of(self.plan.device), seconds)
        return self.result()

    def _multiply(self, device: Device) -> None:
        backend, plan = backend_of(device), self.plan
        try:
            backend.run(plan, self.views, self.scalars)
        except BuildError as error:
            if not plan.origin.startswith(tuned.ORIGIN):
                raise
            kernel = _kernel_named(plan.kernel, backend.kernels(device), device)
            boundaries = _boundaries(device, plan.problem)
            why = str(error)[:200]
            tuned.refuse(plan.problem, device, kernel, backend.priors(device), boundaries, why)
            forget_plans()
            backend.run(plan_kernel(plan.problem, device, kernel), self.views, self.scalars)

    @property
    def settled(self) -> bool:
        """Whether the next call of this kind would follow the same plan."""
        device, dtype = self.plan.device, self.plan.problem.dtype
        backend = backend_of(device)
        return not self.learns or crossover.settled(device, backend, dtype, backend.priors(device))

    def measured(self) -> Measured | None:
        """The curves that the plan was made from."""
        return measured_for(self.plan.device, self.plan.problem, self.host_operands)


def prepare(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Any = None,
    activation: str | None = None,
    device: Device | str | None = None,
    kernel: str | None = None,
    precision: str | None = None,
    accumulate: str | None = None,
) -> Call:
    """Check everything, then plan. Arguments and errors are those of `tilewright.matmul`."""
    scalars = checked_scalars(alpha, beta, out)
    activation = checked_activation(activation)
    if precision is not None:
        raise ArgumentError(
            f"precision={precision!r}: accepted is None, the dtype's own IEEE arithmetic"
        )
    where = common_kind(a, b, out, bias)
    a_view, b_view = matrix_view(view(a, "a"), transpose_a, row=True), view(b, "b")
    b_view = matrix_view(b_view, transpose_b, row=False)
    dtype = common_dtype(a_view, b_view)
    shape = result_shape(a_view, b_view)
    chosen = _place(device, where, a)
    c_view, result = _output(out, shape, a, b, dtype, chosen, where)
    views = {"a": broadcast_view(a_view, shape), "b": broadcast_view(b_view, shape), "c": c_view}
    if bias is not None:
        views["bias"] = bias_view(bias, shape[-1], dtype)
    check_overlap(views)
    problem = _problem(views, a_view.shape[-1], chosen, activation, accumulate, dtype.name)
    if kernel is not None and not isinstance(kernel, str):
        _kernel_named(kernel, backend_of(chosen).kernels(chosen), chosen)  # raises: names are text
    found = plan_problem(problem, chosen, kernel, where == "host")
    learns = kernel is None and _is_measured(chosen, problem) and problem.flops > ALWAYS_HOST
    return Call(found, views, scalars, result, where == "host", learns)


def _place(device: Device | str | None, where: str, a: Any) -> Device:
    """The device of the call; device arrays bring their own."""
    if where == "tilewright":
        if device is not None and resolve(device) != a.device:
            raise OperandError(f"device={device!r}: a lies on {a.device.id!r}")
        own: Device = a.device
        return own
    if where == "pyopencl":
        from tilewright.backends.opencl.runtime import foreign_session

        if a.queue is None:
            raise OperandError("a.queue=None: accepted are arrays with a queue (a.with_queue)")
        return foreign_session(a.queue.context, a.queue).device
    chosen = resolve(device)
    if chosen.backend == "cuda":
        refuse(chosen)
    return chosen


def _output(
    out: Any,
    shape: tuple[int, ...],
    a: Any,
    b: Any,
    dtype: np.dtype[Any],
    device: Device,
    where: str,
) -> tuple[View, Callable[[], Any]]:
    """C as a matrix view, and what the caller gets: `out` itself or a new array of `a`'s kind."""
    vectors = (len(_shape_of(a)) == 1, len(_shape_of(b)) == 1)
    public = shape[:-2]
    public += () if vectors[0] else (shape[-2],)
    public += () if vectors[1] else (shape[-1],)
    if out is None:
        return _new_output(public, shape, a, dtype, device, where)
    c_view = view(out, "out")
    if c_view.shape != public:
        raise ShapeError(f"out.shape={c_view.shape}: must be {public}")
    if c_view.dtype != dtype:
        raise DtypeError(f"out.dtype={c_view.dtype.name!r}: must equal a.dtype={dtype.name!r}")
    if c_view.host and not c_view.memory.flags.writeable:
        raise OperandError("out: is read-only; accepted is a writable array")
    check_apart("out", c_view.shape, c_view.strides)
    return output_matrix(c_view, shape, vectors), lambda: out


def _new_output(
    public: tuple[int, ...],
    shape: tuple[int, ...],
    a: Any,
    dtype: np.dtype[Any],
    device: Device,
    where: str,
) -> tuple[View, Callable[[], Any]]:
    if where == "host" and not isinstance(a, Array):
        array = _new_host_array(shape, dtype)
        convert = like(a)
        return view_host(array), lambda: convert(array.reshape(public))
    if where == "pyopencl":
        import pyopencl.array

        made = pyopencl.array.empty(a.queue, shape, dtype)
        return view(made, "out"), lambda: made.reshape(public)  # type: ignore[no-untyped-call]
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    memory = backend_of(a.device).allocate(size, a.device, "allocate")
    held = Array(memory, shape, dtype)
    return view(held, "out"), lambda: Array(held.memory, public, dtype)


def _new_host_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError):
        raise DeviceMemoryError(
            f"out: the host has no room for a result of shape {shape} in {dtype}"
        ) from None


def _shape_of(value: Any) -> tuple[int, ...]:
    return tuple(value.shape)


def _problem(
    views: dict[str, View],
    k: int,
    device: Device,
    activation: str,
    accumulate: str | None,
    dtype: str,
) -> Problem:
    sums = "float32" if dtype == "float16" else dtype
    if accumulate is not None:
        accepted = ("fp16",) if dtype == "float16" else ()
        if accumulate not in accepted:
            shown = "None or 'fp16'" if accepted else f"None for {dtype}"
            raise ArgumentError(f"accumulate={accumulate!r}: accepted is {shown}")
        sums = "float16"
    layout = backend_of(device).layout
    laid = {name: layout(views[name], device) for name in ("a", "b", "c")}
    m, n = views["c"].shape[-2:]
    return problem_of(
        m,
        n,
        k,
        laid["a"].strides[-2:],
        laid["b"].strides[-2:],
        laid["c"].strides[-2:],
        dtype,
        sums,
        bias="bias" in views,
        activation=activation,
        aligned=laid["a"].aligned and laid["b"].aligned,
    )


def problem_of(
    m: int,
    n: int,
    k: int,
    a: tuple[int, ...],
    b: tuple[int, ...],
    c: tuple[int, ...],
    dtype: str,
    accumulate: str,
    *,
    bias: bool = False,
    activation: str = "none",
    aligned: bool = False,
) -> Problem:
    """Strides of dimensions of one element mean nothing; they become those of a dense matrix."""

    def dense(rows: int, cols: int, strides: tuple[int, ...]) -> tuple[int, int]:
        row, col = strides
        return (cols if rows <= 1 else row), (1 if cols <= 1 else col)

    return Problem(
        m,
        n,
        k,
        *dense(m, k, a),
        *dense(k, n, b),
        *dense(m, n, c),
        dtype=dtype,
        accumulate=accumulate,
        bias=bias,
        activation=activation,
        aligned=aligned,
    )


def plan_problem(
    problem: Problem, device: Device, kernel: str | None = None, host_operands: bool = True
) -> Plan:
    """What `matmul` does with a problem: planned once, with all that was measured and tuned."""
    key = (problem, device, kernel, host_operands)
    return _plans.found(key, lambda: _plan_problem(*key), lambda _: _PLAN_BYTES)


def _plan_problem(
    problem: Problem, device: Device, kernel: str | None, host_operands: bool
) -> Plan:
    available = backend_of(device).kernels(device)
    wanted = None if kernel is None else _kernel_named(kernel, available, device)
    if problem.m == 0 or problem.n == 0:
        return plan_host(problem, device, "the result is empty: nothing is computed")
    priors = backend_of(device).priors(device)
    if wanted is not None:
        boundaries = _boundaries(device, problem)
        found = tuned.lookup(problem, device, (wanted,), priors, boundaries)
        forced = plan_kernel(problem, device, wanted, tuned=found.get(wanted.name))
        return replace(forced, shape_class=describe(problem, boundaries))
    if device.backend == "host":
        return plan_host(problem, device, "the host is the device of this call")
    if host_operands and problem.flops <= ALWAYS_HOST:
        return plan_host(problem, device, "too small for any launch to pay")
    measured = measured_for(device, problem, host_operands)
    if measured is None and host_operands and _is_measured(device, problem):
        return plan_host(problem, device, NOT_MEASURED)
    boundaries = measured.boundaries if measured is not None else UNMEASURED
    return plan(
        problem,
        device,
        available,
        priors=priors,
        measured=measured,
        host_operands=host_operands,
        tuned=tuned.lookup(problem, device, available, priors, boundaries),
    )


def known_bounds(char: str, named: str | None) -> Bounds | None:
    """What tells at once that a plain product is the host's; None before the first is planned.

    By the dtype's character ("f", "d") and the device that the environment names. None, too, for a
    product that may measure a device: those go the long way.
    """
    found = _bounds.get((char, named))
    if found is None:
        return None
    bounds, settled = found
    if settled or crossover.is_quiet():
        return bounds
    _bounds.drop((char, named))
    return None


def keep_bounds(call: Call) -> None:
    """Have `known_bounds` answer for the next plain products of this call's dtype."""
    problem, device = call.plan.problem, call.plan.device
    key = (np.dtype(problem.dtype).char, settings.device())
    if key in _bounds:
        return
    if device.backend == "host":
        _bounds.keep(key, (HOST_ALONE, True))
    elif call.learns:
        measured, bounds = call.measured(), HOST_ALONE
        if measured is not None:
            backend = backend_of(device)
            kernels, priors = backend.kernels(device), backend.priors(device)
            ratios = tuned.least_ratios(problem, device, kernels, priors)
            bounds = Bounds.of(measured, problem.itemsize, ratios)
        _bounds.keep(key, (bounds, call.settled), size=4000)


def forget_plans() -> None:
    """Plan anew from what the store holds by now: after tuning in this process."""
    tuned.forget()
    _plans.clear()
    _bounds.clear()


def _boundaries(device: Device, problem: Problem) -> Boundaries:
    """Those of the device where they were measured; nothing is measured for them."""
    backend = backend_of(device)
    known = crossover.known(device, backend, problem.dtype, backend.priors(device))
    return UNMEASURED if known is None else known.boundaries


def _kernel_named(name: str, available: Sequence[Kernel], device: Device) -> Kernel:
    for kernel in available:
        if kernel.name == name:
            return kernel
    names = ", ".join(repr(kernel.name) for kernel in available) or "none"
    raise KernelError(f"kernel={name!r}: {device.id!r} knows {names}")


def measured_for(device: Device, problem: Problem, host_operands: bool) -> Measured | None:
    """The curves of the device where they decide something, as far as they are known by now."""
    if not _is_measured(device, problem) or (host_operands and problem.flops <= ALWAYS_HOST):
        return None
    backend = backend_of(device)
    return crossover.known(device, backend, problem.dtype, backend.priors(device))


def _is_measured(device: Device, problem: Problem) -> bool:
    """Whether there are, or will be, curves for the problem's dtype on the device."""
    return device.backend != "host" and problem.dtype in device.dtypes


crossover.on_change(forget_plans)
remember.forgets(forget_plans)
