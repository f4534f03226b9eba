"""Batches that Dask's workers multiply are those of this process, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="Dask is not installed")

import tilewright as tw  # noqa: E402
from tilewright.backends.host import compiled  # noqa: E402
from tilewright.calls import grouped_parcels, grouped_workers  # noqa: E402
from tilewright.errors import (  # noqa: E402
    ArgumentError,
    DeviceError,
    KernelError,
    OperandError,
    OverlapError,
    ShapeError,
)

# Whose bits workers give: the host's own engine, named, as it would leave a few to NumPy.
HERE: dict[str, Any] = {"device": "host", "kernel": "native" if compiled.available() else None}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as many,
        distributed.Client(many, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of tests would be a chunk each."""
    monkeypatch.setattr(grouped_workers, "_LEAST", 1e-5)


def drawn(count: int, most: int, dtype: Any = np.float32, seed: int = 0) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    sizes = draw.integers(0, most, (count, 3)).tolist()
    a = [draw.standard_normal((m, k)).astype(dtype) for m, n, k in sizes]
    b = [draw.standard_normal((k, n)).astype(dtype) for m, n, k in sizes]
    return a, b


def same(found: Any, wanted: Any) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        # Tiles are chosen for the products of a run, and decide in which order a sum is made.
        eps, largest = np.finfo(one.dtype).eps, np.abs(other).max(initial=1)
        np.testing.assert_allclose(one, other, rtol=0, atol=8 * eps * largest)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_results_are_those_of_this_process(client: Any, dtype: Any) -> None:
    how = HERE if dtype == np.float32 else {"device": "host"}
    a, b = drawn(300, 70, dtype)
    a[3], b[4] = np.asfortranarray(a[3]), np.repeat(b[4], 2, 1)[:, ::2]
    wanted = tw.grouped_matmul(a, b, **how)
    for _ in range(2):  # by new plans, and by those that are kept
        same(tw.grouped_matmul(a, b, client=client), wanted)
    left, right = (tw.RaggedBatch.from_list(part) for part in (a, b))
    made = tw.grouped_matmul(left, right, client=client, **how)
    assert isinstance(made, tw.RaggedBatch)
    same(made, wanted)


@pytest.mark.usefixtures("small_chunks")
def test_options_mean_what_they_mean_here(client: Any) -> None:
    draw = np.random.default_rng(1)
    normal = partial(draw.standard_normal, dtype=np.float32)
    a, b = drawn(90, 40)
    sizes = [(len(x), y.shape[1]) for x, y in zip(a, b, strict=True)]
    before = [normal(size) for size in sizes]
    out, other = ([x.copy() for x in before] for _ in range(2))
    bias = [normal(n) if n % 2 else None for _, n in sizes]
    options: dict[str, Any] = {
        "alpha": draw.random(90),
        "beta": draw.integers(0, 3, 90),
        "bias": bias,
        "activation": "gelu",
        "transpose_b": True,
    }
    turned = [np.ascontiguousarray(y.T) for y in b]
    assert tw.grouped_matmul(a, turned, out=out, client=client, **options) is out
    tw.grouped_matmul(a, turned, out=other, **HERE, **options)
    same(out, other)


@pytest.mark.usefixtures("small_chunks")
def test_sums_are_made_whole_by_a_worker(client: Any) -> None:
    draw = np.random.default_rng(2)
    normal = partial(draw.standard_normal, dtype=np.float32)
    into = np.concatenate((np.arange(40), draw.integers(0, 40, 100)))
    draw.shuffle(into)
    rows, cols = draw.integers(1, 20, 40), draw.integers(1, 20, 40)
    depth = draw.integers(0, 30, 140)
    pairs = list(zip(into.tolist(), depth.tolist(), strict=True))
    a = [normal((rows[r], k)) for r, k in pairs]
    b = [normal((k, cols[r])) for r, k in pairs]
    bias = [normal(n) for n in cols]
    options: dict[str, Any] = {"into": into, "bias": bias, "activation": "relu"}
    wanted = tw.grouped_matmul(a, b, **HERE, **options)
    same(tw.grouped_matmul(a, b, client=client, **options), wanted)
    places = [np.zeros_like(one) for one in wanted]
    named = [places[r] for r in into.tolist()]  # the very same more than once
    tw.grouped_matmul(a, b, out=named, client=client)
    same(places, tw.grouped_matmul(a, b, into=into, **HERE))


