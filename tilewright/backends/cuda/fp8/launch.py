"""Launches hopper_fp8 on other addresses and other numbers of rows each time.

Everything that the kernel is given is one argument, `Call` of hopper_fp8.cuh, which the driver
copies at the launch; its two tensor maps get other addresses, or are made anew where rows grew.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from tilewright.backends.cuda.fp8.work import BLOCK, Fp8Work, Operands, Places, Scales
from tilewright.backends.cuda.machine import faults, nvrtc
from tilewright.backends.cuda.machine.tensor_maps import (
    ALIGNMENT,
    BYTES,
    begins_with_address,
    encoded,
)
from tilewright.errors import DeviceError

ROWS, COLUMNS = 256, 128  # of a tile
_THREADS = 384
_LONG = 4  # whole tiles of a group
BAND = 8  # entries of a group, or tiles down, that take turns
_pointer, _int, _long = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong


class _Call(ctypes.Structure):
    """`Call` of hopper_fp8.cuh."""

    _fields_ = [
        ("a", ctypes.c_char * BYTES),
        ("b", ctypes.c_char * BYTES),
        *((name, _pointer) for name in ("table", "a_scales", "b_scales", "out", "fault")),
        *((name, _long) for name in ("out_row", "out_group")),
        *((name, _int) for name in ("m", "n", "k", "across", "band", "tiles")),
        *((name, _int) for name in ("a_scale_row", "a_scale_k")),
        *((name, _int) for name in ("b_scale_group", "b_scale_column", "b_scale_k")),
        ("vectors", _int),
    ]


def defines(work: Fp8Work) -> tuple[tuple[str, int], ...]:
    """The macros that a work is compiled with.

    On an H200 4 groups of 8192 rows by 7168 x 4096 took 1.81 ms with scales of blocks where both
    warpgroups began together and 1.64 a step apart; with scales of rows 1.38 and 1.39. Of int8 see
    `_skew_of_integers`.
    """
    a, b, out = (str(one.dtype) for one in (work.operands.a, work.operands.b, work.operands.out))
    values = {
        "SCALES": int(work.scales),
        "DEPTHS": int(work.depths),
        "INT8": int(work.of_integers),
        "OUT_FLOAT": int(out != "torch.bfloat16"),
        "OUT_INT": int(out == "torch.int32"),
        "A_E5M2": int("e5m2" in a),
        "B_E5M2": int("e5m2" in b),
        "SKEW": _skew_of_integers(work) if work.of_integers else int(work.scales != Scales.ROWS),
    }
    return tuple(values.items())


def _skew_of_integers(work: Fp8Work) -> int:
    """Steps between the beginnings of both warpgroups.

    On an H200, 0, 1 and 2 of them, ms: 4 groups of 8192 rows by 2048 x 7168, bf16, 0.709, 0.735 and
    0.737, by 7168 x 4096 1.215, 1.236 and 1.315; 64 of 256 rows by 2048 x 2816 0.232, 0.198 and
    0.199. In int32, which takes twice as long to write, 0.827, 0.802 and 0.786; 1.251, 1.260 and
    1.261; 0.247, 0.220 and 0.218.
    """
    if str(work.operands.out.dtype) == "torch.int32":
        return 2
    return int(not is_long(work.operands.a.shape[0], work.groups))


def is_long(rows: int, groups: int) -> bool:
    """Whether groups have so many whole tiles that what is left of them is better done last."""
    return rows >= _LONG * groups * ROWS


def shared_memory(scales: Scales) -> int:
    """Bytes of a block: stages, staged results, scales of columns, barriers; and to align it."""
    stages, columns = (3, BLOCK * 4) if scales == Scales.STRIPS else (4, 0)
    return 1024 + stages * ((ROWS + COLUMNS) * BLOCK + columns) + 8 * 4096 + 384


class Launch:
    """The kernel for operands that lie alike, whatever their addresses and the number of rows."""

    def __init__(self, work: Fp8Work) -> None:
        """Everything but the launch. Raises DeviceError."""
        import torch

        given, self._depths = work.operands, work.depths
        ordinal = given.a.device.index
        memory = ctypes.create_string_buffer(ctypes.sizeof(_Call) + 2 * ALIGNMENT)
        at = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
        self._call, self._memory = _Call.from_address(at), memory
        self._fixed(work, faults.flag(ordinal).data_ptr())
        shared = shared_memory(work.scales)
        kernel = nvrtc.function("hopper_fp8", defines(work), ordinal, shared=shared)
        units = torch.cuda.get_device_properties(ordinal).multi_processor_count
        blocks = min(units, self._call.tiles) if work.depths else units
        self._enqueue = nvrtc.launcher((kernel, blocks, _THREADS, nvrtc.Arguments((self._call,))))
        self._maps = [_Map(at + getattr(_Call, name).offset) for name in ("a", "b")]
        self._lock = threading.Lock()

    def _fixed(self, work: Fp8Work, fault: int) -> None:
        call, given, out = self._call, work.operands, work.operands.out
        call.fault, call.band = fault, BAND
        call.m = out.shape[1] if work.depths else 0
        call.n, call.k = out.shape[-1], 0 if work.depths else given.a.shape[1]
        call.across = -(-call.n // COLUMNS)
        call.tiles = work.groups * -(-call.m // ROWS) * call.across

    def launch(self, stream: int, table: Any, given: Operands) -> None:
        """Enqueue on a stream of the current device. Raises DeviceError."""
        with self._lock:
            self._lay(given)
            self._call.table = table.data_ptr()
            self._enqueue(stream)

    def settle(self, given: Operands) -> Callable[[int, Any, Places], None]:
        """For operands that lie as these do from now on: `launch(stream, table, places)`.

        Whoever has it launches nothing else by this object. Raises DeviceError, also where maps do
        not begin with their address.
        """
        if not begins_with_address():
            raise DeviceError("cuda: this driver's tensor maps do not begin with their address")
        with self._lock:
            self._lay(given)
        return self._launch_at

    def _launch_at(self, stream: int, table: Any, places: Places) -> None:
        call, (left, right) = self._call, self._maps
        with self._lock:
            left.address.value, right.address.value = places[:2]
            call.a_scales, call.b_scales, call.out = places[2:]
            call.table = table.data_ptr()
            self._enqueue(stream)

    def _lay(self, given: Operands) -> None:
        """All of the argument but the table."""
        call, out = self._call, given.out
        a, b = given.scale_a, given.scale_b
        columns, depth = given.b.shape[-1], given.b.shape[-2]
        rows = columns if self._depths else columns * given.b.shape[0]
        left, right = self._maps
        left.move(given.a, given.a.shape, given.a.stride(0), 64)
        right.move(given.b, (rows, depth), given.b.stride(-1), COLUMNS)
        call.out = out.data_ptr()
        call.a_scales, call.b_scales = a.data_ptr(), b.data_ptr()
        call.a_scale_row, call.a_scale_k = a.stride()
        call.b_scale_group, call.b_scale_k, call.b_scale_column = b.stride()
        row, group = out.stride(-2), out.stride(0)
        call.out_row, call.out_group = row, group
        call.vectors = int(((row | group) * out.element_size() | out.data_ptr()) % 16 == 0)
        if self._depths:
            call.b_scale_group = 0


class _Map:
    """The map of an operand, k contiguous, where a launch's argument has it."""

    def __init__(self, place: int) -> None:
        """`place` is its address there."""
        self._place = place
        self._lies: tuple[int, ...] = ()
        self.address = ctypes.c_uint64.from_address(place)

    def move(self, operand: Any, sizes: tuple[int, int], pitch: int, box: int) -> None:
        """To an operand of so many rows and so much k, in boxes of rows. Raises DeviceError.

        A map that the driver makes takes 10 us; another address in one takes none.
        """
        at, lies = operand.data_ptr(), (*sizes, pitch)
        if lies == self._lies and begins_with_address():
            self.address.value = at
            return
        self._lies = ()  # of none, should the driver refuse it
        made = encoded("UINT8", at, (sizes[1], sizes[0]), pitch, (BLOCK, box))
        ctypes.memmove(self._place, made, BYTES)
        self._lies = lies
