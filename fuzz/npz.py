"""Operands of the command line as .npz, and columns of sizes, which are .npz too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from fuzz.harness import Target, main
from fuzz.inputs import npz
from fuzz.npy import read
from tilewright.cli import sizes

_ONE = {"a": np.ones((3, 4), np.float32)}
_COLUMNS = {name: np.arange(1, 5) for name in "mnk"}
TARGET = Target("npz", ".npz", npz(_ONE), read)


def columns(path: Path) -> object:
    """What `tilewright grouped` does with a file."""
    return [column.sum() for column in sizes.load(path)]


COLUMNS = Target("columns", ".npz", st.one_of(npz(_COLUMNS), npz(_ONE)), columns)

if __name__ == "__main__":
    main(TARGET, COLUMNS)
