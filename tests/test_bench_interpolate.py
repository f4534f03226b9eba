"""What `bench.interpolate` compares: ffmpeg's pictures at their times, text where it was drawn."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("av")

from bench import interpolate
from bench.interpolate_table import interpolated


def test_ffmpegs_pictures_are_those_of_the_middle() -> None:
    rng = np.random.default_rng(0)
    texture = np.kron(rng.integers(0, 256, (16, 40)), np.ones((4, 4))).astype(np.uint8)
    pictures = [texture[:, 4 * n : 4 * n + 96].copy() for n in range(8)]
    made = interpolate.by_ffmpeg(pictures, "mi_mode=blend:scd=none")
    mixed = interpolate.mixes(pictures)
    there = [n for n, one in enumerate(made) if one is not None]
    assert len(there) >= 5
    for n in there:
        assert interpolate.psnr(made[n], mixed[n]) > 40
        assert interpolate.psnr(made[n], pictures[n]) < 30


def test_text_is_drawn_where_it_is_said_to_be() -> None:
    pytest.importorskip("PIL")
    pictures = [np.full((120, 320), 90, np.uint8) for _ in range(2)]
    where = interpolate.written(pictures)
    assert 0.02 < where.mean() < 0.3
    for picture in pictures:
        assert (picture[where] != 90).mean() > 0.9
        assert (picture[~where] != 90).mean() < 0.05


def test_means_are_over_pictures_that_all_ways_made_and_tables_say_them() -> None:
    entry = {
        "copy": [20.0, 30.0, 40.0], "mix": [21.0, 31.0, 41.0], "stage": [30.0, 33.0, 50.0],
        "fuse-s": [30.0, 33.0, 52.0],
        "minterpolate": [None, 32.0, 42.0], "minterpolate, all it can": [30.0, 32.5, 42.5],
        "notes": {"interpolate: parts of the nearer picture alone": 2},
    }  # fmt: skip
    assert interpolate.means(entry)["copy"] == 35
    document = {
        "clips": {"a.mp4": entry}, "text": {"a.mp4": entry},
        "speed": {"320x240, 1": 40.0, "320x240, 2": 75.5},
    }  # fmt: skip
    lines = interpolated(document)
    row = "| a.mp4, 3 | 35.00 | 36.00 | 37.00 | 37.50 | 41.50 | +4.50 | +5.50 | 2 | 0 | +1.00 |"
    assert row in lines
    del entry["fuse-s"]
    assert row.replace("+1.00 |", " |") in interpolated(document)
    assert "| 320 × 240 | 40.0 | 75.5 |" in lines
    assert interpolated({"speed": document["speed"]}) == lines[-3:]
    beside = {"320x240, own times": 9.0, "320x240, host's own times": 8.0}
    head, _, row = interpolated({"speed": beside})
    assert "| a second of the processor's time by OpenCL | by the host's loops |" in head
    assert row == "| 320 × 240 | 9.0 | 8.0 |"
