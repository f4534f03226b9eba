"""The calls of `bench.host_time --name cpu`: lists beside loops, into results that are there, with
bias and relu; new shapes, bound plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np

import tilewright as tw
from bench.host_rows import Row, loop_of, times

_ENOUGH = 1e-4  # seconds of calls between two looks at the clock
_DTYPES = ("float32", "float64")


def rows() -> Iterator[Row]:
    """Lists of one product to a thousand, then what is bound, then shapes never seen."""
    for dtype in _DTYPES:
        _compile(dtype)
    for dtype in _DTYPES:
        for count in (1, 2, 4, 8, 16, 64, 256, 1000):
            a, b = _lists(count, 32, dtype)
            yield _row(f"{count} of NumPy, {dtype}", a, b, _numpys(a, b), "loop of a @ b", 1.1)
    for count in (1, 2, 5, 10, 30, 60, 100, 300, 1000):
        yield from _ended(count)
    yield from _of_torch()
    yield from _bound()
    yield _never_seen()


def _compile(dtype: str) -> None:
    """Calls have machine code made beside them, or go without; who binds waits for it."""
    a, b = _lists(9, 9, dtype)
    sizes = [(len(x), y.shape[1], len(y)) for x, y in zip(a, b, strict=True)]
    tw.plan_grouped(*zip(*sizes, strict=True), dtype=dtype, device="host").bind(a, b)


def _row(
    name: str,
    a: list[Any],
    b: list[Any],
    theirs: Callable[[], Any],
    is_: str,
    most: float,
    **options: Any,
) -> Row:
    calls = max(1, int(_ENOUGH / (1.5e-6 * len(a))))
    return Row(name, lambda: tw.grouped_matmul(a, b, **options), theirs, is_, times(most), calls)


def _ended(count: int) -> Iterator[Row]:
    """Into arrays of their own and into views of one, then with bias and relu."""
    a, b = _lists(count, 32, "float32")
    shapes = [(len(x), y.shape[1]) for x, y in zip(a, b, strict=True)]
    apart = [np.empty(shape, np.float32) for shape in shapes]
    ends = np.cumsum([m * n for m, n in shapes])
    parts = np.split(np.empty(int(ends[-1]), np.float32), ends[:-1])
    views = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    for kind, out in (("out", apart), ("out of one array", views)):

        def loop(out: list[Any] = out) -> None:
            for x, y, z in zip(a, b, out, strict=True):
                np.matmul(x, y, out=z)

        yield _row(f"{count}, {kind}", a, b, loop, "loop of matmul, out=", 1.1, out=out)
    bias = [np.ones(columns, np.float32) for _, columns in shapes]

    def ended() -> list[Any]:
        return [np.maximum(x @ y + z, 0) for x, y, z in zip(a, b, bias, strict=True)]

    more: dict[str, Any] = {"bias": bias, "activation": "relu"}
    yield _row(f"{count}, bias and relu", a, b, ended, "loop of maximum(a @ b + c, 0)", 1.1, **more)


def _numpys(a: list[Any], b: list[Any]) -> Callable[[], Any]:
    return lambda: [x @ y for x, y in zip(a, b, strict=True)]


def _lists(count: int, largest: int, dtype: str, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """Pairs of matrices of 1 to so many rows and columns."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, (count, 3)).tolist()
    a = [rng.random((m, k)).astype(dtype) for m, _, k in sizes]
    return a, [rng.random((k, n)).astype(dtype) for _, n, k in sizes]


def _of_torch() -> Iterator[Row]:
    import torch

    for wants in (False, True):
        for count in (1, 2, 4, 8, 16, 64, 256, 1000):
            both = _lists(count, 32, "float32")
            a, b = ([torch.from_numpy(x).requires_grad_(wants) for x in some] for some in both)
            kept = " with gradients" if wants else ""
            yield _row(f"{count} of torch{kept}", a, b, loop_of(a, b), "loop of torch.mm", 1.0)


def _bound() -> Iterator[Row]:
    a, b = _lists(1000, 64, "float32")
    sizes = [(*x.shape, y.shape[1]) for x, y in zip(a, b, strict=True)]
    m, k, n = zip(*sizes, strict=True)
    plan = tw.plan_grouped(m, n, k)
    plain = plan.bind(a, b)
    out = [np.zeros((x.shape[0], y.shape[1]), np.float32) for x, y in zip(a, b, strict=True)]
    more: dict[str, dict[str, Any]] = {
        "bias": {"bias": [np.ones(columns, np.float32) for columns in n]},
        "relu": {"activation": "relu"},
        "beta": {"out": out, "beta": 1.0},
    }
    for name, options in more.items():
        ours = plan.bind(a, b, **options)
        yield Row(f"1000 bound, {name}", ours, plain, "bound, plain", times(1.15), 1)


def _never_seen() -> Row:
    """Shapes of 1 to 256, other ones at every call."""
    found = [list(zip(*_lists(100, 256, "float32", seed), strict=True)) for seed in range(1, 41)]
    ours, theirs = cycle(found), cycle(found)
    return Row(
        "100 matmul, shapes never seen",
        lambda: _each(tw.matmul, next(ours)),
        lambda: _each(np.matmul, next(theirs)),
        "numpy.matmul",
        times(1.3),
        1,
    )


def _each(multiply: Callable[[Any, Any], Any], pairs: list[tuple[Any, Any]]) -> list[Any]:
    return [multiply(x, y) for x, y in pairs]
