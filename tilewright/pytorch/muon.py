"""Muon with all matrices of a step orthogonalised in one batch, whatever their shapes.

    gradients -> momentum -> bf16, all in one scratch -> Newton-Schulz steps, grouped -> parameters

torch.optim.Muon takes one matrix after another, 20 to 30 launches each. Here each of the 5 steps is
three grouped products of all matrices, planned and bound when a set of shapes is first met.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.inputs.tensors import DTYPES, NAMES, dtype_of
from tilewright.remember import Shelf, open_after_fork
from tilewright.torch_ops import newton_schulz as steps
from tilewright.torch_ops.eager import is_transformed
from tilewright.wording import short

__all__ = ["Muon", "newton_schulz"]

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # those of torch.optim.Muon, found by Keller Jordan
_STEPS = range(100)
_Where = tuple[torch.device, torch.dtype]
# Bound lists of little scratch, by sizes and stream; what is larger takes longer than to bind it.
_bound: Shelf[tuple[Any, ...], Any] = Shelf("Newton-Schulz steps", most=64 << 20)
# Two threads on one stream share scratch: what one enqueues must not come between the other's.
_enqueueing = open_after_fork(threading.Lock())


def newton_schulz(
    matrices: Sequence[Tensor],
    *,
    ns_coefficients: tuple[float, float, float] = COEFFICIENTS,
    ns_steps: int = 5,
    eps: float = 1e-7,
) -> list[Tensor]:
    """Each matrix made nearly orthogonal, all of them in one batch: singular values near 1.

    x = matrix / max(norm, eps) in bf16, then `ns_steps` times x = a x + (b g + c g g) x with
    g = x xT (of tall matrices xT): the quintic iteration of K. Jordan, "Muon: an optimizer for
    hidden layers in neural networks" (2024), as torch.optim.Muon has it.

    Args:
        matrices: tensors [m_i, n_i] of any sizes and strides, dtypes float16, bfloat16, float32 or
            float64, all on one device: a processor or a GPU.
        ns_coefficients: (a, b, c).
        ns_steps: 0 to 99.
        eps: the least norm that a matrix is divided by.

    Returns: new bfloat16 tensors of these sizes, rows contiguous up to padding; not differentiable.

    Raises: ShapeError for what is no matrix, DtypeError, ArgumentError, OperandError, which calls
        within torch.func's transforms and forward-mode AD raise too.
    """
    if not isinstance(matrices, Iterable):
        raise OperandError(f"matrices={short(matrices)}: accepted is a list of torch tensors")
    matrices = list(matrices)
    for i, one in enumerate(matrices):
        _check(one, f"matrices[{i}]")
    if is_transformed():
        raise OperandError(
            "matrices: torch.func or forward-mode AD follows them, which Newton-Schulz steps in a"
            " batch do not; accepted are calls outside of transforms"
        )
    how = _checked_steps(ns_coefficients, ns_steps, eps)
    if not matrices:
        return []
    device = matrices[0].device
    for i, one in enumerate(matrices):
        if one.device != device:
            raise OperandError(
                f"matrices[{i}].device={str(one.device)!r}: matrices[0] lies on {str(device)!r}"
            )
    with torch.no_grad():
        shapes = tuple((one.shape[0], one.shape[1]) for one in matrices)
        if device.type == "cpu":
            return _run(steps.bound(shapes, device, *how), matrices)
        stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
        key = (shapes, device, stream, how)
        found = _bound.get(key)
        if found is None:
            found = steps.bound(shapes, device, *how)
            _bound.keep(key, found, size=found.bytes)
        with _enqueueing:
            return [one.clone() for one in _run(found, matrices)]


def _run(bound: Any, matrices: Sequence[Tensor]) -> list[Tensor]:
    _copy(bound.given, matrices)
    bound()
    made: list[Tensor] = bound.made
    return made


def _copy(into: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """One launch for all that lie alike; a single other one would make it a launch each."""
    alike: list[tuple[Tensor, Tensor]] = []
    others: list[tuple[Tensor, Tensor]] = []
    for pair in zip(into, values, strict=True):
        (alike if pair[0].stride() == pair[1].stride() else others).append(pair)
    if alike:
        torch._foreach_copy_(*map(list, zip(*alike, strict=True)))
    for x, y in others:
        x.copy_(y)


class Muon(torch.optim.Muon):
    """torch.optim.Muon, its Newton-Schulz steps of all matrices in one batch.

    Arguments, defaults, state and results are those of torch.optim.Muon, and either loads the
    other's `state_dict`. On a processor the bits are the same; on a GPU results differ within the
    rounding of bf16. Two things differ on purpose: parameters of all groups and shapes that share
    `ns_coefficients`, `ns_steps`, `eps` and a device are one batch; and bf16 gradients without
    `nesterov` keep their momentum, which torch divides by its norm where it lies.

    Scratch on a GPU: 4 bytes an element of the parameters, 4 for the square of each shorter side,
    held until a step has other shapes. Steps of one optimizer are to be on one stream at a time.

    Raises ShapeError for a parameter that is no matrix (weights of convolutions: give
    `weight.flatten(1)` as a parameter of its own), DtypeError for complex ones and OperandError for
    sparse gradients and tensors that keep their elements elsewhere, as distributed ones do.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's; every parameter must be a matrix. Raises ShapeError, DtypeError."""
        params = param_group["params"]
        if not isinstance(params, Tensor | set):  # of sets torch says what it wants instead
            param_group["params"] = params = list(params)
        for i, one in enumerate([params] if isinstance(params, Tensor) else params):
            name, value = one if isinstance(one, tuple) and len(one) == 2 else (f"params[{i}]", one)
            if isinstance(value, Tensor):
                _check_matrix(value, name)
        super().add_param_group(param_group)

    @torch.no_grad()
    @torch.compiler.disable
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; `closure` evaluates the model again and returns the loss, which is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        ones = [one for group in self.param_groups for one in self._of_group(group)]
        for some in _alike(ones, lambda one: (*one.where, one.momentum, one.nesterov)):
            _move(some)
        for some in _alike(ones, lambda one: (one.where[0], one.how)):
            self._orthogonalise(some)
        for some in _alike(ones, lambda one: (one.p.device, one.p.dtype, one.keep)):
            _apply(some)
        return loss

    def _of_group(self, group: dict[str, Any]) -> list[_One]:
        found = [p for p in group["params"] if p.grad is not None]
        if not found:
            return []
        how = _checked_steps(group["ns_coefficients"], group["ns_steps"], group["eps"])
        rate = group["lr"]  # a tensor's arithmetic is its dtype's
        keep = float(1 - rate * group["weight_decay"])
        ones = []
        for p in found:
            _check(p.grad, "grad")
            state = self.state[p]
            if "momentum_buffer" not in state:
                with torch.inference_mode(mode=False):  # of use in that mode and out of it
                    state["momentum_buffer"] = torch.zeros_like(
                        p.grad, memory_format=torch.preserve_format
                    )
            its = float(_adjusted(rate, group["adjust_lr_fn"], p.shape))
            ones.append(_One(p, state["momentum_buffer"], group, how, keep, its))
        return ones

    def _orthogonalise(self, some: list[_One]) -> None:
        """`update` of each becomes what Newton-Schulz steps make of it."""
        device, how = some[0].where[0], some[0].how
        shapes = [(one.p.shape[0], one.p.shape[1]) for one in some]
        kept: dict[Any, Any] = self.__dict__.setdefault("_kept_steps", {})
        known = kept.get((device, how))
        if known is None or known[0] != shapes:
            kept.pop((device, how), None)  # its scratch is free before there is another
            known = kept[device, how] = shapes, steps.bound(shapes, device, *how)
        for one, made in zip(some, _run(known[1], [x.update for x in some]), strict=True):
            one.made = made


