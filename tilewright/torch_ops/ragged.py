"""Custom operators: what autograd, torch.compile and fake tensors see of ragged products.

    ragged_rows    x [t, k], w [g, k, n]      d x = rows(d out, w^T)       d w = depths(x^T, d out)
    ragged_depths  x [m, t], y [t, n]         d x = rows(y, d out^T)^T     d y = rows(x^T, d out)

Each gradient is the same operator again, so second derivatives come by themselves. Tangents are the
products with one factor's tangent in its place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.ragged import engine
from tilewright.inputs.tensors import needs_gradient
from tilewright.torch_ops import on_gpu, on_processor
from tilewright.torch_ops.eager import is_eager, is_followed, is_transformed, outside_of_graphs

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
    if w.dim() == 3:
        return _Rows.apply(x, w, offsets, bias, precision)
    return _Depths.apply(x, w, offsets, precision)


def ragged_rows(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Any:
    """out[i] = x[i] @ w[group of i] + bias[group of i]; rows without a group are zero."""
    if torch.compiler.is_compiling():
        if is_transformed():
            return outside_of_graphs(ragged_rows, x, w, offsets, bias, precision)
    else:
        if is_followed(x, w, bias):
            return _Rows.apply(x, w, offsets, bias, precision)
        if is_eager(x, w, offsets, bias):
            return _place_of(x).new_rows(x, w, offsets, bias, precision)
    return torch.ops.tilewright.ragged_rows(x, w, offsets, bias, precision)


def ragged_depths(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Any:
    """out[j] = x[:, group j] @ y[group j]; zero for groups without rows."""
    if torch.compiler.is_compiling():
        if is_transformed():
            return outside_of_graphs(ragged_depths, x, y, offsets, precision)
    else:
        if is_followed(x, y):
            return _Depths.apply(x, y, offsets, precision)
        if is_eager(x, y, offsets):
            return _place_of(x).new_depths(x, y, offsets, precision)
    return torch.ops.tilewright.ragged_depths(x, y, offsets, precision)


def ragged_into(
    x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, out: Tensor, precision: str
) -> None:
    """Either product into `out`; rows of `out` without a group stay as they are."""
    _place_of(x).write_product(x, w, offsets, bias, out, precision)


def _place_of(x: Tensor) -> Any:
    """What multiplies where these tensors lie: functions of one kind on each."""
    return on_gpu if x.is_cuda else on_processor


@torch.library.custom_op("tilewright::ragged_rows", mutates_args=())
def _rows(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    with torch.no_grad():
        found: Tensor = _place_of(x).new_rows(x, w, offsets, bias, precision)
    return found


@_rows.register_fake
def _(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[2]))


def _keep_rows(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, w, offsets, bias, precision = inputs
    ctx.save_for_backward(x, w, offsets)
    ctx.biased, ctx.precision = bias is not None, precision


def _rows_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, w, offsets = map(_alive, ctx.saved_tensors)
    wanted = ctx.needs_input_grad
    of_x = of_w = of_bias = None
    if wanted[0]:
        of_x = ragged_rows(grad, w.transpose(1, 2), offsets, None, ctx.precision)
    begins = offsets.shape[0] > w.shape[0]
    if wanted[1]:
        of_w = _of_all_groups(x.t(), grad, offsets, begins, ctx.precision)
    if ctx.biased and wanted[3]:
        ones = grad.new_ones((1, 1)).expand(1, grad.shape[0])
        of_bias = _of_all_groups(ones, grad, offsets, begins, ctx.precision)[:, 0]
    return of_x, of_w, None, of_bias, None


def _of_all_groups(x: Tensor, y: Tensor, offsets: Tensor, begins: bool, precision: str) -> Any:
    """Depth products over the groups, also where the first does not begin at 0 (`begins`).

    The beginning then counts as a group of its own, whose product is dropped.
    """
    found = ragged_depths(x, y, offsets, precision)
    return found[1:] if begins else found


_rows.register_autograd(_rows_gradients, setup_context=_keep_rows)


class _Rows(torch.autograd.Function):
    """Rows as autograd and torch.func see them."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, offsets: Tensor, bias: Any, precision: str) -> Any:
        """The product."""
        if is_eager(x, w, offsets, bias):
            return _place_of(x).new_rows(x, w, offsets, bias, precision)
        return torch.ops.tilewright.ragged_rows(x, w, offsets, bias, precision)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """What gradients and tangents are made from."""
        _keep_rows(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:3])

    backward = staticmethod(_rows_gradients)

    @staticmethod
    def jvp(ctx: Any, of_x: Any, of_w: Any, _offsets: Any, of_bias: Any, _precision: Any) -> Any:
        """The tangent of the result: a bias is a product with ones."""
        x, w, offsets = ctx.saved_tensors
        if of_bias is not None and of_w is None:
            x, of_w, of_bias = x.new_ones((x.shape[0], 1)), of_bias.unsqueeze(1), None
        elif of_bias is not None:
            of_bias = of_bias.contiguous()
        parts = []
        if of_w is not None:
            parts.append(ragged_rows(x, of_w, offsets, of_bias, ctx.precision))
        if of_x is not None:
            parts.append(ragged_rows(of_x, w, offsets, None, ctx.precision))
        return sum(parts[1:], parts[0])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        """A product for each element of the batch."""
        return _each(ragged_rows, info, in_dims, given)


