"""Prepares torch's tensors for use as plain memory: what is multiplied, NumPy's view of it.

Imported only where a tensor is met, as it imports torch. What decides whether torch must see a
product at all, `inputs/watched.py`, does without.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tilewright.arrays import storage
from tilewright.arrays.array import NDArray
from tilewright.errors import DtypeError, OperandError
from tilewright.inputs.ragged_batch import RaggedBatch

# What is multiplied by rows that a tensor of offsets cuts; single products and lists also take
# complex numbers.
DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
WITH_COMPLEX = {*DTYPES, torch.complex64, torch.complex128}
NAMES = "float16, bfloat16, float32, float64"
_WHERE_INT8_IS = (
    "; int8 of both operands, in lists on a processor where no compiler, mode or transform of"
    " torch's looks on"
)
# Asked before a guard of torch's compiler: of a nested tensor that asks for strides, and the C++
# exception that answers ends the process (torch 2.13).
is_nested = attrgetter("is_nested")
_BY_NUMPY = (torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128)


def dtype_of(tensor: Tensor) -> str:
    """The dtype's name as NumPy says it."""
    return str(tensor.dtype).removeprefix("torch.")


def check_tensor(value: Any, name: str, accepted: str | None = None) -> None:
    """Raise unless this is a dense tensor of a dtype that is multiplied here.

    `accepted` names dtypes for the error; None is those of single products and lists.
    """
    if not isinstance(value, Tensor):
        raise OperandError(
            f"{name}={type(value).__name__}: accepted are torch tensors, as the other operands are"
        )
    if value.layout is not torch.strided or value.is_nested:
        shown = "nested" if value.is_nested else str(value.layout)
        raise OperandError(
            f"{name}.layout={shown}: accepted are dense tensors; .to_dense() of a sparse one,"
            " .unbind() of a nested one (a list, for grouped_matmul)"
        )
    if value.is_quantized:
        raise DtypeError(
            f"{name}.dtype={dtype_of(value)!r}: quantized; accepted is its .dequantize()"
        )
    if value.dtype not in WITH_COMPLEX:
        if accepted is None:  # int8 comes here only from where it is not taken
            more = _WHERE_INT8_IS if value.dtype == torch.int8 else ", int8"
            accepted = f"{NAMES}, complex64, complex128{more}"
        raise DtypeError(f"{name}.dtype={dtype_of(value)!r}: accepted are {accepted}")


def as_it_lies(value: Tensor) -> Tensor:
    """The tensor, or a copy where its memory holds the negative or the conjugate of it."""
    return value.resolve_conj().resolve_neg()


def needs_gradient(*values: Any) -> bool:
    """Whether autograd records what is made of these."""
    if torch.is_grad_enabled():
        for value in values:
            if isinstance(value, Tensor) and value.requires_grad:
                return True
    return False


def is_differentiated(*values: Any) -> bool:
    """Whether gradients or tangents are to come of these; a transform alone does not count."""
    if needs_gradient(*values):
        return True
    return forward_ad._current_level >= 0 and any(
        isinstance(value, Tensor) and forward_ad.unpack_dual(value).tangent is not None
        for value in values
    )


def check_unfollowed(*parts: Any) -> None:
    """Raise where gradients or tangents would be lost by a plan that is bound to these lists."""
    if is_differentiated(*(value for part in parts for value in tensors_of(part))):
        raise OperandError(
            "bind: an operand requires a gradient or has a tangent, and a bound plan only launches;"
            " accepted are grouped_matmul, operands that are .detach()ed, and torch.no_grad()"
        )


def tensors_of(values: Any) -> list[Tensor]:
    """The tensors of a list or of a RaggedBatch."""
    if isinstance(values, RaggedBatch):
        values = [values.flat]
    if not isinstance(values, list | tuple):
        return []
    return [value for value in values if isinstance(value, Tensor)]


def array(value: Any, name: str) -> Any:
    """NumPy's view of a tensor's memory; anything else as it is.

    Raises OperandError, DtypeError.
    """
    if not isinstance(value, Tensor):
        return value
    check_tensor(value, name)
    if value.device.type != "cpu":
        raise OperandError(
            f"{name}.device={str(value.device)!r}: a device that no back end here reaches beside"
            " the processor's memory; accepted are tensors all on 'cpu', or all on one 'cuda'"
        )
    if value.dtype not in _BY_NUMPY:
        raise DtypeError(
            f"{name}.dtype={dtype_of(value)!r}: NumPy has none, which `out`, `device`, `kernel` and"
            " `accumulate` lead to on a processor; accepted are float16, float32, float64,"
            " complex64, complex128"
        )
    if value.is_neg() or value.is_conj():
        if name.startswith("out"):
            held = "negative" if value.is_neg() else "conjugate"
            raise OperandError(f"{name}: its memory holds the {held}; accepted is a new tensor")
        value = as_it_lies(value)
    return _lying(value.detach(), value, name)


def narrow_array(value: Any, name: str) -> Any:
    """NumPy's view of a tensor in the host's memory, of which bfloat16 is seen as int16.

    Raises OperandError.
    """
    if not isinstance(value, Tensor):
        return value
    if value.layout is not torch.strided or value.is_nested or value.device.type != "cpu":
        raise OperandError(f"{name}: accepted are dense tensors, all on 'cpu'")
    value = value.detach()
    seen = value.view(torch.int16) if value.dtype is torch.bfloat16 else value
    return _lying(seen, value, name)


def _lying(bits: Tensor, value: Tensor, name: str) -> NDArray:
    """NumPy's view of a tensor's memory, where it has some: NumPy itself does not ask. `bits`: the
    same memory of a dtype that NumPy has."""
    try:
        seen: NDArray = bits.numpy()
    except (RuntimeError, TypeError) as error:
        raise OperandError(
            f"{name}={type(value).__name__}: has no memory that NumPy can see: {error}; accepted"
            " are tensors of torch's own type"
        ) from None
    if not storage.address(value) or storage.is_short(value):
        storage.check_memory({name: value})
    return seen


def writing(out: Tensor) -> Any:
    """In which torch's own functions write `out` as kernels do: out of autograd's sight, and an
    inference tensor as any other, which torch refuses outside of inference mode."""
    return torch.inference_mode() if out.is_inference() else torch.no_grad()


def written(out: Tensor) -> None:
    """Tell autograd that this memory has changed, as torch's own functions in place do."""
    if not out.is_inference():
        torch.autograd.graph.increment_version(out)
