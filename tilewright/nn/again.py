"""A recorded network called once more with torch's tensors: a copy in, a replay, a copy out.

Everything that a call may be asked for is checked by `bound.py`, which took 70 µs of a slow core; a
call like those before it needs a few of the checks. What is unlike them is handed back, to be
checked in full or refused there by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tilewright.nn.kinds import copied, is_traced

_HALVES = ("float16", "bfloat16")


class _Home(Protocol):
    def is_planned(self, value: Any) -> bool: ...
    def is_captured(self) -> bool: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...


class Again:
    """Runs of one recorded network.

    inputs   where the recorded run reads, in the order of the network's inputs
    results  what it writes, in the order of its outputs
    """

    def __init__(
        self, home: _Home, lock: Any, replay: Any, inputs: Sequence[Any], results: Sequence[Any]
    ) -> None:
        import torch

        self._torch, self._home, self._lock, self._replay = torch, home, lock, replay
        self._inputs, self._results = tuple(inputs), tuple(results)
        halves = tuple(getattr(torch, name) for name in _HALVES)
        self._kinds = tuple(
            (one.dtype, torch.float32) if one.dtype in halves else (one.dtype,) for one in inputs
        )

    def __call__(self, inputs: tuple[Any, ...], out: Any) -> Any:
        """What `Bound.run` gives; None where it has to look itself."""
        if self._lock._is_owned() or not self._fit(inputs, out):
            return None
        with self._lock:
            self._home.begin()
            try:
                for x, held in zip(inputs, self._inputs, strict=True):
                    if x is not held:
                        copied(held, x)
                self._replay()
                return self._given(out)
            finally:
                self._home.end()  # whoever comes next waits for what was begun

    def _fit(self, inputs: tuple[Any, ...], out: Any) -> bool:
        """Whether these are plain tensors, of the sizes and where the network has them."""
        torch = self._torch
        if len(inputs) != len(self._inputs) or torch.compiler.is_compiling() or is_traced(torch):
            return False
        for x, held, kinds in zip(inputs, self._inputs, self._kinds, strict=True):
            if not (x is held or self._plain(x, held, kinds)):
                return False
        if out is not None:
            first = self._results[0]
            if len(self._results) > 1 or not (
                out is first or (self._plain(out, first, (first.dtype,)) and self._whole(out))
            ):
                return False
        return not self._home.is_captured()

    def _plain(self, x: Any, like: Any, kinds: tuple[Any, ...]) -> bool:
        torch = self._torch
        return (
            type(x) is torch.Tensor
            and x.shape == like.shape
            and x.dtype in kinds
            and x.device == like.device
            and x.layout is torch.strided
            and not x.requires_grad
            and not self._home.is_planned(x)
        )

    def _whole(self, out: Any) -> bool:
        """Whether each element surely has a place of its own; others are looked at in full."""
        last = self._torch.channels_last
        return bool(out.is_contiguous() or out.is_contiguous(memory_format=last))

    def _given(self, out: Any) -> Any:
        """Copies, as the memory serves the next run."""
        if out is not None:
            return out if out is self._results[0] else copied(out, self._results[0])
        kept = self._torch.contiguous_format
        made = [one.clone(memory_format=kept) for one in self._results]
        return made[0] if len(made) == 1 else tuple(made)
