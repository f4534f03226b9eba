"""Films that are entered anywhere, change in their middle, or hold more than pictures and sound."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

av = pytest.importorskip("av")
pytest.importorskip("numba")

from tests.support.films import Making, film, packets  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.errors import ArgumentError, FileError  # noqa: E402
from tilewright.video.alike import sampled  # noqa: E402
from tilewright.video.decode import decoded  # noqa: E402
from tilewright.video.pyav import exact, opened  # noqa: E402
from tilewright.video.source import film as read  # noqa: E402

MPEG = Making(codec="libx264", times=range(40), time_base=Fraction(1, 25))
REFRESHED = (("x264-params", "intra-refresh=1:keyint=10"),)
STAGES = (video.Upscale("s", device="host"), video.Sharpen(), video.TenBit())


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


class Unset(NamedTuple):
    """A rational of FFmpeg's."""

    numerator: int
    denominator: int


def with_tracks(path: Path, kind: str) -> Path:
    """A film with QuickTime's chapters, a time code, or a cover."""
    given = film(path.with_name("plain.mp4"), Making(codec="libx264", sound=1))
    with av.open(str(given)) as source, av.open(str(path), "w") as out:
        streams = [out.add_stream_from_template(one, opaque=True) for one in source.streams]
        if kind == "timecode":
            streams[0].metadata["timecode"] = "01:00:00:00"
        if kind == "chapters":
            base, titles = Fraction(1, 1000), ("One", "Two")
            out.set_chapters(
                [
                    {
                        "id": n,
                        "start": 200 * n,
                        "end": 200 * n + 200,
                        "time_base": base,
                        "metadata": {"title": title},
                    }
                    for n, title in enumerate(titles)
                ]
            )
        cover = _cover(out) if kind == "cover" else None
        for packet in source.demux():
            if packet.size:
                packet.stream = streams[packet.stream_index]
                out.mux(packet)
        if cover is not None:
            out.mux(cover)
    given.unlink()
    return path


def with_timecode(path: Path) -> Path:
    """A film whose time code is a track, made of one that has it as a tag."""
    tagged = with_tracks(path.with_name("tagged.mkv"), "timecode")
    video.enhance(tagged, path)
    return path


def _cover(out: Any) -> Any:
    """A picture as a packet of a stream of its own."""
    context = av.codec.context.CodecContext.create("mjpeg", "w")
    context.width, context.height, context.pix_fmt = 16, 16, "yuvj420p"
    context.time_base = Fraction(1, 25)
    (packet,) = [
        *context.encode(av.VideoFrame(16, 16, "yuvj420p")),
        *context.encode(None),
    ]
    stream = out.add_stream("mjpeg", rate=25)
    stream.codec_context.width = stream.codec_context.height = 16
    stream.codec_context.pix_fmt = "yuvj420p"
    stream.disposition = 0x400
    packet.stream = stream
    return packet


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv"])
@pytest.mark.parametrize("kind", ["chapters", "timecode"])
def test_tracks_that_writers_make_anew_are_kept(tmp_path: Path, kind: str, suffix: str) -> None:
    made_by = with_timecode if kind == "timecode" else partial(with_tracks, kind=kind)
    source, out = made_by(tmp_path / "in.mov"), tmp_path / f"out{suffix}"
    with av.open(str(source)) as container:
        assert [stream.type for stream in container.streams] == ["video", "audio", "data"]
        chapters = [one["metadata"] for one in container.chapters()]
    video.enhance(source, out)
    contents = [[content for _, content in packets(path)[1]] for path in (out, source)]
    assert contents[0] == contents[1]
    with av.open(str(out)) as made:
        assert [one["metadata"]["title"] for one in made.chapters()] == [
            one["title"] for one in chapters
        ]
        told = {key.lower(): text for key, text in made.streams.video[0].metadata.items()}
        assert told.get("timecode") == ("01:00:00:00" if kind == "timecode" else None)


