"""One device asked by `tilewright doctor`, in a process of its own: python -m ... DEVICE SECONDS.

Prints a JSON object a line as it goes, so that what was right before a driver ended the process
stays known. First a sample of the case list by every kernel, then five timings.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.arrays.array import NDArray
from tilewright.errors import TilewrightError
from tilewright.products import reference

SIZES = ((1, 1, 1), (3, 5, 7), (17, 16, 33), (64, 64, 64), (129, 65, 300), (1, 200, 40), (5, 4, 0))
SEED = 1811
_SHARE = 0.6  # of the time for results, the rest for timings
_ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """A product, with what is done to it."""

    m: int
    n: int
    k: int
    dtype: str = "float32"
    transpose_a: bool = False
    beta: float = 0.0
    bias: bool = False
    activation: str = "none"

    def __str__(self) -> str:
        what = [f"{self.m}x{self.n}x{self.k} {self.dtype}"]
        what += ["A transposed"] * self.transpose_a + ["bias"] * self.bias
        what += [f"beta={self.beta:g}"] * (self.beta != 0) + [self.activation] * (
            self.activation != "none"
        )
        return ", ".join(what)


def cases(dtypes: tuple[str, ...]) -> Iterator[Case]:
    """A sample of the case list: each size plain, then each thing that is done to products."""
    for size in SIZES:
        yield Case(*size)
    for more in (
        {"transpose_a": True},
        {"beta": 0.5},
        {"bias": True, "activation": "relu"},
        {"activation": "gelu"},
        *({"dtype": dtype} for dtype in dtypes if dtype != "float32"),
    ):
        yield Case(37, 45, 101, **more)  # type: ignore[arg-type]


class Home:
    """Where a device's arrays lie: NumPy's memory, or torch's on a GPU."""

    def __init__(self, device: tw.Device) -> None:
        self.id = device.id
        self.is_gpu = device.backend not in ("host", "opencl")
        self.peer = "torch" if self.is_gpu else "NumPy"

    def to(self, array: NDArray) -> Any:
        """The array there."""
        if not self.is_gpu:
            return array
        import torch

        return torch.from_numpy(array).to(self.id)

    def back(self, array: Any) -> NDArray:
        """The array as NumPy's."""
        return np.asarray(array.cpu().numpy() if self.is_gpu else array)

    def product(self, a: Any, b: Any, out: Any) -> object:
        """What a user would run instead."""
        if not self.is_gpu:
            return np.matmul(a, b, out=out)
        import torch

        return torch.mm(a, b, out=out)

    def wait(self) -> None:
        """Until all is computed."""
        if self.is_gpu:
            import torch

            torch.cuda.synchronize(self.id)


def is_right(case: Case, home: Home, kernel: str | None) -> bool:
    """Whether a product is within twice NumPy's own error in its dtype, and 1e-6, of the truth."""
    draw = np.random.default_rng(SEED)
    a = draw.standard_normal((case.m, case.k)).astype(case.dtype)
    b = draw.standard_normal((case.k, case.n)).astype(case.dtype)
    bias = draw.standard_normal(case.n).astype(case.dtype) if case.bias else None
    c = draw.standard_normal((case.m, case.n)).astype(case.dtype)
    options: dict[str, Any] = {"beta": case.beta, "bias": bias, "activation": case.activation}
    truth = reference.matmul(a, b, c=c, **options)
    out: NDArray = c.copy() if case.beta else np.full_like(c, np.nan)
    left = np.ascontiguousarray(a.T) if case.transpose_a else a
    there = home.to(out)
    options["bias"] = None if bias is None else home.to(bias)
    tw.matmul(
        home.to(left),
        home.to(b),
        out=there,
        transpose_a=case.transpose_a,
        device=home.id,
        kernel=kernel,
        **options,
    )
    out = home.back(there)
    size = np.abs(truth).max(initial=1.0)
    rounded = np.finfo(case.dtype).eps * (2.0 + np.sqrt(case.k))
    error = np.abs(out.astype(np.float64) - truth).max(initial=0.0)
    return bool(error <= (rounded + 1e-6) * size)


