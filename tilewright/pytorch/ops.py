"""Custom operators: what autograd, torch.compile and fake tensors see of the products.

    ragged_rows    x [t, k], w [g, k, n]      d x = rows(d out, w^T)       d w = depths(x^T, d out)
    ragged_depths  x [m, t], y [t, n]         d x = rows(y, d out^T)^T     d y = rows(x^T, d out)
    products       lists                      d a_i = d c_i b_i^T          d b_i = a_i^T d c_i

Each gradient is the same operator again, so second derivatives come by themselves. Under autocast
operands are cast to its dtype before the operator (`cast`), where torch.compile sees the casts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.pytorch import on_processor


def ragged_rows(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Any:
    """out[i] = x[i] @ w[group of i] + bias[group of i]; rows without a group are zero."""
    return torch.ops.tilewright.ragged_rows(x, w, offsets, bias, precision)


def ragged_depths(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Any:
    """out[j] = x[:, group j] @ y[group j]; zero for groups without rows."""
    return torch.ops.tilewright.ragged_depths(x, y, offsets, precision)


def products(a: list[Tensor], b: list[Tensor], biases: list[Tensor | None]) -> Any:
    """a[i] @ b[i] + biases[i] of matrices each with sizes of its own."""
    count = len(a)
    together = cast(*a, *b, *biases)
    given = [bias for bias in together[2 * count :] if bias is not None]
    which = [bias is not None for bias in biases]
    return torch.ops.tilewright.products(
        list(together[:count]), list(together[count : 2 * count]), given, which
    )


def ragged_into(
    x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, out: Tensor, precision: str
) -> None:
    """Either product into `out`; rows of `out` without a group stay as they are."""
    if x.is_cuda:
        from tilewright.backends.cuda import faults, ragged

        faults.check_unless_captured(x)
        if w.dim() == 3:
            ragged.rows(x, w, offsets, bias, out, precision, clear=False)
        else:
            ragged.depths(x, w, offsets, out, precision)
    elif w.dim() == 3:
        on_processor.rows(x, w, offsets, bias, out)
    else:
        on_processor.depths(x, w, offsets, out)


def cast(*values: Tensor | None) -> tuple[Any, ...]:
    """The operands in autocast's dtype where it is on; float64, and all otherwise, as they are."""
    first = next((value for value in values if value is not None), None)
    if first is None or not torch.is_autocast_enabled(first.device.type):
        return values
    dtype = torch.get_autocast_dtype(first.device.type)
    kinds = (torch.float16, torch.bfloat16, torch.float32)
    return tuple(
        value if value is None or value.dtype not in kinds else value.to(dtype) for value in values
    )


@torch.library.custom_op("tilewright::ragged_rows", mutates_args=())
def _rows(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    out = x.new_empty((x.shape[0], w.shape[2]))
    if x.is_cuda:
        from tilewright.backends.cuda import faults, ragged

        faults.check_unless_captured(x)
        ragged.rows(x, w, offsets, bias, out, precision, clear=True)
    else:
        on_processor.rows(x, w, offsets, bias, out.zero_())
    return out


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
    ends = offsets[offsets.shape[0] - w.shape[0] :]
    if wanted[1]:
        of_w = _of_all_groups(x.t(), grad, offsets, ends, ctx.precision)
    if ctx.biased and wanted[3]:
        ones = grad.new_ones((1, grad.shape[0]))
        of_bias = _of_all_groups(ones, grad, offsets, ends, ctx.precision)[:, 0]
    return of_x, of_w, None, of_bias, None


def _of_all_groups(x: Tensor, y: Tensor, offsets: Tensor, ends: Tensor, precision: str) -> Any:
    """Depth products over the groups, also where the first does not begin at 0.

    The beginning then counts as a group of its own, whose product is dropped.
    """
    if offsets.shape[0] == ends.shape[0]:
        return ragged_depths(x, y, ends, precision)
    return ragged_depths(x, y, offsets, precision)[1:]


_rows.register_autograd(_rows_gradients, setup_context=_keep_rows)


@torch.library.custom_op("tilewright::ragged_depths", mutates_args=())
def _depths(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Tensor:
    out = x.new_empty((offsets.shape[0], x.shape[0], y.shape[1]))
    if x.is_cuda:
        from tilewright.backends.cuda import faults, ragged

        faults.check_unless_captured(x)
        ragged.depths(x, y, offsets, out, precision)
    else:
        on_processor.depths(x, y, offsets, out)
    return out


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


@torch.library.custom_op("tilewright::products", mutates_args=())
def _products(
    a: list[Tensor], b: list[Tensor], biases: list[Tensor], biased: list[bool]
) -> list[Tensor]:
    import tilewright

    given = iter(biases)
    bias = [next(given) if one else None for one in biased]
    if a and a[0].is_cuda:
        # An allocation each: results of an operator must not share memory.
        made = [one.new_empty((one.shape[0], two.shape[1])) for one, two in zip(a, b, strict=True)]
        tilewright.grouped_matmul(a, b, out=made, bias=bias if any(biased) else None)
        return made
    return on_processor.products(a, b, bias)


@_products.register_fake
def _(a: list[Tensor], b: list[Tensor], biases: list[Tensor], biased: list[bool]) -> list[Tensor]:
    return [one.new_empty((one.shape[0], two.shape[1])) for one, two in zip(a, b, strict=True)]


def _keep_products(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    a, b, _, biased = inputs
    ctx.count, ctx.biased = len(a), biased
    ctx.save_for_backward(*a, *b)


def _products_gradients(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    count = ctx.count
    a, b = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
    none: list[Tensor | None] = [None] * count
    of_a = of_b = none
    if any(ctx.needs_input_grad[0]):
        of_a = products(list(grads), [one.t() for one in b], none)
    if any(ctx.needs_input_grad[1]):
        of_b = products([one.t() for one in a], list(grads), none)
    of_bias = [grad.sum(0) for grad, one in zip(grads, ctx.biased, strict=True) if one]
    return of_a, of_b, of_bias, None


_products.register_autograd(_products_gradients, setup_context=_keep_products)
