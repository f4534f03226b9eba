"""ONNX models under onnxruntime and OpenVINO, results made beforehand, as ours are."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy.typing as npt

NDArray = npt.NDArray[Any]
Way = Callable[[], object]


def ways(
    model: bytes, x: NDArray, out: NDArray, threads: int, *, but: str = ""
) -> dict[str, tuple[Way, NDArray]]:
    """A call and its result for each peer installed, `but` one; the model is from x to y."""
    makers = {"onnxruntime": _onnxruntime, "openvino": _openvino}
    found = {}
    for name, maker in makers.items():
        if name != but and find_spec(name) is not None:
            result = out.copy()
            found[name] = (maker(model, x, result, threads), result)
    return found


def _onnxruntime(model: bytes, x: NDArray, out: NDArray, threads: int) -> Way:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, out.dtype.type, list(out.shape), out.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def _openvino(model: bytes, x: NDArray, out: NDArray, threads: int) -> Way:
    import openvino

    core = openvino.Core()
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(core.read_model(io.BytesIO(model)), "CPU", options)
    request = compiled.create_infer_request()
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
    request.set_output_tensor(openvino.Tensor(out, shared_memory=True))
    return lambda: request.infer()
