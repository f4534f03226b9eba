"""What engines of ragged products are given, and what they give back: sizes stay on the device.

A launch is prepared for tensors that lie alike, whatever their addresses, and the number of rows
within a class (engine.py); binding to operands therefore moves nothing and reads nothing back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tilewright.backends.cuda.ragged.tiles import is_tiny
from tilewright.facts.gates import Gate
from tilewright.facts.limits import MOST

# Launches on a stream: x, the other operand, offsets, bias or None, out; then index and h or None.
Way = Callable[..., None]


@runtime_checkable
class Standing(Protocol):
    """A Way that has a faster one for tensors that come again and again where they lie."""

    def standing(self, x: Any, w: Any, offsets: Any, out: Any) -> Callable[[int], None] | None:
        """Its launches of these alone, called with the stream, always the same; None has none.

        The table is torch's, of its current stream. Whoever calls keeps the tensors.
        """


LEFT, RIGHT = 1, 2  # whose rows are found by index: those of x, or of the other operand


@dataclass(frozen=True, slots=True)
class RaggedWork:
    """Checked tensors of one device: x by w of every group's own (rows), or x by w's rows (depths).

    `clear` writes zeros into the rows of `out` that no group has. Where there is an `index`, int32
    [rows], the i-th row of x (of depths: of the `chosen` operand) is its row index[i]. With a
    `gate`, `out` is what that makes of the product, and the product itself goes into `h` if given.
    `alone`: neither tiles nor engines may be chosen by how many rows there are, so that a row of
    `out` has the same bits whatever lies beside it.
    """

    x: Any
    w: Any
    offsets: Any
    bias: Any
    out: Any
    precision: str
    clear: bool = False
    index: Any = None
    chosen: int = 0
    h: Any = None
    gate: Gate | None = None
    alone: bool = False

    @property
    def rows(self) -> int:
        """How many rows all groups together have at most."""
        if self.index is not None:
            return int(self.index.shape[0])
        return int((self.x if self.w.dim() == 3 else self.w).shape[0])

    @property
    def rows_for_tiles(self) -> int:
        """The same as tiles are chosen by."""
        return MOST if self.alone else self.rows

    @property
    def is_tiny(self) -> bool:
        """Whether there are thousands of small groups (`tiles.is_tiny`)."""
        if self.alone:
            return False
        if self.w.dim() == 3:
            return is_tiny(self.rows, *self.w.shape)
        return is_tiny(self.rows, *self.out.shape)

    def why_not_large(self) -> str | None:
        """Why tiles as large as the Hopper kernel's do not pay, if so."""
        if not self.x.is_cuda:
            return "runs on a GPU only"
        if not (self.x.numel() and self.w.numel() and self.out.shape[0]):
            return "there is nothing to multiply"
        return "thousands of small groups leave its tiles empty" if self.is_tiny else None


def in_turn(
    plan: Callable[[int], None] | None, multiplies: list[Callable[[int], None]], tables: list[Any]
) -> Callable[[int], None] | None:
    """All launches of a product, None where the first is; the tables are kept with them.

    Nobody else's come between: those after the first count their tiles in the tables.
    """
    if plan is None:
        return None
    kept, lock = ((plan, *multiplies), tables), threading.Lock()

    def launch(stream: int) -> None:
        with lock:
            for one in kept[0]:
                one(stream)

    return launch
