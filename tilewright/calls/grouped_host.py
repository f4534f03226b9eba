"""Batches of the host's arrays: checked, laid out (found again by sizes), bound and launched."""

from __future__ import annotations

from typing import Any

from tilewright.arrays.addresses import Column
from tilewright.backends.cuda.backend import refuse
from tilewright.calls.grouped_run_host import bound, check_plan
from tilewright.calls.grouped_work_host import Results, checked
from tilewright.facts.device import Device
from tilewright.inputs.devices import backend_of, resolve
from tilewright.planning.grouped import GroupedLayout, lay_out, signature
from tilewright.remember import Shelf

# In a tuple, as devices that run a loop have no layout.
_layouts: Shelf[bytes, tuple[GroupedLayout | None]] = Shelf("layouts of batches", most=256 << 20)


def grouped_matmul(
    a: Any, b: Any, out: Any, *, order: str, device: Device | str | None, **options: Any
) -> Results:
    """Arguments, results and errors are those of `tilewright.grouped_matmul`."""
    call = checked(a, b, out, **options)
    chosen = call.a.base.device if call.a.base is not None else resolve(device)
    if chosen.backend == "cuda":
        refuse(chosen)
    m, n, k = call.a.at.rows, call.b.at.cols, call.a.at.cols
    dtype = call.a.dtype.name
    layout = layout_of(m, n, k, dtype, chosen, order)
    check_plan(call, chosen, dtype, {})

    def laid_out(at: Column) -> GroupedLayout | None:
        if layout is None or len(at) == len(m):
            return layout
        return layout_of(m[at], n[at], k[at], dtype, chosen, order)

    return bound(chosen, call, laid_out, named=device is not None)()


def layout_of(
    m: Column, n: Column, k: Column, dtype: str, device: Device, order: str
) -> GroupedLayout | None:
    """How a batch of these sizes is cut into tiles there; None where a loop runs it."""
    key = signature(m, n, k, dtype, device.key, device.id, order)

    def made() -> tuple[GroupedLayout | None]:
        kernel = backend_of(device).grouped(device, dtype)
        return (None if kernel is None else lay_out(m, n, k, kernel.tiles, kernel.slots, order),)

    return _layouts.found(key, made, _bytes)[0]


def _bytes(kept: tuple[GroupedLayout | None]) -> int:
    return 0 if kept[0] is None else kept[0].bytes
