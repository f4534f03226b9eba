"""How long one of torch's GPUs works on what a call enqueues: its own time, by events.

A spinning kernel runs first, so that the device does not wait for the host's launches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_LEAD = 1_000_000  # cycles, half a millisecond


def seconds(call: Callable[[], object], device: Any) -> float:
    """Of one call on torch's current stream of the device; what it gives is let go."""
    import torch

    with torch.cuda.device(device):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_LEAD)
        begun.record()
        call()
        ended.record()
        ended.synchronize()
    return 1e-3 * float(begun.elapsed_time(ended))
