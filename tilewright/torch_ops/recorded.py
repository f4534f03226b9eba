"""Products on a GPU: recorded for autograd once, launched as products without gradients are.

    forward    the launch of calls/dense_run_gpu.py or calls/grouped_gpu.py, and its checks
    backward   of one product a launch for each gradient, of a list one for all of them

Transposes are steps of the launch, never views. `dense` and `lists` have the functions for whatever
else looks on (compilers, transforms, tangents): for those torch reads a signature at every call,
and each tensor is asked what sees it. Second derivatives go that way too.

Results of a list are cut from one allocation below the keys by which torch marks views, so that
each may be changed in place like any result; an allocation each took 4 us of an H200's host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tilewright.arrays import torch_private as private
from tilewright.inputs.watched import is_anything_watched
from tilewright.torch_ops import down
from tilewright.torch_ops.eager import PLAIN, is_batched

How = tuple[Any, ...]  # precision, order or accumulate, device, kernel
Turned = tuple[bool, bool]  # whether a and b are transposed
_is_cuda, _layout = attrgetter("is_cuda"), attrgetter("layout")
_wants_gradient = attrgetter("requires_grad")
_NOT_TENSORS = 6  # arguments of _List before its tensors


def are_launched(tensors: Sequence[Any]) -> bool:
    """Whether these are dense tensors on GPUs, and at most autograd looks on."""
    return (
        not torch.compiler.is_compiling()
        and set(map(type, tensors)) <= {*PLAIN}
        and all(map(_is_cuda, tensors))
        and set(map(_layout, tensors)) == {torch.strided}
        and not any(map(is_batched, tensors))
        and not any(map(Tensor.is_neg, tensors))
        and not any(map(Tensor.is_complex, tensors))  # their gradients are conjugates' products
        and not is_anything_watched(torch)
    )


def product(
    a: Any,
    b: Any,
    bias: Any,
    turned: Turned,
    alpha: Any,
    how: How,
    otherwise: Callable[..., Tensor],
) -> Tensor | None:
    """alpha · a @ b + bias of two matrices; None where these are not, or something else looks on.

    `otherwise` is the product of views that everything in torch can look at.
    """
    given = (a, b) if bias is None else (a, b, bias)
    if not are_launched(given) or a.dim() != 2 or b.dim() != 2:
        return None
    found: Tensor = _One.apply(a, b, bias, turned, alpha, how, otherwise)
    return found


def products(
    a: Any,
    b: Any,
    biases: Any,
    turned: Turned,
    alpha: Any,
    how: How,
    otherwise: Callable[..., list[Tensor]],
) -> list[Tensor] | None:
    """The same of lists, each product with sizes of its own; `alpha` is one for all or one each."""
    if torch.compiler.is_compiling():
        return None
    for part in (a, b) if biases is None else (a, b, biases):
        if (type(part) is not list and type(part) is not tuple) or len(part) != len(a):
            return None
    vectors = [] if biases is None else [one for one in biases if one is not None]
    together = (*a, *b, *vectors)
    if not a or not are_launched(together):
        return None
    which = None if biases is None else [one is not None for one in biases]
    if torch.is_grad_enabled() and any(map(_wants_gradient, together)):
        return list(_List.apply(len(a), which, turned, alpha, how, otherwise, *together))
    return _launched(a, b, biases, turned, alpha, how)


def _launched(
    a: Sequence[Tensor], b: Sequence[Tensor], biases: Any, turned: Any, alpha: Any, how: How
) -> list[Tensor]:
    """New results of a list. Raises what `tilewright.grouped_matmul` raises."""
    if biases is not None:
        biases = [one if one is None else one.contiguous() for one in biases]
    options = {"alpha": alpha, "transpose_a": turned[0], "transpose_b": turned[1]}
    with private.below_autograd(torch)():
        found: list[Tensor] = down.lists_into(a, b, None, biases, how, **options)
    return found


def _of_a(b: Any, grad: Any, turned: Turned) -> tuple[Any, Any, bool, bool]:
    """The factors whose product is the gradient of a, and whether they are transposed."""
    turned_a, turned_b = turned
    return (b, grad, turned_b, True) if turned_a else (grad, b, False, not turned_b)


def _of_b(a: Any, grad: Any, turned: Turned) -> tuple[Any, Any, bool, bool]:
    """Those of b."""
    turned_a, turned_b = turned
    return (grad, a, True, turned_a) if turned_b else (a, grad, not turned_a, False)


class _One(torch.autograd.Function):
    """One product of two matrices."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor,
        bias: Tensor | None,
        turned: Turned,
        alpha: Any,
        how: How,
        otherwise: Callable[..., Tensor],
    ) -> Tensor:
        """The launch."""
        ctx.save_for_backward(a, b)
        ctx.given = turned, alpha, (*how[:3], None), otherwise  # a kernel is named for one product
        return _one(a, b, bias, turned, alpha, how)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        """Of a, b and the bias, where they are wanted."""
        a, b = ctx.saved_tensors
        turned, alpha, how, otherwise = ctx.given
        launched = not torch.is_grad_enabled() and are_launched((grad, a, b))

        def multiply(left: Tensor, right: Tensor, *turned: bool) -> Tensor:
            if launched:
                return _one(left, right, None, turned, alpha, how)
            views = (x.mT if turn else x for x, turn in zip((left, right), turned, strict=True))
            return otherwise(*views, None, float(alpha), how)

        wanted = ctx.needs_input_grad
        return (
            multiply(*_of_a(b, grad, turned)) if wanted[0] else None,
            multiply(*_of_b(a, grad, turned)) if wanted[1] else None,
            grad.sum(0) if wanted[2] else None,
            *[None] * 4,
        )


