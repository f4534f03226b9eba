"""The public calls: arguments checked here, one clear error each, nothing written before they pass.

    matmul    checks -> views -> problem -> plan -> back end
    explain   the same as far as the plan, and tells it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import settings
from tilewright.backends import Scalars
from tilewright.batch import ACTIVATIONS, Problem
from tilewright.device import Device
from tilewright.errors import (
    ArgumentError,
    DtypeError,
    KernelError,
    OperandError,
    OverlapError,
    ShapeError,
)
from tilewright.kernel import Plan
from tilewright.operands import DTYPES, Array, View, kind, like, view, view_host
from tilewright.planning import plan, plan_host, plan_kernel
from tilewright.planning.cost import Measured
from tilewright.planning.explain import explain as explain_plan
from tilewright.selection import backend_of, devices, host, resolve
from tilewright.tuning import crossover

__all__ = ["asarray", "devices", "empty", "explain", "kernels", "matmul"]

# No launch of any device is cheaper than 64 x 64 x 64 in a BLAS (about 5 µs): never ask.
_ALWAYS_HOST = 2 * 64**3
# Plain products (no option but the operands) that a plan has left to the host: NumPy gets them at
# once the next time. Checking them again would add 30 µs to products that take about as long.
_plain_host_products: set[tuple[Any, ...]] = set()
# Below this a product on device arrays follows the rules: a probe would take longer than it saves.
_WORTH_PROBING = 2 * 256**3


def matmul(
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
) -> Any:
    """activation(alpha · op(a) @ op(b) + beta · out + bias), the semantics of BLAS GEMM.

    Args:
        a: [..., m, k], or [k]; NumPy, pyopencl or tilewright array, or any CPU array with DLPack.
        b: [..., k, n], or [k]; the same kind and dtype as `a`. Leading dimensions broadcast and
            vectors behave as in `numpy.matmul`.
        out: [..., m, n], the same kind and dtype; may be strided, must not overlap an input.
            Where `beta` is 0 it is not read, so NaN in it does no harm.
        alpha, beta: real numbers; `beta` other than 0 needs `out`.
        transpose_a, transpose_b: swap the last two dimensions first (no copy).
        bias: [n], added to every row.
        activation: "none", "relu" or "gelu" (the exact one, by erf), applied last.
        device: a Device, "host", "opencl", "opencl:0", "opencl:intel"; default TILEWRIGHT_DEVICE or
            the best device. Products that NumPy's BLAS does faster, transfer included, stay there.
        kernel: one of `kernels(device)`, used whatever it costs.
        precision: None, the dtype's own IEEE arithmetic.
        accumulate: "fp16" sums float16 products in float16: error grows with k · 2^-11 instead of
            2^-11. Default: float16 is summed in float32.

    Returns:
        `out`, or a new array of `a`'s kind: [..., m, n], dimensions of vectors dropped.

    dtypes are float16, float32 and float64. Any size from 0 up; k == 0 gives beta · out.

    Raises:
        ShapeError, DtypeError, ArgumentError, OperandError, OverlapError, KernelError: before
            anything is written.
        DeviceError, DeviceMemoryError: the device is absent, failed or has too little memory.
    """
    if (
        type(a) is np.ndarray
        and type(b) is np.ndarray
        and out is bias is activation is device is kernel is precision is accumulate is None
        and type(alpha) is type(beta) is float
        and alpha == 1.0
        and beta == 0.0
        and not transpose_a
        and not transpose_b
        and (_is_small(a, b) or _signature(a, b) in _plain_host_products)
    ):
        return np.matmul(a, b)
    call = _prepare(
        a,
        b,
        out=out,
        alpha=alpha,
        beta=beta,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        bias=bias,
        activation=activation,
        device=device,
        kernel=kernel,
        precision=precision,
        accumulate=accumulate,
    )
    if call.is_plain_host_product(a, b, device, kernel):
        _plain_host_products.add(_signature(a, b))
    return call.run()


def explain(a: Any, b: Any, **options: Any) -> str:
    """The report of the plan that `matmul(a, b, **options)` would follow; nothing is computed.

    Kernel, configuration, predicted time, the measured crossover, vendor rules, and each rejected
    alternative with its reason. Raises what `matmul` raises.
    """
    call = _prepare(a, b, **options)
    return explain_plan(call.plan, call.measured())


def kernels(device: Device | str | None = None) -> tuple[str, ...]:
    """Names of the kernels that can run on a device (float32), for `kernel=`."""
    chosen = resolve(device)
    sample = _problem_of(64, 64, 64, (64, 1), (64, 1), (64, 1), "float32", "float32")
    return tuple(
        kernel.name
        for kernel in backend_of(chosen).kernels(chosen)
        if kernel.supports(sample, chosen) is True
    )


def empty(
    shape: int | tuple[int, ...],
    dtype: npt.DTypeLike = np.float32,
    device: Device | str | None = None,
    *,
    memory: str | None = None,
) -> Array:
    """An uninitialised `Array` on a device.

    `memory` is "allocate" (default: memory that host and device both reach), "copy" or "use";
    TILEWRIGHT_MEMORY changes the default. Raises ShapeError, DtypeError, DeviceMemoryError.
    """
    chosen = resolve(device)
    sizes = _checked_shape(shape)
    wanted = _checked_dtype(dtype)
    size = int(np.prod(sizes, dtype=object)) * wanted.itemsize
    held = backend_of(chosen).allocate(size, chosen, settings.memory(memory))
    return Array(held, sizes, wanted)


def asarray(
    value: Any,
    dtype: npt.DTypeLike | None = None,
    device: Device | str | None = None,
    *,
    memory: str | None = None,
) -> Array:
    """`value` as an `Array` on a device: C-ordered, in one of the three ways of `empty`.

    With memory="use" the device works in `value`'s own memory, which must then be C-ordered and of
    the right dtype; nothing is copied and `value` must not be touched while the array is in use.
    """
    chosen = resolve(device)
    way = settings.memory(memory)
    source = np.asarray(value)
    wanted = _checked_dtype(source.dtype if dtype is None else dtype)
    dense = np.ascontiguousarray(source, dtype=wanted)
    if way == "use" and dense is not source:
        raise OperandError(
            f"value={source.dtype} of strides {source.strides}: memory='use' takes C-ordered"
            f" arrays of {wanted} only; use memory='copy'"
        )
    held = backend_of(chosen).allocate(dense.nbytes, chosen, way, dense)
    return Array(held, source.shape, wanted)


@dataclass(frozen=True, slots=True)
class _Call:
    """A checked product: where it will run, on what, and how the result goes back."""

    plan: Plan
    views: dict[str, View]
    scalars: Scalars
    result: Callable[[], Any]
    host_operands: bool

    def run(self) -> Any:
        problem = self.plan.problem
        if problem.m and problem.n and self.views["c"].shape.count(0) == 0:
            name = "host" if self.plan.kernel == "host" else self.plan.device.backend
            device = host() if name == "host" else self.plan.device
            backend_of(device).run(self.plan, self.views, self.scalars)
        return self.result()

    def is_plain_host_product(self, a: Any, b: Any, device: Any, kernel: Any) -> bool:
        """Whether NumPy alone would do, whatever the values are."""
        problem = self.plan.problem
        return (
            self.plan.kernel == "host"
            and device is kernel is None
            and type(a) is type(b) is np.ndarray
            and problem.dtype != "float16"
        )

    def measured(self) -> Measured | None:
        return _measured(self.plan.device, self.plan.problem, self.host_operands)


def _prepare(
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
) -> _Call:
    scalars = _checked_scalars(alpha, beta, out)
    activation = _checked_name("activation", activation or "none", ACTIVATIONS)
    if precision is not None:
        raise ArgumentError(
            f"precision={precision!r}: accepted is None, the dtype's own IEEE arithmetic"
        )
    where = _common_kind(a, b, out, bias)
    a_view, b_view = _matrix(view(a, "a"), transpose_a, row=True), view(b, "b")
    b_view = _matrix(b_view, transpose_b, row=False)
    dtype = _common_dtype(a_view, b_view)
    shape = _result_shape(a_view, b_view)
    chosen = _place(device, where, a)
    c_view, result = _output(out, shape, a, b, dtype, chosen, where)
    views = {"a": _broadcast(a_view, shape), "b": _broadcast(b_view, shape), "c": c_view}
    if bias is not None:
        views["bias"] = _bias(bias, shape[-1], dtype)
    _check_overlap(views)
    if a_view.shape[-1] == 0 and where != "host":
        # Nothing of A and B will be read, and an empty buffer is no argument.
        views |= {"a": c_view, "b": c_view}
    problem = _problem(views, a_view.shape[-1], chosen, activation, accumulate, dtype.name)
    found = _plan(problem, chosen, kernel, where == "host")
    return _Call(found, views, scalars, result, where == "host")


def _is_small(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether two plain matrices are so small that no device could win, whatever was measured."""
    if a.ndim != 2 or b.ndim != 2 or a.dtype is not b.dtype:
        return False
    (m, k), (rows, n) = a.shape, b.shape
    return (
        k == rows
        and 2 * m * n * k <= _ALWAYS_HOST
        and (a.dtype.char == "f" or a.dtype.char == "d")
        and a.dtype.isnative
        and settings.device() is None
    )


