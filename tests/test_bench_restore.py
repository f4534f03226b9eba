"""The bench of restoring stages: it goes on where time was over, and measures nothing twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("av")

from bench import restore, restore_table
from bench.restore_cases import Case, Planes
from tilewright.video.look import Look
from tilewright.video.stages.contract import Window, Work

COUNT = 6


class Halving:
    """A stage that takes half of what is above 100 away, and counts its pictures."""

    seen = 0

    def bound(self, look: Look) -> Work:
        def work(window: Window) -> Any:
            Halving.seen += 1
            (plane,) = window.frame.planes
            return (type("Made", (), {"planes": ((100 + (plane - 100) // 2).astype(np.uint8),)}),)

        return work


def pairs() -> list[tuple[Planes, Planes]]:
    clean = np.full((8, 12), 100, np.uint8)
    return [((clean + 2 * (n + 1),), (clean,)) for n in range(COUNT)]


def cases(part: str, images: Path, clips: Path) -> Iterator[Case]:
    stage: Any = lambda size, dtype: Halving()  # noqa: E731
    yield Case("made up, CRF 33", pairs, stage, types=("float32", "int8"))


def run(monkeypatch: pytest.MonkeyPatch, out: Path, *options: str) -> dict[str, Any]:
    line = ["restore", ".", ".", "--only", "films", "--output", str(out), *options]
    monkeypatch.setattr(sys, "argv", line)
    restore.main()
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))["films"][0]
    return found


def test_it_goes_on_with_what_is_not_measured_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(restore, "cases", cases)
    monkeypatch.setattr(Halving, "seen", 0)
    out = tmp_path / "restore.json"
    entry = run(monkeypatch, out)
    assert capsys.readouterr().out.endswith("all is done\n")
    assert {way: len(values) for way, values in entry["psnr"].items()} == {
        **{"damaged": COUNT, "s": COUNT, "s-int8": 2, "m": COUNT, "m-int8": 2}
    }
    exact = [20 * np.log10(255 / (n + 1)) for n in range(COUNT)]
    assert entry["psnr"]["s"] == pytest.approx(exact, abs=1e-3)
    assert restore_table.gain(entry, "s") == pytest.approx(20 * np.log10(2), abs=1e-3)
    assert restore_table.lost(entry, "s", "int8", 4) == pytest.approx(0, abs=1e-6)

    entry["psnr"]["m"] = entry["psnr"]["m"][:4]  # as if time had been over there
    out.write_text(json.dumps({"films": [entry]}))
    Halving.seen = 0
    assert len(run(monkeypatch, out, "--seconds", "-1")["psnr"]["m"]) == 4
    assert len(run(monkeypatch, out)["psnr"]["m"]) == COUNT
    assert Halving.seen == 2
    run(monkeypatch, out, "--again", "s")
    assert Halving.seen == 2 + COUNT
