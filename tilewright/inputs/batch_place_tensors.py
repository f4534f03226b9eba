"""The place of lists with torch's tensors in the host's memory, loaded with the first of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from tilewright.arrays.addresses import Column
from tilewright.arrays.array import NDArray
from tilewright.arrays.views import like
from tilewright.inputs import tensors
from tilewright.inputs.batch_place_host import BatchOnHost
from tilewright.inputs.matrices import Matrices, matrices


class BatchOnProcessor(BatchOnHost):
    """NumPy's views of the tensors' memory; results are tensors where the first factor is one."""

    def matrices(self, values: Any, name: str) -> Matrices:
        """Views; `kinds` are the tensors themselves."""
        if not isinstance(values, list | tuple):
            return matrices(values, name)
        return replace(matrices(arrays_of(values, name), name), kinds=values)

    def like(self, kind: Any) -> Callable[[NDArray], Any]:
        """A tensor of the same memory."""
        return torch.from_numpy if isinstance(kind, torch.Tensor) else like(kind)

    def bias(self, vectors: Sequence[Any], widths: Column, b: Matrices) -> Matrices:
        """As those of the host."""
        return BatchOnHost.bias(self, arrays_of(vectors, "bias"), widths, b)

    def written(self, out: Any) -> None:
        """Autograd counts the writes of tensors."""
        for one in out:
            if isinstance(one, torch.Tensor):
                tensors.written(one)


def arrays_of(values: Sequence[Any], name: str) -> list[Any]:
    """A list's tensors as NumPy's views; anything else as it is."""
    return [tensors.array(value, f"{name}[{i}]") for i, value in enumerate(values)]
