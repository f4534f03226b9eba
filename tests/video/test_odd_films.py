"""Films that are entered anywhere, change in their middle, or hold more than pictures and sound."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

av = pytest.importorskip("av")
pytest.importorskip("numba")

from tests.support.films import Making, film  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.errors import ArgumentError, FileError  # noqa: E402
from tilewright.video.alike import sampled  # noqa: E402
from tilewright.video.decode import decoded  # noqa: E402
from tilewright.video.source import film as read  # noqa: E402

MPEG = Making(codec="libx264", times=range(40), time_base=Fraction(1, 25))
REFRESHED = (("x264-params", "intra-refresh=1:keyint=10"),)
STAGES = (
    video.Upscale("s", device="host"),
    video.Denoise(5, device="host"),
    video.Sharpen(),
    video.TenBit(),
    video.Contrast(),
    video.LowLight(),
)


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("one-key.ts", "libx264", ()),
        ("keys.ts", "libx264", (("g", "12"),)),
        ("open.ts", "mpeg2video", (("g", "9"), ("bf", "2"))),
        ("open.vob", "mpeg2video", (("g", "9"), ("bf", "2"))),
        ("refreshed.mkv", "libx264", REFRESHED),
        ("refreshed.ts", "libx264", REFRESHED),
        ("open.mp4", "libx265", (("x265-params", "log-level=none:open-gop=1:keyint=9"),)),
        ("packed.avi", "mpeg4", (("g", "12"), ("bf", "2"))),
    ],
)
def test_pictures_from_any_time_on_are_those_of_the_whole_film(
    tmp_path: Path, name: str, codec: str, options: tuple[tuple[str, str], ...]
) -> None:
    found = read(film(tmp_path / name, replace(MPEG, codec=codec, options=options)))
    whole = {one.pts: one.planes[0].copy() for one in decoded(found)}
    assert tuple(whole) == found.times
    assert len(whole) == 40
    for place in range(3, 40, 6):
        end = found.times[place + 4] if place + 4 < 40 else None
        came = list(decoded(found, found.times[place], end))
        assert [one.pts for one in came] == list(found.times[place : place + 4])
        for one in came:
            np.testing.assert_array_equal(one.planes[0], whole[one.pts])


def joined(path: Path, *parts: Making) -> Path:
    """Films one after the other in a stream that allows it."""
    with path.open("wb") as whole:
        for number, make in enumerate(parts):
            times = range(100 * number, 100 * number + 10)
            piece = film(path.with_name(f"{number}.ts"), replace(make, times=times))
            whole.write(piece.read_bytes())
            piece.unlink()
    return path


@pytest.mark.parametrize(
    "second", [replace(MPEG, width=176, height=144), replace(MPEG, format="yuv444p")]
)
@pytest.mark.parametrize("first", [MPEG, replace(MPEG, width=128, height=96)])
def test_pictures_that_change_in_the_middle_are_refused_by_every_stage(
    tmp_path: Path, first: Making, second: Making
) -> None:
    source = joined(tmp_path / "in.ts", first, second)
    looks = {frame.look.said() for frame in video.frames(source)}
    assert looks == {f"{one.width}x{one.height} {one.format}" for one in (first, second)}
    for stages in ((), *((stage,) for stage in STAGES)):
        with pytest.raises(FileError, match="accepted are films of one size and kind"):
            video.enhance(source, tmp_path / "out.mkv", stages)
    assert list(tmp_path.iterdir()) == [source]


def test_a_change_is_seen_before_work_begins_where_key_pictures_can_be_sought(
    tmp_path: Path,
) -> None:
    keys = (("g", "2"),)
    large = replace(MPEG, width=176, height=144, options=keys)
    source = joined(tmp_path / "in.ts", replace(MPEG, options=keys), large)
    with pytest.raises(FileError, match="is 176x144 yuv420p; accepted are films of one size"):
        sampled(read(source))


def test_fields_that_begin_in_the_middle_make_a_film_interlaced(tmp_path: Path) -> None:
    fields = (("flags", "+ildct+ilme"), ("x264-params", "tff=1"), ("g", "2"))
    source = joined(
        tmp_path / "in.ts", replace(MPEG, options=(("g", "2"),)), replace(MPEG, options=fields)
    )
    assert not next(video.frames(source)).look.interlaced
    with pytest.raises(ArgumentError, match="interlaced"):
        video.enhance(source, tmp_path / "out.mp4", [video.Sharpen()])
    video.enhance(source, tmp_path / "out.mp4")
    assert all(frame.carrier.interlaced_frame for frame in video.frames(tmp_path / "out.mp4"))
