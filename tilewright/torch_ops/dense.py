"""`tilewright.matmul` of tensors: differentiable in every way that torch knows.

    product   a [..., m, k], b [..., k, n]    d a = alpha · d c b^T    d b = alpha · a^T d c

Of complex matrices these have the conjugates of b and a, as all of torch's gradients do; a complex
alpha is multiplied into a beforehand.

Transposes, vectors, broadcasting and activations are torch's own views and functions around one
`product`, whose gradients, tangents and batched forms are products again.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tilewright.arrays.storage import check_memory, is_short
from tilewright.calls import dense, grouped_quick_tensors
from tilewright.facts.dtypes import sums_of
from tilewright.inputs import tensor_checks as checks
from tilewright.inputs.checks import check_shape, checked_number, checked_scalars
from tilewright.inputs.devices import host
from tilewright.inputs.overlap import check_apart
from tilewright.inputs.tensors import WITH_COMPLEX, array, dtype_of, writing
from tilewright.planning.explain import explained_elsewhere, product_head
from tilewright.torch_ops import down, recorded
from tilewright.torch_ops.autocast import cast
from tilewright.torch_ops.eager import (
    PLAIN,
    is_eager,
    is_followed,
    is_transformed,
    outside_of_graphs,
    rule_for_tangents,
)
from tilewright.torch_ops.flops import shapes_of

How = tuple[str | None, ...]  # precision, accumulate, device, kernel


def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    bias: Any = None,
    device: Any = None,
    precision: str | None = None,
    accumulate: str | None = None,
    kernel: str | None = None,
    **options: Any,
) -> Any:
    """Arguments, results and errors are those of `tilewright.matmul`."""
    how = (precision, accumulate, getattr(device, "id", device), kernel)
    if out is None:
        before, (a, b, bias) = a, cast(a, b, bias)
        if a is not before and a.dtype != torch.float32:
            checks.check_left(precision)
            how = (None, *how[1:])  # a precision is float32's, which autocast has just left
        compiling = torch.compiler.is_compiling()
        found = None if compiling else _of_matrices(a, b, bias, how, **options)
        if found is not None:
            return found
    given = [value for value in (a, b, bias, out) if isinstance(value, Tensor)]
    plain = is_eager(*given) and not is_followed(*given)
    if plain and down.is_torchs(given, how):
        plain = False
    if plain and (out is not None or len(given) < 2 + (bias is not None) or a.is_cuda):
        return down.write_product(a, b, out, bias, how, **options)
    return _watched(a, b, out, bias, how, **options)


def explain(
    a: Any,
    b: Any,
    *,
    out: Any,
    bias: Any,
    device: Any,
    precision: str | None,
    accumulate: str | None,
    kernel: str | None,
    **options: Any,
) -> str:
    """The report of what `matmul` would do: torch's own product, or a plan for its memory."""
    if out is None:
        a, b, bias = cast(a, b, bias)
    else:
        checks.check_out(options["beta"], a, b, bias, out)
    how = (precision, accumulate, getattr(device, "id", device), kernel)
    if out is None or down.is_torchs([x for x in (a, b, bias, out) if x is not None], how):
        turned = (options["transpose_a"], options["transpose_b"])
        left, right = checks.matrices(a, b, bias, out, precision, turned)
        checks.checked_function(options["activation"], dtype_of(left))
        checked_scalars(options["alpha"], options["beta"], out, dtype_of(left))
        why = None if left.is_cuda else down.why_torch(left, right, how)
        if why is not None:
            return _torchs(left, right, why)
    a, b, out, bias = map(_plain, ("a", "b", "out", "bias"), (a, b, out, bias))
    options.update(device=device, precision=precision, accumulate=accumulate, kernel=kernel)
    return dense.explain(a, b, out=out, bias=bias, **options)


def _plain(name: str, value: Any) -> Any:
    """What a plan looks at: memory that nothing follows, on a processor NumPy's view of it."""
    if not isinstance(value, Tensor):
        return value
    return value.detach() if value.is_cuda else array(value, name)


