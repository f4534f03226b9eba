"""Files of the cache: what cannot be read now stays, what is cleared is all of it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tilewright.cli import app
from tilewright.errors import CacheWarning
from tilewright.files import cache as cache_files
from tilewright.tuning import exchange, store

PASSING = (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOMEM)
DOCUMENT = "panel-0"


@pytest.mark.parametrize("number", PASSING, ids=errno.errorcode.get)
def test_a_measurement_that_cannot_be_read_now_stays(
    number: int, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save("key", {"answer": 42})
    store.update(store.TUNED, DOCUMENT, lambda _: {"answer": 42})
    opened = os.open

    def refuse(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if str(path).endswith(".json"):
            raise OSError(number, os.strerror(number))
        return opened(path, flags, mode, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.warns(CacheWarning, match="cannot be read now"):
            assert store.load("key") == {}
        with pytest.warns(CacheWarning, match="cannot be read now"):
            assert store.read(store.TUNED, DOCUMENT) == {}
        with pytest.warns(CacheWarning, match="cannot be read now"):
            assert store.document(store.TUNED, DOCUMENT) == {}
        with pytest.warns(CacheWarning, match="cannot be read now"):
            store.update(store.TUNED, DOCUMENT, lambda here: {**here, "more": 1})
    assert store.load("key") == {"answer": 42}
    assert store.read(store.TUNED, DOCUMENT) == {"answer": 42}


def test_a_process_out_of_files_destroys_no_measurement(own_store: Path) -> None:
    pytest.importorskip("resource")
    code = (
        "import resource, warnings; from tilewright.tuning import store\n"
        "warnings.simplefilter('ignore')\n"
        "store.save('key', {'x': 1}); files = []\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "try:\n"
        "    while True: files.append(open('/dev/null'))\n"
        "except OSError: pass\n"
        "store.load('key'); store.update('tuned', 'x', lambda here: here)\n"
        "files.clear(); print(store.load('key'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "{'x': 1}\n"


def test_a_file_of_more_than_a_document_can_have_is_not_read(own_store: Path) -> None:
    store.save("key", {"answer": 42})
    (path,) = (own_store / "measured").iterdir()
    with path.open("r+b") as file:
        file.truncate(store.MOST + 1)
    with pytest.warns(CacheWarning, match=r"more than \d+; set aside"):
        assert store.load("key") == {}


def filled(cache: Path) -> set[Path]:
    """One file in every part, Numba's in folders of its own, as they come to be there."""
    store.save("key", {})
    store.update(store.TUNED, DOCUMENT, lambda _: {})
    store.update(store.TRIED, DOCUMENT, lambda _: {})
    for name in ("programs/a.bin", "nvrtc/a.cubin", "vendors-0/00.icd"):
        cache_files.write(cache / name, b"content")
    for name in ("numba-0/host_1/a.nbi", "numba-0/host_1/a.nbc", "numba-1/host_1/a.nbi"):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_bytes(b"content")
    return {path for path in cache.rglob("*") if path.is_file()}


def test_clearing_the_cache_clears_all_of_it_but_locks(own_store: Path) -> None:
    assert len(filled(own_store)) == 11
    done = CliRunner().invoke(app, ["cache", "clear"])
    assert done.stdout == f"removed 9 files from {own_store}\n"
    left = {path.name for path in own_store.rglob("*")}
    assert left == {"measured", "tuned", "tried", "programs", "nvrtc", f"{DOCUMENT}.lock"}


@pytest.mark.parametrize(
    ("part", "files"), [("numba", 3), ("programs", 1), ("nvrtc", 1), ("drivers", 1), ("tuned", 1)]
)
def test_a_part_that_is_cleared_leaves_the_others(part: str, files: int, own_store: Path) -> None:
    before = filled(own_store)
    sizes = {found.name: (found.files, found.bytes) for found in exchange.parts()}
    assert sizes[part][0] == files
    assert CliRunner().invoke(app, ["cache", "clear", "--part", part]).exit_code == 0
    gone = before - {path for path in own_store.rglob("*") if path.is_file()}
    assert len(gone) == files
    assert {found.name: found.files for found in exchange.parts()} == {
        name: 0 if name == part else count for name, (count, _) in sizes.items()
    }


def test_configurations_that_stayed_the_default_are_counted_and_not_listed(
    own_store: Path,
) -> None:
    default = {"config": {"micro_m": 4}, "ratio": 1.0}
    records = {f"float32 float32 rows-rows class{i}": default for i in range(130)}
    records["float32 float32 rows-rows large"] = {"config": {"micro_m": 6}, "ratio": 0.8}
    head = {"kernel": "panel", "architecture": "opencl|cpu|Two Cores", "driver": "1"}
    store.update(store.TUNED, DOCUMENT, lambda _: {**head, "records": records})
    shown = CliRunner().invoke(app, ["cache", "info"]).stdout
    assert "1.25x" in shown
    assert "panel on Two Cores, 1: the default stayed for 130 more" in shown
    assert len(shown.splitlines()) < 30
