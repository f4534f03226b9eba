"""Runs of one bound network take turns: a handler that interrupts one, children forked beside one.

Networks of all that computes them on the host: chains of float32 and of int8, steps, bits.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import onebit_networks, paths
from tests.support.handlers import interrupted
from tilewright import models
from tilewright.backends.host import compiled
from tilewright.errors import OperandError

pytestmark = pytest.mark.skipif(not compiled.available(), reason="Numba is not installed")
CHANNELS = {"superres-s": 1, "superres-s-int8": 1, "fuse-s": 23, "bits": 0}
ROOT = Path(__file__).parents[2]


def runs(name: str) -> Callable[[], Any]:
    """A run of the network called so."""
    if name == "bits":
        network = onebit_networks.shortcuts()
        picture = onebit_networks.image(network, 2)
        return lambda: network.run(picture)
    sizes = (1, CHANNELS[name], 64, 80)
    bound = models.load(name).bind(sizes, device="host")
    given = np.random.default_rng(1).random(sizes).astype(np.float32)
    return lambda: bound(given)


@pytest.mark.parametrize("name", CHANNELS)
def test_a_handler_that_runs_the_network_it_interrupts_is_told_so(name: str) -> None:
    """It would wait for itself, or write into the values of the run beneath it. At every call and
    return within a run, where signals and finalizers are heard too."""
    run = runs(name)
    right = run()
    told: list[str] = []

    def handler() -> bool:
        try:
            np.testing.assert_array_equal(run(), right)
        except OperandError as error:
            told.append(str(error))
        return len(told) < 3

    np.testing.assert_array_equal(interrupted(run, handler), right)
    assert len(told) == 3
    assert "this thread is in the middle of a run of it" in told[0]
    np.testing.assert_array_equal(run(), right)


def test_a_network_is_not_run_while_values_of_it_are_kept() -> None:
    bound = models.load("superres-s").bind((1, 1, 16, 16), device="host")
    x = np.ones((1, 1, 16, 16), np.float32)
    with bound.kept(x) as values:
        with pytest.raises(OperandError, match="kept"):
            bound(x)
        with pytest.raises(OperandError, match="kept"):
            bound.profile(x)
        assert all(name in values for name in bound.graph.outputs)
    assert bound(x).shape == (1, 1, 32, 32)


FORK = """
import faulthandler, os, sys, threading
import numpy as np
from tests.nn.test_turns import runs

run = runs(sys.argv[1])
right = run()
begun = threading.Event()

def work():
    while True:
        run()
        begun.set()

threading.Thread(target=work, daemon=True).start()
begun.wait()
for _ in range(12):
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(600, exit=True)
        os._exit(0 if np.array_equal(run(), right) else 3)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        os._exit(code)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("name", ["superres-s", "superres-s-int8", "fuse-s"])
def test_a_child_forked_while_another_thread_runs_a_network_runs_it(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, name],
        env={**os.environ, "PYTHONPATH": paths.first(ROOT)},
        cwd=ROOT,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0
