"""Launches hopper_fp8 on other addresses and other numbers of rows each time.

Everything that the kernel is given is one argument, `Call` of hopper_fp8.cuh, which the driver
copies at the launch; its two tensor maps get other addresses, or are made anew where rows grew.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from tilewright.backends.cuda.fp8.work import BLOCK, Fp8Work, Operands, Scales
from tilewright.backends.cuda.machine import faults, nvrtc
from tilewright.backends.cuda.machine.tensor_maps import ALIGNMENT, BYTES, encoded

ROWS, COLUMNS = 256, 128  # of a tile
_THREADS = 384
_BAND = 8  # entries, or tiles down, that take turns
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
    warpgroups began together and 1.64 a step apart; with scales of rows 1.38 and 1.39.
    """
    a, b, out = (str(one.dtype) for one in (work.operands.a, work.operands.b, work.operands.out))
    values = {
        "SCALES": int(work.scales),
        "DEPTHS": int(work.depths),
        "OUT_FLOAT": int(out == "torch.float32"),
        "A_E5M2": int("e5m2" in a),
        "B_E5M2": int("e5m2" in b),
        "SKEW": int(work.scales != Scales.ROWS),
    }
    return tuple(values.items())


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
        self._places: tuple[Any, ...] = ()
        self._groups = work.groups
        self._lock = threading.Lock()

    def _fixed(self, work: Fp8Work, fault: int) -> None:
        call, given, out = self._call, work.operands, work.operands.out
        call.fault, call.band = fault, _BAND
        call.m = out.shape[1] if work.depths else 0
        call.n, call.k = out.shape[-1], 0 if work.depths else given.a.shape[1]
        call.across = -(-call.n // COLUMNS)
        call.tiles = work.groups * -(-call.m // ROWS) * call.across

    def launch(self, stream: int, table: Any, given: Operands) -> None:
        """Enqueue on a stream of the current device. Raises DeviceError."""
        call, out = self._call, given.out
        a, b = given.scale_a, given.scale_b
        places = tuple((one.data_ptr(), *one.shape, *one.stride()) for one in (given.a, given.b))
        with self._lock:
            if places != self._places:
                self._map(given)
                self._places = places
            call.table, call.out = table.data_ptr(), out.data_ptr()
            call.a_scales, call.b_scales = a.data_ptr(), b.data_ptr()
            call.a_scale_row, call.a_scale_k = a.stride()
            call.b_scale_group, call.b_scale_k, call.b_scale_column = b.stride()
            call.out_row, call.out_group = out.stride(-2), out.stride(0)
            pitches = (out.stride(-2), out.stride(0))
            call.vectors = int(all(one * out.element_size() % 16 == 0 for one in pitches))
            if out.data_ptr() % 16:
                call.vectors = 0
            if self._depths:
                call.b_scale_group = 0
            else:
                call.band = min(max(given.a.shape[0] // (self._groups * ROWS), 1), _BAND)
            self._enqueue(stream)

    def _map(self, given: Operands) -> None:
        """Both maps, k contiguous: a few microseconds of the host where something has moved."""
        self._places = ()  # of none, should the driver refuse one
        a, b = given.a, given.b
        columns, pitch = b.shape[-1], b.stride(-1)
        rows = columns if self._depths else columns * b.shape[0]
        for name, one, across, down, step, box in (
            ("a", a, a.shape[1], a.shape[0], a.stride(0), 64),
            ("b", b, b.shape[-2], rows, pitch, COLUMNS),
        ):
            made = encoded("UINT8", one.data_ptr(), (across, down), step, (BLOCK, box))
            ctypes.memmove(ctypes.addressof(self._call) + getattr(_Call, name).offset, made, BYTES)
