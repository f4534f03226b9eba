"""The network that fuses moved pictures: what it is told, what is done with what it says."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("numba")

from tests.cli.test_cli import invoke
from tests.support.moving import blank, layers
from tests.video.stages.test_interpolate import between, look, moving, textured
from tilewright import video
from tilewright.errors import ArgumentError
from tilewright.inputs.devices import host
from tilewright.video.fusion import Fusion, halves
from tilewright.video.look import Look
from tilewright.video.motion import Motion
from tilewright.video.planes import kernels_of
from tilewright.video.stages import interpolate
from tilewright.video.stages.interpolate import HELD, REPEATED


class Says:
    """Says the same of every sample; keeps what it was given."""

    def __init__(self, like: Look, more: float, stay: float) -> None:
        kernels = kernels_of("fusing")
        self.given = np.full((kernels.READ, *halves(like)), np.nan, np.float32)
        self._said = np.full((kernels.SAID, *halves(like)), more, np.float32)
        self._said[4:] = stay

    def __call__(self) -> Any:
        return self._said


def made(like: Look, fusion: Fusion | None, share: float = 0.25) -> tuple[Any, ...]:
    """Planes between two pictures of layers that move over one another."""
    motion, out = Motion(like, fusion), blank(like)
    motion.given(*layers(like, 3, 3))
    motion.found()
    motion.between(share, out)
    return out


@pytest.mark.parametrize("format", ["gray", "yuv420p", "yuv422p10le", "yuva420p"])
@pytest.mark.parametrize("size", [(64, 48), (71, 53)])
def test_a_network_that_says_nothing_changes_nothing(format: str, size: tuple[int, int]) -> None:
    like = look(*size, format)
    plain, silent = made(like, None), made(like, says := Says(like, 0, 0))
    assert np.isfinite(says.given).all()
    for one, other in zip(plain, silent, strict=True):
        apart = np.abs(one.astype(int) - other)
        assert apart.max() <= 1  # sums in another order
        assert (apart > 0).mean() < 0.01


@pytest.mark.parametrize("format", ["gray", "yuv420p", "yuva420p"])
def test_it_takes_both_as_they_stand_where_it_is_told_to(format: str) -> None:
    like, share = look(70, 54, format), 0.25
    first, second = layers(like, 3, 3)
    for plane, a, b in zip(
        made(like, Says(like, 0, 1), share), first.planes, second.planes, strict=True
    ):
        wanted = a + share * (b.astype(float) - a)
        assert np.abs(plane - wanted).max() <= 0.5 + 1e-3


def test_what_it_reads_is_what_was_moved_and_what_stands() -> None:
    like, share = look(71, 53), 0.25
    says = Says(like, 0, 0)
    (plain,) = made(like, says, share)
    first, second = (one.planes[0].astype(float) for one in layers(like, 3, 3))
    places = [(i, j) for i in range(2) for j in range(2)]
    for n, (i, j) in enumerate(places):
        one, other, mixed, part, apart = says.given[n:20:4]
        rows, columns = first[i::2, j::2].shape
        inside = (slice(rows), slice(columns))
        wanted = (first + share * (second - first))[i::2, j::2] / 255 - 0.5
        np.testing.assert_allclose(mixed[inside], wanted, atol=1e-5)
        np.testing.assert_allclose(
            apart[inside], np.abs(first - second)[i::2, j::2] / 255, atol=1e-5
        )
        shown = (one + part * (other - one) + 0.5)[inside] * 255
        assert np.abs(shown.clip(0, 255) - plain[i::2, j::2]).max() <= 0.51
    assert (says.given[22] == np.float32(share)).all()
    assert 0 <= says.given[20].min() <= says.given[20].max() <= 2
    assert 0 <= says.given[21].min() <= says.given[21].max() <= 2


def test_light_lies_between_that_of_what_was_moved_whatever_it_says() -> None:
    like = look(64, 48)
    rng = np.random.default_rng(5)
    wild = Says(like, 0, 0)
    wild._said[:] = rng.normal(0, 4, wild._said.shape)
    (out,) = made(like, wild)
    sources = wild.given[:12].reshape(3, 4, *halves(like))
    low, high = sources.min(0), sources.max(0)
    for n in range(4):
        shown = out[n // 2 :: 2, n % 2 :: 2] / 255 - 0.5
        inside = (slice(shown.shape[0]), slice(shown.shape[1]))
        assert (shown >= (low[n][inside].clip(-0.5) - 0.003)).all()
        assert (shown <= (high[n][inside].clip(max=0.5) + 0.003)).all()


def test_text_that_stands_still_cuts_and_repeats_never_reach_it() -> None:
    like = look(160, 96)
    rng = np.random.default_rng(3)
    letters = np.kron(rng.integers(0, 2, (6, 24)), np.ones((4, 4))) > 0
    frames = [moving(like, time, 2, 6) for time in (0, 1)]
    for frame in frames:
        frame.planes[0][40:64, 32:128][letters] = 235
    (_, plain), (_, fused) = between(*frames), between(*frames, net="fuse-s")
    assert np.array_equal(
        plain.planes[0][40:64, 32:128][letters], fused.planes[0][40:64, 32:128][letters]
    )
    assert not np.array_equal(plain.planes[0], fused.planes[0])
    _, held = between(*frames, net="fuse-s", cuts=(0.5,))
    assert (held.notes, held.planes) == ((HELD,), frames[0].planes)
    _, again = between(frames[0], replace(frames[0], pts=1000), net="fuse-s")
    assert (again.notes, again.planes) == ((REPEATED,), frames[0].planes)


def test_the_shipped_network_is_near_what_motion_alone_makes() -> None:
    like = look(160, 128, "yuv420p")
    one, other = moving(like, 0), moving(like, 1)
    _, fused = between(one, other, net="fuse-s")
    right = textured(128, 160, 1.5, -2.5, 0)
    wrong = np.abs(fused.planes[0] - 255 * right.clip(0, 1))[8:-8, 8:-8]
    assert np.sqrt(np.mean(wrong**2)) < 3


def test_unknown_networks_and_a_network_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="net='fuse-x'; accepted are none, fuse-s"):
        video.Interpolate(2, net="fuse-x").turned(look(64, 48))
    assert video.Interpolate(2, net="fuse-s", device="host").card == "fuse-s"
    assert not video.Interpolate(2).card
    result = invoke(
        "enhance", "a.mp4", "-o", str(tmp_path / "b.mp4"), "--interpolate-net", "fuse-s"
    )
    assert result.exit_code != 0
    assert "--interpolate-net=fuse-s without --interpolate" in result.output


def test_a_network_that_will_not_run_where_motion_is_found_is_warned_of_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = {"host": host(), "there": replace(host(), id="opencl:7", backend="opencl")}
    monkeypatch.setattr(interpolate, "place_of", lambda name: places[name])
    left = video.Interpolate(2, device="there", net="fuse-s")
    with pytest.warns(UserWarning, match="net='fuse-s': left out.*opencl:7.*device='host'") as said:
        left.turned(look(64, 48))
    assert [len(str(one.message).splitlines()) for one in said] == [1]
    assert (left.card, left.said) == ("", "rate 2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        video.Interpolate(2, device="there").turned(look(64, 48))
        runs = video.Interpolate(2, device="host", net="fuse-s")
        runs.turned(look(64, 48))
    assert (runs.card, runs.said) == ("fuse-s", "rate 2, by fuse-s")
