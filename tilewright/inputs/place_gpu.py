"""The place of arrays on a GPU: torch's, CuPy's, any with DLPack. Loaded with the first of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.arrays.place import New, Place, Shape
from tilewright.arrays.views import View
from tilewright.backends.cuda.machine import arrays
from tilewright.errors import OperandError
from tilewright.facts.device import Device
from tilewright.facts.dtypes import TYPES, Dtype
from tilewright.facts.limits import MOST
from tilewright.inputs.checks import PRECISIONS
from tilewright.inputs.devices import gpu, resolve
from tilewright.wording import short


@dataclass(frozen=True, slots=True)
class OnGpu:
    """The memory of a GPU; `first` is the array whose kind results have, and whose stream counts:
    torch's current one, for CuPy's arrays CuPy's."""

    first: Any
    memory: arrays.Gpu
    is_host: ClassVar[bool] = False
    most: ClassVar[int | None] = MOST
    precisions: ClassVar[tuple[str, ...]] = PRECISIONS

    def device(self, wanted: Device | str | None) -> Device:
        """That of the arrays."""
        own = gpu(self.memory.ordinal)
        if wanted is not None and wanted != "cuda" and resolve(wanted).id != own.id:
            raise OperandError(f"device={short(wanted)}: a lies on {own.id!r}")
        return own

    def new(self, shape: Shape, public: Shape, dtype: str) -> New:
        """By torch, handed over as what the first array is."""
        with self.stream():
            made = self.empty(int(np.prod(shape, dtype=object)), TYPES[dtype])
        convert = arrays.like(self.first)
        return arrays.view(made.view(shape), "out"), lambda: convert(made.view(public))

    def empty(self, count: int, dtype: Dtype) -> Any:
        """So many elements as torch's tensor."""
        return arrays.empty(count, dtype, self.memory.ordinal)

    def stream(self) -> AbstractContextManager[Any]:
        """That of the first array, as torch's current one."""
        return arrays.stream_of(self.first, self.memory.ordinal)


def place_and_views(given: Mapping[str, Any]) -> tuple[Place, dict[str, View]]:
    """The place of `a`, the first of these arguments, and the views of all, which must lie there.

    Raises OperandError and DtypeError.
    """
    views = {name: arrays.view(value, name) for name, value in given.items()}
    (_, first), *others = views.items()
    for name, other in others:
        if other.memory != first.memory:
            raise OperandError(
                f"{name}: lies on cuda:{other.memory.ordinal}, a on cuda:{first.memory.ordinal};"
                " accepted are arrays of one GPU in a call"
            )
    return OnGpu(given["a"], first.memory), views
