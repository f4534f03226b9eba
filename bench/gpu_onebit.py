"""`python -m bench.gpu_onebit`: one-bit products on an NVIDIA GPU beside its library, in one run.

Every shape: each one-bit kernel and output, cuBLAS in bf16, fp32 and int8 on the same -1 and +1
(bf16 also on normal numbers, which cost the chip more power and so clock), packing of activations.

    kernel_us   from a CUDA graph of several launches: what the GPU does
    call_us     one call of the public function, from Python, the GPU waited for

A multiply-add counts as two operations. Times are medians of blocks in turns; `equal` says that the
result was compared with an exact float32 product, every element.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.command import measure
from tilewright import Device, onebit
from tilewright.backends.cuda.bits.place import PLACE, enqueue_pack
from tilewright.engines.bits import BitProblem, BitWork

# m, n, k: squares, and products of convolutions (pixels, channels, 3 x 3 x channels) and batches.
SHAPES = (
    *((side, side, side) for side in (1024, 2048, 4096, 8192, 16384)),
    *((100352, 128, 1152), (25088, 256, 2304), (6272, 512, 4608)),
    *((64, 4096, 4096), (1, 4096, 4096), (8192, 8192, 65536)),
)
OUTPUTS = ("int32", "bits", "float16")
SLOW = 4.0e12  # operations from which popcount alone is left out: seconds of waiting
_ROUNDS = 7
Way = Callable[[], object]


def figures(device: Device) -> dict[str, Any]:
    """The table, smallest product first."""
    shapes = sorted(SHAPES, key=lambda shape: shape[0] * shape[1] * shape[2])
    return {"schema": "tilewright-gpu-onebit/1", "shapes": [of_shape(device, *s) for s in shapes]}


def of_shape(device: Device, m: int, n: int, k: int) -> dict[str, Any]:
    """One row: every way, timed in turns."""
    import torch

    torch.manual_seed(m + n + k)
    normal = [torch.randn((rows, k), device="cuda").to(torch.bfloat16) for rows in (m, n)]
    a, b = (onebit.pack(value, zero=1) for value in normal)
    x, y = (torch.where(value >= 0, 1.0, -1.0).to(torch.bfloat16) for value in normal)
    dot = _exact(x, y)
    ways: dict[str, tuple[Way, Way]] = {}
    equal = {}
    for out in OUTPUTS:
        for engine in PLACE.engines(device):
            problem = BitProblem(m, n, k, out=out)
            able = engine.why_not([problem], device) is None
            if able and not (engine.name == "popcount" and problem.operations > SLOW):
                name = f"{engine.name} {out}"
                ways[name] = _way(device, engine, problem, a, b)
                equal[name] = _equals(ways[name][1](), dot)
    ways |= _library(x, y)
    full = lambda: normal[0] @ normal[1].T  # noqa: E731
    ways["cublas bfloat16 of normal numbers"] = (full, full)
    ways["pack"] = (_packing(x, a), lambda: onebit.pack(x, zero=1))
    times = timed(ways)
    operations = 2 * m * n * k
    rows = {
        name: {**found, "tops": operations / found["kernel_us"] / 1e6, "equal": equal.get(name)}
        for name, found in times.items()
    }
    show((m, n, k), rows)
    return {"m": m, "n": n, "k": k, "ways": rows, "explain": onebit.explain(a, b).splitlines()}


def _way(device: Device, engine: Any, problem: BitProblem, a: Any, b: Any) -> tuple[Way, Way]:
    """The launch alone, and the public call."""
    import torch

    options: dict[str, Any] = {}
    vectors: dict[str, Any] = {}
    columns = -(-problem.n // 64) if problem.out == "bits" else problem.n
    if problem.out == "bits":
        options = {"threshold": 0}
        vectors = {
            "threshold": torch.zeros(problem.n, dtype=torch.int32, device="cuda"),
            "flip": torch.zeros(problem.n, dtype=torch.uint8, device="cuda"),
        }
    elif problem.out == "float16":
        options = {"scale": 0.01, "dtype": "float16"}
        vectors = {"scale": torch.full((problem.n,), 0.01, device="cuda")}
    out = PLACE.empty((problem.m, columns), problem.out, a.words)
    work = BitWork(problem, a.words, b.words, a.counts, b.counts, out, **vectors)
    call = lambda: onebit.matmul(a, b, kernel=engine.name, **options)  # noqa: E731
    return engine.prepare(work), call


def _packing(x: Any, a: onebit.BitMatrix) -> Way:
    """The kernel of packing alone; the public call also waits, to tell of NaN."""
    import torch

    counts, errors = torch.zeros_like(a.counts), torch.zeros(1, dtype=torch.int32, device="cuda")
    return lambda: enqueue_pack(x, 1, torch.empty_like(a.words), counts, errors, 1)


def _library(x: Any, y: Any) -> dict[str, tuple[Way, Way]]:
    """CuBLAS on the same numbers, y given by its columns as for one-bit products."""
    import torch

    ways: dict[str, Way] = {"cublas bfloat16": lambda: x @ y.T}
    small = x.shape[0] * y.shape[0] * x.shape[1] <= 8192**3
    if small:
        xf, yf = x.float(), y.float()
        ways["cublas float32"] = lambda: xf @ yf.T
    if x.shape[0] > 16 and all(size % 8 == 0 for size in (*x.shape, *y.shape)):
        xi, yi = x.to(torch.int8), y.to(torch.int8)
        ways["cublas int8"] = lambda: torch._int_mm(xi, yi.T)
    return {name: (way, way) for name, way in ways.items()}


def _exact(x: Any, y: Any) -> Any:
    """Integers by a float32 product: exact below 2^24."""
    return (x.float() @ y.float().T).int()


def _equals(found: Any, dot: Any) -> bool:
    import torch

    if isinstance(found, onebit.BitMatrix):
        return found == onebit.pack(dot >= 0)
    if found.dtype == torch.float16:
        return bool(torch.equal(found, (dot.float() * 0.01).half()))
    return bool(torch.equal(found, dot))


def timed(ways: dict[str, tuple[Way, Way]]) -> dict[str, dict[str, float]]:
    """Microseconds of every way; blocks in turns."""
    blocks = {name: _block(kernel) for name, (kernel, _) in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    calls: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, (_, call) in ways.items():
            times[name].append(blocks[name]())
            calls[name].append(_call(call))
    return {
        name: {
            "kernel_us": statistics.median(times[name]),
            "call_us": statistics.median(calls[name]),
            "slowest_kernel_us": max(times[name]),
        }
        for name in ways
    }


def _block(way: Way) -> Callable[[], float]:
    """A callable that gives microseconds a launch, of a graph of several."""
    import torch

    way()
    torch.cuda.synchronize()
    count = max(1, min(20, int(4e-3 / max(1e-6, _events(way, 1) * 1e-6))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            way()
    graph.replay()
    return lambda: _events(graph.replay, count)


def _events(way: Way, count: int) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    way()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / count


def _call(call: Way) -> float:
    import torch

    torch.cuda.synchronize()
    begun = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) * 1e6


def show(shape: tuple[int, int, int], rows: dict[str, dict[str, Any]]) -> None:
    """One shape as lines."""
    print("x".join(map(str, shape)))
    for name, row in rows.items():
        equal = {None: "", True: "equal", False: "WRONG"}[row["equal"]]
        print(
            f"  {name:34} {row['kernel_us']:10.1f} us {row['tops']:9.0f} TOP/s"
            f"   call {row['call_us']:10.1f} us  {equal}",
            flush=True,
        )


if __name__ == "__main__":
    measure("gpu-onebit", __doc__, figures)