def _signature(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> tuple[Any, ...]:
    """What decides the plan of a plain product."""
    return (a.shape, b.shape, a.strides, b.strides, a.dtype, b.dtype, settings.device())


def _checked_scalars(alpha: Any, beta: Any, out: Any) -> Scalars:
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not isinstance(value, Real) or isinstance(value, bool):
            raise ArgumentError(f"{name}={value!r}: accepted is a real number")
    if beta != 0 and out is None:
        raise ArgumentError(f"beta={beta!r}: needs out=, the matrix that it scales")
    return Scalars(float(alpha), float(beta))


def _checked_name(argument: str, value: Any, accepted: tuple[str, ...]) -> str:
    if value not in accepted:
        raise ArgumentError(f"{argument}={value!r}: accepted are {', '.join(map(repr, accepted))}")
    return str(value)


def _checked_shape(shape: Any) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    for size in sizes:
        if not isinstance(size, int | np.integer) or size < 0:
            raise ShapeError(f"shape={shape!r}: accepted are whole numbers from 0 up")
    return tuple(int(size) for size in sizes)


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        wanted = None
    if wanted is None or wanted.name not in DTYPES or not wanted.isnative:
        raise DtypeError(f"dtype={str(dtype)!r}: accepted are {', '.join(DTYPES)}")
    return wanted


def _common_kind(a: Any, b: Any, out: Any, bias: Any) -> str:
    where = kind(a)
    for name, value in (("b", b), ("out", out), ("bias", bias)):
        if value is not None and kind(value) != where:
            raise OperandError(
                f"{name}={type(value).__name__}: lies on another kind of device than"
                f" a={type(a).__name__}; accepted are arrays of one kind in a call"
            )
    return where


def _common_dtype(a: View, b: View) -> np.dtype[Any]:
    if a.dtype != b.dtype:
        raise DtypeError(f"b.dtype={b.dtype.name!r}: must equal a.dtype={a.dtype.name!r}")
    return a.dtype


def _matrix(operand: View, transpose: Any, *, row: bool) -> View:
    """A view of at least two dimensions: `a` as a row, `b` as a column where it is a vector."""
    name = "a" if row else "b"
    if not isinstance(transpose, bool | np.bool_):
        raise ArgumentError(f"transpose_{name}={transpose!r}: accepted are True and False")
    if operand.ndim == 0:
        raise ShapeError(f"{name}.shape=(): accepted are one dimension or more")
    if operand.ndim > 1:
        return operand.swapped if transpose else operand
    (size,), (step,) = operand.shape, operand.strides
    memory = operand.memory
    if operand.host:
        memory = memory[np.newaxis, :] if row else memory[:, np.newaxis]
    shape = (1, size) if row else (size, 1)
    strides = (size * step, step) if row else (step, 1)
    return View(
        memory, operand.offset, shape, strides, operand.dtype, operand.host, operand.queue
    )


def _result_shape(a: View, b: View) -> tuple[int, ...]:
    """[..., m, n], vectors still as matrices."""
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"b.shape={b.shape}: its {b.shape[-2]} rows must equal the {a.shape[-1]} columns of"
            f" a.shape={a.shape} (after transposes)"
        )
    try:
        leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"b.shape={b.shape}: leading dimensions {b.shape[:-2]} do not broadcast with"
            f" {a.shape[:-2]} of a"
        ) from None
    return (*leading, a.shape[-2], b.shape[-1])


