"""symmray: contractions of block-sparse tensors are one list of matrix products each.

    blocks that meet     every block seen as a matrix once, all pairs in one grouped_matmul
    pairs of one result  added: on the host one after another, on a GPU within the launches

symmray multiplies pair after pair by numpy.tensordot, which takes longer to arrange a small product
than the product takes. quimb's tensor networks of symmray's arrays come this way too, as do its
fused contractions, whose blocks are matrices already. Flat arrays are one batched product as they
are, and are left to symmray.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from symmray.sparse import sparse_array_common as library

from tilewright.arrays.views import loaded_torch, on_gpu
from tilewright.errors import DeviceError
from tilewright.facts.dtypes import ITEMSIZE
from tilewright.products.grouped import grouped_matmul
from tilewright.pytorch.replaced import Replaced

__all__ = ["install", "uninstall"]

_NAME = "_tensordot_blockwise"
Axes = tuple[int, ...]


def install() -> None:
    """Sparse arrays of symmray are contracted here from now on, quimb's networks of them too.

    Blocks of NumPy, torch (gradients too) and CuPy, all of one dtype that `grouped_matmul` takes;
    any others, and products without a common axis, go to symmray as before. Raises DeviceError
    where this symmray has no blockwise contraction to replace.
    """
    _names.install()


def uninstall() -> None:
    """Give symmray back what it had."""
    _names.uninstall()


def _find() -> list[tuple[Any, str, Any]]:
    if not hasattr(library, _NAME):
        raise DeviceError(f"symmray: has no {_NAME}; accepted is symmray 0.4")
    return [(library, _NAME, _contracted)]


_names = Replaced(_find)
_theirs = getattr(library, _NAME, None)


def _contracted(a: Any, b: Any, left: Axes, axes_a: Axes, axes_b: Axes, right: Axes) -> Any:
    """The contraction of two block arrays, as symmray's `_tensordot_blockwise` gives it."""
    of_a, of_b = list(a.get_sector_block_pairs()), list(b.get_sector_block_pairs())
    if not axes_a or not _are_served([*of_a, *of_b]):
        assert _theirs is not None
        return _theirs(a, b, left, axes_a, axes_b, right)
    rows = [_matrix(block, left, axes_a) for _, block in of_a]
    cols = [_matrix(block, axes_b, right) for _, block in of_b]
    pairs, into, sectors, sizes = _met(of_a, of_b, left, axes_a, axes_b, right)
    made = _products([rows[i] for i, _ in pairs], [cols[j] for _, j in pairs], into)
    blocks = {
        sector: one.reshape(size) for sector, size, one in zip(sectors, sizes, made, strict=True)
    }
    kept = [ix for i, ix in enumerate(a.indices) if i not in axes_a]
    kept += [ix for i, ix in enumerate(b.indices) if i not in axes_b]
    for i, index in enumerate(kept):
        gone = {*index.charges} - {sector[i] for sector in blocks}
        if gone:
            kept[i] = index.drop_charges(gone)
    return a.new_with(
        indices=tuple(kept),
        charge=a.symmetry.combine(a.charge, b.charge),
        blocks=blocks,
        label=library.maybe_keep_label(a.label, b.label),
    )


def _are_served(pairs: Sequence[tuple[Any, Any]]) -> bool:
    """Whether all blocks are arrays of one kind and one dtype that is multiplied here."""
    blocks = [block for _, block in pairs]
    kinds = set(map(type, blocks))
    if len(kinds) != 1 or len({block.dtype for block in blocks}) != 1:
        return False
    (kind,) = kinds
    torch = loaded_torch()
    known = kind is np.ndarray or kind.__module__.partition(".")[0] == "cupy"
    known = known or (torch is not None and kind is torch.Tensor)
    return known and str(blocks[0].dtype).rpartition(".")[2] in ITEMSIZE


def _matrix(block: Any, first: Axes, last: Axes) -> Any:
    """A block as [first axes, last axes]; a view where it lies so."""
    order = (*first, *last)
    if order != tuple(range(len(order))):
        turn = getattr(block, "permute", block.transpose)
        block = turn(*order)
    rows = math.prod(block.shape[: len(first)])
    return block.reshape(rows, math.prod(block.shape[len(first) :]))


def _met(
    of_a: Sequence[Any], of_b: Sequence[Any], left: Axes, axes_a: Axes, axes_b: Axes, right: Axes
) -> tuple[list[tuple[int, int]], list[int], list[Any], list[Any]]:
    """Pairs of blocks whose contracted charges agree, the result of each, and the results' sectors
    and sizes."""
    meeting: dict[Any, list[int]] = defaultdict(list)
    ends = [tuple(sector[i] for i in right) for sector, _ in of_b]
    for j, (sector, _) in enumerate(of_b):
        meeting[tuple(sector[i] for i in axes_b)].append(j)
    pairs: list[tuple[int, int]] = []
    into: list[int] = []
    sizes: list[Any] = []
    places: dict[Any, int] = {}
    for i, (sector, block) in enumerate(of_a):
        begin = tuple(sector[axis] for axis in left)
        for j in meeting.get(tuple(sector[axis] for axis in axes_a), ()):
            place = places.setdefault(begin + ends[j], len(places))
            if place == len(sizes):
                other = of_b[j][1].shape
                sizes.append((*(block.shape[x] for x in left), *(other[x] for x in right)))
            pairs.append((i, j))
            into.append(place)
    return pairs, into, list(places), sizes


def _products(a: list[Any], b: list[Any], into: list[int]) -> Any:
    """The products, those of one result added in order."""
    if not a:
        return []
    if len({*into}) == len(into):
        return grouped_matmul(a, b)
    if on_gpu(a[0]):
        return grouped_matmul(a, b, into=into)
    sums: dict[int, Any] = {}
    for place, one in zip(into, grouped_matmul(a, b), strict=True):
        sums[place] = sums[place] + one if place in sums else one
    return list(sums.values())
