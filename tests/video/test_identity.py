"""A film through no stage stays what it is: every sample, every time, every other stream."""

from __future__ import annotations

import warnings
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

av = pytest.importorskip("av")

from tests.support.films import CAME, CLIPS, Making, film, packets, samples  # noqa: E402
from tilewright import video  # noqa: E402

VARIABLE = (0, 512, 700, 1900, 2048, 3333, 3334, 5000, 6100, 6144, 9000, 9001)


def same(one: Path, other: Path) -> None:
    """Pictures, their times and other streams' packets are equal."""
    for (time, planes), (again, others) in zip(samples(one), samples(other), strict=True):
        assert time == again
        for mine, theirs in zip(planes, others, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    "format",
    ["yuv420p", "yuv422p", "yuv444p", "gray", "yuv420p10le", "gray10le", "gbrp10le", "bgr0"],
)
def test_no_sample_changes(tmp_path: Path, format: str) -> None:
    source = film(
        tmp_path / "in.mkv",
        Making(format=format, times=range(0, 320, 40), time_base=Fraction(1, 1000)),
    )
    made = video.enhance(source, tmp_path / "out.mkv", codec="ffv1")
    assert made.frames == 8
    same(source, tmp_path / "out.mkv")
    assert next(iter(video.frames(tmp_path / "out.mkv"))).look.format == format


@pytest.mark.parametrize("size", [(1, 1), (9, 5), (63, 47)])
def test_odd_sizes_and_one_picture_pass(tmp_path: Path, size: tuple[int, int]) -> None:
    make = Making(*size, times=(0,), time_base=Fraction(1, 1000))
    source = film(tmp_path / "in.mkv", make)
    assert video.enhance(source, tmp_path / "out.mkv", codec="ffv1").frames == 1
    same(source, tmp_path / "out.mkv")


@pytest.mark.parametrize("format", ["yuv420p", "yuv422p", "yuv444p", "gray", "yuva420p"])
def test_stages_take_odd_sizes_of_every_kind(tmp_path: Path, format: str) -> None:
    pytest.importorskip("numba")
    make = Making(19, 13, format, times=(0, 40), time_base=Fraction(1, 1000), turned=33)
    source = film(tmp_path / "in.mkv", make)
    stages = [video.Upscale("s", device="host"), video.Sharpen(0.5), video.TenBit()]
    video.enhance(source, tmp_path / "out.mkv", stages, codec="ffv1")
    given, made = samples(source), samples(tmp_path / "out.mkv")
    look = look_of(tmp_path / "out.mkv")
    assert (look.width, look.height, look.bits) == (38, 26, 10)
    assert look.turned == look_of(source).turned  # by 33 degrees, which nobody has to understand
    assert [time for time, _ in made] == [time for time, _ in given]
    for before, after in zip(given[0][1], made[0][1], strict=True):
        assert abs(after.mean() / 4 - before.mean()) < 4


@pytest.mark.parametrize("codec", ["h264", "h265", "av1", "vp9"])
def test_every_codec_keeps_times_of_a_variable_rate(tmp_path: Path, codec: str) -> None:
    source = film(tmp_path / "in.mp4", Making(codec="libx264", times=VARIABLE))
    video.enhance(source, tmp_path / "out.mp4", codec=codec)
    given, made = samples(source), samples(tmp_path / "out.mp4")
    assert [time for time, _ in made] == [time for time, _ in given]
    assert [time for time, _ in made] == [Fraction(time, 12800) for time in VARIABLE]
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert container.streams.video[0].time_base == Fraction(1, 12800)
    for (_, planes), (_, others) in zip(given, made, strict=True):
        assert np.abs(planes[0].astype(int) - others[0]).mean() < 8


