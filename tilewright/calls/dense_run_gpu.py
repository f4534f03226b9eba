"""Runs a product of arrays on a GPU: checked, made a batch of one, given to an engine, launched.

    checks (inputs/product.py) -> Work (dense_work_gpu.py) -> engines -> launch
    plain tensors that lie as earlier ones did             -> their plan (dense_plans_gpu.py)

Launches go onto torch's current stream (CuPy's for CuPy arrays) and nothing waits for them. Plans
are kept by sizes, strides and alignments, since training and inference repeat these.
"""

from __future__ import annotations

from typing import Any

from tilewright.arrays.views import loaded_torch
from tilewright.backends.cuda.machine import arrays, placing
from tilewright.calls import dense_plans_gpu
from tilewright.calls.dense_work_gpu import work_of
from tilewright.calls.plan_gpu import plan_of, verdict_lines
from tilewright.facts.dtypes import sums_of
from tilewright.inputs import place_gpu
from tilewright.inputs.product import checked
from tilewright.planning.explain import product_head


def matmul(a: Any, b: Any, *, out: Any, bias: Any, **options: Any) -> Any:
    """Arguments, results and errors are those of `tilewright.matmul`.

    Products of torch tensors are found again by how these lie: checking each call anew would take
    fifty times as long.
    """
    key = None
    if _are_tensors(a, b, out, bias):
        key = dense_plans_gpu.key_of(a, b, out, bias, tuple(options.values()))
        plan = None if key is None else dense_plans_gpu.known(key)
        if plan is not None:
            return plan(a, b, out, bias)
    product = checked(place_gpu.place_and_views, a, b, out=out, bias=bias, **options)
    work = work_of(product)
    if key is not None and work.c.address.any():  # what is empty lies nowhere
        decided = work, product.device, product.kernel, product.shape
        plan, size = dense_plans_gpu.planned(*decided, a, b, out, bias)
        dense_plans_gpu.plans.keep(key, plan, size=size)
        return plan(a, b, out, bias)
    with product.place.stream():
        plan_of(work, product.device, product.kernel).run(placing.places(work))
    arrays.written([out])
    return product.result()


def _are_tensors(*values: Any) -> bool:
    """Whether these, where they are given, are torch's own tensors, of no subclass."""
    torch = loaded_torch()
    if torch is None:
        return False
    return {*map(type, values)} <= {torch.Tensor, torch.nn.Parameter, type(None)}


def explain(a: Any, b: Any, **options: Any) -> str:
    """What will run a product and why, and what was said of every other engine."""
    product = checked(place_gpu.place_and_views, a, b, **options)
    work, device = work_of(product), product.device
    m, n, k = (int(column[0]) if len(column) else 0 for column in (work.m, work.n, work.k))
    count = f"{len(work.m)} times " if len(work.m) != 1 else ""
    head, *lines = product_head(m, n, k, work.dtype, sums_of(work.dtype), device)
    lines = [count + head, *lines]
    if not (work.m.any() and work.n.any()):
        return "\n".join([*lines, "because    the result is empty: nothing is computed"])
    return "\n".join(lines + verdict_lines(work, device, product.kernel))
