"""What engines are given of a batch on a GPU, and give back (engines/contract.py: the contract).

Work          a checked batch on one GPU: sizes, addresses, strides, scalars; the caller's order
Prepared      what `bind` gives: a callable that only launches, and how many kernels it launches
Moving        what `move` gives: the same for any addresses, given at each launch
BatchEngine   an engine that does both
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewright.engines.contract import Engine
from tilewright.engines.grouped import GroupedOperands
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

Ints = npt.NDArray[np.int64]
Launch = Callable[[], None]
Enqueue = Callable[[int], None]  # launches on the stream of this handle


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(GroupedOperands):
    """A checked batch on one GPU, problems in the caller's order; transposes are strides swapped.

    `bias` has address 0 where a problem has none; `dtype` is "float16", "bfloat16", "float32" or
    "float64". `precision` is "ieee", "tf32" or "fp32x". `keep` holds what must live as long as the
    launch is used. Where the device is done within `enough` seconds, no plan need be better.
    """

    ordinal: int
    precision: str = "ieee"
    order: str = "auto"
    keep: tuple[Any, ...] = ()
    enough: float = 0.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch ready to run: `enqueue(stream)` launches its kernels, `count` of them.

    The stream is torch's current one and its device the current one. Nothing synchronises and
    nothing allocates, so a CUDA graph can capture it. `count` is 0 where a library launches as it
    sees fit. The callable holds the memory that the kernels use; `memory` are the tensors of it
    that were taken for this batch, on the stream that was torch's current one then.
    """

    enqueue: Enqueue
    count: int
    memory: tuple[Any, ...] = ()

    def __call__(self) -> None:
        """Launch on torch's current stream of the current device."""
        import torch

        self.enqueue(int(torch.cuda.current_stream().cuda_stream))


@dataclass(frozen=True, slots=True)
class Moving:
    """A batch planned for sizes, strides and alignments: `run(stream, places)` launches it.

    `places` are its addresses (placing.py), of which the last, the scratch's, is set by the run.
    Nothing synchronises. It raises DeviceError and torch's OutOfMemoryError. `bytes` of the host's
    memory are held, none of the device's. `one(a, b, c)` does the same on torch's current stream
    where the batch is one product, or one call of a library, that needs no table of each run.
    """

    run: Callable[[int, Ints], None]
    bytes: int
    one: Callable[[int, int, int], None] | None = None


class BatchEngine(Engine[Work, Work, Prepared], Protocol):
    """An engine of batches on GPUs: operands are the work itself, whose columns have addresses."""

    @property
    def effort(self) -> int:
        """What an answer costs the host, 0 for little: who costs less is asked before others."""

    def least(self, work: Work, device: Device) -> float:
        """Seconds that no proposal for such a batch undercuts; 0 where planning is as quick."""

    def move(self, proposal: Proposal, work: Work) -> Moving | None:
        """The same for any addresses; None where a batch is bound anew each time.

        Raises DeviceError where a kernel cannot be had, and torch's OutOfMemoryError, as `bind`.
        """
