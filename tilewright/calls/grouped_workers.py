"""Batches of the host's arrays multiplied by Dask's workers: `grouped_matmul(..., client=client)`.

    checked call -> chunks of about equal seconds -> parcels, two a core on their way -> results

A chunk is a run of results with all of their products, so nothing is added up between workers. It
lasts 20 ms at least, as a task costs Dask some, and where equal sizes come again it goes to the
worker that has its bound plan. Elements travel with the task, by the scheduler: a worker that dies
costs the chunks it was at, which Dask gives to others.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Column
from tilewright.arrays.array import NDArray
from tilewright.arrays.views import OF_HOST
from tilewright.backends.host import grouped as native
from tilewright.backends.host import rates
from tilewright.backends.host.compiled import available
from tilewright.calls.grouped_parcels import bytes_of, make, parcel_of, write
from tilewright.errors import ArgumentError, DeviceError, DtypeError, KernelError, OperandError
from tilewright.facts.dtypes import NARROW
from tilewright.inputs.batch import Call, Results, checked
from tilewright.inputs.batch_place import check_none, host_place, lies_on_gpu
from tilewright.inputs.devices import host
from tilewright.inputs.matrices import taken
from tilewright.inputs.watched import are_watched
from tilewright.remember import Shelf
from tilewright.version import __version__
from tilewright.wording import short
from tilewright.workers import NO_WORKER, asked, result

_LINK = 4e8  # bytes a second between client and worker, by the scheduler of one machine
_PRODUCT = 2e-6  # seconds of a product beside its elements: packed, sent, laid out
_LEAST = 0.02  # seconds of a chunk
_PER_CORE = 4  # chunks a core, so that the last to end does not end late
_MOST = 64 << 20  # bytes of a chunk
_AHEAD = 2  # chunks a core that are on their way
_facts_of: Shelf[int, dict[str, Any]] = Shelf("workers that were asked", most=1 << 20)
_LABEL = "client"


@dataclass(frozen=True)
class _Chunk:
    """A run of results, and their products."""

    results: Column
    products: Column


def grouped_matmul(
    client: Any,
    a: Any,
    b: Any,
    out: Any,
    *,
    order: str,
    device: Any,
    kernel: Any,
    precision: Any,
    **options: Any,
) -> Results:
    """Arguments, results and errors are those of `tilewright.grouped_matmul`."""
    _check_client(client)
    check_none(precision=precision)
    watched = _check_operands(a, b, out, options.get("bias"))
    if device is not None and getattr(device, "id", device) != "host":
        raise ArgumentError(
            f"device={short(device)}: with client=; accepted is None, as workers multiply on their"
            " own processors"
        )
    place = host_place(watched=watched)
    call = checked(place, a, b, out, **options)
    if call.a.dtype.name in NARROW:
        raise DtypeError(
            f"a.dtype={call.a.dtype.name!r}: with client= accepted are {', '.join(OF_HOST)}"
        )
    for name, part in (("a", call.a), ("b", call.b), ("out", call.c)):
        if part.base is not None:
            raise OperandError(
                f"{name}: lies on {part.base.device.id!r}; with client= accepted is the batch that"
                " .to('host') gives"
            )
    if len(call.c):
        known, cores = _workers(client)
        engine = _engine(known, call.a.dtype.name, kernel)
        _run(client, cores, call, order, engine, is_callers=out is not None)
    if out is not None:
        place.written(out)
    return call.results()


def _check_client(client: Any) -> None:
    """Raise unless this is a client of Dask's that waits for results."""
    dask = sys.modules.get("distributed")  # who has a client has imported it
    if dask is None or not isinstance(client, dask.Client):
        raise ArgumentError(
            f"client={short(client)}: accepted is a distributed.Client; pip install"
            " 'tilewright[workers]' brings Dask"
        )
    if client.asynchronous:
        raise ArgumentError(f"client={short(client)}: asynchronous; accepted is one that waits")
    if client.status in ("newly-created", "closing", "closed"):
        raise ArgumentError(
            f"client={short(client)}: is {client.status}; accepted is one that is connected, as"
            " distributed.Client(address) gives"
        )


def _check_operands(*parts: Any) -> bool:
    """Whether torch's tensors are among them; raise where they lie on a GPU or learn."""
    for name, part in zip(("a", "b", "out", "bias"), parts, strict=True):
        if part is not None and lies_on_gpu(part):
            raise OperandError(
                f"{name}: lies on a GPU; with client= accepted are arrays of the host's"
            )
    watched = are_watched(*parts)
    if watched:
        from tilewright.inputs import tensors

        if tensors.is_differentiated(*(one for part in parts for one in tensors.tensors_of(part))):
            raise OperandError(
                "client: an operand requires a gradient or has a tangent, which workers do not"
                " follow; accepted are client=None, operands that are .detach()ed, and"
                " torch.no_grad()"
            )
    return watched


