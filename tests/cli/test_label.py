"""`tilewright label`: a table of proposals, never over one that a person may have corrected."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("av")
pytest.importorskip("onnx")
pytest.importorskip("numba")

from typer.testing import CliRunner

from tests.support.detectors import saying, written, yolo
from tests.support.films import Making, film
from tilewright.cli import app
from tilewright.video.detection.labels import read

TIMES = tuple(range(0, 26 * 512, 512))


def told(*line: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in line])
    return done.exit_code, done.output


@pytest.fixture
def model(tmp_path: Path) -> Path:
    said = yolo([(20.0, 28.0, 8.0, 4.0, 0.35, 1)], 2)
    return written(tmp_path / "d.onnx", saying(said, names="['cat', 'dog']"))


def test_pictures_so_far_apart_are_looked_at(tmp_path: Path, model: Path) -> None:
    source, out = film(tmp_path / "in.mkv", Making(times=TIMES)), tmp_path / "labels.csv"
    status, said = told("label", source, "-o", out, "--model", model, "--every", "0.2")
    assert status == 0, said
    assert "6 proposals in 6 pictures" in said
    found = read(out)
    assert [one.frame for one in found] == [0, 5, 10, 15, 20, 25]
    assert {one.things[0].kind for one in found} == {"dog"}


def test_a_table_that_is_there_stays(tmp_path: Path, model: Path) -> None:
    source, out = film(tmp_path / "in.mkv", Making(times=TIMES[:2])), tmp_path / "labels.csv"
    out.write_text("mine")
    assert told("label", source, "-o", out, "--model", model)[0] == 2
    assert out.read_text(encoding="utf-8") == "mine"
    assert told("label", source, "-o", out, "--model", model, "--overwrite")[0] == 0
    assert len(read(out)) == 1


@pytest.mark.parametrize(
    "line",
    [
        ("-o", "labels.txt"), ("-o", "l.csv", "--every", "-1"), ("-o", "l.csv", "--score", "2"),
        ("-o", "l.csv", "--classes", "one,two,three"), ("-o", "none/l.csv"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_lines_write_nothing(
    tmp_path: Path, model: Path, line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = film(tmp_path / "in.mkv", Making(times=TIMES[:2]))
    before = set(tmp_path.iterdir())
    status, said = told("label", source, "--model", model, *line)
    assert status == 2
    assert len(said.splitlines()) == 1
    assert said.startswith("error: ")
    assert set(tmp_path.iterdir()) == before
