"""Lists of products: the custom operator, and the function that autograd and torch.func see.

    products   a_i [m_i, k_i], b_i [k_i, n_i]     d a_i = alpha_i · d c_i b_i^T
                                                  d b_i = alpha_i · a_i^T d c_i

All gradients of a list are one list of products again, so one launch, and second derivatives come
by themselves; so do tangents. Of batched matrices every slice is a problem of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tilewright.torch_ops import dense, down, slices
from tilewright.torch_ops.autocast import cast
from tilewright.torch_ops.eager import (
    is_batched,
    is_eager,
    is_followed,
    is_transformed,
    outside_of_graphs,
    rule_for_tangents,
)
from tilewright.torch_ops.flops import shapes_of

How = tuple[str | None, ...]  # precision, order, device, kernel
PLAIN: How = (None, None, None, None)
Biases = Sequence[Tensor | None]


def products(
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    biases: Biases | None = None,
    alphas: Sequence[float] | None = None,
    how: How = PLAIN,
) -> list[Tensor]:
    """alphas[i] · a[i] @ b[i] + biases[i] of matrices each with sizes of its own."""
    count = len(a)
    left, right, added = cast_lists(a, b, [None] * count if biases is None else biases)
    together = (*left, *right, *added)
    given = [bias for bias in added if bias is not None]
    which = [bias is not None for bias in added]
    if count and left[0] is not a[0]:
        how = (None, *how[1:])  # a precision is float32's, which autocast has just left
    scales = [1.0] * count if alphas is None else list(alphas)
    if torch.compiler.is_compiling():
        if is_transformed():
            found: list[Tensor] = outside_of_graphs(products, left, right, added, scales, how)
            return found
    else:
        if is_followed(*together):
            return list(_Products.apply(how, scales, which, *left, *right, *given))
        if is_eager(*together):
            return down.products(left, right, added, scales, how)
    return _by_operator(left, right, given, which, scales, how)


def cast_lists(a: Any, b: Any, biases: Any) -> tuple[Any, Any, Any]:
    """All of them in autocast's dtype, where it is on."""
    together = cast(*a, *b, *biases)
    count = len(a)
    return together[:count], together[count : 2 * count], together[2 * count :]


def _by_operator(
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    biases: Sequence[Tensor],
    biased: list[bool],
    alphas: list[float],
    how: How,
) -> list[Tensor]:
    given = (*a, *b, *biases)
    if not torch.compiler.is_compiling() and (
        any(map(is_batched, given)) or torch.jit.is_tracing()
    ):
        one = dense.product_operator  # torch maps and traces it, but no operator of lists
        rest = (how[0], None, how[2], None)
        problems = zip(a, b, _spread(biases, biased), alphas, strict=True)
        return [one(*problem, *rest) for problem in problems]
    found: list[Tensor] = torch.ops.tilewright.products(
        list(a), list(b), list(biases), biased, alphas, *how
    )
    return found


def _spread(biases: Sequence[Tensor], biased: Sequence[bool]) -> list[Tensor | None]:
    """A bias or None for each problem, of those that there are."""
    given = iter(biases)
    return [next(given) if one else None for one in biased]


@torch.library.custom_op("tilewright::products", mutates_args=())
def _products(
    a: list[Tensor],
    b: list[Tensor],
    biases: list[Tensor],
    biased: list[bool],
    alphas: list[float],
    precision: str | None,
    order: str | None,
    device: str | None,
    kernel: str | None,
) -> list[Tensor]:
    with torch.no_grad():
        return down.products(
            a, b, _spread(biases, biased), alphas, (precision, order, device, kernel)
        )


@shapes_of(_products)
def _(a: list[Tensor], b: list[Tensor], *_: Any) -> list[Tensor]:
    return [one.new_empty((one.shape[0], two.shape[1])) for one, two in zip(a, b, strict=True)]