def _workers(client: Any) -> tuple[dict[str, Any], list[str]]:
    """What every worker has (`_facts`), and the address of that of each task that may run at once.

    The scheduler is asked once a call who is there; workers that are new are asked what they have.
    """
    known = _facts_of.get(id(client), client) or {}
    there = client.nthreads()
    if not there or not set(there) <= set(known):
        needs = f"tilewright {__version__}"
        known = asked(client, _facts, label=_LABEL, needs=needs)
        for worker, (version, numpy, _) in known.items():
            if (version, numpy) != _facts()[:2]:
                raise ArgumentError(
                    f"{_LABEL}: {worker} has tilewright {version} and NumPy {numpy}; accepted are"
                    f" {__version__} and {np.__version__}, as here"
                )
        _facts_of.drop(id(client))
        _facts_of.keep(id(client), known, owners=(client,))
        there = client.nthreads()  # some may have come, or gone, meanwhile
    there = {worker: threads for worker, threads in there.items() if worker in known}
    cores = [worker for worker, threads in there.items() for _ in range(threads)]
    if not cores:
        raise DeviceError(f"{_LABEL}: {NO_WORKER}")
    return {worker: known[worker] for worker in there}, sorted(cores)


def _facts() -> tuple[str, str, bool]:
    return __version__, np.__version__, available()


def _engine(known: dict[str, Any], dtype: str, kernel: Any) -> str | None:
    """The engine of all workers, by name; None for a loop of NumPy's."""
    without = [worker for worker, facts in known.items() if not facts[2]]
    able = dtype in native.DTYPES and not without
    if kernel is None:
        return "native" if able else None
    if kernel != "native":
        raise KernelError(f"kernel={short(kernel)}: with client= accepted are None and 'native'")
    if not able:
        why = f"{without[0]} has no Numba" if without else f"none for {dtype}"
        raise KernelError(f"kernel='native': {why}; accepted is None, a loop of NumPy's")
    return "native"


def _run(
    client: Any, cores: list[str], call: Call, order: str, engine: str | None, *, is_callers: bool
) -> None:
    """Every chunk made by a worker. What is the caller's is written when all are there."""
    import distributed

    chunks = iter(list(zip(_chunks(call, len(cores)), cycle(cores), strict=False)))
    kept: list[tuple[_Chunk, NDArray]] = []
    tasks: dict[Any, _Chunk] = {}

    def send(chunk: _Chunk, worker: str) -> Any:
        parcel = parcel_of(call, chunk.products, chunk.results, order, engine)
        # As kept, a plan would be bound to one worker for good; `allow_other_workers` lets it die.
        how = {"pure": False, "workers": [worker], "allow_other_workers": True}
        future = client.submit(make, parcel, **how)
        tasks[future] = chunk
        return future

    try:
        with _large_tasks():
            first = [send(*one) for one in islice(chunks, _AHEAD * len(cores))]
            ready = distributed.as_completed(first, loop=client.loop)
            for future in ready:
                made = result(future, _LABEL, killed=_killed)
                done = tasks.pop(future)
                for one in islice(chunks, 1):
                    ready.add(send(*one))
                if is_callers:
                    kept.append((done, made))
                else:
                    write(made, taken(call.c, done.results), between=True)
    finally:
        for future in tasks:  # after an error
            future.cancel()
    for done, made in kept:
        write(made, taken(call.c, done.results), between=False)


def _killed(why: str) -> DeviceError:
    return DeviceError(
        f"{_LABEL}: several workers died over one chunk ({why}); accepted are workers with more"
        " memory"
    )


def _large_tasks() -> Any:
    """Dask warns of tasks of more than 10 MB, which are better kept where they are used again."""
    import dask

    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})


def _chunks(call: Call, cores: int) -> list[_Chunk]:
    """Runs of results that last about as long as each other."""
    seconds, sizes = _predicted(call)
    least = max(float(seconds.sum()) / _LEAST, 1.0)
    count = max(min(_PER_CORE * cores, least), float(sizes.sum()) / _MOST)
    ends = np.cumsum(seconds)
    limits = np.arange(1, int(count)) * (ends[-1] / int(count))
    cuts = np.unique(np.concatenate(([0], np.searchsorted(ends, limits), [len(ends)])))
    products = (
        np.arange(len(call.a)) if call.sums is None else np.argsort(call.sums.into, kind="stable")
    )
    begins = cuts
    if call.sums is not None:
        begins = np.searchsorted(call.sums.into[products], cuts)
    return [
        _Chunk(np.arange(cuts[i], cuts[i + 1]), np.sort(products[begins[i] : begins[i + 1]]))
        for i in range(len(cuts) - 1)
    ]


def _predicted(call: Call) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Seconds and bytes of every result's products, sent there and made by one core."""
    flops = 2.0 * call.a.at.rows * call.b.at.cols * call.a.at.cols
    rate = rates.PEAK / rates.of(host()).factor * 4 / call.a.dtype.itemsize
    sizes: npt.NDArray[Any] = bytes_of(call.a) + bytes_of(call.b)
    seconds: npt.NDArray[Any] = flops / rate + sizes / _LINK + _PRODUCT
    if call.sums is not None:
        into = call.sums.into
        seconds, sizes = np.bincount(into, seconds), np.bincount(into, sizes)
    return seconds + bytes_of(call.c) / _LINK, sizes + bytes_of(call.c)
