"""What an 8-bit product is given where its caller names none: a scale of one, the end of its group.

Kept by device, as to fill one takes a launch: on a GPU with whom it is shared (machine/shared.py),
for another stream may read it before it is filled. A graph that is captured gets one of its own:
what is kept may be forgotten before the graph is replayed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.machine.shared import Shared
from tilewright.remember import Shelf

_Key = tuple[torch.device, tuple[int, ...], int, torch.dtype]
# By device, shape, number and dtype: tensors of processors, `Shared` of GPUs.
_kept: Shelf[_Key, Any] = Shelf("constants of 8-bit products", most=1 << 17)


def one(a: Tensor) -> Tensor:
    """The scale of what has none, float32 []."""
    return _constant(a, (), 1, torch.float32)


def end(a: Tensor) -> Tensor:
    """The end of one group of all rows, int32 [1]."""
    return _constant(a, (1,), a.shape[0], torch.int32)


def _constant(a: Tensor, shape: tuple[int, ...], number: int, dtype: torch.dtype) -> Tensor:
    def made() -> Tensor:
        return torch.full(shape, number, dtype=dtype, device=a.device)

    if torch.compiler.is_compiling() or type(a) is not Tensor or a.is_meta:
        return made()
    key = a.device, shape, number, dtype
    if not a.is_cuda:
        kept: Tensor = _kept.found(key, made, lambda _: 512)
        return kept
    if private.is_capturing(torch)():
        return made()
    ordinal = a.get_device()

    def filled() -> Shared:
        with torch.cuda.device(ordinal), torch.inference_mode(mode=False):
            return Shared((made(),), ordinal)

    found: Shared = _kept.found(key, filled, lambda _: 1024)
    found.meet(int(private.raw_stream(torch)(ordinal)))
    memory: Tensor = found.memory[0]
    return memory
