"""GroupedPlan: how a batch of given sizes will run on a device; made once and found again by sizes.

Every batch of the host's arrays has one, a bound plan as well as a plain call, and all stand on
one shelf. On a GPU engines decide when they see how the operands lie, so that a plan holds sizes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Column, numbers_of
from tilewright.backends.host import grouped as native
from tilewright.calls.grouped_engines import Batch, chosen
from tilewright.calls.grouped_quick_host import unbound
from tilewright.calls.grouped_run_host import bound, host_share, is_loops
from tilewright.errors import KernelError, ShapeError
from tilewright.facts.device import Device
from tilewright.facts.dtypes import NARROW
from tilewright.facts.fixed import Fixed
from tilewright.facts.limits import MOST
from tilewright.facts.verdict import Verdict
from tilewright.files import reading
from tilewright.files.whole import path_of, replacing
from tilewright.inputs.batch import Call, Place, Results, check_planned, checked
from tilewright.inputs.batch_place import check_none, host_place, lies_on_gpu
from tilewright.inputs.checks import check_options, checked_batch_dtype, checked_name
from tilewright.inputs.devices import backend_of, resolve
from tilewright.inputs.watched import are_watched, listed
from tilewright.planning.explain import batch_head, explained, explained_elsewhere
from tilewright.planning.grouped import Balance, Bucket, GroupedLayout, signature
from tilewright.planning.order import ORDERS
from tilewright.remember import Shelf
from tilewright.wording import PATH, counted, short

# Known options of a bound batch: those of `grouped_matmul` less what a plan has or a place has.
_OPTIONS = (
    *("alpha", "beta", "transpose_a", "transpose_b", "bias", "activation", "into"),
    *("kernel", "precision"),
)
_LOOP = "a loop of numpy.matmul, as given"
_UNBOUND = {
    "lists": "lists are read and cut anew at every call, which costs less than to find a plan",
    "loop": "a loop of NumPy's products: a plan would save less than it costs",
    "plan": "this plan, found again by sizes",
}
_FORMAT = "tilewright-grouped-plan-1"
_MOST_BYTES = 64 << 20  # of a plan in a file: a million problems take 15 MB
_plans: Shelf[bytes, GroupedPlan] = Shelf("plans of batches", most=256 << 20)


@dataclass(frozen=True, eq=False)
class GroupedPlan(Fixed):
    """How a batch will run on a device. Made by `plan_grouped`; holds sizes, never operands.

    `bind(a, b, ...)` checks operands of these sizes and makes a callable that only launches, and
    returns the results; `explain()` is the report of engine, order, tiles and what was rejected.
    """

    device: Device
    dtype: str
    m: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    k: npt.NDArray[np.int64]
    asked: str
    named: bool  # whether the caller named the device, which then runs what a loop would end before
    verdict: Verdict  # what the engines said; where all refused there is no layout

    @property
    def home(self) -> Device:
        """Where the chosen engine runs: the host, or the plan's device."""
        return self.verdict.best.device if self.verdict.proposals else self.device

    @property
    def layout(self) -> GroupedLayout | None:
        """What is launched; None for a loop of NumPy's."""
        return self.verdict.best.decisions if self.verdict.proposals else None

    def __repr__(self) -> str:
        """In a line: columns of thousands of sizes would fill the screen."""
        order = self.asked if self.layout is None else self.layout.chosen
        count = counted(len(self.m), "product")
        return f"GroupedPlan({count}, {self.dtype}, {self.device.id!r}, {order})"

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The problems in launch order, as indices into the caller's order."""
        return np.arange(len(self.m)) if self.layout is None else self.layout.order

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Runs of problems that share a tile shape."""
        return () if self.layout is None else self.layout.buckets

    @property
    def bytes(self) -> int:
        """What it weighs: its columns, which are its layout's where it has one."""
        return len(self.m) * 24 if self.layout is None else self.layout.bytes

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
            sizes = (self.m, self.n, self.k)
            return str(_on_gpu().explain(*sizes, self.dtype, self.device, self.asked))
        flops = float(2 * np.sum(self.m.astype(float) * self.n * self.k))
        head = batch_head(len(self.m), self.dtype, flops, self.device)
        if self.layout is None:
            lines = explained_elsewhere("host", _LOOP, self.device, flops)
            lines += [f"rejected   {one.kernel}: {one.reason}" for one in self.verdict.refusals]
            return "\n".join(head + lines)
        if not len(self.m):
            return "\n".join([*head, "because    the batch is empty: nothing is computed"])
        sizes = (self.m, self.n, self.k)
        if self.dtype not in NARROW:
            head.append(f"unbound    {_UNBOUND[unbound(self.device, self.dtype, sizes)]}")
        if not self.named and is_loops(self.home, self.dtype, sizes):
            head.append("bound      a loop of NumPy's products: they end before a launch would")
        host = host_share(self.home, self.dtype, sizes)
        if len(host):
            large = counted(len(host), "large product")
            when = "after" if self.home.backend == "host" else "before"
            head.append(f"host       {large} by NumPy's BLAS, {when} the others")
        return "\n".join(head + explained(self.layout, self.verdict, flops))

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
        a, b = listed(a), listed(b)
        out = out if type(out) is list else listed(out)  # a list is what the callable returns
        if "bias" in options:
            options["bias"] = listed(options["bias"])
        given = (a, b, out, options.get("bias"))
        if watched := are_watched(*given):
            from tilewright.inputs import tensors

            tensors.check_unfollowed(*given)
        asked = {name: options.pop(name, None) for name in ("kernel", "precision")}
        if self.device.backend == "cuda" or lies_on_gpu(a) or lies_on_gpu(b):
            place: Any = _on_gpu().BatchOnGpu(a, lasting=True)
            call = self._fitting(place, a, b, out, **options)
            made: Callable[[], Results] = _on_gpu().bound(
                place, call, out, self.device, self.asked, **asked
            )
            return made
        check_none(precision=asked["precision"])
        place = host_place(watched=watched)
        run = self.bound(self._fitting(place, a, b, out, **options), asked["kernel"])
        return _counted(run, place) if watched else run

    def _fitting(self, place: Place, *operands: Any, **options: Any) -> Call:
        """Checked operands of these sizes."""
        call = checked(place, *operands, **options)
        check_planned(call, self.device, self.dtype, {"m": self.m, "n": self.n, "k": self.k})
        return call

    def bound(self, call: Call, kernel: str | None = None) -> Callable[[], Results]:
        """What computes a call of these sizes off GPUs, and returns its results.

        Raises KernelError where `kernel` is given and no engine of that name can take it.
        """
        there = None if call.a.base is None else call.a.base.device
        if kernel is not None or (there is not None and there != self.home):
            other = self._by(there or self.device, kernel, named=self.named or there is not None)
            return bound(other.home, call, other._laid_out, named=True)
        return bound(self.home, call, self._laid_out, named=self.named)

    def _by(
        self, device: Device, kernel: str | None, *, named: bool, at: Column | slice = slice(None)
    ) -> GroupedPlan:
        """The plan of the same, or of some of the products, by other engines."""
        sizes = (self.m[at], self.n[at], self.k[at])
        return plan_of(*sizes, self.dtype, device, self.asked, named=named, kernel=kernel)

    def _laid_out(self, at: npt.NDArray[np.int64]) -> GroupedLayout | None:
        """The layout of some of the products."""
        if self.layout is None or len(at) == len(self.m):
            return self.layout
        return self._by(self.home, None, named=True, at=at).layout

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
            temporary.write_text(json.dumps(document), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Device | str | None = None) -> GroupedPlan:
        """The plan that `save` wrote, for a device. Raises FileError for anything else."""
        resolve(device)  # raises before the file is read
        file = path_of(path)
        with reading.refusing(f"path={short(str(path), PATH)}", "not a saved plan"):
            document = reading.document(file, _MOST_BYTES)
            if document["format"] != _FORMAT:
                raise ValueError(f"format is {short(document['format'])}")
            if not isinstance(document["dtype"], str):
                raise ValueError(f"dtype is {short(document['dtype'])}")
            m, n, k = (document[name] for name in "mnk")
            return planned(m, n, k, document["dtype"], device, document["order"])


