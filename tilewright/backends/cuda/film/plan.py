"""Where everything lies that motion between two pictures needs on a GPU, in one piece of memory.

    samples | pictures by size | patches | fields | trust | strokes | sums | moved | cells
            | landing: whole numbers, how many cells are unsure | out
              '------- cleared -------------------------------'  '--' fetched with the number

Plain arithmetic: needs no GPU.
"""

from __future__ import annotations

from math import prod

from tilewright.planning.film import Sizes, bordered
from tilewright.remember import once

_ALIGNED = 256
_KEPT = 12  # floats that `tried` leaves of a patch
_LITTLE = 4096  # places of a size from which on all smaller ones are one launch


class Plan(Sizes):
    """Two pictures and their motion in one piece of memory."""

    @property
    def single(self) -> int:
        """How many of `sums` have launches of their own; the others share one."""
        return sum(prod(size) > _LITTLE for size in self.sums)

    @once
    def offsets(self) -> dict[str, int]:
        """Where parts begin, in bytes; `end` is where all ends."""
        luma, place = prod(self.sizes[0]), prod(self.place)
        parts = {"samples": 2 * self.bytes_each * self.starts[-1]}
        images = {f"size {n}": size for n, size in enumerate(self.sizes)} | dict(self.images)
        parts |= {name: 8 * bordered(size) for name, size in images.items()}
        most = max((prod(self.patches(n)) for n in self.searched), default=0)
        parts |= {"tried": 2 * 4 * _KEPT * most, "found": 2 * 8 * most, "begun": 4, "differ": 4}
        parts |= {f"field {n}": 16 * prod(self.sizes[n]) for n in (*self.searched, self.finest)}
        parts |= {"trust": 8 * place, "strokes": 4 * luma, "mask": luma, "left": luma}
        parts |= {"counts": 4 * prod(self.cells), "cells": 4 * prod(self.cells)}
        parts["sums"] = 4 * 3 * sum(map(prod, self.sums))
        parts["through"] = 4 * 2 * sum(map(prod, self.sums))
        parts["moved"] = 4 * 3 * luma
        found, at = {}, 0
        for name, size in parts.items():
            found[name] = at
            at += -(-size // _ALIGNED) * _ALIGNED
        # No gap: what is cleared ends with the number of cells, what is fetched begins with it.
        found["landing"], found["unsure"] = at, at + 8 * 3 * place
        found["out"] = found["unsure"] + 8
        found["end"] = found["out"] + self.bytes_each * self.starts[-1]
        return found
