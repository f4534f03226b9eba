"""A copy of the project that a test may change, and commands that run in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import compiled_once, paths

ROOT = Path(__file__).parents[2]


def copied(folder: Path) -> Path:
    """The sources, the tests and what those read of the rest."""
    for name in ("tilewright", "tests", "bench", "fuzz"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "ARCHITECTURE.md"):
        shutil.copy(ROOT / name, folder)
    (folder / "cache").mkdir()
    compiled_once.link(folder / "cache")
    return folder


def run(house: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Python in the copy, importing from it, with a cache of its own, but for machine code."""
    own = {"PYTHONPATH": paths.first(house), "TILEWRIGHT_CACHE": str(house / "cache")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=house,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
    )