def _one(a: Tensor, b: Tensor, bias: Any, turned: Any, alpha: Any, how: How) -> Tensor:
    """Raises what `tilewright.matmul` raises."""
    bias = None if bias is None else bias.contiguous()
    plain = {"beta": 0.0, "transpose_a": turned[0], "transpose_b": turned[1], "activation": None}
    with private.below_autograd(torch)():
        found: Tensor = down.write_product(a, b, None, bias, how, alpha=alpha, **plain)
    return found


class _List(torch.autograd.Function):
    """A list of products: a, b and the biases one after another."""

    @staticmethod
    def forward(
        ctx: Any,
        count: int,
        which: list[bool] | None,
        turned: Turned,
        alpha: Any,
        how: How,
        otherwise: Callable[..., list[Tensor]],
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """One launch; `which` problems have a bias."""
        a, b = tensors[:count], tensors[count : 2 * count]
        vectors = iter(tensors[2 * count :])
        biases = None if which is None else [next(vectors) if one else None for one in which]
        found = _launched(a, b, biases, turned, alpha, how)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*a, *b)
        alpha = alpha if isinstance(alpha, float) else np.array(alpha, np.float64)
        ctx.given = count, which, turned, alpha, (*how[:3], None), otherwise
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Of every tensor that wants one, all by one launch."""
        count, which, turned, alpha, how, otherwise = ctx.given
        wanted = ctx.needs_input_grad[_NOT_TENSORS:]
        saved = ctx.saved_tensors
        there = [i for i, grad in enumerate(grads) if grad is not None]
        first = [i for i in there if wanted[i]]
        second = [i for i in there if wanted[count + i]]
        found: list[Any] = [None] * (2 * count)
        if first or second:
            pairs = [_of_a(saved[count + i], grads[i], turned) for i in first]
            pairs += [_of_b(saved[i], grads[i], turned) for i in second]
            scale = alpha if np.ndim(alpha) == 0 else alpha[first + second]
            places = first + [count + i for i in second]
            for place, made in zip(places, _multiplied(pairs, scale, how, otherwise), strict=True):
                found[place] = made
        added = (
            []
            if which is None
            else [
                None if grad is None else grad.sum(0)
                for grad, one in zip(grads, which, strict=True)
                if one
            ]
        )
        return *[None] * _NOT_TENSORS, *found, *added


def _multiplied(
    pairs: list[tuple[Any, Any, bool, bool]], alpha: Any, how: How, otherwise: Any
) -> list[Tensor]:
    """The products of such pairs, which autograd sees where it is to record them."""
    left, right, turned_left, turned_right = zip(*pairs, strict=True)
    if not torch.is_grad_enabled() and are_launched((*left, *right)):
        turned = np.array(turned_left), np.array(turned_right)
        return _launched(left, right, None, turned, alpha, how)
    views = (
        [x.t() if turn else x for x, turn in zip(part, turns, strict=True)]
        for part, turns in ((left, turned_left), (right, turned_right))
    )
    scales = np.broadcast_to(alpha, len(pairs)).astype(float).tolist()
    found: list[Tensor] = otherwise(*views, None, scales, how)
    return found
