"""Whether the elements of a torch tensor lie anywhere, and within its storage, which may have
shrunk since.

torch asks when a view is made and never again: `untyped_storage().resize_` to fewer bytes leaves
all tensors on it with the sizes they had, and a product would read, or write, what lies behind.
Asking takes 0.3 us a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.errors import OperandError

LOW = 1 << 40  # bytes; a tensor that begins below may be a view of no memory


def address(tensor: Any) -> int:
    """Where a tensor's elements begin; 0 where its storage was given back.

    torch adds the offset of a view to the storage's address, though that is none.
    """
    place: int = tensor.data_ptr()
    if place >= LOW or (place and place != tensor.storage_offset() * tensor.element_size()):
        return place
    return 0


def check_memory(given: Mapping[str, Any]) -> None:
    """Raise OperandError where elements of a tensor lie nowhere: it is sparse, or its storage was
    given back, all of it or the part where they lay. None is passed over."""
    import torch

    for name, tensor in given.items():
        if tensor is None or not tensor.numel():
            continue
        if tensor.layout is not torch.strided:
            raise OperandError(f"{name}.layout={tensor.layout}: accepted are dense tensors")
        if not address(tensor):
            raise OperandError(
                f"{name} of shape {tuple(tensor.shape)}: has no memory; accepted are tensors whose"
                " elements lie on their device"
            )
        check(tensor, name)


def reach(tensor: Any) -> int:
    """Bytes from a tensor's first element to past its last; torch has no steps backwards."""
    if tensor.is_contiguous():
        whole: int = tensor.nbytes
        return whole
    last = 0
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        if not size:
            return 0
        last += (size - 1) * step
    return (last + 1) * int(tensor.element_size())


def is_within(tensor: Any, size: int) -> bool:
    """Whether its storage holds so many bytes (none, or its `reach`) from its first element on.

    True of what has no storage to ask for (wrappers, sparse ones, those of transforms).
    """
    try:
        held: int = tensor.untyped_storage().nbytes()
    except (AttributeError, RuntimeError):
        return True
    return not size or held >= size + tensor.storage_offset() * tensor.element_size()


def is_short(tensor: Any) -> bool:
    """Whether some of its elements lie behind the end of its storage."""
    try:
        held: int = tensor.untyped_storage().nbytes()
    except (AttributeError, RuntimeError):
        return False
    size: int = tensor.nbytes if tensor.is_contiguous() else reach(tensor)
    # In the order in which most tensors need no more: they lie from their storage's first byte on.
    offset = tensor.storage_offset()
    if offset and size:
        size += offset * tensor.element_size()
    return held < size


def check(tensor: Any, name: str) -> None:
    """Raise OperandError where some of its elements lie behind the end of its storage."""
    if is_short(tensor):
        raise OperandError(told(tensor, name))


def told(tensor: Any, name: str) -> str:
    """What is wrong with such a tensor, in words."""
    held, begin = tensor.untyped_storage().nbytes(), tensor.storage_offset()
    end = begin * tensor.element_size() + reach(tensor)
    return (
        f"{name} of shape {tuple(tensor.shape)}: reaches to byte {end} of a storage that holds"
        f" {held}; accepted are tensors whose elements lie within their storage"
    )
