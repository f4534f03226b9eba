"""Packed weights are made once for each content, in one process and in the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import forget, settings
from tilewright.backends.host import packed
from tilewright.errors import CacheWarning

LARGE = np.arange(1 << 19, dtype=np.float32)


class Making:
    """Lays weights out by doubling them, and counts how often."""

    def __init__(self, weights: Any) -> None:
        self.count, self.weights = 0, weights

    def __call__(self) -> Any:
        self.count += 1
        return self.weights * 2

    def ask(self, *way: object) -> Any:
        return packed.packed(way, self.weights, self)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    forget()


def test_the_same_weights_are_laid_out_once() -> None:
    making = Making(LARGE[:100])
    first = making.ask("way", 1)
    assert making.ask("way", 1) is first
    assert making.count == 1
    assert first.ctypes.data % 64 == 0
    assert not first.flags.writeable
    making.ask("way", 2)
    Making(LARGE[1:101]).ask("way", 1)
    assert making.count == 2
    np.testing.assert_array_equal(first, LARGE[:100] * 2)


def test_large_weights_are_found_on_disk_by_the_next_process() -> None:
    making = Making(LARGE)
    first = making.ask("way")
    forget()
    again = making.ask("way")
    assert making.count == 1
    np.testing.assert_array_equal(again, first)
    assert again.ctypes.data % 64 == 0


def test_a_damaged_file_is_set_aside_and_made_again() -> None:
    making = Making(LARGE)
    making.ask("way")
    folder = settings.cache_part("weights")
    assert folder is not None
    (path,) = folder.glob("*.bin")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    forget()
    with pytest.warns(CacheWarning, match="damaged"):
        made = making.ask("way")
    assert making.count == 2
    np.testing.assert_array_equal(made, LARGE * 2)


def test_the_oldest_files_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_ROOM", 3 * LARGE.nbytes)
    for way in range(5):
        Making(LARGE).ask(way)
    folder = settings.cache_part("weights")
    assert folder is not None
    assert len(list(folder.glob("*.bin"))) == 2