def test_tensors_come_back_as_tensors(client: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = ([torch.from_numpy(x) for x in part] for part in drawn(20, 30))
    made = tw.grouped_matmul(a, b, client=client)
    for one, x, y in zip(made, a, b, strict=True):
        torch.testing.assert_close(one, x @ y)
    out = [torch.empty_like(one) for one in made]
    version = out[0]._version
    assert tw.grouped_matmul(a, b, out=out, client=client) is out
    assert out[0]._version > version
    a[3].requires_grad_()
    with pytest.raises(OperandError, match="client: an operand requires a gradient"):
        tw.grouped_matmul(a, b, client=client)
    with torch.no_grad():
        tw.grouped_matmul(a, b, client=client)


def test_equal_sizes_run_the_plan_that_a_worker_keeps(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = drawn(30, 20, seed=5)
    tw.grouped_matmul(a, b, client=client)

    def kept() -> int:
        return len(grouped_parcels._bound)

    before = client.run(kept)
    for seed in (6, 7):
        changed = [x + seed for x in a]
        same(tw.grouped_matmul(changed, b, client=client),
             tw.grouped_matmul(changed, b, **HERE))  # fmt: skip
    assert client.run(kept) == before
    client.run(tw.forget)
    assert set(client.run(kept).values()) == {0}


def test_what_workers_cannot_do_is_refused_before_anything_is_sent(client: Any) -> None:
    a, b = drawn(4, 9, seed=3)
    out = [np.full((len(x), y.shape[1]), 7, np.float32) for x, y in zip(a, b, strict=True)]
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"client": "tcp://here:1"}, ArgumentError, "client='tcp://here:1': accepted is a"),
        ({"device": "gpu"}, ArgumentError, "device='gpu': with client="),
        ({"kernel": "opencl"}, KernelError, "kernel='opencl': with client="),
        ({"precision": "tf32"}, ArgumentError, "precision='tf32'"),
        ({"order": "no"}, ArgumentError, "order='no'"),
        ({"b": b[:3]}, ShapeError, "b: has 3 matrices"),
        ({"out": [*out[:3], a[3]]}, (OverlapError, ShapeError), "out"),  # type: ignore[list-item]
    ]
    for change, error, words in wrong:
        given = {"a": a, "b": b, "out": out, "client": client} | change
        with pytest.raises(error, match=words):
            tw.grouped_matmul(given.pop("a"), given.pop("b"), **given)
    assert all((one == 7).all() for one in out)
    assert tw.grouped_matmul([], [], client=client) == []


@pytest.mark.usefixtures("small_chunks")
def test_out_is_written_when_all_is_there_and_only_then(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = drawn(40, 30, seed=4)
    out = [np.full((len(x), y.shape[1]), 7, np.float32) for x, y in zip(a, b, strict=True)]
    real, sent = grouped_workers.parcel_of, []

    def spoiled(*given: Any) -> Any:
        parcel = real(*given)
        sent.append(parcel)
        if len(sent) == 3:
            object.__setattr__(parcel.work, "activation", "tanh")
        return parcel

    monkeypatch.setattr(grouped_workers, "parcel_of", spoiled)
    with pytest.raises(ArgumentError, match="activation='tanh'"):
        tw.grouped_matmul(a, b, out=out, client=client)
    assert len(sent) >= 3
    assert all((one == 7).all() for one in out)


@pytest.mark.parametrize("shape", [(2, 5), (3, 4), (4, 4), (1, 1), (0, 3)])
def test_what_lies_between_results_of_the_caller_stays(client: Any, shape: tuple[int, int]) -> None:
    """Results at multiples of 64 bytes, as a batch of ours has them, but in the caller's array."""
    m, n = shape
    whole = np.full(16 * 40, 7, np.float32)
    parts = [whole[16 * i :][: m * n] for i in range(40)]
    out = [part.reshape(shape) for part in parts]
    a = [np.full((m, 3), i, np.float32) for i in range(40)]
    b = [np.ones((3, n), np.float32)] * 40
    tw.grouped_matmul(a, b, out=out, client=client)
    wanted = np.full((40, 16), 7, np.float32)
    wanted[:, : m * n] = 3 * np.arange(40)[:, None]
    np.testing.assert_array_equal(whole.reshape(40, 16), wanted)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (("0.0.1", "9", True), ArgumentError, "has tilewright 0.0.1 and NumPy 9; accepted are"),
        (ModuleNotFoundError("No module"), DeviceError, "cannot work .No module.; accepted are"),
    ],
)
def test_workers_that_would_make_something_else_are_refused(
    answer: Any, error: type[Exception], words: str
) -> None:
    class Told:
        def wait_for_workers(self, count: int, timeout: float) -> None: ...

        def nthreads(self) -> dict[str, int]:
            return {"tcp://there:1": 1}

        def run(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"tcp://there:1": answer}

    with pytest.raises(error, match=words):
        grouped_workers._workers(Told())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
@pytest.mark.usefixtures("small_chunks")
def test_a_worker_that_is_killed_costs_its_chunks(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = drawn(400, 90, seed=8)
    wanted = tw.grouped_matmul(a, b, **HERE)
    pid = next(iter(client.run(os.getpid).values()))
    real, killed, sent = grouped_workers.write, [], []

    def write(*given: Any, **named: Any) -> None:
        if not killed:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
        real(*given, **named)

    submit = client.submit
    monkeypatch.setattr(grouped_workers, "write", write)
    monkeypatch.setattr(client, "submit", lambda *g, **n: sent.append(g) or submit(*g, **n))
    same(tw.grouped_matmul(a, b, client=client), wanted)
    assert killed
    assert len(sent) == grouped_workers._PER_CORE * 2  # Dask gave the lost ones to the other


def test_a_client_that_is_closed_is_named() -> None:
    a, b = drawn(3, 9)
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        silence_logs=50,
    ) as one:
        closed = distributed.Client(one, set_as_default=False)
        closed.close()
        with pytest.raises(ArgumentError, match=r"client=.*is closed; accepted is one that is con"):
            tw.grouped_matmul(a, b, client=closed)
