"""A place: one kind of memory that the arrays of a call lie in, and all that differs there.

Checks, results, bias, overlap and `out` are written once for all places (inputs/product.py). The
places themselves are in inputs/place_host.py, that of GPUs in inputs/place_gpu.py, which is loaded
with the first array there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from tilewright.arrays.views import View
from tilewright.facts.device import Device

Shape = tuple[int, ...]
# The view of an array, and what hands it over to the caller.
New = tuple[View, Callable[[], Any]]


class Place(Protocol):
    """Where the first operand of a call lies, which the others must share and results come to.

    is_host      NumPy may multiply these arrays where they are
    most         the largest size of a matrix there, None where memory alone limits it
    precisions   what `precision` may name for float32 beside None
    """

    is_host: ClassVar[bool]
    most: ClassVar[int | None]
    precisions: ClassVar[tuple[str, ...]]

    def device(self, wanted: Device | str | None) -> Device:
        """The device of the call. Raises where `wanted` is none that takes these arrays."""

    def new(self, shape: Shape, public: Shape, dtype: str) -> New:
        """An uninitialised dense array, and how the caller gets it: as `public`, in a's kind.

        Raises DeviceMemoryError.
        """

    def stream(self) -> AbstractContextManager[Any]:
        """The context in which launches come behind what the caller has in flight."""
