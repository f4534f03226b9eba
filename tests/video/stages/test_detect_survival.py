"""Things found by a run that was killed, or by several workers: the same film, the same lines."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("av")
pytest.importorskip("numba")
pytest.importorskip("PIL")

from tests.support.films import Making, film
from tests.video.test_survival import same
from tilewright import video
from tilewright.video import making

MAKING = Making(width=96, height=64, codec="libx264", times=tuple(range(0, 24 * 512, 512)))
# A score so low that something is found in noise, some hundred times.
SCORE = 0.02
# Killed by itself, once so many pictures are made: nobody could be late for that.
SCRIPT = f"""
import os, signal, sys
from tilewright import video
from tilewright.video import making
making.CHUNK = 4
if __name__ == "__main__":
    source, out, told, workers, last = sys.argv[1:]

    def progress(now):
        print(now.done, flush=True)
        if now.done >= int(last):
            os.kill(os.getpid(), signal.SIGKILL)

    video.enhance(
        source, out, [video.Detect(score={SCORE}), video.Follow({SCORE}), video.Draw()],
        codec="ffv1", detections=told, workers=int(workers) or None, progress=progress)
"""


def line(folder: Path, name: str, workers: int = 0, last: int = 1000) -> list[str]:
    script = folder / "run.py"
    script.write_text(SCRIPT)
    files = (str(folder / one) for one in ("in.mp4", f"{name}.mkv", f"{name}.jsonl"))
    return [sys.executable, str(script), *files, str(workers), str(last)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film, and what a run makes of it that nothing stops."""
    made = tmp_path_factory.mktemp("films")
    film(made / "in.mp4", MAKING)
    stages = [video.Detect(score=SCORE), video.Follow(SCORE), video.Draw()]
    whole = made / "whole.mkv", made / "whole.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "CHUNK", 4)
        video.enhance(made / "in.mp4", whole[0], stages, codec="ffv1", detections=whole[1])
    assert (made / "whole.jsonl").read_text(encoding="utf-8").count('"track"') > 20
    return made


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_after_kill_9_the_film_and_the_lines_are_the_same(folder: Path) -> None:
    killed = subprocess.run(line(folder, "killed", last=12), capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / "killed.jsonl").exists()
    done = subprocess.run(line(folder, "killed"), check=True, capture_output=True, text=True)
    assert int(done.stdout.split()[0]) > 4
    same(folder / "whole.mkv", folder / "killed.mkv")
    assert (folder / "killed.jsonl").read_text(encoding="utf-8") == (
        folder / "whole.jsonl"
    ).read_text(encoding="utf-8")


def test_of_two_workers_the_film_and_the_lines_are_the_same(folder: Path) -> None:
    pytest.importorskip("distributed")
    subprocess.run(line(folder, "many", 2), check=True, capture_output=True)
    same(folder / "whole.mkv", folder / "many.mkv")
    assert (folder / "many.jsonl").read_text(encoding="utf-8") == (
        folder / "whole.jsonl"
    ).read_text(encoding="utf-8")