class _One:
    """A parameter in a step: what is done with it, and how far it is."""

    __slots__ = ("buffer", "how", "keep", "made", "momentum", "nesterov", "p", "rate", "update")

    def __init__(
        self, p: Tensor, buffer: Tensor, group: dict[str, Any], how: Any, keep: float, rate: float
    ) -> None:
        self.p, self.buffer, self.how, self.keep, self.rate = p, buffer, how, keep, rate
        self.momentum, self.nesterov = group["momentum"], bool(group["nesterov"])
        self.update: Any = buffer
        self.made: Any = None

    @property
    def where(self) -> _Where:
        """What operations on lists want alike."""
        return self.p.grad.device, self.p.grad.dtype


def _alike(ones: list[_One], key: Callable[[_One], Any]) -> Iterable[list[_One]]:
    found: dict[Any, list[_One]] = {}
    for one in ones:
        found.setdefault(key(one), []).append(one)
    return found.values()


def _move(some: list[_One]) -> None:
    """The momentum of each goes on by its gradient."""
    grads, buffers = [one.p.grad for one in some], [one.buffer for one in some]
    torch._foreach_lerp_(buffers, grads, 1 - some[0].momentum)
    if some[0].nesterov:
        ahead = torch._foreach_lerp(grads, buffers, some[0].momentum)
        for one, update in zip(some, ahead, strict=True):
            one.update = update


