"""Variable-size batches: plan once, bind, and launch as often as needed.

grouped_matmul   checks -> columns -> plan (cached by sizes) -> bind -> launch -> results
plan_grouped     the plan alone, from columns of sizes
GroupedPlan      what was decided and why; `bind` gives a callable that only launches
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.calls import grouped as calls
from tilewright.calls.grouped_host import layout_of
from tilewright.calls.grouped_quick_host import WAYS, is_worth_planning, products
from tilewright.calls.grouped_run_host import bound, check_plan, host_share, is_loops
from tilewright.calls.grouped_work_host import Results, checked
from tilewright.errors import FileError, KernelError, ShapeError
from tilewright.facts.device import Device
from tilewright.facts.limits import MOST
from tilewright.files import reading
from tilewright.files.whole import DAMAGED, path_of, replacing
from tilewright.inputs.checks import check_options, checked_dtype, checked_name
from tilewright.inputs.devices import resolve
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.inputs.watched import are_watched
from tilewright.planning.grouped import ORDERS, Balance, Bucket, GroupedLayout, signature
from tilewright.remember import Shelf

__all__ = ["GroupedPlan", "grouped_matmul", "plan_grouped"]

# Known again by identity, which takes no time: a call without options asks for little else.
_ONE, _NOUGHT, _AUTO = 1.0, 0.0, "auto"
_ARRAY = np.ndarray
_FORMAT = "tilewright-grouped-plan-1"
_MOST_BYTES = 64 << 20  # of a plan in a file: a million problems take 15 MB
_plans: Shelf[bytes, GroupedPlan] = Shelf("plans of batches", most=256 << 20)


@dataclass(frozen=True)
class GroupedPlan:
    """How a batch will run on a device. Made by `plan_grouped`; holds sizes, never operands."""

    device: Device
    dtype: str
    layout: GroupedLayout | None
    m: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    k: npt.NDArray[np.int64]
    asked: str
    named: bool  # whether the caller named the device, which then runs what a loop would end before

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The problems in launch order, as indices into the caller's order."""
        return np.arange(len(self.m)) if self.layout is None else self.layout.order

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Runs of problems that share a tile shape."""
        return () if self.layout is None else self.layout.buckets

    def balance(self) -> Balance:
        """Seconds of work of every compute unit, before (as given) and after (as planned)."""
        if self.layout is None:
            raise KernelError(
                f"device={self.device.id!r}: runs a loop; there is no balance to show"
            )
        return self.layout.balance()

    def explain(self) -> str:
        """The plan in words: order, reason, prediction of every order, tiles, balance."""
        if self.device.backend == "cuda":
            return str(_on_gpu().explain(self))
        flops = float(2 * np.sum(self.m.astype(float) * self.n * self.k))
        head = [
            f"{len(self.m)} products, {self.dtype}, {flops / 1e9:.3f} GFLOP",
            f"device     {self.device.id}  {self.device.name}",
        ]
        if self.layout is None:
            return "\n".join([*head, "kernel     host: a loop of numpy.matmul, as given"])
        if not is_worth_planning(len(self.m), flops):
            head.append(
                "unbound    a loop of NumPy's products: a plan would save less than it costs"
            )
        sizes = (self.m, self.n, self.k)
        if not self.named and is_loops(self.device, self.dtype, sizes):
            head.append("bound      a loop of NumPy's products: they end before a launch would")
        host = host_share(self.device, self.dtype, sizes)
        if len(host):
            head.append(f"host       {len(host)} large products by NumPy's BLAS, before the others")
        return "\n".join(head + _explained(self.layout))

    def bind(self, a: Any, b: Any, out: Any = None, **options: Any) -> Callable[[], Results]:
        """A callable that only launches, on these operands, and returns the results.

        Operands and results stay where they are: change the elements of `a` and `b`, call again.
        Options are `alpha`, `beta`, `bias`, `activation`, `into` and transposes as in
        `grouped_matmul`.
        On a GPU also `precision` and `kernel`; the callable then launches on torch's current stream
        and waits for nothing, so that a CUDA graph can capture it.
        Raises ShapeError where the sizes are not those the plan was made for.
        """
        check_options(options, _OPTIONS)
        if are_watched(a, b, out, options.get("bias")):
            watched: Callable[[], Results] = _by_torch().bind(self, a, b, out, **options)
            return watched
        if self.device.backend == "cuda":
            launch: Callable[[], Results] = _on_gpu().bind(self, a, b, out, **options)
            return launch
        for name in ("kernel", "precision"):
            calls.check_none(name, options.pop(name, None))
        call = checked(a, b, out, **options)
        check_plan(call, self.device, self.dtype, {"m": self.m, "n": self.n, "k": self.k})
        return bound(self.device, call, self._laid_out, named=self.named)

    def _laid_out(self, at: npt.NDArray[np.int64]) -> GroupedLayout | None:
        """The layout of some of the products."""
        if self.layout is None or len(at) == len(self.m):
            return self.layout
        m, n, k = self.m[at], self.n[at], self.k[at]
        return layout_of(m, n, k, self.dtype, self.device, self.asked)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write sizes and decisions as JSON. The layout is made again from them when loaded.

        Raises FileError where the folder is absent or cannot be written.
        """
        document = {
            "format": _FORMAT,
            "device": self.device.key,
            "dtype": self.dtype,
            "order": self.layout.chosen if self.layout else self.asked,
            **{name: getattr(self, name).tolist() for name in "mnk"},
        }
        with replacing(path_of(path), "path") as temporary:
            temporary.write_text(json.dumps(document))

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Device | str | None = None) -> GroupedPlan:
        """The plan that `save` wrote, for a device. Raises FileError for anything else."""
        resolve(device)  # raises before the file is read
        file = path_of(path)
        try:
            document = reading.document(file, _MOST_BYTES)
            if document["format"] != _FORMAT:
                raise ValueError(f"format is {document['format']!r}")
            sizes = [document[name] for name in "mnk"]
            dtype, order = document["dtype"], document["order"]
            return plan_grouped(*sizes, dtype=dtype, device=device, order=order)
        except FileNotFoundError:
            raise
        except DAMAGED as error:
            raise FileError(f"path={str(path)!r}: not a saved plan ({error})") from None


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
        dtype: float16, float32 or float64; on a GPU of torch's also bfloat16, torch's or by name.
        device: as in `matmul`. One that is named also runs the few small products that NumPy would
            have ended before a launch.
        order: "auto" predicts every order's makespan and takes the least; or "given",
            "k-descending", "bucketed", "longest-first".

    Plans are cached by sizes, dtype, device and order. Raises ShapeError, DtypeError,
    ArgumentError, DeviceError.
    """
    chosen = resolve(device)
    wanted = _on_gpu().dtype_name(dtype) if chosen.backend == "cuda" else checked_dtype(dtype).name
    checked_name("order", order, ("auto", *ORDERS))
    rows, cols, depths = _size_column(m, "m"), _size_column(n, "n"), _size_column(k, "k")
    if not len(rows) == len(cols) == len(depths):
        raise ShapeError(
            f"m, n, k: have {len(rows)}, {len(cols)} and {len(depths)} entries; must have one each"
            " a problem"
        )
    return _plan(rows, cols, depths, wanted, chosen, order, device is not None)


def grouped_matmul(
    a: Sequence[Any] | RaggedBatch,
    b: Sequence[Any] | RaggedBatch,
    *,
    out: Sequence[Any] | RaggedBatch | None = None,
    alpha: float | Sequence[float] = _ONE,
    beta: float | Sequence[float] = _NOUGHT,
    transpose_a: bool | Sequence[bool] = False,
    transpose_b: bool | Sequence[bool] = False,
    bias: Sequence[Any] | None = None,
    activation: str | None = None,
    into: Sequence[int] | npt.NDArray[Any] | None = None,
    order: str = _AUTO,
    device: Device | str | None = None,
    kernel: str | None = None,
    precision: str | None = None,
) -> Results:
    """out[i] = activation(alpha[i] · op(a[i]) @ op(b[i]) + beta[i] · out[i] + bias[i]).

    Several products may be added into one result, always in the caller's order: `out` names the
    very same matrix more than once, or `into` has the index of every product's result. beta and
    bias then count once a result and the activation follows the whole sum.

    Args:
        a, b: sequences of matrices [m_i, k_i] and [k_i, n_i] of one dtype, each with sizes and
            strides of its own; or `RaggedBatch`. NumPy, CPU arrays with DLPack, or all on one GPU:
            torch, CuPy, DLPack (docs/gpu.md).
        out: matrices [m_i, n_i] that do not overlap, or are the very same; made where None. One
            that is named more than once has one beta and one bias: the same number and the same
            array (or None) wherever it is named.
        alpha, beta, transpose_a, transpose_b: one for all problems or one each.
        bias: vectors [n_i], or None for problems without one.
        activation: "none", "relu" or "gelu".
        into: one index a product, from 0 to the number of results - 1; `out`, `beta` and `bias`
            then have an entry a result, and every result has a product.
        order, device: as in `plan_grouped`.
        kernel: on a GPU the name of an engine, used whatever it costs.
        precision: on a GPU, float32 only: "tf32", or "fp32x", as in `matmul`.

    Returns: results in the caller's order: a list for lists, a RaggedBatch for RaggedBatch; `out`
        itself where it was given. An empty batch gives an empty list. Of torch tensors they are
        differentiable where `out` is None, and under autocast in its dtype (docs/pytorch.md).

    Raises: ShapeError (naming the index of the problem whose inner sizes disagree), DtypeError,
        ArgumentError, OperandError, OverlapError, before anything is written.
    """
    # One test a name: `out is into is None` takes twice the time, which a small product feels.
    if (
        out is None
        and into is None
        and bias is None
        and activation is None
        and device is None
        and kernel is None
        and precision is None
        and (alpha is _ONE or (type(alpha) is float and alpha == 1.0))
        and (beta is _NOUGHT or (type(beta) is float and beta == 0.0))
        and transpose_a is False
        and transpose_b is False
        and (order is _AUTO or (type(order) is str and order == _AUTO))
        and (type(a) is list or type(a) is tuple)
        and a
    ):
        kind = type(a[0])
        done = products(a, b) if kind is _ARRAY else WAYS.get(kind, _no_way)(a, b)
        if done is None and calls.lies_on_gpu(a):
            done = _of_tensors(a, b)
        if done is not None:
            return done
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
    if are_watched(a, b, out, bias):
        more = {"order": order, "device": device, "kernel": kernel, "precision": precision}
        made: Results = _by_torch().grouped_matmul(a, b, out=out, **options, **more)
        return made
    return calls.grouped_matmul(
        a, b, out, order=order, device=device, kernel=kernel, precision=precision, **options
    )


_ELSEWHERE = {"out", "order", "device"}  # a plan has the last two, and the first has a place
_OPTIONS = [name for name in grouped_matmul.__kwdefaults__ or () if name not in _ELSEWHERE]


def _no_way(a: Any, b: Any) -> None:
    """Nothing multiplies such lists at once."""


def _of_tensors(a: Any, b: Any) -> Any:
    """Plain products of lists of tensors on a GPU, imported where some are met; else None."""
    from tilewright.calls import grouped_plans_gpu

    return grouped_plans_gpu.products(a, b)


def _on_gpu() -> Any:
    """The same calls for arrays on a GPU, imported where one is met."""
    from tilewright.calls import grouped_gpu

    return grouped_gpu


def _by_torch() -> Any:
    """The same calls for tensors that torch must see, imported where one is met."""
    from tilewright.torch_ops import grouped

    return grouped


def _explained(layout: GroupedLayout) -> list[str]:
    balance = layout.balance()
    lines = [f"order      {layout.chosen}", f"because    {layout.reason}"]
    lines += [
        f"predicted  {name}: {seconds * 1e3:.3f} ms" for name, seconds in layout.predicted.items()
    ]
    for shape, tile in enumerate(layout.tiles):
        problems = int(np.count_nonzero(layout.tile == shape))
        if problems:
            lines.append(f"tiles      {tile.m} x {tile.n}: {problems} problems")
    cut = int(np.count_nonzero(layout.parts > 1))
    if cut:
        lines.append(f"split      {cut} long products along k, parts added in a fixed order")
    for name, work in (("before", balance.before), ("after", balance.after)):
        spread = work.max() / work.mean() if work.any() else 1.0
        lines.append(f"balance    {name}: busiest compute unit has {spread:.2f}x the mean")
    return lines


def _size_column(values: npt.ArrayLike, name: str) -> npt.NDArray[np.int64]:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.array(None)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.ndim == 0 and array.dtype != object:
        raise ShapeError(
            f"{name}={values!r}: accepted are lists of whole numbers, one a problem; for one"
            f" product {name}=[{values!r}]"
        )
    if array.ndim != 1 or array.dtype.kind not in "iu":
        shown = "not a number" if array.dtype.kind == "f" and np.isnan(array).any() else array.dtype
        raise ShapeError(f"{name}: {shown}; accepted are whole numbers from 0 up, one a problem")
    if int(array.min()) < 0 or int(array.max()) > MOST:
        at = int(np.argmax((array < 0) | (array > MOST)))
        raise ShapeError(f"{name}[{at}]={array[at]}: accepted are sizes from 0 to 2^31 - 64")
    return array.astype(np.int64)


def _plan(
    m: npt.NDArray[np.int64],
    n: npt.NDArray[np.int64],
    k: npt.NDArray[np.int64],
    dtype: str,
    device: Device,
    order: str,
    named: bool,
) -> GroupedPlan:
    key = signature(m, n, k, dtype, device.key, device.id, order, named)
    return _plans.found(key, lambda: _make(m, n, k, dtype, device, order, named), _bytes)


def _make(
    m: npt.NDArray[np.int64],
    n: npt.NDArray[np.int64],
    k: npt.NDArray[np.int64],
    dtype: str,
    device: Device,
    order: str,
    named: bool,
) -> GroupedPlan:
    layout = layout_of(m, n, k, dtype, device, order)
    return GroupedPlan(device, dtype, layout, m, n, k, order, named)


def _bytes(plan: GroupedPlan) -> int:
    return len(plan.m) * 24  # its layout is kept by itself
