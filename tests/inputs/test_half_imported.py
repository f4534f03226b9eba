"""While another thread imports a module, those that ask for it find it without its names."""

from __future__ import annotations

import subprocess
import sys

import pytest

CALLS = {
    "matmul": "tilewright.matmul(a, a)",
    "matmul, relu": "tilewright.matmul(a, a, activation='relu')",
    "matmul, transposed": "tilewright.matmul(a, a, transpose_a=True)",
    "matmul, out": "tilewright.matmul(a, a, out=a.copy())",
    "grouped": "tilewright.grouped_matmul([a] * 3, [a] * 3)",
    "grouped, bias": "tilewright.grouped_matmul([a] * 3, [a] * 3, bias=[a[0]] * 3)",
    "a batch": "tilewright.grouped_matmul(*[tilewright.RaggedBatch.from_list([a, a])] * 2)",
    "bound": "tilewright.plan_grouped([5], [5], [5]).bind([a], [a])()",
    "bits": "onebit.matmul(onebit.pack(a), onebit.pack(a))",
    "explain": "tilewright.explain(a, a)",
    "asarray": "tilewright.asarray(a, device='host')",
}
PROGRAM = """
import importlib.util, sys, types
import numpy as np
import tilewright
from tilewright import onebit
for name in ("torch", "tilewright.calls.dense_plans_gpu", "tilewright.calls.grouped_plans_gpu"):
    begun = types.ModuleType(name)
    begun.__spec__ = importlib.util.find_spec(name)  # an import gives it that before it runs
    sys.modules[name] = begun
if {driver}:
    from tilewright.backends.cuda.machine import driver
    driver._has_driver = lambda: True
a = np.ones((5, 5), np.float32)
for name, call in {calls}.items():
    try:
        eval(call)
    except Exception as error:
        print(name, repr(error))
"""


@pytest.mark.parametrize(("named", "driver"), [("host", False), ("", False), ("", True)])
def test_calls_on_the_hosts_arrays_do_without(named: str, driver: bool) -> None:
    """With a GPU's driver too: PyTorch takes seconds to load, and runs none of them."""
    program = PROGRAM.format(calls=CALLS, driver=driver)
    if named:
        program = f"import os; os.environ['TILEWRIGHT_DEVICE'] = {named!r}\n{program}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr
