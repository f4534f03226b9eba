"""What the machine has and what ran on it, asked of psutil, which knows Linux, macOS and Windows.

Where a system does not tell (a sandbox without /proc, a group's limits that cannot be read), the
answer is what holds on the least of machines: 4 GiB of memory, one core, nothing known of others.
"""

from __future__ import annotations

import os

_ASSUMED = 4 << 30
# Time of a core in which it did nothing; what Linux counts as a guest's is within "user" already.
_IDLE = ("idle", "iowait", "guest", "guest_nice")


def memory() -> int:
    """Bytes of the machine's memory; 4 GiB are assumed where the system does not tell."""
    import psutil

    try:
        return int(psutil.virtual_memory().total) or _ASSUMED
    except (psutil.Error, OSError, RuntimeError, ValueError, NotImplementedError):
        return _ASSUMED


def cores() -> int:
    """Cores that this process may use: all but those that it is kept from; at least one."""
    import psutil

    try:
        return len(psutil.Process().cpu_affinity()) or 1
    except (AttributeError, psutil.Error, OSError, ValueError):  # macOS keeps nobody from a core
        return os.cpu_count() or 1


def busy_seconds() -> float | None:
    """Seconds of work of all cores since the machine started; None where it does not tell."""
    import psutil

    try:
        times = psutil.cpu_times()._asdict()
    except (psutil.Error, OSError, RuntimeError, ValueError, IndexError):
        return None
    return float(sum(spent for kind, spent in times.items() if kind not in _IDLE))


def most_memory() -> int:
    """Bytes that this process held at most; 0 where the system does not count them."""
    try:
        import resource
    except ImportError:  # Windows
        import psutil

        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    import sys

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) if sys.platform == "darwin" else 1024 * int(most)
