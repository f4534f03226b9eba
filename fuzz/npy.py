"""Operands of the command line as .npy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fuzz.harness import Target, main
from fuzz.inputs import npy
from tilewright.cli import files

MOST = 1 << 24  # bytes that a reader may make of a small file


def read(path: Path) -> object:
    """What `tilewright matmul` does with an operand, its elements looked at."""
    array = files.load(str(path), "A", lambda _: None, MOST)
    return np.count_nonzero(array)


TARGET = Target("npy", ".npy", npy(("<f2", "<f4", "<f8")), read)

if __name__ == "__main__":
    main(TARGET)
