"""`tilewright analyse` with a detector: which things are in how many pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("av")
pytest.importorskip("numba")
pytest.importorskip("onnx")

from tests.cli.test_cli import invoke
from tests.support.detectors import saying, written, yolo
from tests.support.films import Making, film

# Two seconds, ten pictures each.
MAKING = Making(width=64, height=48, codec="libx264", times=tuple(range(0, 20 * 1280, 1280)))


def test_things_are_counted_by_the_picture(tmp_path: Path) -> None:
    thing = (20.0, 28.0, 8.0, 4.0, 0.9, 1)
    path = written(tmp_path / "d.onnx", saying(yolo([thing, thing], 3), names="['a', 'b', 'c']"))
    source = film(tmp_path / "in.mp4", MAKING)
    told = tmp_path / "told.json"
    done = invoke("analyse", source, "--detect-model", path, "--json", told)
    assert done.exit_code == 0, done.output
    things = json.loads(told.read_text(encoding="utf-8"))["things"]
    assert things["seen"] == {"b": things["pictures"]}
    assert things["pictures"] >= 3
    assert f"b: in {things['pictures']} of {things['pictures']} pictures" in done.output


def test_without_a_detector_nothing_is_said_of_things(tmp_path: Path) -> None:
    source, told = film(tmp_path / "in.mp4", MAKING), tmp_path / "told.json"
    assert invoke("analyse", source, "--json", told).exit_code == 0
    assert "things" not in json.loads(told.read_text(encoding="utf-8"))


def test_what_is_no_detector_is_refused_before_the_film_is_looked_at(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mp4", MAKING)
    for given, said in (
        (("--detect-model", tmp_path / "none.onnx"), "cannot be read"),
        (("--detect", "horse"), "classes='horse': unknown"),
        (("--classes", "a"), "--classes without --detect-model"),
    ):
        done = invoke("analyse", source, *given)
        assert done.exit_code == 2
        assert said in done.stderr
