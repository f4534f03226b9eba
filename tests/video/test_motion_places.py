"""Motion on a GPU: the host's pictures and doubts; and where motion is found."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import pytest

pytest.importorskip("numba")

from tests.support import made_up
from tests.support.moving import (
    CASES,
    SMALL,
    check_alike,
    check_repeatable,
    check_small,
    layers,
    look,
)
from tilewright.backends.cuda.film.plan import Plan
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.errors import DeviceError
from tilewright.facts.device import Device
from tilewright.inputs.devices import host
from tilewright.planning import film
from tilewright.video import motion, motion_places
from tilewright.video.look import Look
from tilewright.video.planes import kernels_of

SOURCES = ("film_pictures", "film_search", "film_trust", "film_between")
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=f"no GPU: {driver.missing()}"),
    pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing())),
]


def gpu_engine(like: Look) -> motion_places.Engine:
    return motion_places.engine_on(motion_places.place_of("cuda:0"), like)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("size", [1, 2])
def test_kernels_of_motion_compile_without_a_gpu(source: str, size: int) -> None:
    if nvrtc.missing() is not None:
        pytest.skip(str(nvrtc.missing()))
    assert nvrtc.compiled(source, {"BYTES": size}, "sm_90").startswith(b"\x7fELF")


def test_kernels_of_motion_have_the_numbers_of_the_hosts_loops() -> None:
    loops = {"search": kernels_of("motion"), "trust": kernels_of("motion")}
    loops |= {"between": kernels_of("between"), "film": kernels_of("motion")}
    compared = 0
    for name, module in loops.items():
        text = nvrtc.path_of("film.cuh" if name == "film" else f"film_{name}.cu").read_text(
            encoding="utf-8"
        )
        for macro, value in re.findall(r"#define (\w+) ([\d.e-]+)f?\b", text):
            there = getattr(module, f"_{macro}", getattr(module, macro, None))
            if there is not None:
                assert float(value) == there, (name, macro)
                compared += 1
    assert compared == 15
    for name in ("BORDER", "SIDE", "STEP"):
        assert getattr(film, name) == getattr(loops["film"], name)
    assert film.CELL == loops["between"].CELL


@pytest.mark.parametrize(
    ("columns", "rows", "format"),
    [(1, 1, "gray"), (3, 7, "yuva420p"), (960, 540, "yuv420p"), (4096, 2160, "yuv422p10le")],
)
def test_a_plan_has_room_for_all_and_no_two_parts_share_any(
    columns: int, rows: int, format: str
) -> None:
    like = look(columns, rows, format)
    sizes = motion_places.sizes_of(like)
    plan = Plan(sizes.shapes, sizes.bits, sizes.sizes, sizes.finest)
    begins = list(plan.offsets.values())
    assert begins == sorted(begins)
    assert all(at % 256 == 0 for name, at in plan.offsets.items() if name not in
               ("unsure", "out", "end"))  # fmt: skip
    assert plan.sums[-1] == (1, 1)
    assert plan.single < len(plan.sums) <= 16
    assert plan.starts[-1] == sum(r * c for r, c in like.shapes)
    assert plan.offsets["end"] - plan.offsets["out"] == plan.starts[-1] * plan.bytes_each
    engine = motion.Motion(like)
    assert plan.place == engine._trust[0].shape
    assert [one.shape[1:] for one in engine._sums] == list(plan.sums)
    assert engine._cells.shape == plan.cells


def on(backend: str, vendor: str = "NVIDIA Corporation", number: int = 0) -> Device:
    id, kind = f"{backend}:{number}", "cpu" if backend == "host" else "gpu"
    return Device(id, backend, "made up", vendor, version="sm_90", kind=kind, compute_units=132)


AMD = "Advanced Micro Devices, Inc."
MI100 = replace(made_up.MI100, id="opencl:1")


@pytest.mark.parametrize(
    ("wanted", "vendor", "expected"),
    [
        ("auto", "NVIDIA Corporation", "cuda:0"),
        ("auto", AMD, "host"),
        ("auto", "", "host"),
        ("host", "NVIDIA Corporation", "host"),
        ("opencl:0", "NVIDIA Corporation", "opencl:0"),
        ("opencl:0", "", "opencl:0"),
        ("cuda:0", "NVIDIA Corporation", "cuda:0"),
        ("cuda:0", AMD, "opencl:1"),
    ],
)
def test_motion_is_found_on_what_is_asked_for_and_by_itself_on_an_nvidia_gpu_or_the_host(
    wanted: str, vendor: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there(monkeypatch, vendor, [on("opencl"), MI100])
    assert motion_places.place_of(wanted).id == expected


def there(monkeypatch: pytest.MonkeyPatch, vendor: str, opencl: list[Device]) -> None:
    """A machine with two GPUs of a maker that torch has, or none; and with those OpenCL devices."""
    monkeypatch.delenv("TILEWRIGHT_DEVICE", raising=False)
    version = "gfx908:sramecc+:xnack-" if vendor == AMD else "sm_90"
    gpus = [replace(on("cuda", vendor, n), version=version) for n in range(2)] if vendor else []
    monkeypatch.setattr(driver, "found", lambda: tuple(gpus))
    monkeypatch.setattr(nvrtc, "is_cuda", lambda ordinal: vendor.startswith("NVIDIA"))
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    monkeypatch.setattr(motion_places, "gpu", lambda ordinal: gpus[ordinal])
    monkeypatch.setattr(motion_places, "devices_of", lambda name: tuple(opencl))
    named = {one.id: one for one in (*gpus, *opencl, host())}
    monkeypatch.setattr(motion_places, "resolve", lambda name: named[name])
    motion_places._left_to_host.cache_clear()


def test_of_several_gpus_of_amd_the_one_of_that_number_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there(monkeypatch, AMD, [on("opencl"), MI100, replace(MI100, id="opencl:2")])
    assert motion_places.place_of("cuda:0").id == "opencl:1"
    assert motion_places.place_of("cuda:1").id == "opencl:2"


def test_a_gpu_without_opencl_is_left_to_the_host_which_is_said_once_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there(monkeypatch, AMD, [on("opencl", "Intel(R) Corporation")])
    with pytest.warns(UserWarning, match="device='cuda:0'.*on the host.*no OpenCL driver") as said:
        assert motion_places.place_of("cuda:0").id == "host"
    assert len(said) == 1
    assert "\n" not in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert motion_places.place_of("cuda:0").id == "host"


def test_a_device_that_nobody_knows_is_refused() -> None:
    with pytest.raises(DeviceError, match="toaster"):
        motion_places.place_of("toaster")


@pytest.mark.parametrize(("columns", "rows", "format", "step", "share"), CASES)
class TestOnGpu:
    pytestmark = on_gpu

    def test_layers_that_move_over_one_another_are_as_on_the_host(
        self, columns: int, rows: int, format: str, step: int, share: float
    ) -> None:
        like = look(columns, rows, format)
        check_alike(layers(like, 5, step), share, motion.Motion(like), gpu_engine(like))


@pytest.mark.parametrize("size", SMALL)
class TestSmallOnGpu:
    pytestmark = on_gpu

    def test_pictures_of_any_size_are_as_on_the_host(self, size: tuple[int, int]) -> None:
        like = look(*size, "yuv420p")
        check_small(like, motion.Motion(like), gpu_engine(like))


@pytest.mark.gpu
@pytest.mark.skipif(driver.missing() is not None, reason=f"no GPU: {driver.missing()}")
def test_a_gpu_gives_the_same_samples_each_time_and_knows_what_repeats() -> None:
    like = look(961, 541, "yuv420p")
    check_repeatable(gpu_engine(like), like)
