"""A run that is killed goes on where it was, and the film is the same, picture for picture."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

av = pytest.importorskip("av")

from tests.support.films import Making, film, packets, samples  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.errors import FileError  # noqa: E402
from tilewright.video import chunk, journal, making  # noqa: E402
from tilewright.video.journal import begun, folder_of  # noqa: E402
from tilewright.video.stages.sharpen import Sharpen  # noqa: E402

TIMES = tuple(range(0, 40 * 512, 512))
LONG = Making(width=96, height=80, codec="libx264", times=TIMES, sound=1)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of eight pictures."""
    monkeypatch.setattr(making, "CHUNK", 8)


class StopError(Exception):
    """What ends a run in these tests."""


def stopped_at(count: int, source: Path, out: Path, **options: object) -> None:
    def report(now: video.Progress) -> None:
        if now.done >= count:
            raise StopError

    with pytest.raises(StopError):
        video.enhance(source, out, progress=report, **options)  # type: ignore[arg-type]


def same(one: Path, other: Path) -> None:
    for (at, planes), (time_of, others) in zip(samples(one), samples(other), strict=True):
        assert at == time_of
        for mine, theirs in zip(planes, others, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert packets(one) == packets(other)


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_the_same_film_comes_out_whatever_lies_in_memory(tmp_path: Path, codec: str) -> None:
    source = film(tmp_path / "in.mp4", Making(width=96, height=80, times=TIMES[:16], noise=0.1))
    rng, kept, films = np.random.default_rng(0), [], set()
    for _ in range(20):
        kept.append([np.full(rng.integers(1000, 200000), 97, np.uint8) for _ in range(9)])
        out = tmp_path / "out.mp4"
        video.enhance(source, out, codec=codec, overwrite=True)
        films.add(tuple(planes[0].tobytes() for _, planes in samples(out)))
    assert len(films) == 1


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(("codec", "counts"), [("h264", (3, 17, 39)), ("h265", (20,))])
def test_a_stopped_run_goes_on_and_gives_the_same_film(
    tmp_path: Path, codec: str, counts: tuple[int, ...]
) -> None:
    source = film(tmp_path / "in.mp4", LONG)
    whole, parts = tmp_path / "whole.mp4", tmp_path / "parts.mp4"
    video.enhance(source, whole, codec=codec)
    for count in counts:
        stopped_at(count, source, parts, codec=codec)
        assert not parts.exists()
    made = video.enhance(source, parts, codec=codec)
    assert (made.frames, made.kept) == (40, 8 * (counts[-1] // 8 - (counts[-1] % 8 == 0)))
    assert not folder_of(parts).exists()
    same(whole, parts)


@pytest.mark.usefixtures("short")
def test_lost_and_damaged_chunks_are_made_anew(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mp4", LONG)
    whole, parts = tmp_path / "whole.mp4", tmp_path / "parts.mp4"
    video.enhance(source, whole, [Sharpen()])
    stopped_at(40, source, parts, stages=[Sharpen()])
    folder = folder_of(parts)
    (folder / "00001.chunk").unlink()
    text = bytearray((folder / "00003.chunk").read_bytes())
    text[len(text) // 2] ^= 1
    (folder / "00003.chunk").write_bytes(text)
    (folder / "00002.chunk").write_bytes((folder / "00002.chunk").read_bytes()[:-9])
    assert video.enhance(source, parts, [Sharpen()]).kept == 8
    same(whole, parts)


@pytest.mark.usefixtures("short")
def test_other_options_begin_anew(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mp4", LONG)
    out = tmp_path / "out.mp4"
    stopped_at(30, source, out)
    assert video.enhance(source, out, crf=30).kept == 0
    stopped_at(30, source, tmp_path / "second.mp4")
    film(source, replace(LONG, seed=1))
    assert video.enhance(source, tmp_path / "second.mp4").kept == 0


@pytest.mark.usefixtures("short")
def test_an_encoder_keeps_its_threads_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What x264 gives depends on their number."""
    source = film(tmp_path / "in.mp4", LONG)
    out = tmp_path / "out.mp4"
    stopped_at(30, source, out)
    recipe = json.loads((folder_of(out) / "recipe.json").read_text(encoding="utf-8"))
    more = replace(making.host(), compute_units=recipe["coding"]["threads"] + 3)
    monkeypatch.setattr(making, "host", lambda: more)
    assert video.enhance(source, out).kept == 24


def test_two_processes_do_not_write_one_film(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mkv", Making(time_base=Fraction(1, 1000), times=(0, 40)))
    out = tmp_path / "out.mkv"
    with (
        begun(out, {}),
        pytest.raises(FileError, match=r"another process writes it; accepted is another name"),
    ):
        video.enhance(source, out)
    with begun(out, {"a": "recipe"}) as run:
        with pytest.raises(FileError, match="another process"):
            video.enhance(source, out)
        assert (run.folder / "recipe.json").exists()  # refused, it takes nothing away


@pytest.mark.usefixtures("short")
def test_a_folder_of_that_name_keeps_what_is_not_ours(tmp_path: Path) -> None:
    source, out = film(tmp_path / "in.mp4", LONG), tmp_path / "out.mp4"
    kept = folder_of(out) / "mine.txt"
    kept.parent.mkdir()
    kept.write_text("mine")
    stopped_at(20, source, out)
    video.enhance(source, out)
    assert list(kept.parent.iterdir()) == [kept]


@pytest.mark.usefixtures("short")
def test_a_source_that_changes_in_its_middle_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size and both its ends stay, as those of a download that is mended."""
    monkeypatch.setattr(journal, "_MARKED", 1000)
    make = replace(LONG, codec="ffv1", sound=0)
    source, out = film(tmp_path / "in.mkv", make), tmp_path / "out.mkv"
    with av.open(str(source)) as container:
        place = [packet.pos for packet in container.demux() if packet.size][20]
    stopped_at(30, source, out)
    times = source.stat()
    with source.open("r+b") as file:
        file.seek(place + 500)
        file.write(bytes(4))
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert video.enhance(source, out).kept == 0


@pytest.mark.usefixtures("short")
def test_a_source_that_changes_while_it_is_read_makes_no_film(tmp_path: Path) -> None:
    source, out = film(tmp_path / "in.mp4", LONG), tmp_path / "out.mp4"
    other = film(tmp_path / "other.mp4", replace(LONG, seed=1)).read_bytes()

    def change(now: video.Progress) -> None:
        if now.done == now.total:
            source.write_bytes(other)

    with pytest.raises(FileError, match="changed while it was worked on"):
        video.enhance(source, out, progress=change)
    assert not out.exists()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    "text", ["", "[]", '{"coding": []}', '{"coding": {"threads": []}}', "[" * 9999, '"\\ud800"']
)
def test_a_journal_that_says_anything_else_begins_anew(tmp_path: Path, text: str) -> None:
    source, out = film(tmp_path / "in.mp4", LONG), tmp_path / "out.mp4"
    stopped_at(20, source, out)
    (folder_of(out) / "recipe.json").write_text(text)
    (folder_of(out) / "survey.json").write_text(text)
    assert video.enhance(source, out, auto=True).kept == 0


@pytest.mark.usefixtures("short")
def test_a_chunk_in_another_s_place_makes_no_film(tmp_path: Path) -> None:
    source, out = film(tmp_path / "in.mp4", LONG), tmp_path / "out.mp4"
    stopped_at(30, source, out)
    folder = folder_of(out)
    (folder / "00001.chunk").write_bytes((folder / "00000.chunk").read_bytes())
    with pytest.raises(FileError, match="its chunks hold the same pictures"):
        video.enhance(source, out)
    assert not out.exists()


# Killed by itself, once so many pictures are made: nobody could be late for that.
SCRIPT = """
import os, signal, sys
from tilewright import video  # noqa: E402
from tilewright.video import making  # noqa: E402
making.CHUNK = 4

def progress(now):
    print(now.done, flush=True)
    if now.done >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

video.enhance(sys.argv[1], sys.argv[2], codec="ffv1", progress=progress)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_kill_9_costs_a_chunk(tmp_path: Path) -> None:
    make = Making(time_base=Fraction(1, 1000), times=range(0, 4000, 40))
    source = film(tmp_path / "in.mkv", make)
    out = tmp_path / "out.mkv"
    command = [sys.executable, "-c", SCRIPT, str(source), str(out)]
    killed = subprocess.run([*command, "30"], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not out.exists()
    done = subprocess.run([*command, "1000"], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[0]) > 28
    same(source, out)


def test_a_chunk_without_its_end_is_not_there(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mkv", Making(time_base=Fraction(1, 1000), times=(0, 40, 80)))
    job = making.planned(source, tmp_path / "out.mkv", codec="ffv1")
    path = tmp_path / "0.chunk"
    head = chunk.encode(path, video.frames(source), job.coding, job.looks[-1])
    assert head.frames == 3
    assert chunk.head_of(path) == head
    assert [packet.pts for packet in chunk.packets(path)] == [0, 40, 80]
    whole = path.read_bytes()
    for length in (0, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert chunk.head_of(path) is None


def test_a_stage_that_fails_ends_the_run_with_its_error(tmp_path: Path) -> None:
    """No thread is left, and nothing hangs."""
    source = film(tmp_path / "in.mkv", Making(time_base=Fraction(1, 1000), times=range(0, 800, 40)))

    class Failing(Sharpen):
        """One that breaks at the fifth picture."""

        def bound(self, look: video.Look) -> object:  # type: ignore[override]
            count = iter(range(100))

            def work(window: object) -> Iterator[object]:
                if next(count) == 4:
                    raise StopError
                yield window.frame  # type: ignore[attr-defined]

            return work

    import threading

    before = threading.active_count()
    with pytest.raises(StopError):
        video.enhance(source, tmp_path / "out.mkv", [Failing()], codec="ffv1")
    for _ in range(60_000):  # ten minutes at most
        if threading.active_count() <= before:
            break
        time.sleep(0.01)
    assert threading.active_count() <= before
    assert not (tmp_path / "out.mkv").exists()