def _place(device: Device | str | None, where: str, a: Any) -> Device:
    """The device of the call; device arrays bring their own."""
    if where == "tilewright":
        if device is not None and resolve(device) != a.device:
            raise OperandError(f"device={device!r}: a lies on {a.device.id!r}")
        own: Device = a.device
        return own
    if where == "pyopencl":
        from tilewright.backends.opencl.runtime import foreign_session

        return foreign_session(a.queue.context, a.queue).device
    return resolve(device)


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
    if any(step == 0 for step, size in zip(c_view.strides, public, strict=True) if size > 1):
        raise OverlapError(f"out.strides={c_view.strides}: its elements share memory")
    return _as_matrix(c_view, shape, vectors), lambda: out


def _new_output(
    public: tuple[int, ...],
    shape: tuple[int, ...],
    a: Any,
    dtype: np.dtype[Any],
    device: Device,
    where: str,
) -> tuple[View, Callable[[], Any]]:
    if where == "host":
        array = np.empty(shape, dtype)
        convert = like(a)
        # `[()]` turns a product of two vectors into a scalar, as NumPy's is.
        return view_host(array), lambda: convert(array.reshape(public)[()])
    if where == "pyopencl":
        import pyopencl.array

        made = pyopencl.array.empty(a.queue, shape, dtype)
        return view(made, "out"), lambda: made.reshape(public)
    held = empty(shape, dtype, device)
    return view(held, "out"), lambda: Array(held.memory, public, dtype)


