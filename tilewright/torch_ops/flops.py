"""Tells torch's FlopCounterMode what our operators multiply: 2 m n k a product, as of torch's own.

It skips operators that it does not know, so that a layer of experts counted as nothing. It sees
shapes alone: rows that are in no group count as well. Counters are told once they are at work, for
the module of theirs takes 86 ms to load (torch 2.13), which nobody else shall pay.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import torch

from tilewright.arrays import torch_private as private

_active = private.active_modes(torch)
_MODULE = "torch.utils.flop_counter"


def _product(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """Of a @ b of any leading dimensions; of rows x [t, k] by [g, k, n]; of depths by [t, n]."""
    return 2 * int(prod(a)) * int(b[-1])


def _products(a: Any, b: Any, *_: Any, **__: Any) -> int:
    return sum(map(_product, a, b))


def _moe(_x: Any, w_up: Any, w_down: Any, experts: Any, *_: Any, **__: Any) -> int:
    return _layer(w_up, w_down, experts)


def _moe_gradients(
    _grad: Any, _x: Any, w_up: Any, w_down: Any, weights: Any, *rest: Any, **__: Any
) -> int:
    """Of rows and of both matrices, where wanted, and of what w_down reads."""
    of_x, of_up, of_down = rest[-1][:3]
    up, down = _layer(w_up, (0,), weights), _layer((0,), w_down, weights)
    return up * (bool(of_x) + bool(of_up)) + down * (1 + bool(of_down))


def _layer(w_up: Any, w_down: Any, experts: Any) -> int:
    """Rows of all chosen experts [t, chosen] by w_up [e, d, n] and by w_down [e, h, d]."""
    each = [prod(matrix[1:]) if len(matrix) > 1 else 0 for matrix in (w_up, w_down)]
    return 2 * int(prod(experts)) * int(sum(each))


_FORMULAS = {
    "product": _product,
    "products": _products,
    "ragged_rows": _product,
    "ragged_depths": _product,
    "fp8_rows": _product,
    "fp8_depths": _product,
    "moe": _moe,
    "moe_gradients": _moe_gradients,
}


def tell() -> None:
    """Give formulas of our operators to the counters at work, which have none yet."""
    module: Any = sys.modules.get(_MODULE)
    if module is None:
        return
    for mode in _active():
        counter = getattr(mode, "counter", None)
        if isinstance(counter, module.FlopCounterMode):
            for name, formula in _FORMULAS.items():
                packet = getattr(torch.ops.tilewright, name, None)
                if packet is not None:
                    counter.flop_registry.setdefault(packet, module.shape_wrapper(formula))
