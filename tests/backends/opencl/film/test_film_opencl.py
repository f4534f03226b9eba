"""Motion on OpenCL devices is the host's but for rounding, cut as for processors and as for GPUs.

What is only a GPU's here, a row of a patch a work-item and atomic additions, runs on processors'
drivers too, so that it is not left to those who have one.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("numba")

from tests.support import made_up
from tests.support.moving import (
    CASES,
    SMALL,
    blank,
    check_alike,
    check_repeatable,
    check_small,
    layers,
    look,
    made,
)
from tilewright import Device
from tilewright.backends.opencl.film.calls import SHARE, Calls
from tilewright.backends.opencl.film.cut import Cut, cut_of
from tilewright.backends.opencl.film.engine import FilmMotion
from tilewright.backends.opencl.program import KERNELS
from tilewright.errors import DeviceMemoryError
from tilewright.planning import film
from tilewright.video import motion, motion_places
from tilewright.video.look import Frame, Look
from tilewright.video.planes import kernels_of

FOLDER = KERNELS / "film"
OF_A_GPU = cut_of(made_up.ADRENO_650)


class OnDevice:
    """An engine of frames, cut as it is asked for."""

    def __init__(self, like: Look, device: Device, cut: Cut | None = None) -> None:
        sizes = motion_places.sizes_of(like)
        self.kernels = FilmMotion(sizes, device, motion.SAME, motion.UNSURE, cut)
        self.repeats, self.found = self.kernels.repeats, self.kernels.found
        self.between = self.kernels.between

    def given(self, first: Frame, second: Frame) -> None:
        self.kernels.given(first.planes, second.planes)


@pytest.mark.parametrize("cut", [None, OF_A_GPU], ids=["own", "gpu's"])
@pytest.mark.parametrize(("columns", "rows", "format", "step", "share"), CASES)
def test_layers_that_move_over_one_another_are_as_on_the_host(
    columns: int, rows: int, format: str, step: int, share: float, cut: Cut | None, device: Device
) -> None:
    like = look(columns, rows, format)
    check_alike(layers(like, 5, step), share, motion.Motion(like), OnDevice(like, device, cut))


@pytest.mark.parametrize("cut", [None, OF_A_GPU], ids=["own", "gpu's"])
@pytest.mark.parametrize("size", SMALL, ids=str)
def test_pictures_of_any_size_are_as_on_the_host(
    size: tuple[int, int], cut: Cut | None, device: Device
) -> None:
    like = look(*size, "yuv420p")
    check_small(like, motion.Motion(like), OnDevice(like, device, cut))


@pytest.mark.parametrize("cut", [None, OF_A_GPU], ids=["own", "gpu's"])
def test_a_device_gives_the_same_samples_each_time_and_knows_what_repeats(
    cut: Cut | None, device: Device
) -> None:
    like = look(641, 421, "yuv420p")
    check_repeatable(OnDevice(like, device, cut), like)


def test_what_lands_is_added_to_the_same_bytes_however_it_is_dealt_out(intel: Device) -> None:
    like = look(322, 181, "yuv420p")
    pair = layers(like, 2, 5)
    own = cut_of(intel)
    seen = set()
    for slices in (0, 1, 3, 8):
        planes, _ = made(OnDevice(like, intel, replace(own, slices=slices)), pair, 0.3)
        seen.add(b"".join(plane.tobytes() for plane in planes))
    assert len(seen) == 1


@pytest.mark.parametrize("band", [1, 2, 4])
def test_groups_of_few_work_items_find_the_same(band: int, intel: Device) -> None:
    like = look(200, 130, "gray")
    pair = layers(like, 4, 3)
    cuts = (OF_A_GPU, replace(OF_A_GPU, band=band))
    (one, _), (other, _) = (made(OnDevice(like, intel, cut), pair, 0.5) for cut in cuts)
    assert one[0].tobytes() == other[0].tobytes()


def test_an_engine_that_is_dropped_leaves_others_alone(intel: Device) -> None:
    like = look(200, 130, "yuv420p")
    pair = layers(like, 4, 3)
    one, other = OnDevice(like, intel), OnDevice(like, intel)
    right, _ = made(one, pair, 0.5)
    other.given(*pair)
    other.found()
    del one
    out = blank(like)
    other.between(0.5, out)
    assert all((a == b).all() for a, b in zip(right, out, strict=True))


def test_engines_of_several_threads_find_what_each_finds_alone(device: Device) -> None:
    """Of different sizes, whose launches are of the same kernels: PoCL 5.0 ended the process."""
    likes = [look(columns, rows, "gray") for columns, rows in ((96, 64), (641, 64), (200, 421))]
    engines = [OnDevice(like, device) for like in likes]
    pairs = [layers(like, 4, 3) for like in likes]
    alone = [made(*both, 0.5)[0] for both in zip(engines, pairs, strict=True)]

    def again(number: int) -> bool:
        found = [made(engines[number], pairs[number], 0.5)[0] for _ in range(4)]
        return all((planes[0] == alone[number][0]).all() for planes in found)

    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(again, range(3)))


def test_a_device_without_room_says_so_before_anything_runs(intel: Device) -> None:
    small = replace(intel, max_allocation=1 << 16)
    with pytest.raises(DeviceMemoryError, match="cannot give"):
        OnDevice(look(960, 540, "yuv420p"), small)


@pytest.mark.parametrize("known", made_up.DEVICES, ids=lambda known: known.name)
def test_no_group_is_larger_than_a_device_allows(known: Device) -> None:
    few = replace(known, max_work_group=24, max_work_item_sizes=(24, 1, 1))
    tiny = replace(known, max_work_group=1, max_work_item_sizes=(1, 1, 1))
    sizes = motion_places.sizes_of(look(960, 540, "yuv420p"))
    for one in (known, few, tiny):
        for call in _all(Calls(sizes, cut_of(one), 32.0)):
            assert call.group[0] * call.group[1] <= one.max_work_group
            assert call.group[0] <= one.max_work_item_sizes[0]
            assert call.size[0] % call.group[0] == call.size[1] % call.group[1] == 0
            assert min(call.size) > 0


def _all(calls: Calls) -> tuple[Any, ...]:
    return (*calls.taking, *calls.finding, *calls.making)


@pytest.mark.parametrize("cut", [OF_A_GPU, cut_of(made_up.TWO_CORES)], ids=["gpu", "cpu"])
@pytest.mark.parametrize("size", [(961, 541), (4096, 2160)], ids=str)
def test_every_patch_is_looked_for_once_after_those_beside_and_above(
    size: tuple[int, int], cut: Cut
) -> None:
    sizes = motion_places.sizes_of(look(*size, "gray"))
    calls = Calls(sizes, cut, 32.0)
    for number in sizes.searched:
        high, wide = sizes.patches(number)
        bands, tiles = -(-high // cut.band), -(-wide // cut.tile)
        seen: set[tuple[int, int]] = set()
        for diagonal, first, count in calls._diagonals((high, wide)):
            blocks = {(band, diagonal - band) for band in range(first, first + count)}
            for band, tile in blocks:
                assert band == 0 or (band - 1, tile) in seen
                assert tile == 0 or (band, tile - 1) in seen
            assert not seen & blocks
            seen |= blocks
        assert seen == {(band, tile) for band in range(bands) for tile in range(tiles)}


def test_every_kernel_is_launched_with_as_many_arguments_as_it_takes() -> None:
    sizes = motion_places.sizes_of(look(961, 541, "yuv420p"))
    calls = Calls(sizes, OF_A_GPU, 32.0)
    given = {call.kernel: call.values for call in _all(calls)}
    assert sorted(given) == sorted(path.stem for path in FOLDER.glob("*.cl"))
    for kernel, values in given.items():
        text = re.search(
            rf"void {kernel}\(([^)]*)\)", (FOLDER / f"{kernel}.cl").read_text(encoding="utf-8")
        )
        assert text is not None
        declared = [part.split() for part in text[1].split(",")]
        assert len(declared) == len(values), kernel
        for words, value in zip(declared, values, strict=True):
            kind = "float" if isinstance(value, float) or value is SHARE else "int"
            memory = isinstance(value, str) and value is not SHARE
            assert memory == ("__global" in words), (kernel, words)
            assert memory or words[0] == kind, (kernel, words, value)


def test_kernels_of_motion_have_the_numbers_of_the_hosts_loops() -> None:
    loops = (kernels_of("motion"), kernels_of("between"))
    compared = set()
    for path in sorted(FOLDER.iterdir()):
        of_between = path.stem in ("settled", "doubted", "mixed", "warped")
        for macro, value in re.findall(
            r"#define (\w+) ([\d.e-]+)f?\b", path.read_text(encoding="utf-8")
        ):
            for module in loops[::-1] if of_between else loops:
                there = getattr(module, f"_{macro}", getattr(module, macro, None))
                if there is not None:
                    assert float(value) == there, (path.name, macro)
                    compared.add((path.name, macro))
                    break
    assert len(compared) == 16
    assert (film.BORDER, film.SIDE, film.STEP) == (loops[0].BORDER, loops[0].SIDE, loops[0].STEP)
