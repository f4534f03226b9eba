"""Sends one batch to a GPU or to the host, by where its arrays lie.

Torch's gradients were dealt with before.
"""

from __future__ import annotations

from typing import Any

from tilewright.calls.grouped_plan import plan_of
from tilewright.inputs.batch import Results, checked
from tilewright.inputs.batch_place import check_none, host_place, lies_on_gpu
from tilewright.inputs.place_host import Host


def grouped_matmul(
    a: Any,
    b: Any,
    out: Any,
    *,
    order: str,
    device: Any,
    kernel: Any,
    precision: Any,
    watched: bool = False,
    **options: Any,
) -> Results:
    """Arguments, results and errors are those of `tilewright.grouped_matmul`.

    `watched` where torch's tensors in the host's memory are among the operands.
    """
    if lies_on_gpu(a) or lies_on_gpu(b):
        from tilewright.calls import grouped_gpu

        return grouped_gpu.grouped_matmul(
            a, b, out, order=order, device=device, kernel=kernel, precision=precision, **options
        )
    check_none(precision=precision)
    place = host_place(watched=watched)
    call = checked(place, a, b, out, **options)
    held = call.a.base
    chosen = Host(a).device(device) if held is None else held.device
    sizes = (call.a.at.rows, call.b.at.cols, call.a.at.cols)
    dtype, named = call.a.dtype.name, device is not None
    alone = named or held is not None
    how = {"named": alone, "kernel": kernel, "at_once": True}
    results = plan_of(*sizes, dtype, chosen, order, **how).bound(call)()
    if out is not None:
        place.written(out)
    return results
