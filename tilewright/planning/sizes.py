"""What engines and reports read of a batch's plan: its sizes, device and dtype."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from tilewright.facts.device import Device


class Planned(Protocol):
    """Sizes of a batch, the device and dtype it is planned for, and the order asked for."""

    @property
    def device(self) -> Device:
        """The device that the plan is for."""

    @property
    def dtype(self) -> str:
        """The name of its element type."""

    @property
    def m(self) -> npt.NDArray[np.int64]:
        """Rows of every result."""

    @property
    def n(self) -> npt.NDArray[np.int64]:
        """Columns of every result."""

    @property
    def k(self) -> npt.NDArray[np.int64]:
        """Inner sizes."""

    @property
    def asked(self) -> str:
        """The order that was asked for."""
