"""The ceilings of a device, and the ladder under the roof that follows from them.

    python -m bench.peak --name h200 [--device opencl:nvidia] [--sizes 1024,4096]
    python -m bench.peak --name h200-cuda --device cuda:0 --sizes ""       ceilings alone
    python -m bench.peak --name h200 --redraw          the pictures alone, from what is stored

Measures anew whatever was stored, and says where a product was above its roof, which cannot be.
Writes bench/results/peak-NAME.json, docs/images/peak-NAME.png and docs/images/roofline-NAME.png.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.environment import RESULTS, ROOT, environment
from bench.timing import load_average
from tilewright import Device
from tilewright.facts.ceilings import Ceilings, from_dict
from tilewright.inputs.devices import resolve
from tilewright.report import ladder, peaks, plots, roofline, roofline_show
from tilewright.report.roofline import Point
from tilewright.report.tables import ladder_table
from tilewright.tuning import peak

IMAGES = ROOT / "docs" / "images"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("--name", required=True)
    parser.add_argument("--sizes", default="1024")
    parser.add_argument("--redraw", action="store_true")
    options = parser.parse_args()
    if options.redraw:
        redraw(options.name)
        return
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
        _draw(options.name, device, ceilings, placed)


def redraw(name: str) -> None:
    """Both pictures from bench/results/peak-NAME.json; nothing is measured."""
    stored = json.loads((RESULTS / f"peak-{name}.json").read_text())
    facts, ceilings = stored["environment"]["device"], from_dict(stored["ceilings"])
    lists = {key: tuple(value) for key, value in facts.items() if isinstance(value, list)}
    facts = {**facts, **lists, "features": frozenset(facts["features"])}
    device = Device(**{field.name: facts[field.name] for field in _known(facts)}, ceilings=ceilings)
    points = (
        Point(one["name"], stored["dtype"], one["flops"], one["bytes"], one["ms"] / 1e3)
        for one in stored.get("points", ())
    )
    placed = tuple(roofline.place(point, ceilings) for point in points)
    title, dtype = stored.get("title", ""), stored.get("dtype", "")
    under = roofline.Roofline(device, ceilings, title, dtype, placed) if placed else None
    _draw(name, device, ceilings, under)


def _known(facts: dict[str, Any]) -> list[Field[Any]]:
    """The facts of a device that an older result holds."""
    return [field for field in fields(Device) if field.name in facts]


def _draw(name: str, device: Device, ceilings: Ceilings, placed: roofline.Roofline | None) -> None:
    peaks.draw(device, ceilings, _image("peak", name), "--name")
    if placed is not None:
        roofline_show.draw(placed, _image("roofline", name), "--name")


def _image(kind: str, name: str) -> Path:
    return IMAGES / f"{kind}-{name}.png"


if __name__ == "__main__":
    main()
