"""Plans are shared by all who ask for the same sizes: nobody can change one, or wait in it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.support.handlers import interrupted
from tilewright import Device, RaggedBatch
from tilewright.errors import OperandError

SIZES = np.random.default_rng(0).integers(1, 200, (50, 3))
COLUMNS = ("m", "n", "k", "order", "layout.m", "layout.order", "layout.tile", "layout.parts",
           "layout.queue.problem", "layout.queue.k_end", "layout.sums.offset")  # fmt: skip


def operands(sizes: Any = SIZES) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(1)
    a = [rng.standard_normal((m, k)).astype(np.float32) for m, _, k in sizes]
    b = [rng.standard_normal((k, n)).astype(np.float32) for _, n, k in sizes]
    return a, b


@pytest.mark.parametrize("column", COLUMNS)
def test_columns_of_a_plan_cannot_be_changed(column: str, opencl_device: Device) -> None:
    found: Any = tilewright.plan_grouped(*SIZES.T, device=opencl_device)
    for name in column.split("."):
        found = getattr(found, name)
    with pytest.raises(ValueError, match="read-only"):
        found[...] = 0


def test_columns_of_a_plan_that_is_a_loop_cannot_be_changed() -> None:
    plan = tilewright.plan_grouped(*SIZES.T, device="host")
    for column in (plan.m, plan.n, plan.k):
        with pytest.raises(ValueError, match="read-only"):
            column[...] = 0


def test_places_in_a_batch_cannot_be_changed() -> None:
    a, _ = operands()
    rows = np.array([len(x) for x in a])
    batch = RaggedBatch.from_list(a)
    for column in (batch.rows, batch.cols, batch.offsets):
        with pytest.raises(ValueError, match="read-only"):
            column[...] = 0
    rows[0] += 0  # the caller's own columns stay writable


def test_plans_are_told_apart_by_identity() -> None:
    one, other = (tilewright.plan_grouped([3, k], [3, 4], [3, 4]) for k in (4, 5))
    assert one == one
    assert one != other
    assert len({one, other}) == 2


@pytest.mark.parametrize("where", ["host", "opencl"])
def test_a_handler_that_runs_the_plan_it_interrupts_is_told_so(where: str) -> None:
    """At every call and return within a run, where signals and finalizers are heard too."""
    a, b = operands()
    run = tilewright.plan_grouped(*SIZES.T, device=where).bind(a, b)
    told: list[str] = []

    def handler() -> bool:
        try:
            run()
        except OperandError as error:
            told.append(str(error))
        return len(told) < 3

    results = interrupted(run, handler)
    assert len(told) == 3
    assert all("in the middle of the same bound plan" in one for one in told)
    for x, y, z in zip(a, b, results, strict=True):
        np.testing.assert_allclose(z, x @ y, atol=1e-3)


FORK_WITHIN_A_BATCH = """
import faulthandler, os, sys
import numpy as np, tilewright as tw
from tilewright.backends.opencl import grouped_launch
from tilewright.errors import DeviceError

a = [np.random.default_rng(0).standard_normal((200, 200)).astype("f")] * 40
end, children = grouped_launch.Bound.end, []

def fork():
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    faulthandler.dump_traceback_later(600, exit=True)
    try:
        found = tw.matmul(a[0], a[0], device=sys.argv[1], kernel="naive")
        os._exit(0 if np.allclose(found, a[0] @ a[0], atol=1e-3) else 2)
    except DeviceError as error:
        os._exit(3 if "'spawn'" in str(error) else 4)
    finally:
        os._exit(1)

def fork_first(bound):
    children[:] = children or [fork()]
    end(bound)

grouped_launch.Bound.end = fork_first
run = tw.plan_grouped([200] * 40, [200] * 40, [200] * 40, device=sys.argv[1]).bind(a, a)
assert np.allclose(run()[0], a[0] @ a[0], atol=1e-3)
print(*children, fork())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_within_a_batch_is_told_and_one_after_it_multiplies(device: Device) -> None:
    given = [sys.executable, "-c", FORK_WITHIN_A_BATCH, device.id]
    done = subprocess.run(given, capture_output=True, text=True, timeout=900)
    assert done.stdout.split() == ["3", "0" if device.platform == "Intel(R) OpenCL" else "3"]


FORK = """
import os, sys, threading, time
import numpy as np, tilewright as tw
from tilewright.errors import DeviceError

device = sys.argv[1]
a = np.random.default_rng(0).standard_normal((200, 200)).astype("f")
run = lambda: tw.matmul(a, a, device=device, kernel="local")
run()
if len(sys.argv) > 2:
    threading.Thread(target=lambda: [run() for _ in iter(int, 1)], daemon=True).start()
    time.sleep(0.1)
child = os.fork()
if child == 0:
    import faulthandler
    faulthandler.dump_traceback_later(600, exit=True)
    try:
        assert np.allclose(tw.matmul(a, a, device="host"), a @ a, atol=1e-3)
        assert np.allclose(run(), a @ a, atol=1e-3)
        os._exit(0)
    except DeviceError as error:
        os._exit(3 if "'spawn'" in str(error) else 4)
    finally:
        os._exit(1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("busy", [False, True])
def test_a_forked_child_multiplies_or_is_told_why_not(device: Device, busy: bool) -> None:
    given = [sys.executable, "-c", FORK, device.id, *["busy"][:busy]]
    done = subprocess.run(given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=900)
    if device.platform != "Intel(R) OpenCL":
        assert done.returncode == 3
    else:
        assert done.returncode in ((0, 3) if busy else (0,))
