"""`python -m tests.support.standard_page` writes docs/operators.md from a run of the node tests."""

from __future__ import annotations

from pathlib import Path

from tests.support import standard
from tilewright.nn import operators
from tilewright.nn.operators import base

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
KINDS = {
    base.ALL: "all",
    base.NUMBERS: "numbers",
    base.FLOATS: "floats",
    (*base.FLOATS, *base.SIGNED): "floats, signed",
    (*base.SIGNED, *base.UNSIGNED): "whole",
}
HEAD = """# Operators of networks

What `tilewright.nn.import_onnx` takes. Every operator has a definition in
`tilewright/nn/operators/`, written in the array API's words, which NumPy runs on the host and torch
or CuPy on their devices; engines take over where they are faster. Opsets {low} to {high} are read.
This page is written by `python -m tests.support.standard_page` from a run of the node tests that
version {onnx} of the ONNX package carries, each compared with its own tolerances, element types and
sizes, and the sizes found before the run with those after it.

- **versions**: of ONNX's operators whose meaning is implemented, by the opset that brought each.
- **types**: floats are float16, bfloat16, float32 and float64; whole are 8 to 64 bits with and
  without sign; numbers are both; all are numbers and bool.
- **passed, refused**: node tests. {passed} pass. {refused} are refused by name, when a file is
  imported or sizes are found:
  {reasons}.

| operator | versions | types | passed | refused | taken as |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The page's text."""
    import onnx

    rows, whole, reasons = [], 0, dict.fromkeys(standard.REASONS, 0)
    for name, cases in standard.cases().items():
        passed = [case for case in cases if standard.refusal(case) is None]
        refused = [case for case in cases if case not in passed]
        whole += len(passed)
        for case in refused:
            reasons[standard.listed(case.name) or "small types"] += 1
        rows.append(_row(name, len(passed), len(refused)))
    low, high = standard.OPSETS
    said = ";\n  ".join(f"{count} for {standard.REASONS[why]}" for why, count in reasons.items())
    head = HEAD.format(
        low=low, high=high, onnx=onnx.__version__, passed=whole,
        refused=sum(reasons.values()), reasons=said,
    )  # fmt: skip
    return head + "\n".join(rows) + "\n"


def _row(name: str, passed: int, refused: int) -> str:
    """A line of the table; of functions, which are no operator, only how many pass."""
    if name == standard.EXPANDED:
        return f"| {name} | | | {passed} | {refused} | |"
    records = operators.found()[name]
    versions = ", ".join(str(v) for v in sorted(v for record in records for v in record.versions))
    types = dict.fromkeys(dtype for record in records for dtype in record.dtypes)
    kinds = KINDS.get(tuple(types), ", ".join(types))
    note = next((record.note for record in records if record.note), "")
    return f"| {name} | {versions} | {kinds} | {passed} | {refused} | {note} |"


if __name__ == "__main__":
    PAGE.write_text(page())