def _torchs(a: Tensor, b: Tensor, why: str) -> str:
    leading = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    head = product_head(m, n, k, dtype_of(a), sums_of(dtype_of(a)), host())
    if leading:
        head.insert(1, f"products   {math.prod(leading)} of these")
    operations = 2.0 * math.prod(leading) * m * n * k
    return "\n".join(head + explained_elsewhere("torch", why, host(), operations))


def _of_matrices(
    a: Any,
    b: Any,
    bias: Any,
    how: How,
    *,
    alpha: Any,
    beta: Any,
    transpose_a: Any,
    transpose_b: Any,
    activation: str | None,
) -> Tensor | None:
    """A new product of two plain matrices the shortest way, or None where they are something else.

    On a GPU that is the launch, recorded for autograd alone. On a processor it is torch's own
    product: it is differentiable in every way, and nothing put around it makes it faster.
    """
    if not (type(a) in PLAIN and type(b) in PLAIN and type(beta) is float and beta == 0.0):
        return None
    if a.is_cuda and not a.is_complex():
        if type(transpose_a) is not bool or type(transpose_b) is not bool:
            return None
        function = checks.checked_function(activation)
        scale = checked_number(alpha, "alpha")
        turned = (transpose_a, transpose_b)
        made = recorded.product(a, b, bias, turned, scale, how, product)
        return made if made is None or function is None else function(made)
    plain = transpose_a is transpose_b is False and type(alpha) is float and alpha == 1.0
    if not plain or activation is not None or bias is not None:
        return None
    # In few steps of the interpreter: a small product takes torch 1.4 us.
    if not (how[0] is how[1] is how[2] is how[3] is None and a.is_cpu and b.is_cpu):
        return None
    dense = a.layout is b.layout is torch.strided and a.dim() == b.dim() == 2
    if not dense or a.dtype not in WITH_COMPLEX or a.dtype != b.dtype:
        return None
    if a.shape[1] != b.shape[0] or is_short(a) or is_short(b):
        return None
    if down.why_torch(a, b, how) is None:
        return None
    try:
        found = torch.mm(a, b)
    except RuntimeError:
        return None  # the checks have the words for it
    grouped_quick_tensors.meet(a, b)
    return found


def _watched(
    a: Any,
    b: Any,
    out: Any,
    bias: Any,
    how: How,
    *,
    alpha: Any,
    beta: Any,
    transpose_a: Any,
    transpose_b: Any,
    activation: str | None,
) -> Any:
    """A product that something looks at, from views and functions that torch knows."""
    if out is not None:
        checks.check_out(beta, a, b, bias, out)
    left, right = checks.matrices(a, b, bias, out, how[0], (transpose_a, transpose_b))
    function = checks.checked_function(activation, dtype_of(left))
    scalars = checked_scalars(alpha, beta, out, dtype_of(left))
    left, scale = scaled(left, scalars.alpha)
    found = broadcast_product(left, right, bias, scale, how)
    if b.dim() == 1:
        found = found.squeeze(-1)
    if a.dim() == 1:
        found = found.squeeze(-1 if b.dim() == 1 else -2)
    if out is not None:
        return put(out, "out", found, scalars.beta, function)
    return function(found) if function else found


def scaled(a: Tensor, alpha: complex) -> tuple[Tensor, float]:
    """The matrix and a real alpha: a complex one is multiplied into the matrix."""
    if isinstance(alpha, complex):
        return (a * alpha, 1.0) if alpha.imag else (a, alpha.real)
    return a, alpha


def put(out: Tensor, name: str, found: Tensor, beta: complex, function: Any) -> Tensor:
    """function(found + beta · out) in out's place."""
    check_shape(name, out.shape, found.shape)
    check_apart(name, out.shape, out.stride())
    if is_eager(out):
        check_memory({name: out})
    if beta != 0:
        found = found + beta * out
    made = function(found) if function else found
    if is_eager(out) and out.is_inference():
        with writing(out):
            return out.copy_(made)
    return out.copy_(made)


def broadcast_product(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float, how: How) -> Tensor:
    """alpha · a @ b + bias of matrices whose leading dimensions broadcast.

    Those of `a` are more rows where `b` is one matrix, so that its gradient is one product too.
    """
    if b.dim() == 2 and a.dim() > 2:
        rows = math.prod(a.shape[:-1])
        found = product(a.reshape(rows, a.shape[-1]), b, bias, alpha, how)
        return found.reshape(*a.shape[:-1], b.shape[-1])
    if a.dim() == b.dim() == 2:
        return product(a, b, bias, alpha, how)
    leading = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = a.expand(*leading, *a.shape[-2:]), b.expand(*leading, *b.shape[-2:])
    return product(a, b, bias, alpha, how)