def planned(
    m: npt.ArrayLike,
    n: npt.ArrayLike,
    k: npt.ArrayLike,
    dtype: Any,
    device: Device | str | None,
    order: str,
) -> GroupedPlan:
    """`tilewright.plan_grouped`, which has the words for arguments and errors."""
    place = resolve(device)
    wanted = _on_gpu().dtype_name(dtype) if place.backend == "cuda" else checked_batch_dtype(dtype)
    checked_name("order", order, ("auto", *ORDERS))
    rows, cols, depths = _size_column(m, "m"), _size_column(n, "n"), _size_column(k, "k")
    if not len(rows) == len(cols) == len(depths):
        raise ShapeError(
            f"m, n, k: have {len(rows)}, {len(cols)} and {len(depths)} entries; must have one each"
            " a problem"
        )
    return plan_of(rows, cols, depths, wanted, place, order, named=device is not None)


def plan_of(
    m: Column,
    n: Column,
    k: Column,
    dtype: str,
    device: Device,
    order: str,
    *,
    named: bool,
    kernel: str | None = None,
    at_once: bool = False,
) -> GroupedPlan:
    """The plan of checked sizes, found again or made.

    `kernel` names an engine; `at_once` leaves out those that are not compiled yet. Raises
    KernelError where the engine named is none of the device's, or cannot.
    """
    at_once = at_once and kernel is None and not _is_built(device, dtype)

    def planned_anew() -> GroupedPlan:
        own = m.copy(), n.copy(), k.copy()
        batch = Batch(*own, dtype, order, at_once)
        verdict = chosen(batch, device, kernel, alone=named)
        layout: Any = verdict.best.decisions if verdict.proposals else batch
        sizes = (layout.m, layout.n, layout.k)
        return GroupedPlan(device, dtype, *sizes, order, named, verdict)

    asked = (dtype, device.key, device.id, order, named, kernel, at_once)
    return _plans.found(signature(m, n, k, *asked), planned_anew, lambda plan: plan.bytes)


