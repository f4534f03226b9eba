"""Matrix Market files."""

from __future__ import annotations

from hypothesis import strategies as st

from fuzz.harness import Target, main
from fuzz.inputs import SIZES
from fuzz.npy import read

_WORDS = st.sampled_from(
    ("1", "2", "3", "-1", "0", "1.5", "1e400", "nan", "1e", "", "%", "1 2", "\x00", "٣", "0x1")
)
_FORMS = st.sampled_from(("coordinate", "array", "list"))
_FIELDS = st.sampled_from(("real", "integer", "pattern", "double", "complex"))
_SYMMETRIES = st.sampled_from(("general", "symmetric", "skew-symmetric", "hermitian"))


@st.composite
def text(draw: st.DrawFn) -> bytes:
    """A header, a line of sizes that may lie, and entries that may not fit."""
    form = draw(_FORMS)
    count = 3 if form == "coordinate" else 2
    sizes = draw(
        st.one_of(
            st.lists(st.integers(0, 4), min_size=count, max_size=count),
            st.lists(SIZES, max_size=4),
        )
    )
    lines = [f"%%MatrixMarket matrix {form} {draw(_FIELDS)} {draw(_SYMMETRIES)}"]
    lines += ["% " + "x" * draw(st.sampled_from((0, 70_000)))] * draw(st.integers(0, 1))
    lines.append(" ".join(map(str, sizes)))
    width = draw(st.integers(1, 3))
    entries = draw(st.lists(st.lists(_WORDS, min_size=width, max_size=width), max_size=17))
    lines += [" ".join(entry) for entry in entries]
    return ("\n".join(lines) + "\n" * draw(st.integers(0, 1))).encode()


@st.composite
def honest(draw: st.DrawFn) -> bytes:
    """A file that is what it says, to be damaged."""
    form, symmetry = draw(st.sampled_from(("coordinate", "array"))), draw(_SYMMETRIES)
    rows = draw(st.integers(1, 4))
    columns = rows if symmetry != "general" else draw(st.integers(1, 4))
    head = f"%%MatrixMarket matrix {form} real {symmetry}\n{rows} {columns}"
    if form == "coordinate":
        places = draw(st.lists(st.tuples(st.integers(1, rows), st.integers(1, columns))))
        lines = [f"{row} {column} {row}.5" for row, column in places]
        return "\n".join([f"{head} {len(lines)}", *lines]).encode()
    stored = {"general": rows * columns, "skew-symmetric": rows * (rows - 1) // 2}
    count = stored.get(symmetry, rows * (rows + 1) // 2)
    return "\n".join([head, *map(str, range(count))]).encode()


TARGET = Target("market", ".mtx", st.one_of(text(), honest()), read)

if __name__ == "__main__":
    main(TARGET)