def _apply(some: list[_One]) -> None:
    """Decay, then the update times its rate, in the parameters' dtype."""
    params, made = [one.p for one in some], [one.made for one in some]
    if params[0].is_cpu:  # torch's loops over lists would round factors to the parameters' dtype
        for one in some:
            one.p.mul_(one.keep).add_(one.made, alpha=-one.rate)
        return
    torch._foreach_mul_(params, some[0].keep)
    if params[0].dtype in (torch.float16, torch.bfloat16):
        for alike in _alike(some, lambda one: one.rate):
            wide = [one.made.to(one.p.dtype) for one in alike]
            torch._foreach_add_([one.p for one in alike], wide, alpha=-alike[0].rate)
        return
    # Memory that the steps were given, where it is nobody else's.
    wide = [
        one.update if one.nesterov and one.update.dtype == one.p.dtype else torch.empty_like(one.p)
        for one in some
    ]
    _copy(wide, made)
    torch._foreach_mul_(wide, [-one.rate for one in some])
    torch._foreach_add_(params, wide)


def _adjusted(rate: Any, kind: str | None, shape: torch.Size) -> Any:
    """The rate for a matrix of this shape, as torch.optim.Muon adjusts it."""
    rows, cols = shape
    if kind in (None, "original"):
        return rate * math.sqrt(max(1, rows / cols if cols else 1))
    return rate * (0.2 * math.sqrt(max(rows, cols)))


def _checked_steps(coefficients: Any, count: Any, eps: Any) -> tuple[Any, ...]:
    try:
        a, b, c = map(float, () if isinstance(coefficients, str) else coefficients)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"ns_coefficients={short(coefficients)}: accepted are three numbers (a, b, c)"
        ) from None
    if isinstance(count, bool) or not isinstance(count, int) or count not in _STEPS:
        raise ArgumentError(f"ns_steps={short(count)}: accepted is an integer from 0 to 99")
    if not isinstance(eps, int | float) or not eps >= 0:
        raise ArgumentError(f"eps={short(eps)}: accepted is a number from 0 up")
    return (a, b, c), count, float(eps)


def _check(value: Any, name: str) -> None:
    if not isinstance(value, Tensor):
        raise OperandError(f"{name}={type(value).__name__}: accepted are torch tensors")
    if value.layout is not torch.strided or value.is_nested:
        raise OperandError(f"{name}.layout={value.layout}: accepted are dense tensors")
    usual = Tensor.__torch_dispatch__
    if getattr(type(value), "__torch_dispatch__", usual) is not usual:
        raise OperandError(
            f"{name}={type(value).__name__}: keeps its elements elsewhere; accepted are plain"
            " tensors, others by torch.optim.Muon"
        )
    _check_matrix(value, name)


def _check_matrix(value: Tensor, name: str) -> None:
    if value.dim() != 2:
        raise ShapeError(
            f"{name}.shape={tuple(value.shape)}: accepted are matrices; biases and embeddings are"
            " for AdamW, and a convolution's weight is one as weight.flatten(1)"
        )
    if value.dtype not in DTYPES:
        raise DtypeError(f"{name}.dtype={dtype_of(value)!r}: accepted are {NAMES}")
