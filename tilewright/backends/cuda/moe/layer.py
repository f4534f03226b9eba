"""A layer of experts and its gradients, on a GPU.

    experts --- route ---> offsets, tokens, order, places
    x   --- rows by index, w_up, f ---> h, a --- w_down ---> y --- gather and sum ---> out

    d out --- rows by index, w_down' ---> d a --- f', weights ---> d h, weighted a, d weights
    d h --- w_up' ---> d y --- gather and sum ---> d x
    d w_up = x' d h,  d w_down = weighted a' d out      rows of x and of d out by index

Cached are x, h and the routes; a is made again of h. The order of products is that of Guo et al.,
"SonicMoE: accelerating MoE with IO and tile-aware optimizations", 2025 (arXiv 2512.14080), by which
neither y nor a gathered copy of x or of d out has to be kept or made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.arrays.turned import is_turned, new_like
from tilewright.backends.cuda.moe.launches import enqueue
from tilewright.backends.cuda.moe.routes import Routes, route
from tilewright.backends.cuda.ragged import engine
from tilewright.backends.cuda.ragged.triton import sum_type
from tilewright.backends.cuda.ragged.work import LEFT, RIGHT
from tilewright.facts.gates import Gate

_COMBINED = 1024  # columns that a program sums
_ELEMENTS = 4096  # that a program of what lies between the products has at a time


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights [E, d, width] and [E, n, d], of any strides, and what lies between them."""

    w_up: Any
    w_down: Any
    gate: Gate
    precision: str


def forward(layer: Layer, x: Any, experts: Any, weights: Any, *, keep: bool) -> tuple[Any, ...]:
    """The result [T, d], h (no rows unless `keep`), and the routes; no size is zero."""
    (groups, n, d), gate = layer.w_down.shape, layer.gate
    rows = experts.numel()
    routes = route(experts, groups)
    h = x.new_empty((rows if keep else 0, gate.width(n)))
    a, y = x.new_empty((rows, n)), x.new_empty((rows, d))
    how = layer.precision
    offsets, index = routes.offsets, routes.tokens
    kept = h if keep else None
    engine.rows(x, layer.w_up, offsets, None, a, how, False, index=index, h=kept, gate=gate)
    engine.rows(a, layer.w_down, offsets, None, y, how, False)
    out = combined(y, routes.places, experts.shape[1], weights)
    return out, h, routes


def backward(
    layer: Layer,
    grad: Any,
    x: Any,
    weights: Any,
    h: Any,
    routes: Routes,
    wanted: tuple[bool, bool, bool],
) -> tuple[Any, ...]:
    """The gradients of x, w_up, w_down, None where not wanted, and of the weights."""
    _, n, d = layer.w_down.shape
    offsets, tokens, how = routes.offsets, routes.tokens, layer.precision
    a = x.new_empty((len(tokens), n))
    turned = layer.w_down.transpose(1, 2)
    engine.rows(grad, turned, offsets, None, a, how, False, index=tokens)
    of_h, of_weights = h.new_empty(h.shape), weights.new_zeros(weights.shape)
    _differentiate(layer, h, a, of_h, routes, weights, of_weights)
    of_x = of_up = of_down = None
    if wanted[2]:
        of_down = new_like(layer.w_down, x.new_empty)
        _depths(a, grad, offsets, of_down, how, tokens, RIGHT)
    if wanted[1]:
        of_up = new_like(layer.w_up, x.new_empty)
        _depths(x, of_h, offsets, of_up, how, tokens, LEFT)
    if wanted[0]:
        of_y = x.new_empty((len(tokens), d))
        engine.rows(of_h, layer.w_up.transpose(1, 2), offsets, None, of_y, how, False)
        of_x = combined(of_y, routes.places, weights.shape[1], None)
    return of_x, of_up, of_down, of_weights


def _depths(
    x: Any, y: Any, offsets: Any, out: Any, precision: str, tokens: Any, chosen: int
) -> None:
    """out[g] = x[rows of g]^T @ y[rows of g], with rows of the `chosen` one by index."""
    if is_turned(out):
        x, y, out, chosen = y, x, out.transpose(1, 2), LEFT + RIGHT - chosen
    engine.depths(x.t(), y, offsets, out, precision, index=tokens, chosen=chosen)


def combined(y: Any, places: Any, top: int, weights: Any) -> Any:
    """Each token's rows of y, times their weights unless these are None, added up.

    `places` has `top` of each token, in memory one behind another: a row, or -1 for none.
    """
    from tilewright.backends.cuda.kernels.triton.moe import combine

    d, tokens = y.shape[1], places.numel() // top
    wide = _power(d, _COMBINED)
    across = -(-d // wide)
    out = y.new_empty((tokens, d))
    steps = (0, 0) if weights is None else weights.stride()
    tensors = (y, places, out if weights is None else weights, out)
    constants = {"TOP": top, "WEIGHTED": weights is not None, "SUM": sum_type(y), "WIDE": wide}
    enqueue(combine, tokens * across, tensors, (across, d, *steps), constants)
    return out


def _differentiate(
    layer: Layer, h: Any, a: Any, of_h: Any, routes: Routes, weights: Any, of_weights: Any
) -> None:
    from tilewright.backends.cuda.kernels.triton.moe import differentiate

    rows, n = a.shape
    wide = _power(n, 256)
    high = max(_ELEMENTS // 2 // wide, 1)
    tensors = (h, a, of_h, routes.order, weights, of_weights, routes.offsets[-1:])
    constants = {"FORM": layer.gate.form, "KIND": layer.gate.kind, "SUM": sum_type(a)}
    constants |= {"HIGH": high, "WIDE": wide}
    numbers = (n, weights.shape[1], *weights.stride())
    enqueue(differentiate, -(-rows // high), tensors, numbers, constants)


def _power(size: int, most: int) -> int:
    """The smallest power of two that is no smaller than `size`, or `most`."""
    return min(1 << max(size - 1, 1).bit_length(), most)
