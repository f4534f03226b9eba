"""Launches a Hopper kernel on other addresses each time: its tensor maps are an argument.

Bound batches have their maps in memory of the device, written once. Here the few maps of a product
are one argument (`Maps` of hopper_tiles.cuh), which the driver copies at the launch, and
between launches only their addresses are replaced, or the rows of matrices that grow and shrink:
a batch of another size had its maps made anew, which took half of its 77 us of host time (H200).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection
from typing import Any

from tilewright.backends.cuda.hopper import maps
from tilewright.backends.cuda.hopper.bind import Ragged
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.machine.tensor_maps import (
    ALIGNMENT,
    BYTES,
    differs_in_rows,
    place_of_rows,
)

_MAPS = 4
# The operand that a matrix is; OTHER is a second result.
LEFT, RIGHT, OUT, OTHER = 0, 1, 2, 3


class Moving:
    """A ragged product of certain sizes, strides and alignments, launched on any such tensors."""

    def __init__(
        self,
        kernel: nvrtc.Function,
        blocks: int,
        threads: int,
        tiles: int,
        matrices: list[tuple[int, maps.Matrix]],
        dtype: str,
        shared: Ragged,
        grow: Collection[int] = (),
        chosen: int | None = None,
    ) -> None:
        """Everything but the launch; each of at most four matrices with the operand that it is.

        Operands that `grow` have as many rows as a launch says; those of the `chosen` one are found
        by index. Raises DeviceError where the driver refuses a map.
        """
        from cuda.bindings import driver

        self._made = (kernel, blocks, threads, tiles, matrices, dtype, shared, grow, chosen)
        self._replace = driver.cuTensorMapReplaceAddress
        self._memory = ctypes.create_string_buffer(_MAPS * BYTES + ALIGNMENT)
        at = -(-ctypes.addressof(self._memory) // ALIGNMENT) * ALIGNMENT
        encoded = maps.encode([matrix for _, matrix in matrices], dtype)
        ctypes.memmove(at, encoded.ctypes.data, encoded.nbytes)
        self._dtype, self._rows = dtype, -1
        self._growing = [
            (at + BYTES * place, operand, matrix)
            for place, (operand, matrix) in enumerate(matrices)
            if operand in grow
        ]
        self._maps = [
            (driver.CUtensorMap(at + BYTES * place), operand)
            for place, (operand, _) in enumerate(matrices)
        ]
        # Of rows, less one, in the maps themselves: none if they have that nowhere, None yet.
        self._counts: list[ctypes.c_uint32] | None = None
        self._places: tuple[int, ...] = ()
        self._chosen = chosen
        own = (ctypes.c_char * (_MAPS * BYTES)).from_address(at)
        self._table, self._shared = ctypes.c_void_p(), shared
        none = ctypes.c_void_p()
        values = (self._table, ctypes.c_int(tiles), none, none, shared, own)
        self._enqueue = nvrtc.launcher((kernel, blocks, threads, nvrtc.Arguments(values)))
        self._lock = threading.Lock()

    def launch(
        self,
        stream: int,
        table: Any,
        left: Any,
        right: Any,
        out: Any,
        bias: Any = None,
        rows: int = -1,
        index: Any = None,
        other: Any = None,
    ) -> None:
        """Enqueue on a stream of the current device. Raises DeviceError."""
        with self._lock:
            self._place(table, left, right, out, bias, rows, index, other)
            self._enqueue(stream)

    def standing(
        self, table: Any, left: Any, right: Any, out: Any, rows: int
    ) -> Callable[[int], None]:
        """`launch` of these alone, called with the stream: nothing is left to be replaced.

        Whoever calls keeps them. Raises DeviceError.
        """
        kernel, blocks, threads, tiles, matrices, dtype, shared, grow, chosen = self._made
        own = Ragged.from_buffer_copy(shared)
        one = Moving(kernel, blocks, threads, tiles, matrices, dtype, own, grow, chosen)
        one._place(table, left, right, out, None, rows, None, None)
        return one._again

    def _again(self, stream: int) -> None:
        self._enqueue(stream)

    def _place(
        self,
        table: Any,
        left: Any,
        right: Any,
        out: Any,
        bias: Any,
        rows: int,
        index: Any,
        other: Any,
    ) -> None:
        second = 0 if other is None else other.data_ptr()
        places = (left.data_ptr(), right.data_ptr(), out.data_ptr(), second)
        if rows != self._rows:
            self._grow(rows, places)
        if places != self._places:
            self._move(places)
        self._table.value = table.data_ptr()
        self._shared.c, self._shared.other = places[OUT], second
        self._shared.bias = None if bias is None else bias.data_ptr()
        if self._chosen is not None:
            self._shared.source, self._shared.index = places[self._chosen], index.data_ptr()

    def _grow(self, rows: int, places: tuple[int, ...]) -> None:
        self._rows, self._places = -1, ()  # of none, should the driver refuse one
        if self._counts and rows > 0:
            for count in self._counts:
                count.value = rows - 1
        else:
            self._make(rows, places)
        self._rows = rows

    def _make(self, rows: int, places: tuple[int, ...]) -> None:
        """Maps of so many rows, by the driver."""
        for at, operand, matrix in self._growing:
            now = matrix._replace(address=places[operand], rows=rows)
            ctypes.memmove(at, maps.encode_one(now, self._dtype), BYTES)
        if self._counts is None and rows > 0:
            self._counts = self._found(rows, places)

    def _found(self, rows: int, places: tuple[int, ...]) -> list[ctypes.c_uint32]:
        """Where the maps of so many rows say so, if those of others differ in nothing else."""
        place, more = place_of_rows(), 2 * rows + 1
        if place is None:
            return []
        for at, operand, matrix in self._growing:
            other = matrix._replace(address=places[operand], rows=more)
            made = maps.encode_one(other, self._dtype)
            if not differs_in_rows(ctypes.string_at(at, BYTES), made, place, more):
                return []
        return [ctypes.c_uint32.from_address(at + place) for at, *_ in self._growing]

    def _move(self, places: tuple[int, ...]) -> None:
        self._places = ()  # of none, should the driver refuse one
        for one, operand in self._maps:
            nvrtc.check(self._replace(one, places[operand]), "address of a tensor map")
        self._places = places