def _each(product: Any, info: Any, in_dims: Any, given: tuple[Any, ...]) -> tuple[Tensor, int]:
    """Products of the slices of a batch. Offsets may differ from slice to slice."""
    parts = [
        [value] * info.batch_size if dim is None else value.unbind(dim)
        for value, dim in zip(given, in_dims, strict=True)
    ]
    return torch.stack([product(*slices) for slices in zip(*parts, strict=True)]), 0


@torch.library.custom_op("tilewright::ragged_depths", mutates_args=())
def _depths(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Tensor:
    with torch.no_grad():
        found: Tensor = _place_of(x).new_depths(x, y, offsets, precision)
    return found


@_depths.register_fake
def _(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Tensor:
    return x.new_empty((offsets.shape[0], x.shape[0], y.shape[1]))


def _keep_depths(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, y, offsets, precision = inputs
    ctx.save_for_backward(x, y, offsets)
    ctx.precision = precision


def _depths_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, y, offsets = map(_alive, ctx.saved_tensors)
    of_x = of_y = None
    if ctx.needs_input_grad[0]:
        of_x = ragged_rows(y, grad.transpose(1, 2), offsets, None, ctx.precision).t()
    if ctx.needs_input_grad[1]:
        of_y = ragged_rows(x.t(), grad, offsets, None, ctx.precision)
    return of_x, of_y, None, None


_depths.register_autograd(_depths_gradients, setup_context=_keep_depths)


class _Depths(torch.autograd.Function):
    """Depths as autograd and torch.func see them."""

    @staticmethod
    def forward(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Any:
        """The product."""
        if is_eager(x, y, offsets):
            return _place_of(x).new_depths(x, y, offsets, precision)
        return torch.ops.tilewright.ragged_depths(x, y, offsets, precision)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """What gradients and tangents are made from."""
        _keep_depths(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:3])

    backward = staticmethod(_depths_gradients)

    @staticmethod
    def jvp(ctx: Any, of_x: Any, of_y: Any, _offsets: Any, _precision: Any) -> Any:
        """The tangent of the result."""
        x, y, offsets = ctx.saved_tensors
        parts = []
        if of_x is not None:
            parts.append(ragged_depths(of_x, y, offsets, ctx.precision))
        if of_y is not None:
            parts.append(ragged_depths(x, of_y, offsets, ctx.precision))
        return sum(parts[1:], parts[0])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        """A product for each element of the batch."""
        return _each(ragged_depths, info, in_dims, given)
