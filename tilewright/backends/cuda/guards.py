"""Wraps launches: they may be called from any thread, on any stream, whichever GPU is current.

What an engine prepares launches on the stream that it is given, on the current GPU. These look for
the current stream at each launch and make the batch's GPU the current one where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.backends.cuda.machine.shared import Shared
from tilewright.backends.cuda.work import Enqueue, Ints, Launch
from tilewright.errors import DeviceError


def anywhere(run: Callable[[int, Ints], None], ordinal: int) -> Callable[[Ints], None]:
    """Launches on torch's current stream of a device, made the current one where it is not."""
    torch = driver.need()
    device_of, stream_of = private.current_device(torch), private.raw_stream(torch)

    def launch(places: Ints) -> None:
        if device_of() != ordinal:
            with torch.cuda.device(ordinal):
                nvrtc.enter(ordinal)
                run(stream_of(ordinal), places)
            return
        try:
            run(stream_of(ordinal), places)
        except DeviceError:  # a thread that the driver does not know yet
            if not nvrtc.enter(ordinal):
                raise
            run(stream_of(ordinal), places)

    return launch


def guarded(enqueue: Enqueue, ordinal: int, memory: Iterable[Any] = ()) -> Launch:
    """Launches on torch's current stream of a device, made the current one where it is not.

    Tables are uploaded on the stream of `bind`, where also the `memory` comes from that launches
    use. A launch on another stream waits for that upload once, and torch keeps the memory until it
    is done; while a graph is captured it need not, as captures begin with everything done.
    """
    torch = driver.need()
    device_of, stream_of = private.current_device(torch), private.raw_stream(torch)
    shared = Shared(memory, ordinal)
    known = shared.known

    def run() -> None:
        stream = stream_of(ordinal)
        if stream in known and device_of() == ordinal:
            try:
                enqueue(stream)
            except DeviceError:  # a thread that the driver does not know yet
                if not nvrtc.enter(ordinal):
                    raise
                enqueue(stream)
        else:
            elsewhere(stream)

    def elsewhere(stream: int) -> None:
        with torch.cuda.device(ordinal):
            nvrtc.enter(ordinal)
            shared.meet(stream)
            enqueue(stream)

    return run
