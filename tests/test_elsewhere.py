"""What only POSIX or only Linux has is asked for first: the library works in a Python without it.

No Windows and no macOS are at hand. A process here loses what they lack, as far as that can be
taken away: names of `os`, modules, the folder /proc; everything else of theirs stays untried.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import compiled_once, house_copy

# Of os, by system: https://docs.python.org/3/library/os.html tells where each is available.
NOT_ON_WINDOWS = (
    "sysconf fork forkpty register_at_fork geteuid getuid getgid getgroups setsid killpg chown"
    " sched_getaffinity sched_setaffinity getxattr listxattr O_NOFOLLOW O_NONBLOCK getloadavg"
)
NOT_ON_MACOS = "sched_getaffinity sched_setaffinity getxattr listxattr"
LACKS = """
import asyncio, builtins, io, os, sys  # asyncio as it is here: there it is another one's
import numpy, platformdirs, psutil, threadpoolctl, typer, rich.console
try:
    import numba, onnx
except ImportError:
    pass
for name in {names!r}.split():
    if hasattr(os, name):
        delattr(os, name)
if hasattr(psutil.Process, "cpu_affinity") and {macos}:
    del psutil.Process.cpu_affinity
for name in {modules!r}.split():
    sys.modules[name] = None
real = io.open
def opened(file, *rest, **more):
    if str(file).startswith("/proc/"):
        raise FileNotFoundError(2, "no such folder", file)
    return real(file, *rest, **more)
builtins.open = io.open = opened
"""
WORKS = """
import warnings
warnings.simplefilter("error")
import numpy as np, tilewright as tw
from tilewright.backends.cuda.machine import driver
driver._has_driver = lambda: False  # PyTorch as it is here asks for what is not there
r = np.random.default_rng(11)
a, b = r.random((40, 30), np.float32), r.random((30, 20), np.float32)
assert np.allclose(tw.matmul(a, b), a @ b, atol=1e-4)
for c, d in zip(tw.grouped_matmul([a, b.T], [b, a.T]), [a @ b, b.T @ a.T]):
    assert np.allclose(c, d, atol=1e-4)
host = next(device for device in tw.devices() if device.backend == "host")
assert host.memory and host.compute_units
signs = tw.onebit.pack(a - 0.5)
assert tw.onebit.matmul(signs, signs).shape == (40, 40)
from tilewright.tuning import store
from tilewright.files import cache
from tilewright import settings
folder = settings.cache_folder()
cache.write(folder / "x.bin", b"kept")
assert cache.read(folder / "x.bin") == b"kept"
tw.forget()
from tilewright.report import others
assert others.watch()() in (True, False)
from tilewright.__main__ import main
sys.argv = ["tilewright", "devices"]
main()
"""


@pytest.mark.parametrize(
    ("names", "modules", "macos"),
    [
        (NOT_ON_WINDOWS, "fcntl resource pwd grp termios", False),
        (NOT_ON_MACOS, "", True),
    ],
    ids=["what Windows lacks", "what macOS lacks"],
)
def test_a_python_without_it_multiplies_measures_and_keeps(
    names: str, modules: str, macos: bool, tmp_path: Path
) -> None:
    lacks = LACKS.format(names=names, modules=modules, macos=macos)
    compiled_once.link(tmp_path)
    environment = {**os.environ, "TILEWRIGHT_CACHE": str(tmp_path), "OCL_ICD_VENDORS": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", lacks + WORKS],
        cwd=house_copy.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "host" in done.stdout
