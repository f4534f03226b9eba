"""The custom operator of lists: what autograd, torch.compile and fake tensors see of the products.

    products   a_i [m_i, k_i], b_i [k_i, n_i]     d a_i = d c_i b_i^T     d b_i = a_i^T d c_i

Each gradient is the same operator again, so second derivatives come by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from tilewright.pytorch import on_processor
from tilewright.pytorch.eager import cast, is_eager, needs_gradient


def products(a: list[Tensor], b: list[Tensor], biases: list[Tensor | None]) -> Any:
    """a[i] @ b[i] + biases[i] of matrices each with sizes of its own."""
    count = len(a)
    together = cast(*a, *b, *biases)
    given = [bias for bias in together[2 * count :] if bias is not None]
    which = [bias is not None for bias in biases]
    if is_eager(*together):
        if needs_gradient(*together):
            return list(_Products.apply(which, *together[: 2 * count], *given))
        return _new_products(
            list(together[:count]), list(together[count : 2 * count]), given, which
        )
    return torch.ops.tilewright.products(
        list(together[:count]), list(together[count : 2 * count]), given, which
    )


def _new_products(
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


@torch.library.custom_op("tilewright::products", mutates_args=())
def _products(
    a: list[Tensor], b: list[Tensor], biases: list[Tensor], biased: list[bool]
) -> list[Tensor]:
    return _new_products(a, b, biases, biased)


@_products.register_fake
def _(a: list[Tensor], b: list[Tensor], biases: list[Tensor], biased: list[bool]) -> list[Tensor]:
    return [one.new_empty((one.shape[0], two.shape[1])) for one, two in zip(a, b, strict=True)]


def _keep_products(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    a, b, _, biased = inputs
    ctx.count, ctx.biased = len(a), biased
    ctx.save_for_backward(*a, *b)


def _products_gradients(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    of_a, of_b = (any(wanted) for wanted in ctx.needs_input_grad[:2])
    return *_of_lists(ctx, grads, of_a=of_a, of_b=of_b), None


def _of_lists(ctx: Any, grads: Sequence[Tensor], *, of_a: bool, of_b: bool) -> Iterator[Any]:
    """Gradients of all a, of all b and of the biases that there are."""
    count = ctx.count
    a, b = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
    none: list[Tensor | None] = [None] * count
    yield products(list(grads), [one.t() for one in b], none) if of_a else none
    yield products([one.t() for one in a], list(grads), none) if of_b else none
    yield [grad.sum(0) for grad, one in zip(grads, ctx.biased, strict=True) if one]


_products.register_autograd(_products_gradients, setup_context=_keep_products)


class _Products(torch.autograd.Function):
    """The operator's forward and backward, without the operator, its lists one after another."""

    @staticmethod
    def forward(ctx: Any, biased: list[bool], *tensors: Tensor) -> tuple[Tensor, ...]:
        """Its results."""
        count = len(biased)
        a, b = list(tensors[:count]), list(tensors[count : 2 * count])
        biases = list(tensors[2 * count :])
        made = _new_products(a, b, biases, biased)
        _keep_products(ctx, (a, b, biases, biased), made)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        """Of every input in turn."""
        count, wanted = ctx.count, ctx.needs_input_grad[1:]
        of_a, of_b = any(wanted[:count]), any(wanted[count : 2 * count])
        return None, *chain.from_iterable(_of_lists(ctx, grads, of_a=of_a, of_b=of_b))
