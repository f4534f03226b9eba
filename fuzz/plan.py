"""Saved plans of batches: GroupedPlan.load, on the host and planned for a GPU."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import strategies as st

from fuzz.harness import Target, main
from fuzz.inputs import JUNK, json_text
from tilewright import GroupedPlan, plan_grouped
from tilewright.errors import TilewrightError


def _honest() -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.json")
        plan_grouped([3, 5, 0], [4, 1, 2], [7, 2, 9], device="host").save(path)
        found: dict[str, object] = json.loads(path.read_text())
        return found


@st.composite
def inputs(draw: st.DrawFn) -> bytes:
    """The saved plan, with sizes of its own, and damaged."""
    document = _honest()
    if draw(st.booleans()):
        document["m"] = draw(st.lists(JUNK, max_size=4))
    return draw(json_text(document))


def read(path: Path) -> object:
    """The plan, told."""
    return GroupedPlan.load(path, device="host").explain()


TARGET = Target("plan", ".json", inputs(), read, (TilewrightError,))

if __name__ == "__main__":
    main(TARGET)
