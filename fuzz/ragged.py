"""Saved batches of unlike matrices: RaggedBatch.load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from fuzz.harness import Target, main
from fuzz.inputs import JUNK, npz
from tilewright import RaggedBatch

_HONEST = {
    "flat": np.arange(48, dtype=np.float32),
    "rows": np.array([2, 0, 4]),
    "cols": np.array([3, 5, 4]),
    "offsets": np.array([0, 16, 16]),
}


def read(path: Path) -> object:
    """Every element of every matrix."""
    return [np.count_nonzero(matrix) for matrix in RaggedBatch.load(path)]


@st.composite
def inputs(draw: st.DrawFn) -> bytes:
    """The saved batch, or one whose sizes lie."""
    members = dict(_HONEST)
    if draw(st.booleans()):
        name = draw(st.sampled_from(("rows", "cols", "offsets")))
        odd = draw(st.one_of(JUNK, st.lists(st.integers(-1, 2**63 - 1), min_size=3, max_size=3)))
        column = np.array(odd, np.object_)
        if all(type(number) is int and abs(number) < 2**63 for number in column.reshape(-1)):
            members[name] = column.astype(np.int64)
    return draw(npz(members, compressed=False))


TARGET = Target("ragged", ".npz", inputs(), read)

if __name__ == "__main__":
    main(TARGET)