def _as_matrix(c_view: View, shape: tuple[int, ...], vectors: tuple[bool, bool]) -> View:
    """`out` with the dimensions that vectors dropped put back."""
    if not any(vectors):
        return c_view
    strides, memory = list(c_view.strides), c_view.memory
    if vectors[1]:
        strides.append(1)
    if vectors[0]:
        strides.insert(len(strides) - 1, shape[-1])
    if c_view.host:
        memory = np.lib.stride_tricks.as_strided(
            memory, shape, [step * c_view.dtype.itemsize for step in strides]
        )
    return View(
        memory, c_view.offset, shape, tuple(strides), c_view.dtype, c_view.host, c_view.queue
    )


def _shape_of(value: Any) -> tuple[int, ...]:
    return tuple(value.shape)


def _broadcast(operand: View, shape: tuple[int, ...]) -> View:
    """Leading dimensions as the result's; repeated ones have stride 0."""
    leading = shape[:-2]
    if operand.shape[:-2] == leading:
        return operand
    missing = len(leading) - (operand.ndim - 2)
    old = ((1,) * missing + operand.shape)[:-2]
    steps = ((0,) * missing + operand.strides)[:-2]
    strides = tuple(
        0 if before == 1 and after != 1 else step
        for before, after, step in zip(old, leading, steps, strict=True)
    )
    sizes = (*leading, *operand.shape[-2:])
    memory = np.broadcast_to(operand.memory, sizes) if operand.host else operand.memory
    return View(
        memory,
        operand.offset,
        sizes,
        (*strides, *operand.strides[-2:]),
        operand.dtype,
        operand.host,
        operand.queue,
    )


