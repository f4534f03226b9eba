"""Tells whether PyTorch must make a product itself: for gradients, compilers, modes, subclasses.

A product of tensors on a GPU is launched on their memory, of which autograd learns nothing. Where
something would miss it, `torch_ops/` makes the product, so that nothing is lost without a
word. It also makes those of tensors that lie anywhere else. Asking costs 0.2 µs for arrays of
NumPy and 1 µs for two tensors, so the loops are plain ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from tilewright.arrays import torch_private as private
from tilewright.arrays.views import loaded_torch
from tilewright.inputs.ragged_batch import RaggedBatch

_wants_gradient = attrgetter("requires_grad")
_NEVER = (np.ndarray, type(None), int, float)


def is_watched(*values: Any) -> bool:
    """Whether any is a tensor, and one that lies on no GPU or that something in torch looks at."""
    torch = loaded_torch()
    if torch is None:
        return False
    found = False
    plain = (torch.Tensor, torch.nn.Parameter)
    compiled = torch.compiler.is_compiling()
    for value in values:
        if type(value) in _NEVER:
            continue
        if type(value) not in plain:
            if isinstance(value, torch.Tensor):
                return True
            continue
        if not value.is_cuda or value.layout is not torch.strided:
            return True
        if value.requires_grad and torch.is_grad_enabled():
            return True
        if compiled or value.is_neg() or value.is_conj():
            return True  # memory has the conjugate, or of its imaginary part the negative
        found = True
    return found and is_anything_watched(torch)


def is_int8(value: Any) -> bool:
    """Whether it is a tensor of int8, of which products are int32 or have scales.

    By the name: to look torch up, a compiler that traces this reads every module that is loaded,
    which fails while one of them is being imported.
    """
    dtype = getattr(value, "dtype", None)
    return getattr(dtype, "itemsize", 0) == 1 and str(dtype) == "torch.int8"


def are_unseen(torch: Any, a: Any, b: Any) -> bool:
    """Whether two of torch's own tensors lie on GPUs and nothing looks at them: `is_watched`, less
    what a call of a known kind need not be asked."""
    strided = torch.strided
    return (
        not is_anything_watched(torch)
        and a.is_cuda
        and b.is_cuda
        and a.layout is strided
        and b.layout is strided
        and not ((a.requires_grad or b.requires_grad) and torch.is_grad_enabled())
        and not (a.is_neg() or a.is_conj())
        and not (b.is_neg() or b.is_conj())
    )


def are_watched(*lists: Any) -> bool:
    """The same of lists (or batches) of matrices: where they lie is judged by the first of each."""
    torch = loaded_torch()
    if torch is None:
        return False
    found = False
    for values in lists:
        if values is None:
            continue
        first: Any = values[0] if type(values) is list and values else None
        if type(first) is torch.Tensor and not first.is_cuda:
            return True  # whatever the others are
        part = _tensors_of(values, torch)
        if part is None:
            continue
        if torch.compiler.is_compiling() or not part[0].is_cuda or not _are_plain(part, torch):
            return True
        if torch.is_grad_enabled() and any(map(_wants_gradient, part)):
            return True
        found = True
    return found and is_anything_watched(torch)


def listed(values: Any) -> Any:
    """A sequence of any kind as a list, of which every element is looked at, and which no other
    thread changes meanwhile; others as they are."""
    kind = type(values)
    if kind is tuple or values is None or not isinstance(values, Sequence):
        return values
    return values if isinstance(values, str | bytes | memoryview) else list(values)


def is_anything_watched(torch: Any) -> bool:
    """Whether a compiler, a mode, a transform, forward-mode AD or autocast is at work."""
    if torch.compiler.is_compiling():
        return True
    is_autocast, modes, transform, trace = _asked(torch)
    return bool(
        is_autocast()
        or modes()
        or transform() is not None
        or private.forward_level(torch) >= 0
        or trace() is not None
    )


@cache
def _asked(torch: Any) -> tuple[Callable[[], Any], ...]:
    """The functions that know; to find them at every call took as long as to call them."""
    own = (private.is_any_autocast_enabled, private.modes, private.transform, private.trace)
    return tuple(find(torch) for find in own)


def _are_plain(values: Any, torch: Any) -> bool:
    return set(map(type, values)) <= {torch.Tensor, torch.nn.Parameter}


def _tensors_of(values: Any, torch: Any) -> Any:
    """The tensors of a list or of a batch, where its first is one."""
    if type(values) is not list and type(values) is not tuple:
        flat = values.flat if isinstance(values, RaggedBatch) else None
        return [flat] if isinstance(flat, torch.Tensor) else None
    if not values:
        return None
    if type(values[0]) is np.ndarray:
        return None  # of tensors behind it gradients are asked for where they are read
    if _are_plain(values, torch):
        return values
    return [value for value in values if isinstance(value, torch.Tensor)] or None
