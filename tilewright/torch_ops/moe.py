"""Custom operators: what autograd, torch.compile and fake tensors see of a layer of experts.

Between forward and backward x, h and the routes are kept (h only where a gradient is to come). The
gradient of a gradient raises: it would need what is not kept.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from tilewright.arrays import torch_private as private
from tilewright.arrays.turned import new_like
from tilewright.errors import OperandError
from tilewright.facts.gates import GATES
from tilewright.inputs.tensors import needs_gradient
from tilewright.torch_ops import moe_on_gpu, moe_on_processor, slices
from tilewright.torch_ops.eager import (
    are_modes_told,
    is_eager,
    is_followed,
    is_transformed,
    outside_of_graphs,
)
from tilewright.torch_ops.flops import shapes_of

# What torch.func wrapped has no memory once its transform has ended, as in the function of vjp.
_alive = private.unwrapped(torch)
_Made = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
_Gradients = tuple[Tensor, Tensor, Tensor, Tensor]


def layer(
    x: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    experts: Tensor,
    weights: Tensor,
    activation: str,
    precision: str,
) -> Tensor:
    """The result [T, d]; all are checked."""
    given = (x, w_up, w_down, experts, weights, activation, precision)
    if torch.compiler.is_compiling():
        if is_transformed():
            out: Tensor = outside_of_graphs(layer, *given)
            return out
        keep = needs_gradient(x, w_up, w_down, weights)
        out = torch.ops.tilewright.moe(*given, keep)[0]
        return out
    if is_followed(x, w_up, w_down, weights):
        out = _Layer.apply(*given)[0]
        return out
    out = _made(*given, torch.jit.is_tracing())[0]  # who calls what is written down may learn
    return out


def _made(x: Tensor, w_up: Tensor, *others: Any) -> Any:
    """By the operator that compilers, fake tensors and modes see; on a processor without it where
    nobody looks on, as the way through it takes as long as all else around one token's products.
    """
    w_down, experts, weights, *_ = others
    if not are_modes_told() and x.is_cpu and is_eager(x, w_up, w_down, experts, weights):
        return _moe_of(x, w_up, *others)
    return torch.ops.tilewright.moe(x, w_up, *others)


def _place_of(x: Tensor) -> Any:
    """What computes where these tensors lie: functions of one kind on each."""
    return moe_on_gpu if x.is_cuda else moe_on_processor


def _moe_of(
    x: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    experts: Tensor,
    weights: Tensor,
    activation: str,
    precision: str,
    keep: bool,
) -> _Made:
    """The result; h, with no rows unless `keep`; offsets, tokens, order and places (routes.py)."""
    shapes = _shapes(x, w_up, w_down, experts, keep)
    if not (experts.numel() and w_down.numel()):  # there is nothing to multiply
        return _new(x, torch.zeros, shapes)
    with torch.no_grad():
        found: _Made = _place_of(x).forward(
            x, w_up, w_down, experts, weights, GATES[activation], precision, keep
        )
    return found


_moe = torch.library.custom_op("tilewright::moe", _moe_of, mutates_args=())


@shapes_of(_moe)
def _(
    x: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    experts: Tensor,
    weights: Tensor,
    activation: str,
    precision: str,
    keep: bool,
) -> _Made:
    return _new(x, torch.empty, _shapes(x, w_up, w_down, experts, keep))


def _shapes(x: Tensor, w_up: Tensor, w_down: Tensor, experts: Tensor, keep: bool) -> Any:
    slots = experts.shape[0] * experts.shape[1]
    results = ((x.shape[0], w_down.shape[2]), (slots if keep else 0, w_up.shape[2]))
    return *results, (w_up.shape[0],), (slots,), (slots,), (slots,)


def _new(x: Tensor, make: Any, shapes: Any) -> _Made:
    out, h, *routes = shapes
    made = [make(shape, dtype=x.dtype, device=x.device) for shape in (out, h)]
    made += [make(shape, dtype=torch.int32, device=x.device) for shape in routes]
    return tuple(made)


@torch.library.custom_op("tilewright::moe_gradients", mutates_args=())
def _moe_gradients(
    grad: Tensor,
    x: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    weights: Tensor,
    h: Tensor,
    offsets: Tensor,
    tokens: Tensor,
    order: Tensor,
    places: Tensor,
    activation: str,
    precision: str,
    wanted: list[bool],
) -> _Gradients:
    """Of x, w_up, w_down, with no elements where not wanted, and of the weights."""
    if not (weights.numel() and w_down.numel()):
        return _new_gradients(torch.zeros, x, w_up, w_down, weights, wanted)
    if not h.shape[0]:
        raise OperandError(
            "tilewright.moe: nothing is kept for gradients, as no operand required one where this"
            " graph was made; accepted is a graph made of operands that require one"
        )
    with torch.no_grad():
        routes = (offsets, tokens, order, places)
        found: _Gradients = _place_of(x).backward(
            grad, x, w_up, w_down, weights, h, routes, GATES[activation], precision, wanted
        )
    return found


@shapes_of(_moe_gradients)
def _(
    grad: Tensor,
    x: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    weights: Tensor,
    h: Tensor,
    offsets: Tensor,
    tokens: Tensor,
    order: Tensor,
    places: Tensor,
    activation: str,
    precision: str,
    wanted: list[bool],
) -> _Gradients:
    return _new_gradients(torch.empty, x, w_up, w_down, weights, wanted)


def _new_gradients(make: Any, *given: Any) -> _Gradients:
    *factors, weights, wanted = given

    def new(one: Tensor, asked: bool) -> Tensor:
        new_of = partial(make, dtype=one.dtype, device=one.device)
        made: Tensor = (
            new_of((0,))
            if not asked
            else new_like(one, new_of)
            if one.dim() == 3
            else new_of(one.shape)
        )
        return made

    return tuple(map(new, (*factors, weights), (*wanted, True)))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: _Made) -> None:
    x, w_up, w_down, _, weights, ctx.activation, ctx.precision, *_ = inputs
    ctx.save_for_backward(x, w_up, w_down, weights, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # zeros for h and the routes would take as long as to write h


def _gradients(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    """Of x, w_up, w_down and the weights, where they are wanted; for the operator and _Layer."""
    count = len(ctx.needs_input_grad)
    if grad is None:
        return (None,) * count
    of_x, of_up, of_down, _experts, of_weights, *_rest = ctx.needs_input_grad
    wanted = [of_x, of_up, of_down]
    given = (grad, *map(_alive, ctx.saved_tensors))
    how = (ctx.activation, ctx.precision, wanted)
    is_compiling = torch.compiler.is_compiling()
    if not is_compiling:
        are_modes_told()  # some count a backward pass alone
    if not is_compiling and is_followed(*given):
        found = _Once.apply(*given, *how)
    else:
        found = torch.ops.tilewright.moe_gradients(*given, *how)
    asked = [one if want else None for one, want in zip(found, (*wanted, of_weights), strict=True)]
    return *asked[:3], None, asked[3], *((None,) * (count - 5))


_moe.register_autograd(_gradients, setup_context=_keep)


class _Once(torch.autograd.Function):
    """The gradients as autograd and torch.func see them: not differentiable."""

    @staticmethod
    def forward(*given: Any) -> Any:
        """Of x, w_up, w_down and the weights."""
        return torch.ops.tilewright.moe_gradients(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Refused."""
        raise NotImplementedError(
            "tilewright.moe: the gradient of its gradient would need what is not kept; accepted is"
            " a single backward pass"
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        """Gradients for each slice of the batch; of an empty one its stand-in has no routes."""
        call = _Once.apply if info.batch_size else _no_gradients
        return _each(call, info.batch_size, in_dims, given)


def _no_gradients(_grad: Tensor, *given: Any) -> _Gradients:
    return _new_gradients(torch.zeros, *given[:4], given[-1])


def _each(call: Any, count: int, in_dims: Any, given: tuple[Any, ...]) -> Any:
    """A call for each slice of a batch, stacked. Lists of options are the same for all."""
    parts = [
        slices.cut(value, dim) if isinstance(dim, int) else [value] * max(count, 1)
        for value, dim in zip(given, in_dims, strict=True)
    ]
    made = [call(*each) for each in zip(*parts, strict=True)]
    return tuple(slices.stacked(one, count) for one in zip(*made, strict=True)), (0,) * len(made[0])


class _Layer(torch.autograd.Function):
    """The layer as autograd and torch.func see it."""

    @staticmethod
    def forward(*given: Any) -> Any:
        """The result, h and the routes."""
        return _made(*given, True)

    setup_context = staticmethod(_keep)
    backward = staticmethod(_gradients)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        """Refused."""
        raise NotImplementedError(
            "tilewright.moe: tangents (forward-mode AD) would need a rule that there is not;"
            " accepted are gradients (backward, torch.func.grad and vjp), or `ragged_matmul` of"
            " sorted rows, which has tangents"
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        """A layer for each slice of the batch."""
        return _each(_Layer.apply, info.batch_size, in_dims, given)
