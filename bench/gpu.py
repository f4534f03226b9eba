"""The figures of a GPU: every case beside what a user would pick instead, and first of all right.

    python -m bench.gpu --name h200                      everything: tests, tables, JSON, picture
    python -m bench.gpu --name h200 --only "float32 1000" --no-tests
    python -m bench.gpu --name h200 --layers             layers of experts anew, all else as it was

Milliseconds are device events' around one call, medians of interleaved rounds of a few calls each,
so that small operands are in cache as they are in a loop. Each round of a way follows a rest, or
it would find the chip slowed by the way before: right after 48 other products torch.mm of 8192 took
1.60 ms on an H200, and 1.39 after 20 ms of rest. Beside that rested figure, `ms`, stand
`steady_ms`, of calls after a quarter of a second of them, and `cold_ms`, where before each call so
much is written that nothing of its operands is left in L2. A way's host time is the wall clock of
calls that nothing waits for. Ways that cannot take a case say why. Writes
bench/results/gpu-NAME.json and docs/images/gpu-NAME.png.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import gpu_cases, gpu_layers, gpu_training, moe
from bench.environment import RESULTS, ROOT, environment
from bench.peers import cublas, torch_ways
from tilewright import plan_grouped
from tilewright.backends.cuda.machine import nvrtc
from tilewright.calls.grouped_gpu import engine_of
from tilewright.errors import TilewrightError
from tilewright.facts.device import Device
from tilewright.inputs.devices import resolve

ROUNDS, BLOCK = 7, 8
REST = 0.03  # seconds before a block of calls; see above
HOST_CALLS, HOST_LOOPS = 100, 5
HOST_MS = 40  # milliseconds of a loop of host calls; at 200 these were half of a run
WARM_MS = 250  # milliseconds of calls before a steady figure
FLUSHED = 4  # times the size of L2 that is written before a cold call
LEAD = 100_000  # cycles, about 50 µs: what the host needs to enqueue a bound launch
SLOW = 3.0  # ms: a way slower than this gets a third of the rounds, one call each
OURS = "tilewright"
COUNTED = ("passed", "skipped", "failed", "deselected")
Way = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--name", required=True)
    parser.add_argument("--only", default="", help="cases whose name or dtype holds this")
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--layers", action="store_true", help="these alone, into the file there is")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    path = options.output / f"gpu-{options.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    device = resolve(options.device)
    if options.layers:
        document = json.loads(path.read_text()) if path.exists() else {}
    else:
        document = _products(device, options.only, tests=not options.no_tests)
    chosen = [case for case in moe.CASES if options.only in f"bfloat16 {case.name}"]
    document["layers"] = {
        "environment": environment(device),
        "cases": [gpu_layers.measured(case, _rows) for case in chosen],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")
    if not options.layers:
        picture(document, path.with_suffix(".png") if options.output != RESULTS else _image(path))


def _products(device: Device, only: str, *, tests: bool) -> dict[str, Any]:
    """Everything but whole layers."""
    cases = [*gpu_cases.CASES, *gpu_cases.suite_cases()]
    chosen = [case for case in cases if only in f"{case.dtype} {case.name}"]
    document: dict[str, Any] = {"environment": environment(device)}
    if tests:
        document["tests"] = _tests()
    document["cases"] = [_measured(case, device.id) for case in chosen]
    steps = [case for case in gpu_training.cases() if only in f"{case.dtype} {case.name}"]
    document["training"] = [_trained(case) for case in steps]
    return document


def _tests() -> dict[str, Any]:
    """Every test that needs a GPU, with its counts; a red one, or none at all, ends the run.

    One process: probes of the GPU's ceilings are among them, which others would disturb.
    """
    command = [sys.executable, "-m", "pytest", "--no-header", "-m", "gpu", "tests"]
    print("tests: those that need a GPU, in one process, some minutes ...", flush=True)
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    last = ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else ran.stderr[-300:]
    counts = {word: int(count) for count, word in re.findall(r"(\d+) ([a-z]+)", last)}
    print(f"tests: {last}", flush=True)
    if ran.returncode or not counts.get("passed"):
        raise SystemExit(ran.stdout[-3000:])
    return {"line": last, **{name: counts.get(name, 0) for name in COUNTED}}


def _measured(case: gpu_cases.Case, device: str) -> dict[str, Any]:
    import torch

    given = gpu_cases.operands(case)
    ways, refused = _ways(case, given, device)
    rows = _rows(ways, given.flops)
    record = {
        "case": case.name,
        "dtype": case.dtype,
        "precision": case.precision or "ieee",
        "gflop": given.flops / 1e9,
        "must_ms": case.must,
        "aim_ms": case.aim,
        "engine": engine_of(given.a, given.b, precision=case.precision) if OURS in ways else None,
        "error": _error(given, ways.get(OURS)),
        "ways": rows,
        "refused": refused,
    }
    _show(record)
    del given, ways
    torch.cuda.empty_cache()
    return record


def _trained(case: gpu_cases.Case) -> dict[str, Any]:
    """A training step, every way; the host's lead is longer, for autograd takes its time."""
    import torch

    step = gpu_training.Step(case)
    ways: dict[str, Way] = {}
    refused: dict[str, str] = {}
    made = step.ways()
    for name in made:
        _add(ways, refused, name, partial(made.get, name))
    rows = _rows(ways, step.flops, 2_000_000)
    record = {
        "case": case.name,
        "dtype": case.dtype,
        "precision": "ieee",
        "gflop": step.flops / 1e9,
        "must_ms": None,
        "aim_ms": None,
        "engine": "hopper" if nvrtc.architecture(0) == "sm_90a" else "triton",
        "error": step.error(),
        "ways": rows,
        "refused": refused,
    }
    _show(record)
    del step, ways
    torch.cuda.empty_cache()
    return record


