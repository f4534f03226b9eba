"""A forked child of a process that used one-bit products and networks may use them too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tilewright.backends.host import compiled

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.skipif(not compiled.available(), reason="Numba is not installed"),
]
# Large enough that products go to all cores; the networks' kernels always do.
SCRIPT = """
import contextlib, os, signal, sys, threading, traceback
import numpy as np
import tilewright as tw
from tilewright import onebit
from tilewright.backends.host import compiled
from tilewright.onebit.layers import AveragePool, BitConv, Sign
from tilewright.nn.window import Window

draw = np.random.default_rng(0)
a, w = (draw.choice([-1.0, 1.0], shape).astype("f") for shape in ((700, 900), (900, 800)))
picture = draw.choice([-1.0, 1.0], (1, 9, 9, 70)).astype("f")
weights = draw.choice([-1.0, 1.0], (40, 3, 3, 70)).astype("f")
conv = onebit.Conv2d(weights, padding=1)
network = onebit.Network((9, 9, 70), (
    Sign(name="s", inputs=("input",)),
    BitConv(name="c", inputs=("s",), weights=onebit.pack(weights),
                          window=Window((3, 3), pads=(1, 1, 1, 1))),
    AveragePool(name="m", inputs=("c",)),
))
def on_every_device():
    for device in tw.devices():
        if device.backend == "opencl":
            # a driver may be older than the processor, and compile nothing
            with contextlib.suppress(tw.errors.BuildError):
                tw.matmul(a[:4], w[:, :4], kernel="naive", device=device)
uses = {
    "nothing": lambda: None,
    "pack": lambda: np.asarray(onebit.pack(a).words),
    "matmul": lambda: onebit.matmul(onebit.pack(a), onebit.pack(w, axis=0)),
    "Conv2d": lambda: conv(onebit.pack(picture)),
    "Network": lambda: network.run(picture),
    "OpenCL": on_every_device,
}
here = {}

def child(again):
    signal.alarm(500)
    found = {name: use() for name, use in uses.items() if name not in ("OpenCL", "nothing")}
    assert np.array_equal(found["matmul"], (a @ w).astype(np.int32))
    means = found["Conv2d"].mean(axis=(1, 2)).astype("f")
    assert np.allclose(means, found["Network"], rtol=1e-5, atol=1e-5)
    for name in found.keys() & here.keys():
        assert np.array_equal(found[name], here[name]), name
    if again:
        fork(False)

def fork(again):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            child(again)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return status

for name, use in uses.items():
    here[name] = use()
    print("after", name, fork(again=name in ("nothing", "OpenCL")))

held, go = threading.Event(), threading.Event()
def hold():
    with compiled.LOCK:
        held.set()
        go.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
print("while another thread computes", fork(again=False))
go.set()
for name in ("matmul", "Conv2d", "Network"):
    assert np.array_equal(uses[name](), here[name])  # and the parent goes on
"""


def test_children_compute_what_their_parent_does_whatever_it_did_before() -> None:
    """Each state of the parent adds to those before it; twice a child forks one of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith(("after", "while"))]
    assert said == [
        "after nothing 0",
        "after pack 0",
        "after matmul 0",
        "after Conv2d 0",
        "after Network 0",
        "after OpenCL 0",
        "while another thread computes 0",
    ], done.stderr
