"""An array library of one class, which speaks DLPack and nothing else."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

# As others find it: by the first part of the name of a class's module.
sys.modules["tiny_dlpack"] = sys.modules[__name__]
__name__ = "tiny_dlpack"


class Tensor:
    """Holds a NumPy array that only `__dlpack__` gives away."""

    def __init__(self, held: Any) -> None:
        self._held = held

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._held.shape)

    def __dlpack__(self, **options: Any) -> Any:
        return self._held.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._held.__dlpack_device__()


class Elsewhere(Tensor):
    """A tensor on an accelerator."""

    def __dlpack_device__(self) -> Any:
        return (2, 0)


class Broken(Tensor):
    """A tensor that cannot be exported."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("not today")


def from_dlpack(exporter: Any) -> Tensor:
    return Tensor(np.from_dlpack(exporter))
