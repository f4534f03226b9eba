"""Parts of the pipeline that work side by side: a thread each, joined by short queues.

    decode -> [4] -> stage x cores -> [4] -> stage x cores -> [4] -> encode

A stage takes a picture a core at once: cores that share one picture would wait for each other at
every layer, and for whatever the encoder does beside. Each part is an iterator; `ahead` runs one in
a thread of its own. Queues are bounded, so memory is: the slowest part holds all others back, and
the clock says which that is. FFmpeg and our kernels let other threads run while they work.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from queue import Empty, Full, Queue
from time import perf_counter
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")
DEPTH = 4  # pictures between two parts
_LOOK = 0.1  # seconds after which a part that waits looks whether all is over


class Clock:
    """For how long each part worked, not counting what it waited for others."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, name: str, seconds: float) -> None:
        """Time that a part worked."""
        with self._lock:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    @property
    def seconds(self) -> dict[str, float]:
        """By part, in the order in which they first worked."""
        with self._lock:
            return dict(self._seconds)

    @property
    def slowest(self) -> str:
        """The part that holds the others back; "" before any worked."""
        seconds = self.seconds
        return max(seconds, key=lambda name: seconds[name]) if seconds else ""


def ahead(
    source: Iterator[T], name: str, clock: Clock, depth: int = DEPTH
) -> Generator[T, None, None]:
    """The items of an iterator that runs in a thread, at most `depth` items ahead.

    `name` is whose work it is; "" where the iterator tells the clock itself.
    What it raises is raised here. Closed early, the thread is ended and the iterator closed.
    """
    queue: Queue[tuple[T | None, BaseException | None]] = Queue(depth)
    over = threading.Event()
    thread = threading.Thread(target=_filled, args=(source, queue, over, name, clock), daemon=True)
    thread.start()
    try:
        while True:
            item, error = queue.get()
            if error is not None:
                if isinstance(error, StopIteration):
                    return
                raise error
            yield item  # type: ignore[misc]
    finally:
        over.set()
        while thread.is_alive():
            _emptied(queue)
            thread.join(_LOOK)


def spread(
    works: Sequence[Callable[[S], Iterable[T]]], given: Iterator[S], name: str, clock: Clock
) -> Generator[T, None, None]:
    """What workers, a thread each, make of items; in the items' order, whoever was first.

    Each has an item at a time, and at most one more a worker waits: as bounded as a queue.
    """
    free: Queue[Callable[[S], Iterable[T]]] = Queue()
    for work in works:
        free.put(work)

    def one(item: S) -> list[T]:
        work = free.get()
        begin = perf_counter()
        try:
            return list(work(item))
        finally:
            clock.add(name, (perf_counter() - begin) / len(works))
            free.put(work)

    with ThreadPoolExecutor(len(works)) as pool:
        running: deque[Future[list[T]]] = deque()
        try:
            for item in given:
                running.append(pool.submit(one, item))
                if len(running) >= 2 * len(works):
                    yield from running.popleft().result()
            while running:
                yield from running.popleft().result()
        finally:
            for waiting in running:
                waiting.cancel()


def _filled(source: Any, queue: Queue[Any], over: threading.Event, name: str, clock: Clock) -> None:
    try:
        with closing(source):
            while not over.is_set():
                begin = perf_counter()
                item = next(source)
                if name:
                    clock.add(name, perf_counter() - begin)
                _put(queue, (item, None), over)
    except BaseException as error:
        _put(queue, (None, error), over)


def _put(queue: Queue[Any], item: Any, over: threading.Event) -> None:
    while not over.is_set():
        try:
            return queue.put(item, timeout=_LOOK)
        except Full:
            continue


def _emptied(queue: Queue[Any]) -> None:
    try:
        while True:
            queue.get_nowait()
    except Empty:
        return