def product(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float, how: How) -> Any:
    """alpha · a @ b + bias, of equal leading dimensions."""
    if torch.compiler.is_compiling():
        if is_transformed():
            return outside_of_graphs(product, a, b, bias, alpha, how)
        return torch.ops.tilewright.product(a, b, bias, alpha, *how)
    if is_followed(a, b, bias):
        return _Product.apply(a, b, bias, alpha, how)
    return _new(a, b, bias, alpha, how)


def _new(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float, how: How) -> Any:
    if is_eager(a, b, bias):
        return down.product(a, b, bias, alpha, how)
    return torch.ops.tilewright.product(a, b, bias, alpha, *how)


@torch.library.custom_op("tilewright::product", mutates_args=())
def product_operator(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    alpha: float,
    precision: str | None,
    accumulate: str | None,
    device: str | None,
    kernel: str | None,
) -> Tensor:
    """`product` as compilers, fake tensors and modes see it."""
    with torch.no_grad():
        return down.product(a, b, bias, alpha, (precision, accumulate, device, kernel))


@shapes_of(product_operator)
def _(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float, *how: str | None) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, bias, alpha, *how = inputs
    ctx.alpha, ctx.biased = alpha, bias is not None
    ctx.how = (*(how[0] if len(how) == 1 else how)[:3], None)  # a kernel is named for one product
    ctx.save_for_backward(a, b)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """Of a, b and the bias, where they are wanted."""
    a, b = ctx.saved_tensors
    of_a = of_b = of_bias = None
    if ctx.needs_input_grad[0]:
        of_a = product(grad, b.mH if b.is_complex() else b.mT, None, ctx.alpha, ctx.how)
    if ctx.needs_input_grad[1]:
        of_b = product(a.mH if a.is_complex() else a.mT, grad, None, ctx.alpha, ctx.how)
    if ctx.biased and ctx.needs_input_grad[2]:
        of_bias = grad.sum(tuple(range(grad.dim() - 1)))
    return of_a, of_b, of_bias


product_operator.register_autograd(
    lambda ctx, grad: (*_gradients(ctx, grad), *[None] * 5), setup_context=_keep
)


class _Product(torch.autograd.Function):
    """The product as autograd and torch.func see it: bilinear, and batched by more dimensions."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, bias: Tensor | None, alpha: float, how: How) -> Any:
        """The product."""
        return _new(a, b, bias, alpha, how)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """What gradients and tangents are made from."""
        _keep(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        """Of every input in turn."""
        return *_gradients(ctx, grad), None, None

    @staticmethod
    @rule_for_tangents
    def jvp(ctx: Any, saved: Any, of_a: Any, of_b: Any, of_bias: Any, *_: Any) -> Any:
        """The tangent of the result."""
        a, b = saved
        parts = []
        if of_a is not None:
            parts.append(product(of_a, b, None, ctx.alpha, ctx.how))
        if of_b is not None:
            parts.append(product(a, of_b, None, ctx.alpha, ctx.how))
        if of_bias is not None:
            parts.append(of_bias.expand(*a.shape[:-1], b.shape[-1]).clone())
        return sum(parts[1:], parts[0])

    @staticmethod
    def vmap(info: Any, in_dims: Any, a: Any, b: Any, bias: Any, alpha: float, how: How) -> Any:
        """One more leading dimension of those that are batched."""
        a, b, added = (
            value if dim is None else value.movedim(dim, 0)
            for value, dim in zip((a, b, bias), in_dims[:3], strict=True)
        )
        if bias is None or in_dims[2] is None:
            return broadcast_product(a, b, bias, alpha, how), 0
        found = broadcast_product(a, b, None, alpha, how)
        single = in_dims[0] is in_dims[1] is None
        between = [1] * (found.dim() - (1 if single else 2))
        return found + added.reshape(info.batch_size, *between, added.shape[-1]), 0