def _keep_operator(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    a, b, _, ctx.biased, ctx.alphas, *how = inputs
    ctx.how, ctx.count = (*how[:3], None), len(a)  # a kernel is named for one launch
    ctx.save_for_backward(*a, *b)


def _operator_gradients(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    of_a, of_b = _gradients(ctx, grads, *ctx.needs_input_grad[:2])
    of_bias = [grad.sum(0) for grad, one in zip(grads, ctx.biased, strict=True) if one]
    return of_a, of_b, of_bias, *[None] * 6


_products.register_autograd(_operator_gradients, setup_context=_keep_operator)


def _gradients(
    ctx: Any, grads: Sequence[Tensor | None], wanted_a: Sequence[bool], wanted_b: Sequence[bool]
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Those of a and of b that are wanted, all of them in one list of products."""
    count = ctx.count
    saved = ctx.saved_tensors  # once: each look unpacks, and a checkpoint unpacks once only
    a, b = saved[:count], saved[count:]
    pairs: list[tuple[Tensor, Tensor]] = []
    places: list[int] = []
    for i, grad in enumerate(grads):
        if grad is not None and wanted_a[i]:
            pairs.append((grad, _adjoint(b[i])))
            places.append(i)
        if grad is not None and wanted_b[i]:
            pairs.append((_adjoint(a[i]), grad))
            places.append(count + i)
    found: list[Tensor | None] = [None] * (2 * count)
    if pairs:
        alphas = [ctx.alphas[place % count] for place in places]
        left, right = zip(*pairs, strict=True)
        for place, made in zip(places, products(left, right, None, alphas, ctx.how), strict=True):
            found[place] = made
    return found[:count], found[count:]


def _adjoint(matrix: Tensor) -> Tensor:
    """The transpose, conjugated where it is complex, as gradients have it."""
    return matrix.mH if matrix.is_complex() else matrix.t()


class _Products(torch.autograd.Function):
    """The list as autograd and torch.func see it: a, b and the biases one after another."""

    @staticmethod
    def forward(how: How, alphas: list[float], biased: list[bool], *tensors: Tensor) -> Any:
        """Its results."""
        count = len(biased)
        a, b, biases = tensors[:count], tensors[count : 2 * count], tensors[2 * count :]
        if is_eager(*tensors):
            return tuple(down.products(a, b, _spread(biases, biased), alphas, how))
        return tuple(_by_operator(a, b, biases, biased, alphas, how))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """What gradients and tangents are made from."""
        how, ctx.alphas, ctx.biased, *tensors = inputs
        ctx.how, ctx.count = (*how[:3], None), len(ctx.biased)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors[: 2 * ctx.count])
        ctx.save_for_forward(*tensors[: 2 * ctx.count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Of every input in turn."""
        count, wanted = ctx.count, ctx.needs_input_grad[3:]
        of_a, of_b = _gradients(ctx, grads, wanted[:count], wanted[count : 2 * count])
        of_bias = [
            None if grad is None else grad.sum(0)
            for grad, one in zip(grads, ctx.biased, strict=True)
            if one
        ]
        return None, None, None, *of_a, *of_b, *of_bias

    @staticmethod
    @rule_for_tangents
    def jvp(ctx: Any, saved: Any, _how: Any, _alphas: Any, _biased: Any, *tangents: Any) -> Any:
        """The tangents of the results: the products with either factor's tangent in its place."""
        count = ctx.count
        a, b = saved[:count], saved[count:]
        of_a, of_b = tangents[:count], tangents[count : 2 * count]
        with_a = [(i, of_a[i], b[i]) for i in range(count) if of_a[i] is not None]
        with_b = [(i, a[i], of_b[i]) for i in range(count) if of_b[i] is not None]
        found: list[Any] = [None] * count
        if with_a or with_b:
            places, left, right = zip(*with_a, *with_b, strict=True)
            alphas = [ctx.alphas[i] for i in places]
            made = products(left, right, None, alphas, ctx.how)
            for i, one in zip(places, made, strict=True):
                found[i] = one if found[i] is None else found[i] + one
        for i, added in enumerate(_spread(tangents[2 * count :], ctx.biased)):
            if added is not None:
                whole = added.expand(a[i].shape[0], b[i].shape[1])
                found[i] = whole.clone() if found[i] is None else found[i] + whole
        return tuple(
            one.new_zeros((one.shape[0], two.shape[1])) if made is None else made
            for made, one, two in zip(found, a, b, strict=True)
        )

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, how: How, alphas: list[float], biased: list[bool], *tensors: Tensor
    ) -> Any:
        """Every slice of a batched problem is a problem; one that is not batched stays one."""
        count, dims = len(biased), in_dims[3:]
        cuts = [
            one if dim is None else slices.cut(one, dim)
            for one, dim in zip(tensors, dims, strict=True)
        ]
        parts = (cuts[:count], cuts[count : 2 * count], _spread(cuts[2 * count :], biased))
        batched = [
            any(type(cut) is tuple for cut in problem) for problem in zip(*parts, strict=True)
        ]
        times = [max(info.batch_size, 1) if several else 1 for several in batched]
        left, right, biases = (
            [
                cut[j] if type(cut) is tuple else cut
                for cut, most in zip(part, times, strict=True)
                for j in range(most)
            ]
            for part in parts
        )
        scales = [alpha for alpha, most in zip(alphas, times, strict=True) for _ in range(most)]
        made = iter(products(left, right, biases, scales, how))
        found = [
            slices.stacked([next(made) for _ in range(most)], info.batch_size)
            if several
            else next(made)
            for most, several in zip(times, batched, strict=True)
        ]
        return tuple(found), tuple(0 if several else None for several in batched)
