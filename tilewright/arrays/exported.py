"""Arrays of others in the host's memory as NumPy's, through DLPack.

    exported(value, name, torch)    `torch` is None where the program has not imported it

torch exports whatever memory a tensor has. That of a negated view holds the numbers that it
negates; FakeTensor, and all that dispatch to Python, have others or none, of which NumPy read what
lay there; and a storage may have shrunk. So tensors are asked first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arrays import storage
from tilewright.arrays.array import NDArray
from tilewright.errors import OperandError
from tilewright.wording import short


def exported(value: Any, name: str, torch: Any) -> NDArray:
    """NumPy's view of the array, a copy where a tensor's memory holds its negative or conjugate.

    No gradients: who wants them asks before. Raises OperandError.
    """
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            value = _in_memory(value, name, torch)
        return np.from_dlpack(value)
    except OperandError:
        raise
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise OperandError(
            f"{name}={short(value)}: __dlpack__ failed: {error}; accepted is what"
            " numpy.from_dlpack takes"
        ) from None


def is_here(value: Any) -> bool:
    """Whether an array with `__dlpack_device__` says that it lies in the host's memory. Of torch's
    meta device and of tensors of transforms it raises."""
    try:
        return int(value.__dlpack_device__()[0]) == 1
    except (BufferError, RuntimeError, TypeError, ValueError):
        return False


def _in_memory(value: Any, name: str, torch: Any) -> Any:
    """The tensor, its numbers in memory of its own; raises OperandError where they are not."""
    if type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise OperandError(
            f"{name}={type(value).__name__}: its numbers are not what its memory holds; accepted"
            " are tensors of torch's own type"
        )
    if value.layout is not torch.strided or value.is_nested:
        shown = "nested" if value.is_nested else str(value.layout)
        raise OperandError(
            f"{name}.layout={shown}: __dlpack__ takes dense tensors; accepted are .to_dense() of a"
            " sparse one, .unbind() of a nested one"
        )
    value = value.detach()
    storage.check(value, name)
    if value.is_neg() or value.is_conj():
        if name.startswith("out"):
            held = "negative" if value.is_neg() else "conjugate"
            raise OperandError(f"{name}: its memory holds the {held}; accepted is a new tensor")
        return value.resolve_conj().resolve_neg()
    return value
