"""A network's steps at fixed addresses on one of torch's GPUs: a CUDA graph after they ran twice.

Python takes longer to launch a small chain than an H200 to compute it: 360p of six 3x3
convolutions took 0.25 ms a call where its kernels took 0.09. A replay is one call of the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_FIRST = 2  # runs before: they compile, and take the memory that they keep


class Recorded:
    """All steps of a run on torch's current stream: `launch()` begins them and says what they give.

    Once recorded, that is the same memory after every run: the graph's own.
    """

    def __init__(self, launch: Callable[[], Any], device: Any) -> None:
        self._launch, self._device = launch, device
        self._runs, self._graph = 0, None
        self.made: Any = None  # what the recorded run gives

    @property
    def is_recorded(self) -> bool:
        """Whether runs write the memory of the last anew."""
        return self._graph is not None

    def __call__(self) -> Any:
        """Replay; launch one by one where nothing was recorded, and where a caller records."""
        import torch

        if torch.cuda.is_current_stream_capturing():
            return self._launch()
        if self._graph is not None:
            self._graph.replay()
            return self.made
        made = self._launch()
        self._runs += 1
        if self._runs == _FIRST:
            self._record(torch)
        return made

    def _record(self, torch: Any) -> None:
        """What cannot be recorded is launched one by one for ever.

        A recording that fails would leave its own stream the current one.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            with (
                torch.cuda.device(self._device),
                torch.cuda.stream(torch.cuda.current_stream(self._device)),
                torch.cuda.graph(graph, capture_error_mode="thread_local"),
            ):
                made = self._launch()
        except RuntimeError:
            return
        self._graph, self.made = graph, made
