"""Products of arrays that lie on a GPU: torch tensors, CuPy arrays, DLPack. The dense call.

    checks -> views -> Work (tensor_call.py) -> engines -> launch

Launches go onto torch's current stream (CuPy's for CuPy arrays) and nothing waits for them. The
tables of a product are kept, by addresses and sizes, since training and inference repeat both.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from tilewright.backends.cuda import arrays, driver, engines
from tilewright.backends.cuda.engine import Launch, Work
from tilewright.device import Device
from tilewright.tensor_call import Product, prepare

# What is kept holds tables and scratch on the device: 1 GiB at the very most.
_MOST_KEPT = 64
_MOST_PROBLEMS = 2**15
_MOST_SCRATCH = 2**22  # bytes
_kept: OrderedDict[tuple[Any, ...], Launch] = OrderedDict()
_again: dict[tuple[Any, ...], Launch] = {}
_captured: dict[Launch, None] = {}  # each once, however often it is captured
_PLAIN: tuple[tuple[str, Any], ...] = (
    ("alpha", 1.0),
    ("beta", 0.0),
    ("transpose_a", False),
    ("transpose_b", False),
    *((name, None) for name in ("bias", "activation", "device", "kernel")),
    *((name, None) for name in ("precision", "accumulate")),
)


def matmul(a: Any, b: Any, *, out: Any, **options: Any) -> Any:
    """Arguments, results and errors are those of `tilewright.matmul`.

    A plain product of two torch matrices that ran before, at the same addresses, is launched at
    once: checking it again would take ten times as long.
    """
    plain = all(type(options[name]) is type(v) and options[name] == v for name, v in _PLAIN)
    if not plain or not _are_matrices(a, b, a if out is None else out):
        return run(prepare(a, b, out=out, **options))[0]
    result = a.new_empty((a.shape[0], b.shape[1])) if out is None else out
    key = _signature(a, b, result)
    launch = _again.get(key)
    if launch is None:
        _, launch = run(prepare(a, b, out=result, **options))
        if not _is_captured():
            if len(_again) >= _MOST_KEPT:
                _again.clear()
            _again[key] = launch
        return result
    _keep_if_captured(launch)
    launch()
    return result


def _are_matrices(*arrays_: Any) -> bool:
    """Whether all are torch tensors of two dimensions on a GPU."""
    return all(getattr(x, "is_cuda", False) and x.dim() == 2 for x in arrays_)


def _signature(*tensors: Any) -> tuple[Any, ...]:
    facts = [(x.data_ptr(), x.dtype, x.shape, x.stride()) for x in tensors]
    ordinal = tensors[0].device.index
    return (*facts, ordinal, driver.need()._C._cuda_getCurrentRawStream(ordinal))


def run(product: Product) -> tuple[Any, Launch]:
    """Launch; the result, and what computes it again into the same memory."""
    with arrays.stream_of(product.kind, product.work.ordinal):
        launch = launch_once(product.work, product.device, product.kernel)
    return product.result(), launch


def explain(product: Product) -> str:
    """What will run a product and why, and what was said of every other engine."""
    work, device = product.work, product.device
    m, n, k = (int(column[0]) if len(column) else 0 for column in (work.m, work.n, work.k))
    count = f"{len(work.m)} times " if len(work.m) != 1 else ""
    sums = "float64" if work.dtype == "float64" else "float32"
    head = f"{count}C[{m} x {n}] = A[{m} x {k}] @ B[{k} x {n}], {work.dtype} summed in {sums}"
    lines = [head, f"device     {device.id}  {device.name}"]
    if not (work.m.any() and work.n.any()):
        return "\n".join([*lines, "because    the result is empty: nothing is computed"])
    return "\n".join(lines + told(work, device, product.kernel))


def told(work: Work, device: Device, kernel: str | None = None) -> list[str]:
    """The engines' verdict in lines."""
    verdict = engines.judge(work, device, kernel)
    best = verdict.best
    flops = 2.0 * float(np.sum(work.m.astype(float) * work.n * work.k))
    lines = [
        f"engine     {best.engine}",
        f"because    {best.why}",
        f"predicted  {best.seconds * 1e3:.3f} ms, {flops / best.seconds / 1e12:.1f} TFLOP/s",
    ]
    if best.scratch:
        lines.append(f"scratch    {best.scratch / 2**20:.1f} MiB")
    lines += [
        f"rejected   {other.engine}: slower ({other.seconds * 1e3:.3f} ms)"
        for other in verdict.proposals[1:]
    ]
    return lines + [f"rejected   {name}: {why}" for name, why in verdict.refusals]


def launch_once(work: Work, device: Device, kernel: str | None) -> Launch:
    """Run a batch now, with the launch kept from the last time where all addresses are the same.

    One bound while a graph is captured is that graph's alone: only its replay fills the tables.
    """
    torch = driver.need()
    stream = torch._C._cuda_getCurrentRawStream(work.ordinal)
    names = (kernel, work.dtype, work.precision, work.activation, work.order)
    key = (work.ordinal, stream, *names, *(column.tobytes() for column in _columns(work)))
    launch = _kept.get(key)
    if launch is None:
        bound = engines.bind(work, device, kernel)
        launch = bound.launch
        small = bound.scratch <= _MOST_SCRATCH and len(work.m) <= _MOST_PROBLEMS
        if small and not _is_captured():
            _kept[key] = launch
            if len(_kept) > _MOST_KEPT:
                _kept.popitem(last=False)
    else:
        _kept.move_to_end(key)
    _keep_if_captured(launch)
    launch()
    return launch


def _keep_if_captured(launch: Launch) -> None:
    """Its tables are read at every replay of the graph."""
    if _is_captured():
        _captured[launch] = None


def _is_captured() -> bool:
    return bool(driver.need().cuda.is_current_stream_capturing())


def _columns(work: Work) -> list[Any]:
    parts = (work.a, work.b, work.c, *(() if work.bias is None else (work.bias,)))
    lists = [column for part in parts for column in (part.address, part.row, part.col)]
    return [work.m, work.n, work.k, work.alpha, work.beta, *lists]
