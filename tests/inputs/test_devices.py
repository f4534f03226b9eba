"""Which devices there are, which one a call means, and how drivers are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from tests.support import paths
from tilewright import Device
from tilewright.backends.opencl import runtime
from tilewright.errors import DeviceError
from tilewright.facts.device import FEATURES
from tilewright.inputs import devices
from tilewright.inputs.devices import resolve


def test_the_host_is_always_there_and_last() -> None:
    *others, last = tilewright.devices()
    assert last.id == last.backend == "host"
    assert all(device.backend != "host" for device in others)


def test_devices_are_numbered_best_first_and_simulators_come_last() -> None:
    opencl = [device for device in tilewright.devices() if device.backend == "opencl"]
    assert [device.id for device in opencl] == [f"opencl:{n}" for n in range(len(opencl))]
    order = ["gpu", "accelerator", "cpu", "simulator"]
    ranks = [order.index(device.kind) for device in opencl]
    assert ranks == sorted(ranks)


def test_facts_of_a_device_are_read(device: Device) -> None:
    assert device.name
    assert device.version.startswith("OpenCL ")
    assert device.compute_units >= 1
    assert 0 < device.max_allocation <= device.memory
    assert device.max_work_group >= 1
    assert device.has("images") == (device.image_width > 0)
    assert "float32" in device.dtypes
    assert ("float16" in device.dtypes) == device.has("fp16")


def test_the_record_is_plain_json(device: Device) -> None:
    record = json.loads(json.dumps(device.as_dict()))
    assert record["name"] == device.name
    assert record["features"] == sorted(device.features)


def test_an_unknown_feature_is_an_error_that_names_the_known(device: Device) -> None:
    with pytest.raises(ValueError, match=f"'warp'.*{FEATURES[0]}"):
        device.has("warp")


def test_kernels_lists_the_ladder(device: Device) -> None:
    assert tilewright.kernels(device) == (
        "coalesced",
        "dot4",
        "image_a",
        "image_ab",
        "image_b",
        "local",
        "naive",
        "panel",
    )
    assert tilewright.kernels("host") == ()


# Selection.


def test_a_device_is_chosen_by_number_driver_and_record(intel: Device, pocl: Device) -> None:
    assert resolve("opencl:0") == tilewright.devices()[0]
    assert resolve("opencl") == tilewright.devices()[0]
    assert resolve("opencl:intel") == intel
    assert resolve("opencl:Portable") == pocl
    assert resolve(pocl) is pocl
    assert resolve("host").id == "host"


def test_the_default_is_the_first_device_that_is_no_simulator() -> None:
    assert resolve(None) == next(d for d in tilewright.devices() if d.kind != "simulator")


def test_the_environment_chooses_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEVICE", "host")
    assert resolve(None).id == "host"
    monkeypatch.setenv("TILEWRIGHT_DEVICE", "opencl:77")
    with pytest.raises(DeviceError, match=r"TILEWRIGHT_DEVICE='opencl:77'.*'host'"):
        resolve(None)


@pytest.mark.parametrize(
    "wrong", ["", "cuda", "opencl:77", "opencl:nonesuch", "host:0", "Host", 0, ["host"], b"host"]
)
def test_a_wrong_name_is_an_error_that_names_the_choices(wrong: object) -> None:
    if wrong == "":
        assert resolve("") == resolve(None)  # an empty name is no name
        return
    with pytest.raises(DeviceError) as caught:
        resolve(wrong)  # type: ignore[arg-type]
    assert repr(wrong) in str(caught.value)
    assert all(repr(device.id) in str(caught.value) for device in tilewright.devices())


@pytest.mark.parametrize(
    "absent", [Device("opencl:77", "opencl", "gone"), Device("cuda:0", "cuda", "not yet")]
)
def test_a_record_of_a_device_that_is_not_here_is_an_error(absent: Device) -> None:
    with pytest.raises(DeviceError, match=absent.id):
        tilewright.empty(4, device=absent)


# Drivers.


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose system drivers are two `.icd` files, one of a library that is not there."""
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    library = tmp_path / "libvendor.so"
    library.touch()
    (vendors / "vendor.icd").write_text(f"{library}\n")
    (vendors / "bare.icd").write_text("libbare.so.1\n")
    (vendors / "gone.icd").write_text(f"{tmp_path}/nowhere/libgone.so\n")
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.delenv("OCL_ICD_FILENAMES", raising=False)
    monkeypatch.setattr(runtime, "_SYSTEM_VENDORS", vendors)
    return tmp_path


