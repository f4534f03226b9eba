"""One-bit products beside those of the best library on the same device, in one run: where they pay.

    one-bit     int32 out, bits out (fused threshold), and both with the packing of A before them
    fp32        NumPy's BLAS on the host; torch on a GPU
    fp16, bf16  torch          int8        torch._int_mm, onnxruntime's MatMulInteger on the host

Every way multiplies the same -1 and +1 and is checked against the fp32 product: equal, but for the
rounding of fp16 and bf16.
B is laid out once, as weights are. Every result but that of bits is written to an array that is
there, and every library's threads spin as it ships. Times are medians of blocks in turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from rich.table import Table

from tilewright import onebit
from tilewright.arrays import torch_private as private
from tilewright.arrays.array import NDArray
from tilewright.errors import KernelError
from tilewright.facts.device import Device
from tilewright.report.sampling import REST, block
from tilewright.report.sheet import sheet

Way = Callable[[], object]
# m, n, k: one vector and a batch of a dense layer, convolutions of a ResNet at batch 1 and 32 as
# products (pixels, channels, 3 x 3 x channels), squares, and the product of the figure.
SHAPES = (
    (1, 4096, 4096),
    (64, 1024, 1024),
    (3136, 64, 576),
    (784, 128, 1152),
    (49, 512, 4608),
    (1568, 512, 4608),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (1024, 1024, 4096),
)
INT32, BITS, PACK, WHOLE = "one-bit int32", "one-bit bits", "pack A", "packed and multiplied"
FP32, FP16, BF16, INT8, INT8_ORT = "fp32", "fp16", "bf16", "int8", "int8 onnxruntime"
_BLOCK = 0.04  # seconds of one way before the next has its turn
_ROUNDED = {FP16: 2.0**-11, BF16: 2.0**-8}  # of large sums, once, in the result
OURS = (INT32, BITS, PACK, WHOLE)
PEERS = (FP32, FP16, BF16, INT8, INT8_ORT)


@dataclass(frozen=True, slots=True)
class Shape:
    """One product: median seconds of every way, and which one-bit kernel it was."""

    m: int
    n: int
    k: int
    kernel: str
    seconds: dict[str, float]

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k

    def rate(self, way: str) -> float | None:
        """Operations a nanosecond: GOP/s."""
        seconds = self.seconds.get(way)
        return None if seconds is None else self.operations / seconds / 1e9

    @property
    def best_peer(self) -> str:
        """The fastest way that is not one-bit."""
        return min((way for way in PEERS if way in self.seconds), key=self.seconds.__getitem__)

    def gain(self, way: str) -> float:
        """How many times faster than the best peer one of `OURS` is."""
        return self.seconds[self.best_peer] / self.seconds[way]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types, rates and gains with them."""
        rates = {way: self.rate(way) for way in self.seconds}
        gains = {way: self.gain(way) for way in (INT32, BITS, WHOLE)}
        best = self.best_peer
        return {**asdict(self), "gops": rates, "best_peer": best, "gain_over_best_peer": gains}


def measure(
    device: Device,
    shapes: Sequence[tuple[int, int, int]] = SHAPES,
    *,
    rounds: int = 5,
    report: Callable[[str], None] = lambda name: None,
) -> list[Shape]:
    """Every shape on a device; `report` is called before each."""
    found = []
    for m, n, k in shapes:
        report(f"{m} x {n} x {k}")
        found.append(_measure(device, m, n, k, rounds))
    return found


def _measure(device: Device, m: int, n: int, k: int, rounds: int) -> Shape:
    generator = np.random.default_rng(m + n + k)
    a, b = (generator.choice(np.array([-1, 1], np.float32), size) for size in ((m, k), (n, k)))
    ours, kernel = _ours(device, a, b)
    ways = {**ours, **_peers(device, a, b)}
    wanted = a @ b.T
    for name, way in ways.items():
        result = _as_numpy(way()).astype(np.float32)
        if name == PACK:
            right = np.array_equal(result, a)
        elif name == BITS:
            right = np.array_equal(result > 0, wanted >= 0)
        else:
            right = bool((np.abs(result - wanted) <= _ROUNDED.get(name, 0.0) * abs(wanted)).all())
        if not right:
            raise KernelError(f"{name}: wrong at m={m} n={n} k={k}")
    return Shape(m, n, k, kernel, _in_turns(device, ways, rounds))


def _ours(device: Device, a: NDArray, b: NDArray) -> tuple[dict[str, Way], str]:
    """The one-bit ways; B packed beforehand, A where the name says so."""
    x, y = _on(device, a), _on(device, b)
    left, right = onebit.pack(x), onebit.pack(y)
    choice = next(
        line.split()[1]
        for line in onebit.explain(left, right).splitlines()
        if line.startswith("engine")
    )
    out = onebit.matmul(left, right)

    def whole() -> object:
        return onebit.matmul(onebit.pack(x), right, out=out)

    ways: dict[str, Way] = {
        INT32: lambda: onebit.matmul(left, right, out=out),
        BITS: lambda: onebit.matmul(left, right, threshold=0),
        PACK: lambda: onebit.pack(x),
        WHOLE: whole,
    }
    return ways, choice


