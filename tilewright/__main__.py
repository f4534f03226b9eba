"""`tilewright`, and `python -m tilewright`: Ctrl-C is one line from the first moment on.

Loading what a command needs takes up to half a second, in which nothing is begun that had to be
undone.
"""

import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn


def _stopped(number: int, _: FrameType | None) -> NoReturn:
    os.write(2, b"error: interrupted\n")
    os._exit(128 + number)


def _open_what_is_closed() -> None:
    """Stand something in for streams that the caller closed, as `>&-` does.

    The first file that is opened would get the number of standard output, and be printed into.
    Writing to what stands in for standard output fails, as to what is closed; errors go nowhere.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115


def main() -> None:
    """Run the command that `sys.argv` names, and exit with its status."""
    _open_what_is_closed()
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not so under `nohup`
    if ours and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _stopped)
    from tilewright.cli import app

    sys.exit(app(prog_name="tilewright"))


if __name__ == "__main__":
    main()