def _bias(bias: Any, n: int, dtype: np.dtype[Any]) -> View:
    result = view(bias, "bias")
    if result.shape != (n,):
        raise ShapeError(f"bias.shape={result.shape}: must be ({n},), one a column")
    if result.dtype != dtype:
        raise DtypeError(f"bias.dtype={result.dtype.name!r}: must equal a.dtype={dtype.name!r}")
    if result.host:
        return view_host(np.ascontiguousarray(result.memory))
    if n > 1 and result.strides != (1,):
        raise OperandError(f"bias.strides={result.strides}: must be contiguous on a device")
    return result


def _check_overlap(views: dict[str, View]) -> None:
    c = views["c"]
    for name in ("a", "b", "bias"):
        other = views.get(name)
        if other is None:
            continue
        if c.host:
            shared = _share_memory(c.memory, other.memory)
        else:
            shared = c.memory is other.memory and _ranges_meet(c, other)
        if shared:
            raise OverlapError(
                f"out: shares memory with {name}; accepted is an array apart from every input"
            )


def _share_memory(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> bool:
    if not np.may_share_memory(first, second):
        return False
    try:
        return np.shares_memory(first, second, max_work=100_000)
    except np.exceptions.TooHardError:
        return True


def _ranges_meet(first: View, second: View) -> bool:
    def reach(operand: View) -> tuple[int, int]:
        steps = [(n - 1) * s for n, s in zip(operand.shape, operand.strides, strict=True)]
        low = operand.offset + sum(step for step in steps if step < 0)
        return low, operand.offset + sum(step for step in steps if step > 0)

    (a_low, a_high), (b_low, b_high) = reach(first), reach(second)
    return a_low <= b_high and b_low <= a_high


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
    strides = {name: layout(views[name], device)[-2:] for name in ("a", "b", "c")}
    m, n = views["c"].shape[-2:]
    return _problem_of(
        m,
        n,
        k,
        strides["a"],
        strides["b"],
        strides["c"],
        dtype,
        sums,
        bias="bias" in views,
        activation=activation,
    )


def _problem_of(
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
    )


@lru_cache(maxsize=1024)
def _plan(problem: Problem, device: Device, kernel: str | None, host_operands: bool) -> Plan:
    available = backend_of(device).kernels(device)
    if kernel is not None:
        for candidate in available:
            if candidate.name == kernel:
                return plan_kernel(problem, device, candidate)
        names = ", ".join(repr(candidate.name) for candidate in available) or "none"
        raise KernelError(f"kernel={kernel!r}: {device.id!r} knows {names}")
    if device.backend == "host":
        return plan_host(problem, device, "the host is the device of this call")
    if host_operands and problem.flops <= _ALWAYS_HOST:
        return plan_host(problem, device, "too small for any launch to pay")
    return plan(
        problem,
        device,
        available,
        priors=backend_of(device).priors(device),
        measured=_measured(device, problem, host_operands),
        host_operands=host_operands,
    )


def _measured(device: Device, problem: Problem, host_operands: bool) -> Measured | None:
    """The curves of the device where they decide something; measured now if they never were."""
    backend = backend_of(device)
    least = _ALWAYS_HOST if host_operands else _WORTH_PROBING
    if device.backend == "host" or problem.flops <= least or problem.dtype not in device.dtypes:
        return None
    return crossover.measured(
        device, backend, problem.dtype, backend.priors(device), backend.digest()
    )
