"""A kernel is one stem: two files in the folder, and nothing else anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import house_copy
from tests.support.cases import CASES
from tilewright import Device

_USED = """
import numpy, tilewright
device = {device!r}
assert "added" in tilewright.kernels(device), tilewright.kernels(device)
a = numpy.random.default_rng(0).standard_normal((70, 30)).astype(numpy.float32)
b = numpy.random.default_rng(1).standard_normal((30, 50)).astype(numpy.float32)
print(tilewright.explain(a, b, device=device, kernel="added"))
numpy.testing.assert_allclose(
    tilewright.matmul(a, b, device=device, kernel="added"), a @ b, rtol=1e-4, atol=1e-4
)
"""
_TUNED = """
import tilewright
from tilewright.inputs.devices import backend_of
from tilewright.planning.classes import UNMEASURED
from tilewright.tuning.tasks import tasks
from tilewright.tuning.trial import Shape
from tilewright.tuning.tuner import Tuner
from tilewright.tuning.workshop import Workshop

device = next(one for one in tilewright.devices() if one.id == {device!r})
backend = backend_of(device)
kernels = [kernel for kernel in backend.kernels(device) if kernel.name == "added"]
todo = tasks(kernels, [Shape(64, 64, 64)], UNMEASURED)
with Workshop(timeout=600.0) as workshop:
    (result,) = Tuner(device, backend.priors(device), workshop, 3.0).run(todo)
print("tried", result.timed, result.failed)
assert result.timed > 0
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with one kernel more: `naive` under another name."""
    folder = house_copy.copied(tmp_path_factory.mktemp("house"))
    kernels = folder / "tilewright/backends/opencl/kernels"
    for suffix in (".py", ".cl"):
        text = (kernels / f"naive{suffix}").read_text(encoding="utf-8")
        (kernels / f"added{suffix}").write_text(text.replace("naive", "added"))
    return folder


def run(house: Path, *command: str) -> str:
    done = house_copy.run(house, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_stem_is_listed_planned_and_run(house: Path, intel: Device) -> None:
    assert "launch     added" in run(house, "-c", _USED.format(device=intel.id))


def test_a_stem_is_tuned(house: Path, intel: Device) -> None:
    """Its configurations are tried in a process of their own, and checked there."""
    assert "tried" in run(house, "-c", _TUNED.format(device=intel.id))


def test_a_stem_runs_the_case_list_and_is_held_by_the_guard(house: Path, intel: Device) -> None:
    least = {
        "tests/backends/opencl/test_kernels.py": len(CASES),
        "tests/test_architecture.py": 1,
        "tests/tuning/test_spaces.py": 5,
    }
    chosen = "added and (intel or test_architecture or test_spaces)"
    found = run(house, "-m", "pytest", "-vv", "-p", "no:cacheprovider", "-k", chosen, *least)
    passed = [line for line in found.splitlines() if " PASSED" in line]
    for path, count in least.items():
        assert sum(line.startswith(path) for line in passed) >= count, path
