"""Autocast: operands are cast to its dtype before an operator, where torch.compile sees it.

A weight is cast once while autocast lasts, however many products read it, as torch's own layers do
it: it goes through torch's own cache, which knows when it ends. A cache of ours could not: weights
are changed behind their version counters (`.data`, FSDP). The way there is a product without rows,
under which a mode catches the weight that torch has cast; it takes 20 to 40 µs, so small weights
are cast anew.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tilewright.torch_ops.eager import modes, transform

_WORTH_KEEPING = 2**20  # elements: casting them takes about as long as asking for the copy
_KINDS = (torch.float16, torch.bfloat16, torch.float32)


def cast(*values: Any) -> tuple[Any, ...]:
    """The operands in autocast's dtype where it is on; float64, and all otherwise, as they are."""
    first = next((value for value in values if isinstance(value, Tensor)), None)
    if first is None or first.is_meta or not torch.is_autocast_enabled(first.device.type):
        return values
    dtype = torch.get_autocast_dtype(first.device.type)
    return tuple(
        _cast(value, dtype) if isinstance(value, Tensor) and value.dtype in _KINDS else value
        for value in values
    )


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    if value.dtype == dtype or torch.compiler.is_compiling() or not _is_large_weight(value):
        return value.to(dtype)
    found = _from_cache(value)
    if found.dtype != dtype or found.requires_grad != torch.is_grad_enabled():
        return value.to(dtype)  # what was cast without a gradient is of no use to one that has
    return found


def _is_large_weight(value: Tensor) -> bool:
    """Whether torch would keep the cast weight, and it is worth the way there."""
    return (
        type(value) is torch.nn.Parameter
        and value.numel() >= _WORTH_KEEPING
        and value.dim() in (2, 3)
        and value.dtype == torch.float32
        and value.requires_grad
        and value.is_leaf
        and not value._is_view()
        and torch.is_autocast_cache_enabled()
        and transform() is None
        and not modes()
    )


class _Caught(TorchDispatchMode):
    """Remembers the second operand of a product."""

    found: Any = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default):
            self.found = args[1]
        return func(*args, **(kwargs or {}))


def _from_cache(weight: Tensor) -> Tensor:
    """The weight as torch's cache has it, cast now if this is the first time."""
    no_rows = weight.new_empty((*weight.shape[:-2], 0, weight.shape[-2]))
    with _Caught() as caught:
        (torch.mm if weight.dim() == 2 else torch.bmm)(no_rows, weight)
    return weight if caught.found is None else caught.found