def _ways(
    case: gpu_cases.Case, given: gpu_cases.Operands, device: str
) -> tuple[dict[str, Way], dict[str, str]]:
    """Every way that takes the case, prepared; and why the others do not."""
    import torch

    ways: dict[str, Way] = {}
    refused: dict[str, str] = {}
    try:
        ways[OURS] = _plan(case, given, device).bind(
            given.a, given.b, given.c, precision=case.precision
        )
        ways[OURS]()
        torch.cuda.synchronize()
    except TilewrightError as error:
        refused[OURS] = str(error)
    one = len(given.a) == 1
    _add(ways, refused, "torch.mm" if one else "loop of mm", lambda: _peer(case, given, "loop"))
    if not one:
        _add(ways, refused, "graph of mm", lambda: _peer(case, given, "graph"))
        _add(ways, refused, "padded bmm", lambda: torch_ways.padded_bmm(given.a, given.b))
        _add(ways, refused, "cuBLAS grouped", lambda: _peer(case, given, "cublas"))
    if given.x is not None:
        call = lambda: torch_ways.grouped_mm(given.x, given.w, given.ends)  # noqa: E731
        _add(ways, refused, "_grouped_mm", call)
    return ways, refused


def _plan(case: gpu_cases.Case, given: gpu_cases.Operands, device: str) -> Any:
    m, n, k = (list(column) for column in zip(*case.sizes, strict=True))
    return plan_grouped(m, n, k, dtype=case.dtype, device=device)


def _peer(case: gpu_cases.Case, given: gpu_cases.Operands, which: str) -> Way | None:
    """A peer that writes into results of its own."""
    import torch

    exact = case.precision != "tf32"
    torch.backends.cuda.matmul.fp32_precision = "ieee" if exact else "tf32"
    results = [torch.empty_like(z) for z in given.c]
    if which == "cublas":
        library = cublas.library()
        precision = "ieee" if exact else "tf32"
        if library is None:
            return None
        return cublas.bind(library, given.a, given.b, results, precision)
    way = torch_ways.loop(given.a, given.b, results)
    return torch_ways.graph(way) if which == "graph" else way


def _add(
    ways: dict[str, Way], refused: dict[str, str], name: str, make: Callable[[], Way | None]
) -> None:
    import torch

    try:
        way = make()
        if way is None:
            refused[name] = "not available, or too large"
            return
        way()
        torch.cuda.synchronize()
        ways[name] = way
    except torch.AcceleratorError as error:  # the device is lost: nothing after it would count
        raise SystemExit(f"{name}: {error}") from None
    except RuntimeError as error:
        refused[name] = str(error).splitlines()[0]


def _rows(ways: dict[str, Way], flops: float, lead: int = LEAD) -> dict[str, dict[str, float]]:
    """What each way took, of the device and of the host."""
    return {
        name: {
            "ms": ms,
            "steady_ms": _steady(ways[name], ms, lead),
            "cold_ms": _cold(ways[name], ms, lead),
            "tflops": flops / ms / 1e9,
            "host_us": _host_time(ways[name], ms),
        }
        for name, ms in _times(ways, lead).items()
    }


def _times(ways: dict[str, Way], lead: int = LEAD) -> dict[str, float]:
    """Median milliseconds of every way, rounds interleaved, nothing waiting in between."""
    import torch

    spans: dict[str, list[Any]] = {name: [] for name in ways}
    slow = {name for name, way in ways.items() if _once(way) > SLOW}
    for turn in range(ROUNDS):
        for name, way in ways.items():
            if name not in slow or turn % 3 == 0:
                time.sleep(REST)
                spans[name] += [_span(way, lead) for _ in range(1 if name in slow else BLOCK)]
                torch.cuda.synchronize()
    return {
        name: statistics.median(start.elapsed_time(end) for start, end in pairs)
        for name, pairs in spans.items()
    }


def _steady(way: Way, ms: float, lead: int) -> float:
    """Median milliseconds of calls of a chip that has been at it without a pause."""
    import torch

    for _ in range(max(1, min(1000, int(WARM_MS / ms)))):
        way()
    pairs = [_span(way, lead) for _ in range(BLOCK if ms <= SLOW else 3)]
    torch.cuda.synchronize()
    return float(statistics.median(start.elapsed_time(end) for start, end in pairs))


