"""The table of `bench.detect`: what is found of small objects, and how fast."""

from __future__ import annotations

from typing import Any


def detected(document: dict[str, Any]) -> list[str]:
    """Lines of the table, and what is said below it."""
    lines = [
        "| drawn objects of 10 to 16 samples | things | recall at 0.1 false a picture |"
        " recall at a score of 0.5 | false a picture there | blobs, recall at 0.1 false |"
        " blobs at 8 false |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    kinds = []
    for case in document["cases"]:
        lines.append(
            f"| {case['pictures']} pictures of {case['name']} | {case['things']} |"
            f" {case['recall']:.3f} | {case['at_half']:.3f} | {case['false_at_half']:.3f} |"
            f" {case['blobs']:.3f} | {case['blobs, eight false']:.3f} |"
        )
        shares = ", ".join(f"{name} {share:.3f}" for name, share in case["by_kind"].items())
        alone = f", each picture by itself {case['alone']:.3f}" if case["name"] == "clips" else ""
        kinds.append(f"{case['name']}: {shares}; of any class {case['any_kind']:.3f}{alone}")
    speed = document.get("speed", {})
    lines += ["", f"Found at 0.1 false a picture, of {'. Of '.join(kinds)}.", *[""][: len(speed)]]
    lines += ["| 640 × 360 | pictures a second |", "|---|---:|"] if speed else []
    lines += [f"| {name} | {rate:.1f} |" for name, rate in speed.items()]
    return lines