def test_sound_language_chapters_and_titles_are_copied(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mp4", Making(codec="libx264", sound=2))
    described = tmp_path / "described.mkv"
    with av.open(str(source)) as given, av.open(str(described), "w") as out:
        out.metadata.update({"title": "Waves", "maker": "nobody"})
        base = Fraction(1, 1000)
        chapters = [(0, 100, "Calm"), (100, 480, "Storm")]
        out.set_chapters(
            [
                {"id": n, "start": a, "end": b, "time_base": base, "metadata": {"title": text}}
                for n, (a, b, text) in enumerate(chapters)
            ]
        )
        streams = {s.index: out.add_stream_from_template(s, opaque=True) for s in given.streams}
        for stream in given.streams:
            streams[stream.index].metadata.update(stream.metadata)
        out.add_attachment("font.ttf", "application/x-truetype-font", b"glyphs")
        for packet in given.demux():
            if packet.size:
                packet.stream = streams[packet.stream_index]
                out.mux(packet)
    video.enhance(described, tmp_path / "out.mkv")
    assert packets(tmp_path / "out.mkv") == packets(described)
    with av.open(str(tmp_path / "out.mkv")) as made, av.open(str(described)) as given:
        assert made.metadata["title"] == "Waves"
        assert {key.lower(): one for key, one in made.metadata.items()}["maker"] == "nobody"
        assert made.chapters() == given.chapters()
        assert [s.language for s in made.streams.audio] == ["deu", "fra"]
        attached = [s for s in made.streams if s.type == "attachment"]
        assert [s.data for s in attached] == [b"glyphs"]


def test_subtitles_are_copied(tmp_path: Path) -> None:
    titles = tmp_path / "titles.srt"
    titles.write_text("1\n00:00:00,040 --> 00:00:00,200\nWater.\n\n")
    pictures = film(
        tmp_path / "pictures.mkv", Making(time_base=Fraction(1, 1000), times=range(0, 480, 40))
    )
    source = tmp_path / "in.mkv"
    with (
        av.open(str(pictures)) as one,
        av.open(str(titles)) as other,
        av.open(str(source), "w") as out,
    ):
        stream = out.add_stream_from_template(one.streams[0], opaque=True)
        text = out.add_stream_from_template(other.streams[0], opaque=True)
        for container, into in ((one, stream), (other, text)):
            for packet in container.demux():
                if packet.size:
                    packet.stream = into
                    out.mux(packet)
    video.enhance(source, tmp_path / "out.mkv", codec="ffv1")
    assert packets(tmp_path / "out.mkv") == packets(source) != {}


def look_of(path: Path) -> video.Look:
    return next(iter(video.frames(path))).look


@pytest.mark.parametrize("codec", ["h264", "h265", "av1"])
def test_ten_bits_colours_aspect_and_rotation_are_kept(tmp_path: Path, codec: str) -> None:
    make = Making(
        format="yuv420p10le",
        codec="libx265",
        times=range(0, 4 * 512, 512),
        colours=(1, 9, 9, 16),
        aspect=Fraction(4, 3),
        turned=90,
        options=(
            ("chroma_sample_location", "topleft"),
            (
                "x265-params",
                "log-level=error:max-cll=1000,400:master-display="
                "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1)",
            ),
        ),
    )
    source = film(tmp_path / "in.mp4", make)
    given = look_of(source)
    assert given.light.content == (1000, 400)
    assert (given.siting, given.aspect, len(given.turned)) == ("topleft", Fraction(4, 3), 9)
    video.enhance(source, tmp_path / "out.mp4", codec=codec)
    kept = look_of(tmp_path / "out.mp4")
    assert replace(kept, light=given.light) == given
    assert kept.light.content == given.light.content
    assert mastering(kept) == pytest.approx(mastering(given), abs=2e-4)


def mastering(look: video.Look) -> list[float]:
    numbers = np.frombuffer(look.light.mastering[:80], np.int32)
    return list(numbers[::2] / np.maximum(numbers[1::2], 1))


def test_full_range_stays_full(tmp_path: Path) -> None:
    make = Making(codec="libx264", format="yuvj420p", colours=(2, 1, 1, 1))
    source = film(tmp_path / "in.mp4", make)
    video.enhance(source, tmp_path / "out.mp4")
    assert look_of(tmp_path / "out.mp4") == look_of(source)
    assert look_of(source).range == 2
    video.enhance(source, tmp_path / "plain.mkv", codec="ffv1")
    for (_, planes), (_, others) in zip(
        samples(source), samples(tmp_path / "plain.mkv"), strict=True
    ):
        np.testing.assert_array_equal(planes[0], others[0])


def test_interlaced_pictures_keep_their_fields(tmp_path: Path) -> None:
    make = Making(codec="libx264", options=(("flags", "+ildct+ilme"), ("x264-params", "tff=1")))
    source = film(tmp_path / "in.mp4", make)
    if not look_of(source).interlaced:
        pytest.skip("this x264 makes no interlaced pictures")
    video.enhance(source, tmp_path / "out.mp4")
    assert look_of(tmp_path / "out.mp4").interlaced


def test_planes_are_views_of_what_was_decoded(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mkv", Making(time_base=Fraction(1, 1000), times=(0, 40)))
    for number, frame in enumerate(video.frames(source)):
        assert [plane.shape for plane in frame.planes] == [(48, 64), (24, 32), (24, 32)]
        assert not any(plane.flags.owndata for plane in frame.planes)
        assert frame.time == Fraction(number * 40, 1000)


@pytest.mark.skipif(not CLIPS.is_dir(), reason=CAME)
@pytest.mark.parametrize("name", ["person-green-wall.mp4", "steel-cuts-dark.webm"])
def test_a_real_clip_keeps_sound_and_times(tmp_path: Path, name: str) -> None:
    out = tmp_path / ("out.mkv" if name.endswith("webm") else "out.mp4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = video.enhance(CLIPS / name, out)
    assert made.damaged == 0
    assert packets(out) == packets(CLIPS / name)
    given: Any = [time for time, _ in samples(CLIPS / name)]
    assert [time for time, _ in samples(out)] == given