def _cold(way: Way, ms: float, lead: int) -> float:
    """Median milliseconds of calls that find nothing of theirs in L2, each block after a rest."""
    import torch

    room = FLUSHED * torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    other, pairs = torch.empty(room, dtype=torch.uint8, device="cuda"), []
    time.sleep(REST)
    for _ in range(BLOCK if ms <= SLOW else 3):
        pairs.append(_span(way, lead, other.zero_))
    torch.cuda.synchronize()
    return float(statistics.median(start.elapsed_time(end) for start, end in pairs))


def _span(way: Way, lead: int = LEAD, before: Way | None = None) -> tuple[Any, Any]:
    """Events around one call, behind work that keeps the device busy until both are enqueued."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(lead)
    if before is not None:
        before()
    start.record()
    way()
    end.record()
    return start, end


def _once(way: Way) -> float:
    """Milliseconds of a call after the first, which may have compiled."""
    import torch

    way()
    torch.cuda.synchronize()
    start, end = _span(way)
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def _host_time(way: Way, ms: float) -> float:
    """Microseconds of host time of a call, the median of a few loops.

    A loop has so few calls that no queue fills up, and the device is done before the next.
    """
    import torch

    calls = max(3, min(HOST_CALLS, int(HOST_MS / ms)))
    spans = []
    for _ in range(HOST_LOOPS if ms <= SLOW else 2):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(calls):
            way()
        spans.append((time.perf_counter() - begun) / calls)
    torch.cuda.synchronize()
    return statistics.median(spans) * 1e6


def _error(given: gpu_cases.Operands, way: Way | None) -> float | None:
    """The largest relative error of some problems against float64, outputs poisoned before."""
    if way is None:
        return None
    for z in given.c:
        z.fill_(float("nan"))
    way()
    step = max(1, len(given.a) // 40)
    errors = []
    for x, y, z in list(zip(given.a, given.b, given.c, strict=True))[::step]:
        if z.numel() and x.numel():
            truth = x.double() @ y.double()
            errors.append(float((z.double() - truth).norm() / truth.norm()))
    return float(np.max(errors))  # NaN where a result was not written


def _show(record: dict[str, Any]) -> None:
    wanted = "" if record["must_ms"] is None else f"   must {record['must_ms']:.3f}"
    wanted += "" if record["aim_ms"] is None else f" aim {record['aim_ms']:.3f}"
    error = "" if record["error"] is None else f"  error {record['error']:.1e}"
    print(f"{record['dtype']} {record['precision']} {record['case']}{wanted}", flush=True)
    for name, row in sorted(record["ways"].items(), key=lambda item: item[1]["ms"]):
        said = f"  ({record['engine']}{error})" if name == OURS else ""
        print(
            f"    {name:15s} {row['ms']:9.4f} ms, steady {row['steady_ms']:.4f}, cold"
            f" {row['cold_ms']:.4f}, {row['tflops']:8.1f} TFLOP/s,"
            f" {row['host_us']:.1f} us host{said}",
            flush=True,
        )
    for name, why in record["refused"].items():
        print(f"    {name:15s} -: {why[:110]}", flush=True)


def _image(path: Path) -> Path:
    return ROOT / "docs" / "images" / path.with_suffix(".png").name


def picture(document: dict[str, Any], path: Path) -> None:
    """How many times the best of the other ways ours is, a line a case from 1 to there."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError:
        print("no picture: pip install 'tilewright[plot]'")
        return
    rows = [row for row in document["cases"] if OURS in row["ways"] and len(row["ways"]) > 1]
    figure, axes = plt.subplots(figsize=(9, 0.24 * len(rows) + 1.2), layout="constrained")
    for place, row in enumerate(rows):
        others = {name: way for name, way in row["ways"].items() if name != OURS}
        best = min(others, key=lambda name: others[name]["ms"])
        ratio = others[best]["ms"] / row["ways"][OURS]["ms"]
        color = "#0072b2" if ratio >= 1 else "#d55e00"
        axes.plot([1, ratio], [place, place], color=color, linewidth=4, solid_capstyle="butt")
        label = f"{ratio:.2f}× {best}"
        axes.text(max(ratio, 1) * 1.05, place, label, va="center", fontsize=7, color="#404040")
    kinds = [row["dtype"] if row["precision"] == "ieee" else row["precision"] for row in rows]
    names = [f"{row['case']}, {kind}" for row, kind in zip(rows, kinds, strict=True)]
    axes.set_yticks(range(len(rows)), names, fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    ticks = (0.5, 1, 2, 5, 10, 20, 50)
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(0.4, 200)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.spines[["top", "right"]].set_visible(False)
    name = document["environment"]["device"]["name"]
    axes.set_title(f"Speed over the best other way, {name}", loc="left", fontweight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
