"""Locks between processes on a file that is open: the system lets go when it closes, or they end.

Kept by hand, as both who take locks need the open file itself: a journal's folder may be taken away
by whoever was there before, so that the one who waited has to see whether the file that it holds
still has its name; a library that locks paths (filelock, portalocker) opens and closes it out of
sight, and removes it on some systems.
"""

from __future__ import annotations

import sys
import time

_AGAIN = 0.05  # seconds between two tries where the system cannot wait (Windows)


def hold(descriptor: int) -> None:
    """Wait until nobody else holds the file. Raises OSError on a file system without locks."""
    if sys.platform == "win32":
        while not try_hold(descriptor):
            time.sleep(_AGAIN)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)


def try_hold(descriptor: int) -> bool:
    """Whether this process holds the file now; False where another does."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