def _on(device: Device, array: NDArray) -> Any:
    """The array where `device` multiplies it."""
    if device.backend == "host":
        return array
    if device.backend == "cuda":
        import torch

        return torch.from_numpy(array).to(_torch_device(device))
    import tilewright

    return tilewright.asarray(array, device=device)


def _torch_device(device: Device) -> str:
    return f"cuda:{device.id.partition(':')[2]}" if device.backend == "cuda" else "cpu"


def _peers(device: Device, a: NDArray, b: NDArray) -> dict[str, Way]:
    """What else there is; OpenCL's devices are compared with the host's libraries."""
    ways: dict[str, Way] = {}
    y = np.ascontiguousarray(b.T)
    if device.backend != "cuda":
        c = np.empty((a.shape[0], y.shape[1]), a.dtype)
        ways[FP32] = lambda: np.matmul(a, y, out=c)
    if find_spec("torch") is not None:
        ways |= dict(_torch_ways(device, a, y))
    if device.backend != "cuda" and find_spec("onnxruntime") and find_spec("onnx"):
        ways[INT8_ORT] = _onnxruntime(a.astype(np.int8), y.astype(np.int8))
    return ways


def _torch_ways(device: Device, a: NDArray, y: NDArray) -> Iterator[tuple[str, Way]]:
    import torch

    where = _torch_device(device)
    left, right = (torch.from_numpy(array).to(where) for array in (a, y))

    def product(dtype: Any) -> Way:
        x, z = left.to(dtype), right.to(dtype)
        out = torch.empty((x.shape[0], z.shape[1]), dtype=dtype, device=where)
        return lambda: torch.mm(x, z, out=out)

    if device.backend == "cuda":
        yield FP32, product(torch.float32)
    # A sum of more than 2^8 (bf16) or 2^11 (fp16) is rounded in the result, not before it.
    yield FP16, product(torch.float16)
    yield BF16, product(torch.bfloat16)
    ints = left.to(torch.int8), right.to(torch.int8)
    try:
        out = private.int8_product(torch)(*ints)
    except RuntimeError:
        return  # it takes only some sizes on GPUs
    yield INT8, lambda: private.int8_product(torch)(*ints, out=out)


def _onnxruntime(a: NDArray, y: NDArray) -> Way:
    """MatMulInteger in a session of its own, B a constant as weights are."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["c"])],
        "product",
        [helper.make_tensor_value_info("a", TensorProto.INT8, a.shape)],
        [helper.make_tensor_value_info("c", TensorProto.INT32, (a.shape[0], y.shape[1]))],
        [numpy_helper.from_array(y, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    out = np.empty((a.shape[0], y.shape[1]), np.int32)
    bound = session.io_binding()
    bound.bind_cpu_input("a", a)
    bound.bind_output("c", "cpu", 0, out.dtype.type, out.shape, out.ctypes.data)

    def run() -> NDArray:
        session.run_with_iobinding(bound)
        return out

    return run


def _as_numpy(result: Any) -> NDArray:
    if isinstance(result, onebit.BitMatrix):
        return onebit.unpack(result)
    if hasattr(result, "float"):
        result = result.float().cpu().numpy()
    return np.asarray(result)


def _in_turns(device: Device, ways: dict[str, Way], rounds: int) -> dict[str, float]:
    """Median seconds; a rest before each block, as BLAS threads spin after a product."""
    wait = _waiter(device)
    times: dict[str, list[float]] = {name: [] for name in ways}

    def run(way: Way) -> None:
        way()
        wait()

    for _ in range(rounds):
        for name, way in ways.items():
            time.sleep(REST)
            run(way)
            times[name] += block(partial(run, way), _BLOCK, least=2)
    return {name: statistics.median(values) for name, values in times.items()}


def _waiter(device: Device) -> Way:
    if device.backend == "cuda":
        import torch

        return lambda: torch.cuda.synchronize()
    if device.backend == "opencl":
        from tilewright.backends.opencl.runtime import session

        queue = session(device).queue
        return lambda: queue.finish()
    return lambda: None


def table(shapes: Sequence[Shape]) -> Table:
    """A row a shape, GOP/s; the last columns say where one-bit pays."""
    peers = [way for way in PEERS if any(way in shape.seconds for shape in shapes)]
    columns = ("int32", "bits", "with packing", *peers, "× best", "with packing")
    result = sheet("GOP/s", ("m × n × k", "kernel", *columns), "kernel", wrap=True)
    for shape in shapes:
        rates = [shape.rate(way) for way in (INT32, BITS, WHOLE, *peers)]
        shown = ["-" if rate is None else f"{rate:,.0f}" for rate in rates]
        gains = [f"{shape.gain(way):.2f}" for way in (INT32, WHOLE)]
        result.add_row(f"{shape.m} × {shape.n} × {shape.k}", shape.kernel, *shown, *gains)
    return result


def verdict(shapes: Sequence[Shape]) -> list[str]:
    """Where it pays, in words."""
    lines = []
    for way, words in ((INT32, "activations packed already"), (WHOLE, "packing them each time")):
        loses = [f"{s.m} × {s.n} × {s.k} ({s.best_peer})" for s in shapes if s.gain(way) < 1]
        rest = f"; not at {', '.join(loses)}" if loses else ""
        lines.append(f"{words}: pays in {len(shapes) - len(loses)} of {len(shapes)}{rest}")
    return lines
