"""`tilewright`, and `python -m tilewright`: Ctrl-C is one line from the first moment on.

Loading the commands takes most of a second, in which nothing is begun that had to be undone.
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


def main() -> None:
    """Run the command that `sys.argv` names, and exit with its status."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not so under `nohup`
    if ours and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _stopped)
    from tilewright.cli import app

    sys.exit(app(prog_name="tilewright"))


if __name__ == "__main__":
    main()
