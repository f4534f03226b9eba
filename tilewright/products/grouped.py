"""Variable-size batches: plan once, bind, and launch as often as needed.

grouped_matmul   checks -> columns -> plan (found again by sizes) -> bind -> launch -> results
plan_grouped     the plan alone, from columns of sizes: a GroupedPlan (calls/grouped_plan.py), what
                 was decided and why; its `bind` gives a callable that only launches
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from tilewright.arrays.views import unfollowed
from tilewright.calls import grouped as calls
from tilewright.calls.grouped_plan import GroupedPlan, planned
from tilewright.calls.grouped_quick_ended_host import ended_at_once, few_ended, is_dot
from tilewright.calls.grouped_quick_host import REAL, WAYS, first_met, is_host_anyway
from tilewright.facts.device import Device
from tilewright.inputs.batch import Results
from tilewright.inputs.checks import checked_name
from tilewright.inputs.devices import check_named
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.inputs.watched import are_watched, listed
from tilewright.planning.host_part import ZEROED
from tilewright.planning.order import ORDERS
from tilewright.settings import DEVICE, VARIABLES

__all__ = ["GroupedPlan", "grouped_matmul", "plan_grouped"]

_PLAIN = np.ndarray
_Arguments = ParamSpec("_Arguments")
_Made = TypeVar("_Made")


def plan_grouped(
    m: npt.ArrayLike,
    n: npt.ArrayLike,
    k: npt.ArrayLike,
    *,
    dtype: npt.DTypeLike = np.float32,
    device: Device | str | None = None,
    order: str = "auto",
) -> GroupedPlan:
    """Plan products of sizes m[i] x k[i] times k[i] x n[i]; nothing is computed.

    Args:
        m, n, k: sizes from 0 up, one a problem.
        dtype: float16, bfloat16, float32, float64, complex64 or complex128, by name or torch's; off
            GPUs also int8, whose results are int32.
        device: as in `matmul`. One that is named also runs the few small products that NumPy would
            have ended before a launch.
        order: "auto" predicts every order's makespan and takes the least; or "given",
            "k-descending", "bucketed", "longest-first".

    Returns: a GroupedPlan; `bind` of it makes a callable that only launches, `explain` says why.
    Plans are cached by sizes, dtype, device and order.

    Raises: ShapeError, DtypeError, ArgumentError, DeviceError.
    """
    return planned(m, n, k, dtype, device, order)


def _plain_at_once(checked: Callable[_Arguments, _Made]) -> Callable[_Arguments, _Made]:
    """`checked` with a short way before it: plain lists without options are multiplied at once.

    Fourteen defaults looked up and compared take 0.35 us beside a small product's 1.4 by NumPy. Of
    one product each step counts double, as most such calls find neither code nor data in a cache:
    after 0.1 s of sleep a loop takes 3.8 us, the first lines here 2.9, what `WAYS` has 4.4 (Zen 4).
    """
    defaults = {
        name: option.default
        for name, option in signature(checked).parameters.items()
        if option.kind is option.KEYWORD_ONLY
    }

    def are_usual(options: dict[str, Any], a: Any) -> bool:
        """Whether these say no more than their defaults do of such operands."""
        for name, value in options.items():
            usual = defaults.get(name, defaults)
            if (
                value is not usual
                and (name != "device" or not is_host_anyway(value, a))
                and (type(value), value) != (type(usual), usual)
            ):
                return False
        return True

    @wraps(checked)
    def grouped_matmul(
        a: Any, b: Any, *, out: Any = None, bias: Any = None, activation: Any = None, **others: Any
    ) -> Any:
        plain = out is bias is activation is None
        if plain and not others and type(a) is type(b) is list and a and DEVICE not in VARIABLES:
            x = a[0]
            kind = type(x)
            if kind is not _PLAIN:
                way = WAYS[kind] if kind in WAYS else first_met  # noqa: SIM401 (`get`: 30 ns)
                done = way(a, b)
                return untyped(a, b) if done is None else done
            if len(a) == len(b) == 1:
                try:
                    y = b[0]
                    if type(y) is _PLAIN and y.dtype is x.dtype in REAL and x.ndim == 2:
                        _, columns = y.shape  # a ValueError where there are not two
                        return [x.dot(y) if len(x) * columns < ZEROED else x @ y]
                except (ValueError, IndexError, MemoryError):
                    pass  # the checks have the words for it
        if not others or are_usual(others, a):
            if DEVICE in VARIABLES:  # `get` takes twice the time
                check_named()
            elif not plain and type(a) is list and len(a) == 1 and type(b) is list and len(b) == 1:
                try:
                    if out is None:
                        done = few_ended(a, b, bias, activation)
                        if done is not None:
                            return done
                    elif (
                        type(out) is list
                        and bias is activation is None
                        and len(out) == 1
                        and is_dot(a[0], b[0], out[0])
                    ):
                        return out
                except (ValueError, IndexError, MemoryError):
                    pass  # the checks have the words for it
            if (type(a) is list or type(a) is tuple) and a:
                if plain:
                    done = WAYS.get(type(a[0]), first_met)(a, b)
                else:
                    done = ended_at_once(a, b, out, bias, activation)
                if done is not None:
                    return done
        return untyped(a, b, out=out, bias=bias, activation=activation, **others)

    untyped: Any = checked
    whole: Any = grouped_matmul
    made: Callable[_Arguments, _Made] = whole
    return made


@_plain_at_once
def grouped_matmul(
    a: Sequence[Any] | RaggedBatch,
    b: Sequence[Any] | RaggedBatch,
    *,
    out: Sequence[Any] | RaggedBatch | None = None,
    alpha: complex | Sequence[complex] = 1.0,
    beta: complex | Sequence[complex] = 0.0,
    transpose_a: bool | Sequence[bool] = False,
    transpose_b: bool | Sequence[bool] = False,
    bias: Sequence[Any] | None = None,
    activation: str | None = None,
    into: Sequence[int] | npt.NDArray[Any] | None = None,
    order: str = "auto",
    device: Device | str | None = None,
    kernel: str | None = None,
    precision: str | None = None,
    client: Any = None,
) -> Results:
    """out[i] = activation(alpha[i] · op(a[i]) @ op(b[i]) + beta[i] · out[i] + bias[i]).

    Several products may be added into one result, always in the caller's order: `out` names the
    very same matrix more than once, or `into` has the index of every product's result. beta and
    bias then count once a result and the activation follows the whole sum.

    Args:
        a, b: sequences of matrices [m_i, k_i] and [k_i, n_i] of one dtype, each with sizes and
            strides of its own; or `RaggedBatch`. NumPy, CPU arrays with DLPack, or all on one GPU:
            torch, CuPy, DLPack (docs/gpu.md). Lists in the host's memory may be of int8 (NumPy's,
            torch's), with results, `out` and bias of int32, sums modulo 2^32 and whole alpha and
            beta, or of bfloat16 (torch's, ml_dtypes'), each product summed in float32 and rounded
            once: several in one result are added in bfloat16.
        out: matrices [m_i, n_i] that lie apart, each from its first to its last element (columns
            beside each other in one matrix do not), or are the very same; made where None. One that
            is named more than once has one beta and one bias: the same number and the same array
            (or None) wherever it is named.
        alpha, beta, transpose_a, transpose_b: one for all problems or one each; a transpose
            conjugates nothing.
        bias: vectors [n_i], or None for problems without one.
        activation: "none", "relu" or "gelu".
        into: one index a product, from 0 to the number of results - 1; `out`, `beta` and `bias`
            then have an entry a result, and every result has a product.
        order, device: as in `plan_grouped`, but "host" leaves few small products to NumPy, as does
            a call without a name.
        kernel: the name of an engine, used whatever it costs: on a GPU one of its own, of the
            host's arrays "native" (Numba's micro-kernels) or "opencl".
        precision: on a GPU, float32 only: "tf32", or "fp32x", as in `matmul`.
        client: a `distributed.Client`, whose Dask workers multiply arrays of this host, some of the
            batch each, a core a task: docs/distributed.md says from which sizes on that pays.
            Results are those of device="host", kernel="native" here, but for the rounding of sums
            whose tiles are others. Plans stay at the workers. Work of a worker that dies goes to
            others; `out` is written when all is there. No gradients, no arrays of GPUs.

    Returns: results in the caller's order: a list for lists, a RaggedBatch for RaggedBatch; `out`
        itself where it was given. An empty batch gives an empty list. Of torch tensors they are
        differentiable where `out` is None, and under autocast in its dtype (docs/pytorch.md).

    Raises: ShapeError (naming the index of the problem whose inner sizes disagree), DtypeError,
        ArgumentError, OperandError, OverlapError, before anything is written.
    """
    if device is None and VARIABLES.get(DEVICE):
        check_named()
    a, b, bias, given = listed(a), listed(b), listed(bias), listed(out)
    options: dict[str, Any] = {
        "alpha": alpha,
        "beta": beta,
        "transpose_a": transpose_a,
        "transpose_b": transpose_b,
        "bias": bias,
        "activation": activation,
    }
    if into is not None:
        options["into"] = into
    checked_name("order", order, ("auto", *ORDERS))
    if client is not None:
        way: Any = partial(_by_workers().grouped_matmul, client)
    else:
        seen = are_watched(a, b, given, bias)
        way = _by_torch().grouped_matmul if seen else unfollowed(calls.grouped_matmul)
    asked = {"order": order, "device": device, "kernel": kernel, "precision": precision}
    made: Results = way(a, b, given, **options, **asked)
    same: Any = out
    return made if same is None else same


def _by_workers() -> Any:
    """The same calls by Dask's workers, imported where a client is given."""
    from tilewright.calls import grouped_workers

    return grouped_workers


def _by_torch() -> Any:
    """The same calls for tensors that torch must see, imported where one is met."""
    from tilewright.torch_ops import grouped

    return grouped
