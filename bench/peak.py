"""The ceilings of a device, and the ladder under the roof that follows from them.

    python -m bench.peak --name h200 [--device opencl:nvidia] [--sizes 1024,4096]
    python -m bench.peak --name h200-cuda --device cuda:0 --sizes ""       ceilings alone

Measures anew whatever was stored, and says where a product was above its roof, which cannot be.
Writes bench/results/peak-NAME.json, docs/images/peak-NAME.png and docs/images/roofline-NAME.png.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench.environment import RESULTS, ROOT, environment
from bench.timing import load_average
from tilewright.report import ladder, peaks, plots, roofline, roofline_show
from tilewright.report.tables import ladder_table
from tilewright.selection import resolve
from tilewright.tuning import peak

IMAGES = ROOT / "docs" / "images"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("--name", required=True)
    parser.add_argument("--sizes", default="1024")
    options = parser.parse_args()
    console = Console(width=110, highlight=False)
    device, before = resolve(options.device), load_average()
    ceilings = peak.measure(device)
    console.print(peaks.table(device, ceilings))
    device = replace(device, ceilings=ceilings)
    ladders = [ladder.measure(device, int(size)) for size in options.sizes.split(",") if size]
    for one in ladders:
        console.print(ladder_table(one, console.width))
    placed = roofline.of_ladders(ladders, ceilings) if ladders else None
    if placed is not None:
        console.print(roofline_show.table(placed))
    result = {
        "environment": environment(device),
        "load_before": before,
        **peaks.figures(ceilings),
        **({} if placed is None else roofline.figures(placed)),
        "energy": ladders[0].energy if ladders else None,
        "joules": {
            f"{rung.name} {rung.size}": rung.joules for one in ladders for rung in one.rungs
        },
    }
    for folder in (RESULTS, IMAGES):
        folder.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"peak-{options.name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {path}")
    if plots.available():
        peaks.draw(device, ceilings, _image("peak", options.name), "--name")
    if plots.available() and placed is not None:
        roofline_show.draw(placed, _image("roofline", options.name), "--name")


def _image(kind: str, name: str) -> Path:
    return IMAGES / f"{kind}-{name}.png"


if __name__ == "__main__":
    main()
