"""Custom operators: what autograd, torch.compile and fake tensors see of ragged products.

    rows     x [t, k], w [g, k, n]      d x = product(d out, w^T)       d w = product(x^T, d out)
    depths   x [m, t], w [t, n]         d x = product(w, d out^T)^T     d w = product(x^T, d out)

Which of the two it is, w's dimensions say. Each gradient is a product again, so second derivatives
come by themselves. Tangents are the products with one factor's tangent in its place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.arrays import torch_private as private
from tilewright.arrays.turned import gradient
from tilewright.backends.cuda.ragged import engine
from tilewright.inputs.tensors import needs_gradient
from tilewright.inputs.watched import is_anything_watched
from tilewright.torch_ops import on_gpu, on_processor, ragged_tensors, slices
from tilewright.torch_ops.eager import (
    PLAIN,
    is_eager,
    is_followed,
    is_transformed,
    outside_of_graphs,
    rule_for_tangents,
)
from tilewright.torch_ops.flops import shapes_of
from tilewright.torch_ops.ragged_tensors import again

# What torch.func wrapped has no memory once its transform has ended, as in the function of vjp.
_alive = private.unwrapped(torch)


def repeated(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Any:
    """The product, unchecked, where one on a GPU that lies alike has run before; else None.

    None also where somebody looks on, or autocast would cast.
    """
    if not is_eager(x, w, offsets, bias) or torch.is_autocast_enabled("cuda"):
        return None
    if not needs_gradient(x, w, bias):
        return engine.again(x, w, offsets, bias, precision)
    if not engine.is_remembered(x, w, offsets, bias, precision):
        return None
    return _Ragged.apply(x, w, offsets, bias, precision)


def at_once(x: Any, w: Any, offsets: Any, bias: Any) -> Any:
    """The product of plain tensors on a processor that nobody but autograd looks at, or None.

    None also for what does not fit: the checks have the words for it.
    """
    found = again(x, w, offsets, bias, follow)
    if found is not None or bias is not None:
        return found
    plain = type(x) in PLAIN and type(w) in PLAIN and type(offsets) in PLAIN
    plain = plain and not (x.is_nested or w.is_nested or offsets.is_nested)
    if not plain or needs_gradient(x, w) or is_anything_watched(torch):
        return None
    found = on_processor.plain_product(x, w, offsets)
    if found is not None:
        ragged_tensors.remembered(x, w, offsets, None)
    return found


def product(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Any:
    """Of rows: out[i] = x[i] @ w[group of i] + bias[group of i]; rows without a group are zero.

    Of depths: out[j] = x[:, group j] @ w[group j]; zero for groups without rows.
    """
    if torch.compiler.is_compiling():
        if is_transformed():
            return outside_of_graphs(product, x, w, offsets, bias, precision)
        return _new(x, w, offsets, bias, precision)
    here = x.is_cpu and precision == "ieee"
    if here and (found := again(x, w, offsets, bias, follow)) is not None:
        return found
    way = _Ragged.apply if is_followed(x, w, bias) else _new
    found = way(x, w, offsets, bias, precision)
    if here:
        ragged_tensors.remembered(x, w, offsets, bias)
    return found


def product_into(
    x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, out: Tensor, precision: str
) -> None:
    """Either product into `out`; rows of `out` without a group stay as they are."""
    _place_of(x).write_product(x, w, offsets, bias, out, precision)


def _new(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Any:
    """By the operator that compilers, fake tensors and modes see, or without it."""
    if is_eager(x, w, offsets, bias):
        return _place_of(x).new_product(x, w, offsets, bias, precision)
    if w.dim() == 3:
        return torch.ops.tilewright.ragged_rows(x, w, offsets, bias, precision)
    return torch.ops.tilewright.ragged_depths(x, w, offsets, precision)


def _place_of(x: Tensor) -> Any:
    """What multiplies where these tensors lie: functions of one kind on each."""
    return on_gpu if x.is_cuda else on_processor


@torch.library.custom_op("tilewright::ragged_rows", mutates_args=())
def _rows(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    with torch.no_grad():
        found: Tensor = _place_of(x).new_product(x, w, offsets, bias, precision)
    return found


@torch.library.custom_op("tilewright::ragged_depths", mutates_args=())
def _depths(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Tensor:
    with torch.no_grad():
        found: Tensor = _place_of(x).new_product(x, y, offsets, None, precision)
    return found


@shapes_of(_rows)
def _(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[2]))


@shapes_of(_depths)
def _(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Tensor:
    return x.new_empty((offsets.shape[0], x.shape[0], y.shape[1]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, w, offsets, *bias, precision = inputs
    ctx.save_for_backward(x, w, offsets)
    ctx.biased, ctx.precision = any(one is not None for one in bias), precision


def _gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """Of x, w and the bias, where they are wanted."""
    x, w, offsets = map(_alive, ctx.saved_tensors)
    wanted, precision = ctx.needs_input_grad, ctx.precision
    of_x = of_w = of_bias = None
    if w.dim() == 2:
        if wanted[0]:
            of_x = product(w, grad.transpose(1, 2), offsets, None, precision).t()
        if wanted[1]:
            of_w = product(x.t(), grad, offsets, None, precision)
        return of_x, of_w, None
    if wanted[0]:
        of_x = product(grad, w.transpose(1, 2), offsets, None, precision)
    # Where the first group does not begin at 0, its beginning counts as a group that is dropped.
    first = int(offsets.shape[0] > w.shape[0])
    if wanted[1]:
        of_w = gradient(w, x, grad, lambda a, b: product(a, b, offsets, None, precision))[first:]
    if ctx.biased and wanted[3]:
        ones = grad.new_ones((1, 1)).expand(1, grad.shape[0])
        of_bias = product(ones, grad, offsets, None, precision)[first:, 0]
    return of_x, of_w, of_bias


def _rows_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    of_x, of_w, of_bias = _gradients(ctx, grad)
    return of_x, of_w, None, of_bias, None


_rows.register_autograd(_rows_gradients, setup_context=_keep)
_depths.register_autograd(
    lambda ctx, grad: (*_gradients(ctx, grad)[:2], None, None), setup_context=_keep
)


class _Here(torch.autograd.Function):
    """Either product as autograd alone sees it, where it lies in a box already made.

    Half as long as `_Ragged`, which torch.func may look at too.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, offsets: Tensor, bias: Any, box: Any) -> Any:
        """The product."""
        ctx.save_for_backward(x, w, offsets)
        ctx.biased, ctx.precision = bias is not None, "ieee"
        return box[0]

    backward = staticmethod(_rows_gradients)


