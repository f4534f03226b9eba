"""The guard of the house sees what it says it sees: each breach fails a test of it by name."""

from __future__ import annotations

from pathlib import Path

from tests.support import house_copy

DEFERRED = "def late():\n    from tilewright.cli import tune\n    return tune\n"
TYPED = (
    "from typing import TYPE_CHECKING\n\n"
    "if TYPE_CHECKING:\n    from tilewright.products import dense\n"
)
NAMED = 'import importlib\n\nlate = importlib.import_module("tilewright.cli.tune")\n'
ROUND = "def late():\n    from tilewright.facts import {0}\n    return {0}\n"


def test_each_breach_of_the_plan_is_seen(tmp_path: Path) -> None:
    """Imports upwards that are put off, for type checkers alone or named in a string, a circle of
    two files that import each other in functions, and a room that has no floor."""
    house = house_copy.copied(tmp_path)
    for path, text in (
        ("planning/deferred.py", DEFERRED),
        ("files/typed.py", TYPED),
        ("arrays/named.py", NAMED),
        ("facts/round_one.py", ROUND.format("round_two")),
        ("facts/round_two.py", ROUND.format("round_one")),
        ("attic/__init__.py", '"""Things."""\n'),
    ):
        place = house / "tilewright" / path
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    done = house_copy.run(house, "-m", "pytest", "--tb=no", "-rf", "tests/test_architecture.py")
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert {line.partition("::")[2].partition(" - ")[0] for line in lines} == {
        "test_a_room_leans_only_on_rooms_below[planning]",
        "test_a_room_leans_only_on_rooms_below[files]",
        "test_a_room_leans_only_on_rooms_below[arrays]",
        "test_imports_form_no_circle",
        "test_what_lies_beside_each_other_in_a_folder_forms_no_circle[tilewright.facts]",
        "test_every_module_is_in_a_room_and_every_room_on_a_floor",
        "test_the_page_names_every_room_and_every_folder",
    }
