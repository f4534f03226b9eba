"""What happens where the best engine finds no memory, or cannot be compiled: the next one runs.

One whose scratch does not fit the memory makes room for the next that needs less, and one whose
kernels cannot be compiled or loaded for the next, with a DeviceWarning that says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from tilewright.errors import DeviceError, DeviceMemoryError, DeviceWarning
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal, Verdict

P = TypeVar("P")


def first_that_can(verdict: Verdict, prepare: Callable[[Proposal], P]) -> tuple[Proposal, P]:
    """The best proposal that can be prepared; what it stands in for is said in a warning.

    Raises what the best engine raised where none can, DeviceMemoryError where memory was all.
    """
    import torch

    full: Proposal | None = None
    broken: list[tuple[Proposal, DeviceError]] = []
    for proposal in verdict.proposals:
        if full is not None and proposal.scratch >= full.scratch:
            continue
        try:
            prepared = prepare(proposal)
        except torch.OutOfMemoryError:
            full = proposal
        except DeviceError as error:
            broken.append((proposal, error))
        else:
            _say_what_failed(verdict.device, full, broken, proposal)
            return proposal, prepared
    if broken:
        raise broken[0][1]
    needed = 0 if full is None else full.scratch
    raise DeviceMemoryError(
        f"device={verdict.device.id!r}: cannot give {needed} bytes of scratch, or its tables"
    )


def _say_what_failed(
    device: Device,
    full: Proposal | None,
    broken: list[tuple[Proposal, DeviceError]],
    taken: Proposal,
) -> None:
    said = [
        f"{device.id}: {failed.engine} cannot be used here ({str(error).partition(chr(10))[0]});"
        f" {taken.engine} runs the batch"
        for failed, error in broken
    ]
    if full is not None:
        said.append(
            f"{device.id}: {full.engine} needs {full.scratch} bytes of scratch, more than is free;"
            f" {taken.engine} runs the batch without"
        )
    for message in said:
        warnings.warn(message, DeviceWarning, stacklevel=5)
