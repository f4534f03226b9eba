"""Ends a command that fails or is stopped: one line, the right exit status, no half-written files.

SIGTERM and a closed terminal end a command as Ctrl-C does, through Python, so that files under way
are removed. Python hears of a signal only between its own steps: in one long call of a driver or of
BLAS it would not for minutes. So a thread hears of it too, and where the main thread has not
answered after a moment, it removes those files and ends the process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from tilewright.files import atomic

INTERRUPTED = 128 + signal.SIGINT
_UNWRITABLE = tuple(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EBADF")
    if hasattr(errno, name)
)
GRACE = 2.0  # seconds that the main thread has to answer
_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


def complain(what: str, message: object) -> None:
    """A line on stderr; nothing where that is closed too."""
    with contextlib.suppress(OSError, ValueError):
        print(f"{what}: {' '.join(str(message).split())}", file=sys.stderr)


def what_failed(error: OSError) -> str:
    """An error of the system in words: standard output's own, or a file's.

    Files that a user names say so themselves (files/whole.py); what is printed has no name.
    """
    if not flushed() or (error.filename is None and error.errno in _UNWRITABLE):
        return f"standard output: cannot be written ({error.strerror or error})"
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or error}"


def flushed() -> bool:
    """Whether what was printed has arrived. If not, what is left to print goes nowhere."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise
        _silence()
        return False
    return True


def _silence() -> None:
    """Without this Python would try again at its end, and complain in its own way."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def heard_signals() -> Iterator[None]:
    """Signals that end a command do so, whatever it is doing. Elsewhere than in a program's main
    thread nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    listener = _SignalListener()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        if before[number] is not signal.SIG_IGN:  # as of `nohup`
            signal.signal(number, listener.answer)
    with listener:
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def begun() -> None:
    """A command begins: from now on signals end it through Python.

    Until then modules are loaded, lines parsed and help is shown. Nothing is under way that had to
    be undone, and what is raised in a module that is being loaded may not come out of it.
    """
    _SignalListener.at_once = False


class _SignalListener:
    """A thread that hears of signals while the main thread cannot."""

    at_once = False  # whether a signal ends the process where it stands

    def __init__(self) -> None:
        self._answered = 0
        self._sender, self._receiver = socket.socketpair()
        self._sender.setblocking(False)
        self._before = -1

    def answer(self, number: int, _: FrameType | None) -> None:
        """What the main thread does, once it can."""
        self._answered += 1
        if self.at_once:
            if number == signal.SIGINT:
                complain("error", "interrupted")
            os._exit(128 + number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def __enter__(self) -> None:
        _SignalListener.at_once = True
        self._before = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        begun()
        signal.set_wakeup_fd(self._before)
        self._sender.close()  # which ends the thread

    def _listen(self) -> None:
        answered = self._answered
        with self._receiver:
            while numbers := self._receiver.recv(64):
                number = next((n for n in numbers if n in _SIGNALS), None)
                if number is None:
                    continue
                if not self._main_thread_answers(answered):
                    _end(number)
                answered = self._answered

    def _main_thread_answers(self, answered: int) -> bool:
        """Whether it has answered more signals than so many, within GRACE."""
        waiting = threading.Event()
        for _ in range(round(GRACE / 0.05)):
            if self._answered > answered or self._sender.fileno() < 0:
                return True
            waiting.wait(0.05)
        return False


def _end(number: int) -> None:
    """End the process where it stands."""
    atomic.remove_unfinished()
    complain("error", f"ended by {signal.Signals(number).name} in a call that does not stop")
    os._exit(128 + number)
