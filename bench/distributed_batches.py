"""Batches by Dask's workers beside one process on the same cores, and what a chunk's way costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.inputs.devices import host

SIZES = (32, 128, 512, 1024, 2048)  # m = n = k
_BYTES = 48 << 20  # of the operands of a batch
_ROUNDS = 7


def batches() -> dict[str, Any]:
    """Seconds of a batch of each size, here and by a worker a core."""
    import dask
    from distributed import Client, LocalCluster

    cores = host().compute_units
    with (
        dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}),
        LocalCluster(
            n_workers=cores, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        found = {
            "cores": cores,
            "task": _median(lambda: client.submit(int, pure=False).result()),
            "link": _link(client),
            "batches": [_batch(client, size) for size in SIZES],
        }
    return found


def _link(client: Any) -> dict[str, float]:
    """Bytes a second that go to a worker within a task, and come back."""
    data = np.random.default_rng(0).random(4 << 20)
    there = _median(lambda: client.submit(len, data, pure=False).result())
    kept = client.scatter(data, hash=False)
    back = _median(lambda: client.submit(np.negative, kept, pure=False).result())
    return {"there": data.nbytes / there, "back": data.nbytes / back}


def _batch(client: Any, size: int) -> dict[str, Any]:
    """One size; operands as lists, results new, plans kept on both sides."""
    count = max(2, _BYTES // (8 * size * size))
    draw = np.random.default_rng(size)
    a, b = (list(draw.standard_normal((count, size, size), dtype=np.float32)) for _ in range(2))
    how: dict[str, Any] = {"device": "host", "kernel": "native"}
    ways: dict[str, Callable[[], Any]] = {
        "here": lambda: tw.grouped_matmul(a, b, **how),
        "workers": lambda: tw.grouped_matmul(a, b, client=client),
    }
    for one, other in zip(ways["here"](), ways["workers"](), strict=True):
        np.testing.assert_array_equal(one, other)
    spans: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            spans[name].append(time.perf_counter() - begun)
    seconds = {name: statistics.median(one) for name, one in spans.items()}
    row = {"size": size, "count": count, "bytes": 12 * size * size * count, "seconds": seconds}
    print(row, flush=True)
    return row


def _median(way: Callable[[], object]) -> float:
    spans = []
    for _ in range(_ROUNDS + 2):
        begun = time.perf_counter()
        way()
        spans.append(time.perf_counter() - begun)
    return statistics.median(spans[2:])
