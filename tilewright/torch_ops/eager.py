"""Tells whether a product of tensors needs torch's custom operator, or may be made without it.

Where nothing but autograd looks on (`is_eager`), products do without their custom operator: the way
through the dispatcher takes 10 us of host time, 22 with gradients; without it 1 and 7 (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from tilewright.arrays import torch_private as private
from tilewright.torch_ops import flops

PLAIN = (Tensor, torch.nn.Parameter)


is_batched = private.is_batched(torch)
modes, transform = private.modes(torch), private.transform(torch)
_forward, _forward_mode = private.forward_ad(torch), private.forward_mode(torch)


def are_modes_told() -> bool:
    """Whether modes look on; counters among them know our operators from now on."""
    if not modes():
        return False
    flops.tell()
    return True


def is_eager(*values: Tensor | None) -> bool:
    """Whether these are plain tensors and no compiler, mode or transform sees what is called."""
    if torch.compiler.is_compiling() or are_modes_told():  # of tensors without memory, too
        return False
    for value in values:
        if value is not None and (
            type(value) not in PLAIN
            or value.is_meta
            or is_batched(value)  # by autograd.grad(is_grads_batched=True)
            or value.is_neg()  # of a conjugate's imaginary part memory has the negative
            or (value.is_cuda and value.is_conj())  # torch's BLAS reads conjugates, launches do not
        ):
            return False
    return transform() is None and private.forward_level(torch) < 0 and not torch.jit.is_tracing()


def is_followed(*values: Any) -> bool:
    """Whether gradients, tangents or a transform of torch.func follow what is made of these.

    Not what torch.jit.trace writes down: operators, whose gradients are their own. Of functions
    with arguments that are no tensors it reads memory that is none, and ends the process.
    """
    return is_transformed() or (
        torch.is_grad_enabled()
        and any(value is not None and value.requires_grad for value in values)
        and not torch.jit.is_tracing()
    )


def rule_for_tangents(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A function's `jvp`, given `saved_tensors` and the tangents, that outer levels follow.

    torch calls it with forward-mode AD off at all levels (2.13): of a jvp within a jvp the outer
    one would take what it makes for constants, with tangents of zero.
    """

    @wraps(rule)
    def jvp(ctx: Any, *tangents: Any) -> Any:
        with _forward_mode(True):
            return rule(
                ctx, [_forward.unpack_dual(one).primal for one in ctx.saved_tensors], *tangents
            )

    return jvp


@private.constant
def is_transformed() -> bool:
    """Whether torch.func or forward-mode AD is at work where torch.compile traces.

    Custom operators know neither, and would drop tangents: what is called then is called eagerly.
    """
    return transform() is not None or private.forward_level(torch) >= 0


def outside_of_graphs(product: Any, *given: Any) -> Any:
    """A product that torch.compile leaves out of its graph, as transforms look at it."""
    from tilewright.arrays import untraced  # loads torch's compilers, which trace this

    return untraced.call(product, *given)
