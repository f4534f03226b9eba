"""Tells torch's FlopCounterMode what our operators multiply: 2 m n k a product, as of torch's own.

It skips operators that it does not know, so that a layer of experts counted as nothing. It sees
shapes alone: rows that are in no group count as well. The module of counters takes 86 ms to load
(torch 2.13), which nobody else shall pay, so formulas are given once it is there:

    a mode looks on             `tell`, of counters at work too
    shapes are asked for alone  `shapes_of`: compilers write operators down, and nothing of ours is
                                called between them and a counter when their graphs run
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
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
    """Give formulas of our operators, where they have none yet, to the counters at work and to
    those that are made from now on."""
    module: Any = sys.modules.get(_MODULE)
    if not hasattr(module, "FlopCounterMode"):  # or another thread is loading it
        return
    counters = [getattr(mode, "counter", None) for mode in _active()]
    registries = [one.flop_registry for one in counters if isinstance(one, module.FlopCounterMode)]
    for name, formula in _FORMULAS.items():
        packet = getattr(torch.ops.tilewright, name, None)
        if packet is not None:
            for registry in (module.flop_registry, *registries):
                if packet not in registry:
                    registry[packet] = module.shape_wrapper(formula)


def shapes_of(operator: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What makes an operator's results of the right shapes, without values: its `register_fake`."""

    def register(make: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(make)
        def fake(*given: Any, **options: Any) -> Any:
            tell()
            return make(*given, **options)

        operator.register_fake(fake)
        return fake

    return register
