"""Memory of a GPU that launches on any stream may read: filled first, kept until they are done.

    made on stream A      filled there, an event behind that
    launch on B, first    B waits for the event, and torch is told that B uses the memory
    from then on          one look into a set

Torch gives memory that is dropped to whoever asks next on the stream it was taken on, at once: what
another stream still reads it must be told of (`Tensor.record_stream`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.machine import driver


class Shared:
    """Tensors of one GPU, just filled, or about to be used, on torch's current stream there."""

    def __init__(self, memory: Iterable[Any], ordinal: int) -> None:
        """On that GPU, the current one; None is left out."""
        torch = driver.need()
        self.memory = tuple(one for one in memory if one is not None)
        self.known = {int(private.raw_stream(torch)(ordinal))}
        self._ordinal = ordinal
        self._filled: Any = None
        if not torch.cuda.is_current_stream_capturing():
            self._filled = torch.cuda.Event()
            self._filled.record()

    def meet(self, stream: int) -> None:
        """Before a launch on torch's current stream, whose handle is `stream`.

        A graph that is captured keeps nothing: captures begin with everything done, and whoever
        replays one keeps what it reads.
        """
        if stream in self.known:
            return
        torch = driver.need()
        if torch.cuda.is_current_stream_capturing():
            return
        current = torch.cuda.current_stream(self._ordinal)
        if self._filled is not None:
            current.wait_event(self._filled)
        for one in self.memory:
            one.record_stream(current)
        self.known.add(stream)
