"""Turns several launches into one call of the driver, by a CUDA graph recorded at the second run.

    first run     kernel, kernel, ...          a call of the driver each: who runs once pays no more
    second run    kernel, kernel, ...  ->  a stream of our own, captured  ->  graph
    from then on  graph                        one call of the driver

On an H200's host replaying took 1.3 us for one kernel and for six in a row, launching 3.0 each; the
recording took 70 to 220 and some 100 KiB of the device. On the device graphs were never slower.

The graph holds the kernels' arguments, so whoever owns it keeps the memory that they name. A graph
may not be launched while the caller captures one of his own: the kernels are launched then. The
driver lets launches of one graph follow one another, whatever their streams (CUDA driver API,
cuGraphLaunch), but not be made by two threads at once, so a lock stands around each.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.work import Enqueue
from tilewright.errors import DeviceError, DeviceWarning

_streams: dict[int, Any] = {}  # the stream of each GPU on which kernels are recorded
_recording = threading.Lock()
_NON_BLOCKING = 1  # the default stream stays usable while such a stream is captured


class Graph:
    """Kernels on one GPU as the driver launches them together; `handle` is its CUgraphExec."""

    def __init__(self, enqueue: Enqueue, ordinal: int, driver: Any, arguments: Any = None) -> None:
        """Record what `enqueue` launches, on the current GPU. Raises DeviceError.

        `arguments` (nvrtc.Arguments), where given, are those of the first kernel, read anew by
        each `launch`.
        """
        recorded = None
        with _recording, unhindered(driver):
            made = _captured(enqueue, ordinal, driver)
            try:
                if arguments is not None:
                    first = _first_of(made, driver)
                    params = nvrtc.check(driver.cuGraphKernelNodeGetParams(first), "a node")
                    params.kernelParams = arguments.pointer
                    self._steered = (driver.cuGraphExecKernelNodeSetParams, first, params)
                    self._keep = arguments
                self.handle = nvrtc.check(driver.cuGraphInstantiate(made, 0), "graph of kernels")
                recorded = None if arguments is None else made  # a node is its graph's
            finally:
                if recorded is None:
                    driver.cuGraphDestroy(made)
        self._launch = driver.cuGraphLaunch
        self._end = weakref.finalize(self, _destroy, self.handle, driver, recorded)
        self._end.atexit = False

    def launch(self, stream: int) -> None:
        """With the arguments as they are now; by one thread at a time. Raises DeviceError."""
        steer, first, params = self._steered
        (status,) = steer(self.handle, first, params)
        if not status:
            (status,) = self._launch(self.handle, stream)
        if status:
            nvrtc.check((status,), "launch of a graph of kernels")


def _first_of(recorded: Any, driver: Any) -> Any:
    """The node that all others wait for. Raises DeviceError where there is not one."""
    _, _, many = driver.cuGraphGetRootNodes(recorded, 0)
    if many != 1:
        raise DeviceError(f"graph of kernels: {many} begin it")
    status, nodes, _ = driver.cuGraphGetRootNodes(recorded, many)
    nvrtc.check((status,), "nodes of a graph")
    return nodes[0]


def replayed(enqueue: Enqueue, ordinal: int, driver: Any, is_captured: Any) -> Enqueue:
    """`enqueue`, by a graph where it runs again.

    Args:
        enqueue: launches kernels on a stream and does nothing else.
        ordinal: their GPU, the current one whenever this is called.
        driver: `cuda.bindings.driver`.
        is_captured: whether torch's current stream, the one given, is being captured.
    """
    lock, launch = threading.Lock(), driver.cuGraphLaunch
    graph: Graph | None = None
    runs = 0

    def run(stream: int) -> None:
        if graph is None or is_captured():
            begin(stream)
            return
        with lock:
            (status,) = launch(graph.handle, stream)
        if status:
            nvrtc.check((status,), "launch of a graph of kernels")

    def begin(stream: int) -> None:
        nonlocal graph, runs
        with lock:  # what is launched meanwhile may share streams with what is recorded
            enqueue(stream)
            if is_captured():
                return
            runs += 1
            if runs != 2:
                return
            try:
                graph = Graph(enqueue, ordinal, driver)
                return
            except RuntimeError as error:  # Triton's launcher raises no other
                why = str(error)
        warnings.warn(
            f"cuda:{ordinal}: {why}; its kernels are launched one by one",
            DeviceWarning,
            stacklevel=4,
        )

    return run


def _captured(enqueue: Enqueue, ordinal: int, driver: Any) -> Any:
    """The graph of what `enqueue` launches."""
    if ordinal not in _streams:
        _streams[ordinal] = nvrtc.check(driver.cuStreamCreate(_NON_BLOCKING), "a stream")
    stream = _streams[ordinal]
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    nvrtc.check(driver.cuStreamBeginCapture(stream, mode), "capture of kernels")
    try:
        enqueue(int(stream))
    finally:
        ended = driver.cuStreamEndCapture(stream)
    return nvrtc.check(ended, "capture of kernels")


def _destroy(handle: Any, driver: Any, recorded: Any = None) -> None:
    with unhindered(driver):
        driver.cuGraphExecDestroy(handle)
        if recorded is not None:
            driver.cuGraphDestroy(recorded)


@contextmanager
def unhindered(driver: Any) -> Iterator[None]:
    """For calls that would end a capture of the caller's, by this thread or another."""
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = nvrtc.check(driver.cuThreadExchangeStreamCaptureMode(relaxed), "capture mode")
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)
