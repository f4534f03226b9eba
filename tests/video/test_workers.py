"""Chunks made by Dask's workers give the film that one process makes, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")
pytest.importorskip("numba")
distributed = pytest.importorskip("distributed")

from tests.cli.test_cli import invoke  # noqa: E402
from tests.support.films import Making, film  # noqa: E402
from tests.video.test_survival import same  # noqa: E402
from tilewright import models, nn, video  # noqa: E402
from tilewright.errors import ArgumentError, DeviceError, FileError  # noqa: E402
from tilewright.video import cluster, making  # noqa: E402

LONG = Making(width=48, height=32, codec="libx264", times=tuple(range(0, 40 * 512, 512)), sound=1)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_a_worker_that_is_killed_costs_its_chunk_and_the_film_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers are given the model, not its path."""
    monkeypatch.setattr(making, "CHUNK", 5)
    source = film(tmp_path / "in.mp4", LONG)
    nn.save(models.load("superres-s"), tmp_path / "net.npz")
    stages = [video.Upscale.of_file(tmp_path / "net.npz", "host"), video.Sharpen()]
    video.enhance(source, tmp_path / "one.mp4", stages)
    killed: list[int] = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as many,
        distributed.Client(many, set_as_default=False) as client,
    ):
        pids = list(client.run(os.getpid).values())

        def report(now: video.Progress) -> None:
            (tmp_path / "net.npz").unlink(missing_ok=True)
            if not killed:
                killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)

        address = many.scheduler_address
        made = video.enhance(
            source, tmp_path / "many.mp4", stages, workers=address, progress=report
        )
    assert killed
    assert (made.frames, made.kept) == (40, 0)
    assert set(made.worked) >= {"decode", "upscale", "sharpen", "encode"}
    same(tmp_path / "one.mp4", tmp_path / "many.mp4")


def test_processes_of_this_machine_are_started_and_leave_nothing(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mp4", LONG)
    video.enhance(source, tmp_path / "one.mp4")
    done = invoke("enhance", source, "-o", tmp_path / "many.mp4", "--workers", "2")
    assert done.exit_code == 0, done.output
    same(tmp_path / "one.mp4", tmp_path / "many.mp4")
    assert {path.name for path in tmp_path.iterdir()} == {"in.mp4", "one.mp4", "many.mp4"}


class Told:
    """A client whose only worker gives one answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def wait_for_workers(self, count: int, timeout: float) -> None: ...

    def run(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"tcp://there:1": self.answer}


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (("0.0.1", "9"), ArgumentError, "has tilewright 0.0.1 and PyAV 9; accepted are"),
        ((None, None, "No such file"), FileError, "finds No such file there; accepted is a source"),
        ((None, None, {"bytes": 1}), FileError, "finds another file there"),
        (ModuleNotFoundError("No module named 'tilewright'"), DeviceError, "cannot work"),
    ],
)
def test_workers_that_would_make_another_film_are_refused(
    tmp_path: Path, answer: Any, error: type[Exception], words: str
) -> None:
    source = film(tmp_path / "in.mkv", Making(time_base=Fraction(1, 1000), times=(0, 40)))
    job = making.planned(source, tmp_path / "out.mkv", codec="ffv1")
    here = cluster._facts(source)
    if isinstance(answer, tuple):
        answer = tuple(here[n] if one is None else one for n, one in enumerate(answer))
    with pytest.raises(error, match=words):
        cluster._check(Told(answer), job, "workers='tcp://there:2'")
    cluster._check(Told(here), job, "workers='tcp://there:2'")


@pytest.mark.parametrize("workers", ["0", "-1", "none", "http://here"])
def test_what_is_no_worker_is_refused(tmp_path: Path, workers: str) -> None:
    source = film(tmp_path / "in.mkv", Making(time_base=Fraction(1, 1000), times=(0, 40)))
    done = invoke("enhance", source, "-o", tmp_path / "out.mkv", "--workers", workers)
    assert done.exit_code == 2
    assert "or a scheduler's address, as tcp://scheduler:8786" in done.stderr
    assert list(tmp_path.iterdir()) == [source]


def test_processes_leave_ctrl_c_to_the_one_that_asks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal tells all of them, and each would print where it stood."""
    heard = []
    monkeypatch.setattr(
        cluster, "LocalCluster", lambda **_: heard.append(signal.getsignal(signal.SIGINT))
    )
    before = signal.getsignal(signal.SIGINT)
    cluster._local(2, tmp_path)
    assert heard == [signal.SIG_IGN]
    assert signal.getsignal(signal.SIGINT) == before