def intel_wheel(prefix: Path, *libraries: str) -> Path:
    """What pip leaves of Intel's runtime: libraries, and an `.icd` file with a placeholder."""
    (prefix / "lib").mkdir(parents=True)
    (prefix / "etc" / "OpenCL" / "vendors").mkdir(parents=True)
    (prefix / "etc" / "OpenCL" / "vendors" / "intel64.icd").write_text("<placeholder>\n")
    for library in libraries:
        (prefix / "lib" / library).touch()
    return prefix


def test_the_drivers_of_the_system_are_kept(system: Path) -> None:
    assert runtime.driver_libraries(system / "empty") == (
        "libbare.so.1",
        str(system / "libvendor.so"),
    )


def test_intels_library_is_found_although_its_icd_file_is_broken(system: Path) -> None:
    prefix = intel_wheel(system / "env", "libintelocl.so", "libsvml.so")
    found = runtime.driver_libraries(prefix)
    assert found[-1] == str(prefix / "lib" / "libintelocl.so")
    assert str(system / "libvendor.so") in found


def test_intels_library_is_left_out_where_the_compilers_runtime_is_absent(system: Path) -> None:
    prefix = intel_wheel(system / "env", "libintelocl.so")
    assert not any(library.endswith("ocl.so") for library in runtime.driver_libraries(prefix))


def test_a_named_folder_that_is_gone_does_not_hide_the_systems_drivers(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = runtime.driver_libraries(system / "empty")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(system / "gone"))
    assert runtime.driver_libraries(system / "empty") == kept


def test_the_loaders_folder_is_filled_again_where_it_was_emptied(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(system / "cache"))
    folder = runtime._vendors_folder()
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert f"{system / 'libvendor.so'}\n" in written.values()
    (folder / "00.icd").unlink()
    (folder / "01.icd").write_text("half a li")
    assert runtime._vendors_folder() == folder
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == written


@pytest.mark.parametrize("named", ["own", "own/own.icd", "own/libown.so"])
def test_drivers_that_the_user_names_stand_for_the_systems(
    named: str, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = system / "own"
    own.mkdir()
    (own / "libown.so").touch()
    (own / "own.icd").write_text("libown.so\n")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(system / named))
    assert runtime.driver_libraries(system / "empty") == (str(own / "libown.so"),)


def test_libraries_named_for_the_loader_alone_are_found_once(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (system / "again.so").symlink_to(system / "libvendor.so")
    named = [str(system / "libother.so"), str(system / "again.so"), "libthird.so.1", ""]
    monkeypatch.setenv("OCL_ICD_FILENAMES", os.pathsep.join(named))
    assert runtime.driver_libraries(system / "empty") == (
        "libbare.so.1",
        str(system / "libvendor.so"),
        str(system / "libother.so"),
        "libthird.so.1",
    )
    monkeypatch.setattr(runtime, "_SYSTEM_VENDORS", system / "none")
    assert runtime.driver_libraries(system / "empty") == (named[0], named[1], named[2])


def test_a_machine_without_drivers_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OCL_ICD_FILENAMES", raising=False)
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.setattr(runtime, "_SYSTEM_VENDORS", tmp_path / "none")
    assert runtime.driver_libraries(tmp_path) == ()


NO_DRIVER = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "pyopencl" else real(name, *a)
import numpy as np, tilewright
assert [device.id for device in tilewright.devices()] == ["host"]
a = np.ones((300, 300), np.float32)
assert (tilewright.matmul(a, a) == 300).all()
try:
    tilewright.matmul(a, a, device="opencl")
except tilewright.errors.DeviceError as error:
    print(error)
assert "pyopencl" not in sys.modules
"""


def test_without_pyopencl_the_host_computes_and_the_error_names_the_pip_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_DRIVER],
        capture_output=True,
        text=True,
        env=os.environ,
        check=True,
    )
    assert devices.INSTALL_HINT in done.stdout


def test_a_pyopencl_that_cannot_be_loaded_leaves_the_host(tmp_path: Path) -> None:
    (tmp_path / "pyopencl.py").write_text("raise ImportError('libOpenCL.so.1: not there')")
    code = """
import numpy as np, tilewright as tw
assert [d.id for d in tw.devices() if d.backend == "opencl"] == []
a = np.ones((70, 70), np.float32)
np.testing.assert_array_equal(tw.matmul(a, a), a @ a)
np.testing.assert_array_equal(tw.grouped_matmul([a], [a])[0], a @ a)
try:
    tw.matmul(a, a, device="opencl")
except tw.errors.DeviceError as error:
    print(error)
"""
    path = paths.first(tmp_path, Path(tilewright.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("device='opencl'")
    assert ran.stderr == ""