def _is_built(device: Device, dtype: str) -> bool:
    """Whether no engine that may be chosen waits for a compiler."""
    if not native.is_compiled(dtype):
        return False
    kernel = backend_of(device).grouped(device, dtype)
    return kernel is None or kernel.is_built


def _size_column(values: npt.ArrayLike, name: str) -> Column:
    array = numbers_of(values)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.ndim == 0 and array.dtype != object:
        raise ShapeError(
            f"{name}={short(values)}: accepted are lists of whole numbers, one a problem; for one"
            f" product {name}=[{short(values)}]"
        )
    if array.ndim != 1 or array.dtype.kind not in "iu":
        shown = "not a number" if array.dtype.kind == "f" and np.isnan(array).any() else array.dtype
        raise ShapeError(f"{name}: {shown}; accepted are whole numbers from 0 up, one a problem")
    if int(array.min()) < 0 or int(array.max()) > MOST:
        at = int(np.argmax((array < 0) | (array > MOST)))
        raise ShapeError(f"{name}[{at}]={array[at]}: accepted are sizes from 0 to 2^31 - 64")
    return array.astype(np.int64)


def _counted(run: Callable[[], Results], place: Place) -> Callable[[], Results]:
    """Every run told to whoever counts writes."""

    def run_counted() -> Results:
        results = run()
        place.written(results)
        return results

    return run_counted


def _on_gpu() -> Any:
    """The same for arrays on a GPU, imported where one is met."""
    from tilewright.calls import grouped_gpu

    return grouped_gpu
