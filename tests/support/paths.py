"""Where a process that a test starts looks for modules."""

from __future__ import annotations

import os
from pathlib import Path


def first(*folders: Path) -> str:
    """PYTHONPATH with these folders before what it holds: what is installed may stand there."""
    rest = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*map(str, folders), *([rest] if rest else [])])