def sample(device: tw.Device, end: float) -> Iterator[dict[str, Any]]:
    """Every kernel over the cases until `end`: how many were right, which wrong, which refused."""
    home = Home(device)
    for kernel in (None, *tw.kernels(device.id)):
        if time.monotonic() > end:
            return
        right, wrong, refused = 0, list[str](), Counter[str]()
        for case in cases(device.dtypes):
            try:
                if is_right(case, home, kernel):
                    right += 1
                else:
                    wrong.append(f"{kernel or 'chosen'}: {case}")
            except TilewrightError as error:
                refused[str(error)] += 1
            if time.monotonic() > end:
                break
        said = [f"{kernel or 'chosen'}, {count} of them: {why}" for why, count in refused.items()]
        yield {"kernel": kernel, "right": right, "wrong": wrong, "refused": said}


def in_turns(
    ours: Callable[[], object], peer: Callable[[], object], wait: Callable[[], None], end: float
) -> tuple[float, float]:
    """Median milliseconds of both, run in turns after a run of each that does not count."""
    for call in (ours, peer):
        call()
    wait()
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(_ROUNDS):
        if turn and time.monotonic() > end:
            break
        for call, into in zip((ours, peer), times, strict=True):
            began = time.perf_counter()
            call()
            wait()
            into.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[0]), statistics.median(times[1])


def timings(device: tw.Device, end: float) -> Iterator[dict[str, Any]]:
    """Five calls beside what a user of this machine has anyway: NumPy's BLAS, or torch."""
    draw, home = np.random.default_rng(SEED), Home(device)
    yield _timing("single product, 1024 cubed, fp32", *_single(home, draw), home, end)
    for count, least, most in ((1000, 1, 32), (1000, 1, 64), (200, 64, 512)):
        name = f"bound batch, {count} of {least}..{most}, fp32"
        yield _timing(name, *_batch(home, draw, count, least, most), home, end)
    yield _timing("one bit, 1024 x 1024 x 4096, beside fp32", *_bits(home, draw), home, end)


Calls = tuple[Callable[[], object], Callable[[], object]]


def _single(home: Home, draw: np.random.Generator) -> Calls:
    a, b = (home.to(draw.random((1024, 1024), np.float32)) for _ in range(2))
    out = home.to(np.empty((1024, 1024), np.float32))
    return lambda: tw.matmul(a, b, out=out, device=home.id), lambda: home.product(a, b, out)


def _batch(home: Home, draw: np.random.Generator, count: int, least: int, most: int) -> Calls:
    sizes = draw.integers(least, most + 1, (count, 3))
    left = [home.to(draw.random((m, k), np.float32)) for m, _, k in sizes]
    right = [home.to(draw.random((k, n), np.float32)) for _, n, k in sizes]
    into = [home.to(np.empty((m, n), np.float32)) for m, n, _ in sizes]
    plan = tw.plan_grouped(sizes[:, 0], sizes[:, 1], sizes[:, 2], device=home.id)
    bound: list[Callable[[], object]] = []  # by the first run, where a refusal is told

    def ours() -> object:
        if not bound:
            bound.append(plan.bind(left, right, into))
        return bound[0]()

    def peer() -> object:
        return [home.product(x, y, z) for x, y, z in zip(left, right, into, strict=True)]

    return ours, peer


def _bits(home: Home, draw: np.random.Generator) -> Calls:
    drawn = draw.standard_normal((1024, 4096)).astype(np.float32)
    signs, turned = home.to(drawn), home.to(np.ascontiguousarray(drawn.T))
    out = home.to(np.empty((1024, 1024), np.float32))
    bits = tw.onebit.pack(signs)
    return (
        lambda: tw.onebit.matmul(bits, bits, device=home.id),
        lambda: home.product(signs, turned, out),
    )


def _timing(
    name: str, ours: Callable[[], object], peer: Callable[[], object], home: Home, end: float
) -> dict[str, Any]:
    if time.monotonic() > end:
        return {}
    try:
        mine, other = in_turns(ours, peer, home.wait, end)
    except TilewrightError as error:
        return {"refused": [f"{name}: {error}"]}
    return {"timings": [{"name": name, "ours_ms": mine, "peer": home.peer, "peer_ms": other}]}


def main() -> None:
    """Ask the device that the command line names."""
    name, seconds = sys.argv[1], float(sys.argv[2])
    device = next(one for one in tw.devices() if one.id == name)
    began = time.monotonic()
    for found in sample(device, began + _SHARE * seconds):
        print(json.dumps(found), flush=True)
    if device.kind == "simulator":  # its times are of no device
        return
    for found in timings(device, began + seconds):
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
