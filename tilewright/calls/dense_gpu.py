"""Products of arrays that lie on a GPU: torch tensors, CuPy arrays, DLPack. The dense call.

    checks -> views -> Work (dense_work_gpu.py) -> engines -> launch
    plain tensors that lie as earlier ones did     -> the plan of those (dense_plans_gpu.py)

Launches go onto torch's current stream (CuPy's for CuPy arrays) and nothing waits for them. Plans
are kept by sizes, strides and alignments, since training and inference repeat these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.backends.cuda import choose
from tilewright.backends.cuda.machine import arrays, placing
from tilewright.backends.cuda.work import Work
from tilewright.calls import dense_plans_gpu
from tilewright.calls.dense_work_gpu import Product, prepare
from tilewright.facts.device import Device
from tilewright.remember import Shelf

_plans: Shelf[tuple[Any, ...], choose.Movable] = Shelf("batches on GPUs", most=128 << 20)


def matmul(a: Any, b: Any, *, out: Any, bias: Any, **options: Any) -> Any:
    """Arguments, results and errors are those of `tilewright.matmul`.

    Products of torch tensors are found again by how these lie: checking each call anew would take
    fifty times as long.
    """
    if not arrays.are_plain(a, b, out, bias):
        return run(prepare(a, b, out=out, bias=bias, **options), out)
    key = dense_plans_gpu.key_of(a, b, out, bias, tuple(options.values()))
    plan = None if key is None else dense_plans_gpu.known(key)
    if plan is None:
        product = prepare(a, b, out=out, bias=bias, **options)
        if key is None or not product.work.c.address.any():  # what is empty lies nowhere
            return run(product, out)
        decided = (product.work, product.device, product.kernel, product.shape)
        plan, size = dense_plans_gpu.planned(*decided, a, b, out, bias)
        dense_plans_gpu.plans.keep(key, plan, size=size)
    return plan(a, b, out, bias)


def run(product: Product, out: Any = None) -> Any:
    """Launch; the result."""
    with arrays.stream_of(product.kind, product.work.ordinal):
        plan = plan_of(product.work, product.device, product.kernel)
        plan.run(placing.places(product.work))
    arrays.written([out])
    return product.result()


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
    verdict = choose.judge(work, device, kernel)
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


def plan_of(work: Work, device: Device, kernel: str | None) -> choose.Movable:
    """The plan of an earlier batch that lay alike, or a new one.

    A graph that captures its launch holds all that this reads but operands and results.
    """
    names = (kernel, work.dtype, work.precision, work.activation, work.order)
    key = (work.ordinal, device.id, *names, placing.signature(work))
    plan = _plans.get(key)
    if plan is None:
        plan = choose.move(work, device, kernel)
        _plans.keep(key, plan, size=plan.bytes + len(key[-1]))
    return plan
