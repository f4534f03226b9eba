"""Custom operators: what autograd, torch.compile and fake tensors see of ragged products.

    ragged_rows    x [t, k], w [g, k, n]      d x = rows(d out, w^T)       d w = depths(x^T, d out)
    ragged_depths  x [m, t], y [t, n]         d x = rows(y, d out^T)^T     d y = rows(x^T, d out)

Each gradient is the same operator again, so second derivatives come by themselves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.backends.cuda import faults, ragged
from tilewright.pytorch import on_processor
from tilewright.pytorch.eager import around, is_eager, needs_gradient


def repeated(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Any:
    """The product, unchecked, where one on a GPU that lies alike has run before; else None.

    None also where somebody looks on, or autocast would cast.
    """
    if not is_eager(x, w, offsets, bias) or torch.is_autocast_enabled("cuda"):
        return None
    if not needs_gradient(x, w, bias):
        return ragged.again(x, w, offsets, bias, precision)
    if not ragged.is_remembered(x, w, offsets, bias, precision):
        return None
    if w.dim() == 3:
        return _Rows.apply(x, w, offsets, bias, precision)
    return _Depths.apply(x, w, offsets, precision)


def ragged_rows(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Any:
    """out[i] = x[i] @ w[group of i] + bias[group of i]; rows without a group are zero."""
    if is_eager(x, w, offsets, bias):
        if needs_gradient(x, w, bias):
            return _Rows.apply(x, w, offsets, bias, precision)
        return _new_rows(x, w, offsets, bias, precision)
    return torch.ops.tilewright.ragged_rows(x, w, offsets, bias, precision)


def ragged_depths(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Any:
    """out[j] = x[:, group j] @ y[group j]; zero for groups without rows."""
    if is_eager(x, y, offsets):
        if needs_gradient(x, y):
            return _Depths.apply(x, y, offsets, precision)
        return _new_depths(x, y, offsets, precision)
    return torch.ops.tilewright.ragged_depths(x, y, offsets, precision)


def ragged_into(
    x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, out: Tensor, precision: str
) -> None:
    """Either product into `out`; rows of `out` without a group stay as they are."""
    if x.is_cuda:
        faults.check_unless_captured(x)
        if w.dim() == 3:
            ragged.rows(x, w, offsets, bias, out, precision, clear=False)
        else:
            ragged.depths(x, w, offsets, out, precision)
    elif w.dim() == 3:
        on_processor.rows(x, w, offsets, bias, out)
    else:
        on_processor.depths(x, w, offsets, out)


def _new_rows(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    if not x.is_cuda:
        out = x.new_zeros((x.shape[0], w.shape[2]))
        on_processor.rows(x, w, offsets, bias, out)
        return out
    found = ragged.again(x, w, offsets, bias, precision)
    if found is not None:
        return found
    faults.check_unless_captured(x)
    out = x.new_empty((x.shape[0], w.shape[2]))
    ragged.rows(x, w, offsets, bias, out, precision, clear=True)
    ragged.remember(x, w, offsets, bias, out, precision)
    return out


@torch.library.custom_op("tilewright::ragged_rows", mutates_args=())
def _rows(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    return _new_rows(x, w, offsets, bias, precision)


@_rows.register_fake
def _(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    return x.new_empty((x.shape[0], w.shape[2]))


def _keep_rows(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, w, offsets, bias, precision = inputs
    ctx.save_for_backward(x, w, offsets)
    ctx.biased, ctx.precision = bias is not None, precision


def _rows_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, w, offsets = ctx.saved_tensors
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


_Rows = around(_new_rows, _keep_rows, _rows_gradients)


def _new_depths(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Tensor:
    if x.is_cuda:
        found = ragged.again(x, y, offsets, None, precision)
        if found is not None:
            return found
    out = x.new_empty((offsets.shape[0], x.shape[0], y.shape[1]))
    if x.is_cuda:
        faults.check_unless_captured(x)
        ragged.depths(x, y, offsets, out, precision)
        ragged.remember(x, y, offsets, None, out, precision)
    else:
        on_processor.depths(x, y, offsets, out)
    return out


@torch.library.custom_op("tilewright::ragged_depths", mutates_args=())
def _depths(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Tensor:
    return _new_depths(x, y, offsets, precision)


@_depths.register_fake
def _(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Tensor:
    return x.new_empty((offsets.shape[0], x.shape[0], y.shape[1]))


def _keep_depths(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, y, offsets, precision = inputs
    ctx.save_for_backward(x, y, offsets)
    ctx.precision = precision


def _depths_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, y, offsets = ctx.saved_tensors
    of_x = of_y = None
    if ctx.needs_input_grad[0]:
        of_x = ragged_rows(y, grad.transpose(1, 2), offsets, None, ctx.precision).t()
    if ctx.needs_input_grad[1]:
        of_y = ragged_rows(x.t(), grad, offsets, None, ctx.precision)
    return of_x, of_y, None, None


_depths.register_autograd(_depths_gradients, setup_context=_keep_depths)


_Depths = around(_new_depths, _keep_depths, _depths_gradients)