def test_text_that_is_not_utf8_is_no_hindrance_and_the_rest_of_it_is_kept(tmp_path: Path) -> None:
    """As old writers left it, in Latin-1 or cut in the middle of a letter."""
    plain, source, out = (tmp_path / name for name in ("plain.mkv", "in.mkv", "out.mkv"))
    given = film(tmp_path / "given.mkv")
    with av.open(str(given)) as container, av.open(str(plain), "w") as sink:
        stream = sink.add_stream_from_template(container.streams.video[0], opaque=True)
        sink.metadata["title"] = stream.metadata["title"] = "At the caf\u00e9"
        for packet in container.demux():
            if packet.size:
                packet.stream = stream
                sink.mux(packet)
    content = plain.read_bytes()
    assert content.count("caf\u00e9".encode()) >= 2
    source.write_bytes(content.replace("caf\u00e9".encode(), b"caf\xe9!"))
    video.enhance(source, out, codec="ffv1")
    with opened(str(out)) as made:
        titles = (made.metadata["title"], made.streams.video[0].metadata["title"])
    assert all(title.startswith("At the caf") and title.endswith("!") for title in titles)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, Fraction(7)),
        (Fraction(0), Fraction(7)),
        (Fraction(30000, 1001), Fraction(30000, 1001)),
        (Unset(1, 0), Fraction(7)),
        (Unset(1001, 30000), Fraction(1001, 30000)),
    ],
)
def test_what_ffmpeg_counts_by_is_an_exact_fraction(given: Any, wanted: Fraction) -> None:
    """FFmpeg's own rationals may be 1/0, and lose digits where they are multiplied."""
    found = exact(given, Fraction(7))
    assert type(found) is Fraction
    assert found == wanted


def test_what_a_container_leaves_out_without_a_word_is_refused_before_work(tmp_path: Path) -> None:
    """A .mov with a cover would be written, and the cover not be in it."""
    source = with_tracks(tmp_path / "in.mp4", "cover")
    with pytest.raises(ArgumentError, match=r"\.mov cannot hold stream 2 \(video, mjpeg\)"):
        video.enhance(source, tmp_path / "out.mov")
    assert list(tmp_path.iterdir()) == [source]
    video.enhance(source, tmp_path / "out.mp4")
    assert len(packets(tmp_path / "out.mp4")[2]) == 1


@pytest.mark.parametrize(("codec", "suffix"), [("vp9", ".mkv"), ("vp9", ".webm"), ("ffv1", ".mkv")])
def test_an_aspect_that_would_be_lost_is_refused(tmp_path: Path, codec: str, suffix: str) -> None:
    source = film(tmp_path / "in.mp4", Making(codec="libx264", aspect=Fraction(16, 15)))
    with pytest.raises(ArgumentError, match="aspect 16/15"):
        video.enhance(source, tmp_path / f"out{suffix}", codec=codec)
    assert list(tmp_path.iterdir()) == [source]


def test_opacity_beside_the_pictures_is_refused(tmp_path: Path) -> None:
    clear = replace(MPEG, codec="libvpx-vp9", format="yuva420p", times=range(3))
    source = film(tmp_path / "in.webm", clear)
    with pytest.raises(ArgumentError, match="opacity that lies beside its pictures"):
        video.enhance(source, tmp_path / "out.webm")


@pytest.mark.parametrize("name", ["Film: part 2.mp4", "http:x.mp4", "p%d.mp4", "two\nlines.mp4"])
def test_no_name_of_a_file_is_taken_for_a_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    film(tmp_path / "in.mp4", Making(codec="libx264", times=(0, 512)))
    Path("in.mp4").rename(name)
    assert video.enhance(name, f"new {name}").frames == 2
    assert len(list(video.frames(f"new {name}"))) == 2


def test_sound_that_no_writer_takes_is_left_out_and_the_rest_is_made(tmp_path: Path) -> None:
    """Of a broadcast a bit was lost: without its head a packet of AAC is none."""
    source = film(tmp_path / "in.ts", replace(MPEG, sound=1))
    whole = len(packets(source)[1])
    with av.open(str(source)) as container:
        sounds = [bytes(p) for p in container.demux(audio=0) if p.size]
    content = bytearray(source.read_bytes())
    at = content.index(sounds[5][:7])
    content[at : at + 7] = bytes(7)
    source.write_bytes(content)
    with pytest.warns(UserWarning, match=r"stream 1: \d+ damaged packets? left out"):
        video.enhance(source, tmp_path / "out.mkv")
    assert whole - 4 < len(packets(tmp_path / "out.mkv")[1]) < whole
    assert len(list(video.frames(tmp_path / "out.mkv"))) == 40


def test_parts_whose_clocks_begin_again_are_refused(tmp_path: Path) -> None:
    """Their pictures would be sorted in between each other."""
    part = film(tmp_path / "in.ts", MPEG).read_bytes()
    (tmp_path / "in.ts").write_bytes(part + part)
    with pytest.raises(FileError, match=r"its clock steps back by 1\.5\d+ s at"):
        video.enhance(tmp_path / "in.ts", tmp_path / "out.mkv")


