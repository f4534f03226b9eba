"""Steps that only launch kernels at fixed addresses, as one CUDA graph after they ran twice.

Python takes longer to launch a small chain than an H200 to compute it: 360p of six 3x3
convolutions took 0.25 ms a call where its kernels took 0.09. A replay is one call of the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_FIRST = 2  # runs before: they compile, and take the memory that they keep


class Recorded:
    """All steps of a run on one of torch's GPUs, on its current stream."""

    def __init__(self, calls: Sequence[Callable[[], None]], device: Any) -> None:
        self._calls, self._device = tuple(calls), device
        self._runs, self._graph = 0, None

    def __call__(self) -> None:
        """Replay; launch one by one where nothing was recorded, and where a caller records."""
        import torch

        if torch.cuda.is_current_stream_capturing():
            self._launch()
            return
        if self._graph is not None:
            self._graph.replay()
            return
        self._launch()
        self._runs += 1
        if self._runs == _FIRST:
            self._record(torch)

    def _launch(self) -> None:
        for call in self._calls:
            call()

    def _record(self, torch: Any) -> None:
        """What cannot be recorded is launched one by one for ever."""
        graph = torch.cuda.CUDAGraph()
        try:
            with (
                torch.cuda.device(self._device),
                torch.cuda.graph(graph, capture_error_mode="thread_local"),
            ):
                self._launch()
        except RuntimeError:
            return
        self._graph = graph
