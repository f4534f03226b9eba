"""Films with broken packets: the same pictures come out wherever a run goes on."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

av = pytest.importorskip("av")

from tests.support.films import Making, film, samples  # noqa: E402
from tests.video.test_survival import StopError  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.video import making  # noqa: E402
from tilewright.video.decode import Damage  # noqa: E402
from tilewright.video.source import Film  # noqa: E402
from tilewright.video.source import film as read  # noqa: E402
from tilewright.video.steady import Stretch  # noqa: E402

LONG = Making(width=96, height=64, time_base=Fraction(1, 25), times=range(48), codec="libx264")
KEYS = (("g", "12"), ("bf", "2"))
CHUNK = 8
Told = dict[int, list[tuple[int, str]]]


def damaged(source: Path, places: tuple[int, ...], seed: int = 0) -> Path:
    """The film with a few bytes of some of its packets changed."""
    rng = np.random.default_rng(seed)
    with av.open(str(source)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    content = bytearray(source.read_bytes())
    for place in places:
        at, size = packets[place]
        for begin in range(at + size // 3, at + size - 6, max(1, size // 4)):
            content[begin : begin + 4] = rng.bytes(4)
    source.write_bytes(content)
    return source


def pictures(found: Film, first: int, last: int, context: int) -> Told:
    """What chunks first to last are made of, by number: as `Line` asks for it."""
    total, told = len(found.times), Told()
    while first <= last:
        bounds = [(CHUNK * n - context, CHUNK * (n + 1) + context) for n in range(first, last + 1)]
        ranges = [(max(0, begin), min(total, end)) for begin, end in bounds]
        stretch = Stretch(found, ranges, Damage())
        came = [
            (one.pts, hashlib.sha256(b"".join(map(bytes, one.planes))).hexdigest())
            for one in stretch.pictures()
        ]
        for begin, end in ranges[: stretch.last + 1]:
            after = found.times[end] if end < total else found.times[-1] + 1
            told[first] = [one for one in came if found.times[begin] <= one[0] < after]
            first += 1
    return told


@pytest.mark.parametrize(
    ("name", "make", "context"),
    [
        ("in.mp4", replace(LONG, options=KEYS), 0),
        ("in.mp4", replace(LONG, options=KEYS), 1),
        ("in.mkv", replace(LONG, time_base=Fraction(1, 1000), times=range(0, 1920, 40)), 1),
        ("in.avi", replace(LONG, codec="mpeg4", options=KEYS), 0),
        ("in.avi", replace(LONG, codec="mjpeg", format="yuvj420p"), 1),
        ("in.avi", replace(LONG, codec="ffv1", options=(("level", "3"), ("slicecrc", "1"))), 0),
        ("in.avi", replace(LONG, codec="libvpx", options=(("g", "12"),)), 0),
    ],
)
def test_damaged_pictures_are_the_same_wherever_decoding_begins(
    tmp_path: Path, name: str, make: Making, context: int
) -> None:
    source = film(tmp_path / name, make)
    sound = pictures(read(source), 0, 5, context)
    found = read(damaged(source, (4, 12, 16, 24, 33, 40)))
    whole = pictures(found, 0, 5, context)
    assert whole != sound
    for first in range(1, 6):
        others = pictures(found, first, 5, context)
        assert others == {number: whole[number] for number in range(first, 6)}
        assert pictures(found, first, first, context) == {first: whole[first]}


@pytest.mark.parametrize("count", [7, 20, 31])
def test_a_damaged_film_is_the_same_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(making, "CHUNK", CHUNK)
    make = replace(LONG, options=KEYS)
    source = damaged(film(tmp_path / "in.mp4", make), (4, 12, 16, 24, 36, 40))
    video.enhance(source, tmp_path / "whole.mkv", codec="ffv1")

    def report(now: video.Progress) -> None:
        if now.done >= count:
            raise StopError

    out = tmp_path / "parts.mkv"
    with pytest.raises(StopError):
        video.enhance(source, out, codec="ffv1", progress=report)
    video.enhance(source, out, codec="ffv1")
    for (at, planes), (time, others) in zip(
        samples(tmp_path / "whole.mkv"), samples(out), strict=True
    ):
        assert at == time
        for mine, theirs in zip(planes, others, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("in.mp4", replace(LONG, options=KEYS)),
        ("in.avi", replace(LONG, codec="mpeg4", options=KEYS)),
        ("in.avi", replace(LONG, codec="mjpeg", format="yuvj420p")),
    ],
)
def test_a_film_whose_first_picture_is_lost_is_made(
    tmp_path: Path, name: str, make: Making
) -> None:
    source = film(tmp_path / name, make)
    with av.open(str(source)) as container:
        packet = next(packet for packet in container.demux(video=0) if packet.size)
        at, size = packet.pos, packet.size
    content = bytearray(source.read_bytes())
    content[at : at + size] = b"\xff" * size
    source.write_bytes(content)
    with pytest.warns(UserWarning, match="could not be decoded"):
        made = video.enhance(source, tmp_path / "out.mkv")
    assert 24 <= made.frames < 48
