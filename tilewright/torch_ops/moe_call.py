"""A layer of experts: its tensors are checked, one clear error each, and cast under autocast."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.facts.arithmetic import OF_SINGLES, asked
from tilewright.facts.gates import GATES
from tilewright.inputs.checks import check_invariant
from tilewright.inputs.tensors import DTYPES, NAMES, check_tensor
from tilewright.torch_ops import autocast, moe, ragged_explained
from tilewright.wording import short

MOST = 2**30  # slots, and rows and columns of matrices


def layer(*given: Any) -> Tensor:
    """Arguments, in their order, results and errors are those of `tilewright.moe`."""
    how, operands = _checked(*given)
    return moe.layer(*operands, how)


def explain(*given: Any) -> str:
    """The report of such a layer. Raises what that raises."""
    how, (x, w_up, w_down, experts, _, activation) = _checked(*given)
    return ragged_explained.layer(x, w_up, w_down, experts, activation, how)


def _checked(
    x: Any,
    w_up: Any,
    w_down: Any,
    experts: Any,
    weights: Any,
    activation: Any,
    precision: Any,
    batch_invariant: Any,
) -> tuple[str, tuple[Tensor, Tensor, Tensor, Tensor, Tensor, str]]:
    """The arithmetic's word, and all before it: operands are what autocast makes of them."""
    given = {"x": x, "w_up": w_up, "w_down": w_down, "experts": experts, "weights": weights}
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise OperandError(f"{name}={type(value).__name__}: accepted are torch tensors")
        if value.device != x.device:
            raise OperandError(f"{name}.device={str(value.device)!r}: x lies on {str(x.device)!r}")
    if not isinstance(activation, str) or activation not in GATES:
        raise ArgumentError(f"activation={short(activation)}: accepted are {', '.join(GATES)}")
    check_invariant(batch_invariant)
    before, (x, w_up, w_down) = x, autocast.cast(x, w_up, w_down)
    if x is not before and isinstance(precision, str) and precision in OF_SINGLES:
        precision = None  # asked for float32, which autocast has just left
    _check_types(x, w_up, w_down, experts, weights, precision)
    _check_sizes(x, w_up, w_down, experts, weights, activation)
    how = asked(precision, alone=batch_invariant)
    return how, (x, w_up, w_down, experts, weights, activation)


def _check_types(
    x: Tensor, w_up: Tensor, w_down: Tensor, experts: Tensor, weights: Tensor, precision: Any
) -> None:
    for name, value in (("x", x), ("w_up", w_up), ("w_down", w_down), ("weights", weights)):
        check_tensor(value, name, NAMES)
        if value.dtype not in DTYPES:
            raise DtypeError(f"{name}.dtype={_name(value)!r}: accepted are {NAMES}")
    if experts.layout is not torch.strided or experts.is_nested:
        raise OperandError(f"experts.layout={experts.layout}: accepted are dense tensors")
    for name, value in (("w_up", w_up), ("w_down", w_down)):
        if value.dtype != x.dtype:
            raise DtypeError(f"{name}.dtype={_name(value)!r}: must equal x.dtype={_name(x)!r}")
    if experts.dtype not in (torch.int32, torch.int64):
        raise DtypeError(f"experts.dtype={_name(experts)!r}: accepted are int32 and int64")
    if weights.dtype not in (x.dtype, torch.float32):
        raise DtypeError(
            f"weights.dtype={_name(weights)!r}: accepted are float32 and x.dtype={_name(x)!r}"
        )
    known = precision is None or (isinstance(precision, str) and precision in OF_SINGLES)
    if not known or (precision is not None and x.dtype != torch.float32):
        raise ArgumentError(
            f"precision={short(precision)}: accepted are None, and 'tf32' and 'fp32x' for float32"
        )


def _check_sizes(
    x: Tensor, w_up: Tensor, w_down: Tensor, experts: Tensor, weights: Tensor, activation: str
) -> None:
    for name, value, rank in (
        ("x", x, 2),
        ("w_up", w_up, 3),
        ("w_down", w_down, 3),
        ("experts", experts, 2),
        ("weights", weights, 2),
    ):
        if value.dim() != rank:
            raise ShapeError(f"{name}.shape={tuple(value.shape)}: must have {rank} dimensions")
        if any(size > MOST for size in value.shape):
            raise ShapeError(f"{name}.shape={tuple(value.shape)}: accepted are sizes to 2^30")
    (tokens, d), groups = x.shape, w_up.shape[0]
    n = w_down.shape[1]
    if w_down.shape[0] != groups or w_down.shape[2] != d:
        raise ShapeError(
            f"w_down.shape={tuple(w_down.shape)}: must be [E, n, d] with E={groups} as w_up has it"
            f" and d={d}, the columns of x"
        )
    width = GATES[activation].width(n)
    if w_up.shape[1] != d or w_up.shape[2] != width:
        raise ShapeError(
            f"w_up.shape={tuple(w_up.shape)}: must be ({groups}, {d}, {width}), the columns of x by"
            f" what activation={activation!r} makes the {n} rows of w_down's matrices of"
        )
    if experts.shape[0] != tokens:
        raise ShapeError(f"experts.shape={tuple(experts.shape)}: must have {tokens} rows, as x has")
    if weights.shape != experts.shape:
        raise ShapeError(
            f"weights.shape={tuple(weights.shape)}: must be that of experts, {tuple(experts.shape)}"
        )
    slots = tokens * experts.shape[1]
    if slots > MOST:
        raise ShapeError(f"experts.shape={tuple(experts.shape)}: accepted are to 2^30 elements")
    if slots and not groups:
        raise ShapeError(f"w_up.shape={tuple(w_up.shape)}: has no expert; accepted is one or more")


def _name(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
