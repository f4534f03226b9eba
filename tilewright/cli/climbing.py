"""Ladders that several commands climb, of sizes that this machine holds."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.cli.bars import progress
from tilewright.errors import ArgumentError
from tilewright.facts.device import Device
from tilewright.inputs.devices import host
from tilewright.report.ladder import measure, steps
from tilewright.report.records import Ladder
from tilewright.report.sampling import FULL, Effort


def checked_size(argument: str, size: int) -> int:
    """The size, if two operands, a result and its float64 truth fit into the host's memory."""
    # At the worst: three float64 matrices on the device, four beside them to check the result.
    needed, there = 7 * 8 * size * size, host().memory
    if size < 1 or needed > there:
        largest = int((there / 56) ** 0.5)
        raise ArgumentError(
            f"{argument}={size}: accepted are sizes from 1 to {largest}, which this machine's"
            f" memory of {there >> 20} MiB holds"
        )
    return size


def climb(device: Device, sizes: Sequence[int], dtype: str, effort: Effort = FULL) -> list[Ladder]:
    """A ladder for each size, with progress on stderr where that is a terminal."""
    with progress(len(sizes) * steps(device, dtype)) as advance:
        return [
            measure(
                device,
                size,
                dtype,
                effort=effort,
                report=lambda name, size=size: advance(f"{name} at {size}"),  # type: ignore[misc]
            )
            for size in sizes
        ]
