"""Motion on a GPU: the host's pictures and doubts, and chosen where there is one."""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from tilewright.backends.cuda.film import plan as plan_file
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.errors import DeviceError
from tilewright.facts.device import Device
from tilewright.inputs.devices import host
from tilewright.video import motion, motion_places
from tilewright.video.look import Frame, Look
from tilewright.video.planes import kernels_of

SOURCES = ("film_pictures", "film_search", "film_trust", "film_between")
FORMATS = {
    "gray": ("grey", 8, (0, 0)),
    "yuv420p": ("yuv", 8, (1, 1)),
    "yuv422p10le": ("yuv", 10, (1, 0)),
    "yuva420p": ("yuv", 8, (1, 1)),
}
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.missing() is not None, reason=f"no GPU: {driver.missing()}"),
    pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing())),
]


def look(columns: int, rows: int, format: str) -> Look:
    kind, bits, halved = FORMATS[format]
    return Look(columns, rows, format, bits, kind, halved, alpha="yuva" in format)


def texture(rng: np.random.Generator, rows: int, columns: int) -> Any:
    """Noise of three sizes, 0 to 1."""
    total = np.zeros((rows, columns))
    for size in (1, 4, 16):
        small = rng.random((-(-rows // size) + 1, -(-columns // size) + 1))
        total += np.kron(small, np.ones((size, size)))[:rows, :columns]
    return total / 3


def layers(like: Look, seed: int, step: int) -> tuple[Frame, Frame]:
    """A ground, a layer that moves over it the other way, and bars that stand still."""
    rng = np.random.default_rng(seed)
    most, found = (1 << like.bits) - 1, ([], [])
    for rows, columns in like.shapes:
        ground = texture(rng, rows + 64, columns + 64)
        layer = texture(rng, rows, columns) * 0.8
        top, left = rows // 4, columns // 4
        for time, planes in enumerate(found):
            shown = ground[32 - 2 * step * time :, 32 + step * time :][:rows, :columns].copy()
            down, right = top + step * time, left + 2 * step * time
            to = shown[down : down + rows // 3, right : right + columns // 3]
            to[:] = layer[: to.shape[0], : to.shape[1]]
            shown[rows // 2 : rows // 2 + 3, columns // 8 : -columns // 8 or None] = 1
            noise = rng.normal(0, 0.004, shown.shape)
            planes.append(np.rint(most * (shown + noise).clip(0, 1)).astype(like.dtype))
    one, other = (tuple(planes) for planes in found)
    return Frame(one, 0, 1, Fraction(1), like), Frame(other, 1, 1, Fraction(1), like)


def blank(like: Look) -> tuple[Any, ...]:
    """Planes whose rows are longer than what is shown of them."""
    return tuple(np.zeros((r, c + 5), like.dtype)[:, :c] for r, c in like.shapes)


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
        text = nvrtc.path_of("film.cuh" if name == "film" else f"film_{name}.cu").read_text()
        for macro, value in re.findall(r"#define (\w+) ([\d.e-]+)f?\b", text):
            there = getattr(module, f"_{macro}", getattr(module, macro, None))
            if there is not None:
                assert float(value) == there, (name, macro)
                compared += 1
    assert compared == 15
    for name in ("BORDER", "SIDE", "STEP"):
        assert getattr(plan_file, name) == getattr(loops["film"], name)
    assert plan_file.CELL == loops["between"].CELL


@pytest.mark.parametrize(
    ("columns", "rows", "format"),
    [(1, 1, "gray"), (3, 7, "yuva420p"), (960, 540, "yuv420p"), (4096, 2160, "yuv422p10le")],
)
def test_a_plan_has_room_for_all_and_no_two_parts_share_any(
    columns: int, rows: int, format: str
) -> None:
    like = look(columns, rows, format)
    plan = motion_places.plan_of(like)
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


def made_up(backend: str) -> Device:
    return Device(f"{backend}:0", backend, "made up", version="sm_90", compute_units=132)


@pytest.mark.parametrize(
    ("wanted", "gpus", "cuda", "backend"),
    [
        ("auto", True, True, "cuda"),
        ("auto", True, False, "host"),  # of AMD's
        ("auto", False, False, "host"),
        ("host", True, True, "host"),
        ("opencl:0", True, True, "host"),
        ("cuda:0", True, True, "cuda"),
    ],
)
def test_motion_is_found_on_an_nvidia_gpu_and_else_on_the_host(
    wanted: str, gpus: bool, cuda: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TILEWRIGHT_DEVICE", raising=False)
    monkeypatch.setattr(driver, "found", lambda: (made_up("cuda"),) if gpus else ())
    monkeypatch.setattr(nvrtc, "is_cuda", lambda ordinal: cuda)
    monkeypatch.setattr(motion_places, "gpu", lambda ordinal: made_up("cuda"))
    named = {"host": host(), "opencl:0": made_up("opencl"), "cuda:0": made_up("cuda")}
    monkeypatch.setattr(motion_places, "resolve", lambda name: named[name])
    assert motion_places.place_of(wanted).backend == backend


def test_a_device_that_nobody_knows_is_refused() -> None:
    with pytest.raises(DeviceError, match="toaster"):
        motion_places.place_of("toaster")


def compared(like: Look, seed: int, step: int, share: float) -> tuple[Any, Any, float, float]:
    one, other = layers(like, seed, step)
    found = []
    for engine in (motion.Motion(like), gpu_engine(like)):
        engine.given(one, other)
        assert not engine.repeats()
        engine.found()
        out = blank(like)
        found.append((out, engine.between(share, out)))
    (right, doubt), (made, doubted) = found
    return right, made, doubt, doubted


@pytest.mark.parametrize(
    ("columns", "rows", "format", "step", "share"),
    [
        (320, 200, "gray", 3, 0.5),
        (322, 181, "yuv420p", 2, 0.25),
        (961, 541, "yuv420p", 6, 0.5),
        (640, 420, "yuv422p10le", 4, 0.7),
        (200, 130, "yuva420p", 12, 0.5),
    ],
)
class TestOnGpu:
    pytestmark = on_gpu

    def test_layers_that_move_over_one_another_are_as_on_the_host(
        self, columns: int, rows: int, format: str, step: int, share: float
    ) -> None:
        like = look(columns, rows, format)
        right, made, doubt, doubted = compared(like, 5, step, share)
        most = (1 << like.bits) - 1
        for plane, other in zip(right, made, strict=True):
            apart = np.abs(plane.astype(float) - other) * 255 / most
            assert (apart > 1.01).mean() < 0.01
            assert 10 * np.log10(255**2 / max((apart**2).mean(), 1e-9)) > 45
        assert abs(doubt - doubted) < 0.01


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (3, 7), (15, 40), (17, 16), (50, 23)])
class TestSmallOnGpu:
    pytestmark = on_gpu

    def test_pictures_of_any_size_are_as_on_the_host(self, size: tuple[int, int]) -> None:
        like = look(*size, "yuv420p")
        rng = np.random.default_rng(1)
        pair = [
            Frame(tuple(rng.integers(0, 256, s).astype("u1") for s in like.shapes), n, 1,
                  Fraction(1), like)
            for n in range(2)
        ]  # fmt: skip
        found = []
        for engine in (motion.Motion(like), gpu_engine(like)):
            engine.given(*pair)
            assert not engine.repeats()
            engine.found()
            out = blank(like)
            found.append((engine.between(0.5, out), *out))
        assert found[0][0] == pytest.approx(found[1][0], abs=0.35)
        for plane, other in zip(found[0][1:], found[1][1:], strict=True):
            assert np.median(np.abs(plane.astype(int) - other)) <= 1


@pytest.mark.gpu
@pytest.mark.skipif(driver.missing() is not None, reason=f"no GPU: {driver.missing()}")
def test_a_gpu_gives_the_same_samples_each_time_and_knows_what_repeats() -> None:
    like = look(961, 541, "yuv420p")
    one, other = layers(like, 3, 5)
    engine, seen = gpu_engine(like), []
    for _ in range(3):
        engine.given(one, dataclasses.replace(one, pts=1))
        assert engine.repeats()
        engine.given(one, other)
        assert not engine.repeats()
        engine.found()
        for share in (0.25, 0.5, 0.75):
            out = blank(like)
            engine.between(share, out)
            seen.append(b"".join(plane.tobytes() for plane in out))
    assert seen[:3] == seen[3:6] == seen[6:]
    assert len(set(seen)) == 3
