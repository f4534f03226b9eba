"""What cannot be done is said in one line before work begins, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

av = pytest.importorskip("av")

from tests.cli.test_cli import invoke  # noqa: E402
from tests.support.films import Making, film  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.errors import ArgumentError  # noqa: E402
from tilewright.video import codecs, making  # noqa: E402

SMALL = Making(times=(0, 40), time_base=Fraction(1, 1000))


def refused(folder: Path, *arguments: str | Path) -> str:
    """The line that a command ends with."""
    before = sorted(folder.rglob("*"))
    done = invoke("enhance", *map(str, arguments))
    assert done.exit_code == 2, done.output
    assert sorted(folder.rglob("*")) == before
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--codec", "h266"], "codec='h266': accepted are h264, h265, av1, vp9, ffv1"),
        (["--crf", "77"], "crf=77: accepted for h264 are 0 to 51"),
        (["--codec", "ffv1", "--crf", "1"], "accepted for ffv1 are none, as it loses nothing"),
        (["--upscale", "3"], "--upscale=3: accepted is 2"),
        (["--size", "m"], "--size=m without --upscale: accepted is --upscale 2, --deblock"),
        (["--denoise", "loud"], "--denoise=loud: accepted are 0 to 75, and auto"),
        (["--model", "x.onnx", "--size", "m"], "--size beside --model: accepted is one of them"),
        (["--model", "x.onnx"], "model='x.onnx': cannot be read"),
        (["--upscale", "2", "--size", "q"], "accepted are s, m, l and float32, int8"),
        (["--preview", "--dry-run"], "--preview beside --dry-run: accepted is one of them"),
        (["--reference", "in.mkv"], "reference: without a report; accepted is a report beside it"),
        (["--report", "a.pdf"], "report='a.pdf': accepted are .html and .htm"),
        (["--reference", "in.mkv", "--dry-run"], "reference: without a report"),
        (["--workers", "0", "--dry-run"], "workers=0: accepted are 1 to"),
        (["--workers", "many", "--preview"], "workers='many': accepted are 1 to"),
        (["--device", "host"], "--device=host without a network"),
        (["--denoise", "5", "--dtype", "int8"], "--dtype=int8: --denoise has float32 alone"),
        (["--denoise", "5", "--size", "l"], "denoise: size='l'"),
        (["--sharpen", "-1"], "sharpen: amount=-1.0; accepted are 0 to 4"),
    ],
)
def test_wrong_options(tmp_path: Path, options: list[str], words: str) -> None:
    source = film(tmp_path / "in.mkv", SMALL)
    assert words in refused(tmp_path, source, "-o", tmp_path / "out.mkv", *options)


def test_wrong_files(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mkv", SMALL)
    text = tmp_path / "text.mp4"
    text.write_text("no film")
    out = tmp_path / "out.mkv"
    assert "no such file" in refused(tmp_path, tmp_path / "none.mp4", "-o", out)
    assert "no such file" in refused(tmp_path, tmp_path / "none.png", "-o", tmp_path / "out.png")
    assert "cannot be read" in refused(tmp_path, text, "-o", out)
    assert "exists; accepted is another name" in refused(tmp_path, source, "-o", text)
    assert "is the source itself" in refused(tmp_path, source, "-o", source, "--overwrite")
    assert "suffix '.gif'; accepted are .mp4" in refused(
        tmp_path, source, "-o", out.with_suffix(".gif")
    )
    assert "cannot be written" in refused(tmp_path, source, "-o", tmp_path / "no" / "out.mkv")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_what_is_no_file_is_called_that(tmp_path: Path) -> None:
    source, pipe, folder = film(tmp_path / "in.mkv", SMALL), tmp_path / "p.mkv", tmp_path / "films"
    os.mkfifo(pipe)
    folder.mkdir()
    film(folder / "in.mkv", SMALL)
    out = tmp_path / "out.mkv"
    assert "is no file; accepted is a file" in refused(
        tmp_path, source, "-o", pipe, "--overwrite", "--codec", "ffv1"
    )
    assert pipe.is_fifo()
    assert "p.mkv': no file; accepted are films" in refused(tmp_path, pipe, "-o", out)
    assert "and films one by one" in refused(tmp_path, folder, "-o", out)
    assert "and films one by one" in refused(tmp_path, folder / "*.mkv", "-o", out)
    done = invoke("analyse", str(folder))
    assert (done.exit_code, "films': a folder; accepted" in done.stderr) == (2, True)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_leads_to_the_film_that_is_replaced(tmp_path: Path, there: bool) -> None:
    source, real, link = film(tmp_path / "in.mkv", SMALL), tmp_path / "r.mkv", tmp_path / "out.mkv"
    link.symlink_to("r.mkv")
    if there:
        real.write_text("before")
    assert invoke("enhance", source, "-o", link, "--codec", "ffv1", "--overwrite").exit_code == 0
    assert link.is_symlink()
    assert len(list(video.frames(real))) == 2
    assert sorted(tmp_path.iterdir()) == sorted([source, real, link])


def test_what_a_codec_or_container_does_not_hold(tmp_path: Path) -> None:
    opaque = film(tmp_path / "opaque.mkv", replace(SMALL, format="yuva420p"))
    assert "opacity (yuva420p) would be lost" in refused(
        tmp_path, opaque, "-o", tmp_path / "out.mp4"
    )
    wide = film(tmp_path / "wide.mkv", replace(SMALL, format="yuv422p"))
    assert "no samples as yuv422p; accepted are yuv420p" in refused(
        tmp_path, wide, "-o", tmp_path / "out.mp4", "--codec", "av1"
    )
    assert "'.webm' cannot hold it" in refused(
        tmp_path, wide, "-o", tmp_path / "out.webm", "--codec", "h264"
    )
    sounding = film(tmp_path / "in.mp4", Making(codec="libx264", sound=1))
    assert ".webm cannot hold" in refused(tmp_path, sounding, "-o", tmp_path / "out.webm")


def test_a_codec_that_this_pyav_lacks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = film(tmp_path / "in.mkv", SMALL)
    monkeypatch.setitem(codecs.CODECS, "av1", replace(codecs.CODECS["av1"], library="no-such"))
    line = refused(tmp_path, source, "-o", tmp_path / "out.mkv", "--codec", "av1")
    assert "codec='av1': PyAV was built without it" in line


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mkv", SMALL)
    source.chmod(0)
    assert "cannot be read" in refused(tmp_path, source, "-o", tmp_path / "out.mkv")


def test_a_full_disk_is_one_line_and_the_same_line_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files here may have so many bytes: less than a chunk, more than one, more than a film."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(making, "CHUNK", 8)
    make = Making(time_base=Fraction(1, 1000), times=range(0, 1600, 40), noise=0.2)
    source, out = film(tmp_path / "in.mkv", make), tmp_path / "out.mkv"
    chunk = source.stat().st_size // 5
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def line(most: int) -> Any:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
        try:
            return invoke("enhance", str(source), "-o", str(out), "--codec", "ffv1")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    for most, left in (
        (chunk // 2, []),
        (3 * chunk, [f"{number:05d}.chunk" for number in range(5)]),
    ):
        done = line(most)
        assert done.exit_code == 2, done.output
        (said,) = done.stderr.strip().splitlines()
        assert "cannot be written" in said
        assert not out.exists()
        kept = {path.name for path in (tmp_path / "out.mkv.parts").glob("*")}
        assert kept == {*left, *(["lock", "recipe.json"] if left else [])}
    done = line(before[0])
    assert "40 of them kept from before" in done.output.replace("\n", " ")
    assert sorted(tmp_path.iterdir()) == [source, out]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"crf": "18"}, "crf='18': accepted for h264 are 0 to 51"),
        ({"crf": 18.5}, "crf=18.5: accepted for h264 are 0 to 51"),
        ({"workers": 1.5}, "workers=1.5: accepted are 1 to"),
        ({"stages": video.Sharpen()}, "accepted is a sequence of stages"),
        ({"stages": [video.Sharpen(), "sharpen"]}, r"stages\[1\]='sharpen': accepted are stages"),
        ({"stages": [video.Sharpen]}, r"stages\[0\]=.*: accepted are stages, as video.Sharpen\(\)"),
        ({"codec": 7}, "codec=7: accepted are h264"),
    ],
)
def test_programs_are_told_what_is_accepted(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    source = film(tmp_path / "in.mkv", SMALL)
    with pytest.raises(ArgumentError, match=words):
        video.enhance(source, tmp_path / "out.mkv", **options)
    assert list(tmp_path.iterdir()) == [source]


def test_a_film_of_sound_alone_is_none(tmp_path: Path) -> None:
    import numpy as np

    path = tmp_path / "sound.wav"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), "s16", "mono")
        frame.sample_rate = 8000
        out.mux(stream.encode(frame))
    assert "no stream of pictures" in refused(tmp_path, path, "-o", tmp_path / "out.mkv")


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mkv", SMALL)
    options = ["--upscale", "2", "--ten-bit", "--dry-run"]
    done = invoke("enhance", str(source), "-o", str(tmp_path / "out.mkv"), *options)
    assert done.exit_code == 0, done.output
    assert "upscale: size s, dtype float32, 64x48 yuv420p -> 128x96 yuv420p" in done.output
    assert "ten-bit: 128x96 yuv420p -> 128x96 yuv420p10le" in done.output
    assert sorted(tmp_path.iterdir()) == [source]


def test_damaged_packets_are_counted_and_the_rest_is_made(tmp_path: Path) -> None:
    make = Making(codec="libx264", times=range(0, 40 * 512, 512), options=(("g", "10"),))
    source = film(tmp_path / "in.mp4", make)
    with av.open(str(source)) as container:
        places = [packet.pos for packet in container.demux(video=0) if packet.size]
    content = bytearray(source.read_bytes())
    content[places[12] : places[12] + 40] = b"\xff" * 40
    source.write_bytes(content)
    with pytest.warns(UserWarning, match="could not be decoded"):
        made = video.enhance(source, tmp_path / "out.mp4")
    assert 20 < made.frames < 40
    assert len(list(video.frames(tmp_path / "out.mp4"))) == made.frames


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text there")
def test_a_name_that_is_no_text_is_printed_somehow(tmp_path: Path) -> None:
    source, out = film(tmp_path / "in.mkv", SMALL), tmp_path / os.fsdecode(b"\xff.mkv")
    command = [sys.executable, "-m", "tilewright", "enhance", source, "-o", out]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"2 pictures" in done.stdout
    assert out.is_file()


def test_a_command_makes_a_film_and_says_so(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mkv", SMALL)
    out = tmp_path / "out.mkv"
    done = invoke("enhance", str(source), "-o", str(out), "--sharpen", "0.5", "--codec", "ffv1")
    assert done.exit_code == 0, done.output
    assert f"wrote {out}: 2 pictures" in done.output.replace("\n", "")
    assert "worked: decode" in done.output
