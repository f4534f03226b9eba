"""Sizes of a batch as CSV."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from fuzz.harness import Target, main
from fuzz.inputs import SIZES
from tilewright.cli import sizes

_FIELDS = st.one_of(
    SIZES.map(str),
    st.sampled_from(("", "m", '"', '"1"', "1.0", "1_0", "\x00", "nan", "," * 70_000, "9" * 5000)),
)
_HEADS = st.one_of(
    st.just(["m", "n", "k"]), st.lists(st.sampled_from(("m", "n", "k", "", "x", '"')), max_size=5)
)


@st.composite
def text(draw: st.DrawFn) -> bytes:
    """A header and lines of fields."""
    head = draw(_HEADS)
    honest = st.lists(st.integers(0, 99).map(str), min_size=len(head), max_size=len(head))
    rows = draw(st.lists(st.one_of(honest, st.lists(_FIELDS, max_size=4)), max_size=6))
    end = draw(st.sampled_from(("\n", "\r\n", "\r", "\n\n")))
    return end.join(",".join(row) for row in (head, *rows)).encode()


def read(path: Path) -> object:
    """The columns."""
    return [column.sum() for column in sizes.load(path)]


TARGET = Target("sizes", ".csv", text(), read)

if __name__ == "__main__":
    main(TARGET)