def test_pictures_that_repeat_the_one_before_are_no_end_of_a_film(tmp_path: Path) -> None:
    """Theora says "as before" by a packet of no bytes, which looks like the last."""
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        pytest.skip("no ffmpeg here, and PyAV has no encoder of Theora")
    still = "color=gray:s=64x48:d=1:r=25,drawbox=enable='gt(t,0.6)':c=red:t=fill"
    source = tmp_path / "in.ogv"
    line = [ffmpeg, "-v", "error", "-f", "lavfi", "-i", still, "-c:v", "libtheora", str(source)]
    subprocess.run(line, check=True)
    found = read(source)
    assert video.enhance(source, tmp_path / "out.mkv").frames == len(found.times) > 1


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv"])
def test_data_that_no_container_holds_are_left_out_with_a_warning(
    tmp_path: Path, suffix: str
) -> None:
    """What a phone's sensors or a drone noted lies before the pictures, so numbers shift."""
    given = film(tmp_path / "plain.mp4", Making(codec="libx264", sound=1))
    source = tmp_path / "in.ts"
    with av.open(str(given)) as plain, av.open(str(source), "w") as out:
        data = out.add_data_stream()
        streams = [out.add_stream_from_template(one, opaque=True) for one in plain.streams]
        noted = av.Packet(b"position")
        noted.pts = noted.dts = 0
        noted.time_base, noted.stream = Fraction(1, 90000), data
        out.mux(noted)
        for packet in plain.demux():
            if packet.size:
                packet.stream = streams[packet.stream_index]
                out.mux(packet)
    with pytest.warns(UserWarning, match=rf"stream 0 \(data, data\): not kept, as {suffix} cannot"):
        video.enhance(source, tmp_path / f"out{suffix}")
    made = packets(tmp_path / f"out{suffix}")
    assert len(made[1]) == len(packets(source)[2]) > 20


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
@pytest.mark.parametrize("early", [100, 300])
def test_times_below_zero_keep_pictures_and_sound_together(
    tmp_path: Path, suffix: str, early: int
) -> None:
    """Of Matroska's blocks before 0 FFmpeg tells no time."""
    times = range(0, 1000, 40)
    make = Making(codec="libx264", times=times, time_base=Fraction(1, 1000), sound=1)
    source = film(tmp_path / "in.mkv", make)
    with av.open(str(source)) as container:
        places = [packet.pos for packet in container.demux() if packet.size]
    content = bytearray(source.read_bytes())
    for place in places:  # a block: the track's number, its time in the cluster
        time = int.from_bytes(content[place + 1 : place + 3], signed=True) - early
        content[place + 1 : place + 3] = time.to_bytes(2, signed=True)
    source.write_bytes(content)
    assert read(source).times == tuple(time - early for time in times)
    out = tmp_path / f"out{suffix}"
    video.enhance(source, out)
    sound = min(time for time, _ in packets(source)[1] if time is not None)
    moved = min(time for time, _ in packets(out)[1] if time is not None) - sound
    came = [one.time for one in video.frames(out)]
    assert [time - came[0] for time in came] == [Fraction(time, 1000) for time in times]
    assert abs(came[0] + Fraction(early, 1000) - moved) <= Fraction(1, 1000)
    with av.open(str(out)) as container:
        assert not any(packet.is_discard for packet in container.demux(video=0))


@pytest.mark.parametrize(
    ("width", "height", "format", "codec"),
    [
        (63, 48, "yuv420p", "h264"),
        (64, 47, "yuv420p", "h264"),
        (63, 48, "yuv422p", "h264"),
        (63, 47, "yuv420p10le", "h265"),
        (70, 10, "yuv420p", "av1"),
        (10, 70, "yuv420p", "av1"),
        (2, 2, "yuv420p", "av1"),
    ],
)
def test_sizes_that_an_encoder_does_not_take_are_refused_by_name(
    tmp_path: Path, width: int, height: int, format: str, codec: str
) -> None:
    """With some that SVT-AV1 is given it never ends."""
    make = Making(
        width=width, height=height, format=format, times=(0, 40), time_base=Fraction(1, 1000)
    )
    source = film(tmp_path / "in.mkv", make)
    with pytest.raises(ArgumentError, match=rf"codec='{codec}'.*{width}x{height}.*accepted are"):
        video.enhance(source, tmp_path / "out.mkv", codec=codec)
    assert list(tmp_path.iterdir()) == [source]
    assert video.enhance(source, tmp_path / "out.mkv", codec="ffv1").frames == 2
    if codec != "av1" and format == "yuv420p":
        larger = [video.Upscale("s", device="host")]
        assert video.enhance(source, tmp_path / "large.mkv", larger, codec=codec).frames == 2
