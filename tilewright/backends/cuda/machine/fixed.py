"""A product that is repeated: its kernels as one CUDA graph, the first of which sets the addresses.

    runs 1, 2      a table from the host, then kernel, kernel, kernel        placing.py
    run 3          a graph, with table and scratch of its own:  place -> kernel -> kernel -> kernel
    from then on   the addresses as parameters of `place` (kernels/simt/place.cu), one launch

For 1024 x 1024 x 1024 in fp32x setting and launching took 2.1 us of an H200's host, the three
launches alone 12.6; the device was done after 29 us instead of 41, most of the rest its table.

A graph's table and scratch are memory that it keeps while it is on its shelf, whatever streams it
runs on: the driver lets launches of one graph follow one another (CUDA driver API, cuGraphLaunch).
A graph may not be launched while the caller captures one of his own: then a table travels again.
"""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import numpy as np

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.machine import nvrtc, placing, tables
from tilewright.backends.cuda.machine.placing import Kernels
from tilewright.backends.cuda.machine.replay import Graph, unhindered
from tilewright.backends.cuda.machine.shared import Shared
from tilewright.backends.cuda.work import Ints, Moving, Work
from tilewright.errors import DeviceError, DeviceWarning
from tilewright.remember import Shelf

_RUNS = 3
_MOST = 48 << 20  # bytes of scratch: what takes more keeps the device busy longer than the host
_PLACES = 4  # a, b, c, scratch
_THREADS = 256
_numbers = count()


def moving(kernels: Kernels, work: Work) -> Moving:
    """A batch on any addresses; one product without a bias by a graph where it runs again."""
    found = placing.moving(kernels, work.ordinal)
    alone = len(work.m) == 1 and work.bias is None and kernels.template.scratch <= _MOST
    if not alone or not nvrtc.is_cuda(work.ordinal):
        return found
    return replace(found, one=Again(found.run, work.ordinal, lambda: Fixed(kernels, work.ordinal)))


class Fixed:
    """The graph of one product, on a table and scratch of its own."""

    def __init__(self, kernels: Kernels, ordinal: int) -> None:
        """Record it. Raises DeviceError and torch's OutOfMemoryError."""
        import torch
        from cuda.bindings import driver

        template = kernels.template
        size, numbers = len(template.words), np.full(len(template.words), -1, np.int32)
        for which, source in template.lacking:
            numbers[which] = np.arange(_PLACES)[source]
        whole = np.concatenate((template.words, numbers.view(np.int64)))  # tables end evenly
        with torch.inference_mode(mode=False), unhindered(driver):
            kept = tables.upload(len(whole), lambda into: np.copyto(into, whole), ordinal)
            table = torch.empty_like(kept[:size])
            scratch = tables.scratch(template.scratch, ordinal) if template.scratch else None
        self._shared = Shared((kept, table, scratch), ordinal)
        self.bytes = sum(x.nbytes for x in self._shared.memory) + (128 << 10)  # and the graph's own
        self._at = (ctypes.c_int64 * _PLACES)()
        self._at[3] = 0 if scratch is None else scratch.data_ptr()
        pointers = (table.data_ptr(), kept.data_ptr(), kept.data_ptr() + template.words.nbytes)
        values = (*map(ctypes.c_void_p, pointers), ctypes.c_int(size), self._at)
        arguments = nvrtc.Arguments(values)
        place = nvrtc.function("place", (("PLACES", _PLACES),), ordinal)
        launch_place = nvrtc.launcher((place, -(-size // _THREADS), _THREADS, arguments))

        def enqueue(stream: int) -> None:
            launch_place(stream)
            kernels.launch(stream, table, scratch)

        self._graph = Graph(enqueue, ordinal, driver, arguments)
        self._lock = threading.Lock()

    def launch(self, stream: int, a: int, b: int, c: int) -> None:
        """The product at these addresses, on torch's current stream. Raises DeviceError."""
        self._shared.meet(stream)
        at = self._at
        with self._lock:
            at[0], at[1], at[2] = a, b, c
            self._graph.launch(stream)


_graphs: Shelf[int, Fixed] = Shelf("graphs of products on GPUs", most=256 << 20)


class Again:
    """Runs a product; `run` with its table from the host at first, then by what `record` gives."""

    def __init__(
        self, run: Callable[[int, Ints], None], ordinal: int, record: Callable[[], Fixed]
    ) -> None:
        """Nothing is recorded yet."""
        import torch

        self._run, self._record, self._ordinal = run, record, ordinal
        self._number, self._runs, self._lock = next(_numbers), 0, threading.Lock()
        self._stream_of = private.raw_stream(torch)
        self._is_captured = private.is_capturing(torch)

    def __call__(self, a: int, b: int, c: int) -> None:
        """On torch's current stream of its GPU, the current one."""
        fixed = _graphs.get(self._number)
        launch = self._first if fixed is None or self._is_captured() else fixed.launch
        stream = self._stream_of(self._ordinal)
        try:
            launch(stream, a, b, c)
        except DeviceError:  # a thread that the driver does not know yet
            if not nvrtc.enter(self._ordinal):
                raise
            launch(stream, a, b, c)

    def _first(self, stream: int, a: int, b: int, c: int) -> None:
        self._run(stream, np.array((a, b, c, 0), np.int64))
        if self._is_captured():
            return
        with self._lock:
            self._runs += 1
            if self._runs == _RUNS:
                self._begin()

    def _begin(self) -> None:
        import torch

        try:
            fixed = self._record()
        except torch.OutOfMemoryError:
            return  # the table goes on travelling
        except RuntimeError as error:  # Triton's launcher raises no other
            where, why = f"cuda:{self._ordinal}", str(error).partition("\n")[0]
            message = f"{where}: {why}; a product's kernels are launched one by one"
            warnings.warn(message, DeviceWarning, stacklevel=6)
            return
        _graphs.keep(self._number, fixed, size=fixed.bytes, owners=(self,))
        self._runs = 0  # where it is forgotten it is recorded again
