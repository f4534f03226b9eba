"""The place of lists with torch's tensors in the host's memory, loaded with the first of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from tilewright.arrays.addresses import Column, Columns
from tilewright.arrays.array import NDArray
from tilewright.arrays.views import like
from tilewright.backends.cuda.machine import addresses
from tilewright.facts.dtypes import NARROW
from tilewright.inputs import narrow, tensors
from tilewright.inputs.batch_place_host import BatchOnHost
from tilewright.inputs.matrices import Matrices, matrices, seen_as


class BatchOnProcessor(BatchOnHost):
    """NumPy's views of the tensors' memory; results are tensors where the first factor is one."""

    def matrices(self, values: Any, name: str) -> Matrices:
        """Views; `kinds` are the tensors themselves."""
        if not isinstance(values, list | tuple):
            return matrices(values, name)
        kind = narrow.kind_of(values[0], name) if values else None
        if kind is not None:
            found = addresses.read(values) if name != "out" and _is_plain(values[0]) else None
            if found is not None:
                address, size, step = found
                if (address == 0).any():
                    arrays_of(values, name, kind)  # says whose memory was given back
                step *= kind.itemsize
                at = Columns(address, *size.T, *step.T)
                return Matrices(at, kind, None, tuple(values), kinds=values)
            return Matrices(*seen_as(arrays_of(values, name, kind), name, kind), kinds=values)
        return replace(matrices(arrays_of(values, name), name), kinds=values)

    def like(self, kind: Any) -> Callable[[NDArray], Any]:
        """A tensor of the same memory."""
        return torch.from_numpy if isinstance(kind, torch.Tensor) else like(kind)

    def narrow_views(self, flat: NDArray, places: Sequence[narrow.Place], kinds: Any) -> list[Any]:
        """Tensors of the same memory, where the first factor is one."""
        if not places or not isinstance(kinds[0], torch.Tensor):
            return super().narrow_views(flat, places, kinds)
        whole = torch.from_numpy(flat)
        if kinds[0].dtype is torch.bfloat16:
            whole = whole.view(torch.bfloat16)
        return [whole.as_strided((m, n), (n, 1), begin) for m, n, begin in places]

    def bias(self, vectors: Sequence[Any], widths: Column, b: Matrices) -> Matrices:
        """As those of the host."""
        kind = b.dtype if b.dtype.name in NARROW else None
        return BatchOnHost.bias(self, arrays_of(vectors, "bias", kind), widths, b)

    def written(self, out: Any) -> None:
        """Autograd counts the writes of tensors."""
        for one in out:
            if isinstance(one, torch.Tensor):
                tensors.written(one)


def _is_plain(first: Any) -> bool:
    """Whether a list's first is a tensor in the host's memory, as all are that are read with it."""
    return isinstance(first, torch.Tensor) and first.is_cpu and first.layout is torch.strided


def arrays_of(values: Sequence[Any], name: str, kind: Any = None) -> list[Any]:
    """A list's tensors as NumPy's views; anything else as it is. `kind`: bfloat16 or int8."""
    if kind is not None:
        return [tensors.narrow_array(value, f"{name}[{i}]") for i, value in enumerate(values)]
    return [tensors.array(value, f"{name}[{i}]") for i, value in enumerate(values)]
