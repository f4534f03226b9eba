"""What engines of 8-bit products are given: checked tensors, and what their scales stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

BLOCK = 128  # elements along k, and along n of a whole block, that share a scale


class Scales(IntEnum):
    """What the scales of both operands stand for; the numbers are SCALES of the kernels."""

    ROWS = 0  # a row of A, a column of B
    BLOCKS = 1  # 1 x 128 of A, 128 x 128 of B
    STRIPS = 2  # 1 x 128 of A, 128 x 1 of B


class Operands(NamedTuple):
    """Tensors of a launch. Scales of A are [m, k blocks], those of B [groups, k blocks, columns].

    Of rows m is that of all groups, of depths there is one group of scales of B for all.
    """

    a: Any
    b: Any
    offsets: Any
    scale_a: Any
    scale_b: Any
    out: Any


# Launches on a stream.
Way = Callable[[int, Operands], None]
Places = tuple[int, int, int, int, int]  # addresses of a, b, both scales and out


@runtime_checkable
class Settling(Protocol):
    """A Way that has a faster one for operands that lie as others did, of as many rows."""

    def settled(self, work: Fp8Work) -> Callable[[int, Any, Any, Places], None]:
        """Its launches: a stream, offsets and out as tensors, and all but the offsets' addresses.

        Operands are to lie as those of `work` do, at addresses that are as aligned to 16 bytes.
        Raises DeviceError.
        """


@dataclass(frozen=True, slots=True)
class Fp8Work:
    """Checked tensors of one device.

    Rows: a [t, k] by b [groups, k, n] into out [t, n]. `depths`: a [m, t] by b [t, n] into
    out [groups, m, n], of floats only. `clear` writes zeros into the rows of `out` that no group
    has.
    """

    operands: Operands
    scales: Scales
    depths: bool = False
    clear: bool = False

    @property
    def of_integers(self) -> bool:
        """Whether operands are int8; scales are those of rows then, or, in an int32 out, ones."""
        return str(self.operands.a.dtype) == "torch.int8"

    @property
    def groups(self) -> int:
        """How many."""
        return int(self.operands.out.shape[0] if self.depths else self.operands.b.shape[0])
