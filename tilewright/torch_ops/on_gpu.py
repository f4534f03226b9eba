"""Products whose sizes lie on a GPU: a few launches, found again where operands lie alike."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tilewright.backends.cuda.machine import faults
from tilewright.backends.cuda.ragged import engine
from tilewright.facts.arithmetic import is_alone
from tilewright.inputs.tensors import written


def write_product(
    x: Tensor, w: Tensor, offsets: Tensor, bias: Any, out: Tensor, precision: str
) -> None:
    """Either product, into `out`; rows of `out` without a group stay as they are."""
    faults.check_unless_captured(x)
    if w.dim() == 3:
        x = engine.settled(x) if is_alone(precision) else x
        engine.rows(x, w, offsets, bias, out, precision, clear=False)
    else:
        engine.depths(x, w, offsets, out, precision)
    written(out)


def new_product(x: Tensor, w: Tensor, offsets: Tensor, bias: Any, precision: str) -> Any:
    """Either product; rows without a group, and groups without rows, are zero."""
    if is_alone(precision) and w.dim() == 3:
        x = engine.settled(x)
    found = engine.again(x, w, offsets, bias, precision)
    if found is not None:
        return found
    faults.check_unless_captured(x)
    if w.dim() == 3:
        out = x.new_empty((x.shape[0], w.shape[2]))
        engine.rows(x, w, offsets, bias, out, precision, clear=True)
    else:
        out = x.new_empty((offsets.shape[0], x.shape[0], w.shape[1]))
        engine.depths(x, w, offsets, out, precision)
    engine.remember(x, w, offsets, bias, out, precision)
    return out