def follow(x: Tensor, w: Tensor, offsets: Tensor, bias: Any, found: Tensor) -> Any:
    """The product that was made, with its gradients."""
    return _Here.apply(x, w, offsets, bias, [found])


class _Ragged(torch.autograd.Function):
    """Either product as autograd and torch.func see it."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, offsets: Tensor, bias: Any, precision: str) -> Any:
        """The product."""
        return _new(x, w, offsets, bias, precision)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """What gradients and tangents are made from."""
        _keep(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:3])

    backward = staticmethod(_rows_gradients)

    @staticmethod
    @rule_for_tangents
    def jvp(ctx: Any, saved: Any, of_x: Any, of_w: Any, _offsets: Any, of_bias: Any, _: Any) -> Any:
        """The tangent of the result: a bias is a product with ones."""
        x, w, offsets = saved
        parts = []
        if of_x is not None:
            parts.append(product(of_x, w, offsets, None, ctx.precision))
        if of_bias is not None and of_w is None:
            x, of_w, of_bias = x.new_ones((x.shape[0], 1)), of_bias.unsqueeze(1), None
        elif of_bias is not None:
            of_bias = of_bias.contiguous()
        if of_w is not None:
            parts.append(product(x, of_w, offsets, of_bias, ctx.precision))
        return sum(parts[1:], parts[0])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        """A product for each slice of the batch. Offsets may differ from slice to slice."""
        parts = [
            [value] * max(info.batch_size, 1) if dim is None else slices.cut(value, dim)
            for value, dim in zip(given, in_dims, strict=True)
        ]
        made = [product(*each) for each in zip(*parts, strict=True)]
        return slices.stacked(made, info.batch_size), 0
