"""Stores what a draw of mutants found: the score of every target, and why each survivor lives.

    python -m bench.mutation_score found.jsonl --seed 11 --output bench/results/mutations-cpu.json

`found.jsonl` is what `bench.mutations` wrote. Reasons are written into the output by whoever looks
at a survivor, as "why"; the next run keeps them. One that begins with "equivalent" says that
nothing can tell the mutant from the code.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from bench.environment import environment
from tilewright.inputs.devices import host

_EQUIVALENT = "equivalent"


def scored(found: list[dict[str, Any]], reasons: dict[str, str]) -> dict[str, Any]:
    """Drawn and killed, in all and by target; survivors with their reasons."""
    drawn = Counter(one["target"] for one in found)
    killed = Counter(one["target"] for one in found if one["killed"])
    survivors = [
        {"where": one["where"], "change": one["change"], "why": reasons.get(_name(one), "")}
        for one in found
        if not one["killed"]
    ]
    alike = sum(one["why"].startswith(_EQUIVALENT) for one in survivors)
    return {
        "drawn": len(found),
        "killed": killed.total(),
        "share": round(killed.total() / len(found), 3),
        "share_without_equivalents": round(killed.total() / (len(found) - alike), 3),
        "targets": {name: [killed[name], count] for name, count in sorted(drawn.items())},
        "survivors": survivors,
    }


def _name(one: dict[str, Any]) -> str:
    return f"{one['where']} {one['change']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("found", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    found = [json.loads(line) for line in given.found.read_text().splitlines()]
    reasons: dict[str, str] = {}
    if given.output.exists():
        before = json.loads(given.output.read_text())["survivors"]
        reasons = {_name(one): one["why"] for one in before}
    facts = {"environment": environment(host()), "seed": given.seed}
    document = facts | scored(sorted(found, key=lambda one: one["number"]), reasons)
    given.output.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{document['killed']} of {document['drawn']} killed, {document['share']:.1%}")
    print(f"without equivalents {document['share_without_equivalents']:.1%}")


if __name__ == "__main__":
    main()
