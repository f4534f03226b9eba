"""What others take for the same file: onnxruntime and OpenVINO, where they are installed.

Each runs the file as it ships, on a processor, with all its optimisations; its own profiler says
how long each kind of operator takes. Interleaved medians of whole runs are in `in_turns`.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.nn.graph import Shape
from tilewright.report.net_profile import PeerTimes
from tilewright.report.sampling import REST, block

Call = Callable[[], Any]
ONNXRUNTIME, OPENVINO = "onnxruntime", "openvino"
_BUDGET = 8.0  # seconds that whole runs in turns may take
_BLOCKS = 3  # of each


@dataclass(frozen=True, slots=True)
class Peer:
    """A library that has read the file: `run` gives the outputs, `profile` says where time goes."""

    name: str
    run: Call
    profile: Callable[[int], PeerTimes]


def installed() -> tuple[str, ...]:
    """Those that are here."""
    return tuple(name for name in (ONNXRUNTIME, OPENVINO) if find_spec(name) is not None)


def ready(name: str, model: Path, feeds: Mapping[str, NDArray], threads: int | None) -> Peer:
    """A peer with the file read, for these inputs; threads None: as many as it takes itself.

    Raises ArgumentError for a peer that is not installed, or that cannot run the file.
    """
    if name not in (ONNXRUNTIME, OPENVINO):
        raise ArgumentError(
            f"--against={name!r}: accepted are {ONNXRUNTIME} and {OPENVINO}, on a GPU torch as well"
        )
    if find_spec(name) is None:
        raise ArgumentError(f"--against={name!r}: not installed; 'pip install {name}' brings it")
    make = _onnxruntime if name == ONNXRUNTIME else _openvino
    try:
        return make(model, feeds, threads)
    except Exception as error:  # each has exceptions of its own
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ArgumentError(f"--against={name!r}: cannot run the file ({lines[0]})") from None


def in_turns(calls: Mapping[str, Call], repeats: int) -> dict[str, float]:
    """Median seconds of each call, in blocks that take turns.

    A block begins when the threads of the one before have stopped spinning, with a run that does
    not count. Slow calls have fewer repeats, three at least.
    """
    begun = time.perf_counter()
    for call in calls.values():
        call()
    once = time.perf_counter() - begun
    count = min(repeats, max(_BLOCKS, int(_BUDGET / max(once, 1e-6))))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_BLOCKS):
        for name, call in calls.items():
            if len(calls) > 1:
                time.sleep(REST)
            call()
            found[name] += block(call, 0.0, least=-(-count // _BLOCKS))
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def _onnxruntime(model: Path, feeds: Mapping[str, NDArray], threads: int | None) -> Peer:
    import onnxruntime

    def session(profile: str | None) -> Any:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = profile
        return onnxruntime.InferenceSession(
            str(model), sess_options=options, providers=["CPUExecutionProvider"]
        )

    name = f"onnxruntime {onnxruntime.__version__}"
    plain = session(None)

    def profile(repeats: int) -> PeerTimes:
        with tempfile.TemporaryDirectory() as folder:
            watched = session(str(Path(folder) / "profile"))
            for _ in range(repeats + 1):
                watched.run(None, dict(feeds))
            events = json.loads(Path(watched.end_profiling()).read_text(encoding="utf-8"))
        return PeerTimes(name, _of_events(events, repeats))

    return Peer(name, lambda: plain.run(None, dict(feeds)), profile)


def _of_events(events: Iterable[Mapping[str, Any]], repeats: int) -> dict[str, float]:
    """Seconds of each operator: the median of each node, the first run apart, summed."""
    nodes: dict[tuple[str, str], list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith("_kernel_time"):
            operator = str(event["args"].get("op_name", event["name"]))
            nodes.setdefault((str(event["name"]), operator), []).append(1e-6 * event["dur"])
    found: dict[str, float] = {}
    for (_, operator), seconds in nodes.items():
        found[operator] = found.get(operator, 0.0) + statistics.median(seconds[-repeats:])
    return found


def _openvino(model: Path, feeds: Mapping[str, NDArray], threads: int | None) -> Peer:
    import openvino

    core = openvino.Core()
    read = core.read_model(str(model))
    shapes: dict[str, Shape] = {name: array.shape for name, array in feeds.items()}
    read.reshape({name: list(shape) for name, shape in shapes.items()})
    # As float32: some processors it would give bfloat16 without being asked.
    options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"}
    if threads is not None:
        options["INFERENCE_NUM_THREADS"] = threads
    name = f"OpenVINO {openvino.get_version().partition('-')[0]}"
    request = core.compile_model(read, "CPU", options).create_infer_request()

    def profile(repeats: int) -> PeerTimes:
        watched = core.compile_model(read, "CPU", {**options, "PERF_COUNT": True})
        asked = watched.create_infer_request()
        nodes: dict[tuple[str, str], list[float]] = {}
        for _ in range(repeats + 1):
            asked.infer(dict(feeds))
            for node in asked.get_profiling_info():
                key = (node.node_name, node.node_type)
                nodes.setdefault(key, []).append(node.real_time.total_seconds())
        found: dict[str, float] = {}
        for (_, operator), seconds in nodes.items():
            operator = _TO_ONNX.get(operator, operator)
            found[operator] = found.get(operator, 0.0) + statistics.median(seconds[-repeats:])
        return PeerTimes(name, {n: s for n, s in found.items() if s})

    return Peer(name, lambda: request.infer(dict(feeds)), profile)


# OpenVINO's names of operators in ONNX's words, so that a picture gives them one colour.
_TO_ONNX = {
    "Convolution": "Conv",
    "GroupConvolution": "Conv",
    "ReLU": "Relu",
    "MatMul": "Gemm",
    "FullyConnected": "Gemm",
    "Reorder": "reorder",
}


def runnable(model: Path, feeds: Mapping[str, NDArray], threads: int | None) -> list[Peer]:
    """The peers that are here and can run the file."""
    found = []
    for name in installed():
        with contextlib.suppress(ArgumentError):
            found.append(ready(name, model, feeds, threads))
    return found
