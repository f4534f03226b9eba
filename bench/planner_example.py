"""Prints the example of docs/planner.md: one batch through every step of the planner.

    python -m bench.planner_example [--plot docs/images/planner-fronts.png]

The batch is `fronts-grid-3d`, seed 0; the scheduler is the modelled GPU of report/balance_plot.py.
No device is used but for the picture's second panel, so everyone gets the same numbers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tilewright import suites
from tilewright.inputs.devices import resolve
from tilewright.planning.buckets import Table, choices
from tilewright.planning.grouped import GroupedLayout, lay_out, signature
from tilewright.planning.order import arrange, descending, launches
from tilewright.report.balance_plot import GPU_SLOTS, GPU_TILES, Panel, draw, gpu_panel

NAME = "fronts-grid-3d"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, default=None)
    options = parser.parse_args()
    print("\n".join(example()))
    if options.plot is not None:
        _draw(options.plot)


def example() -> list[str]:
    """Every line of it."""
    batch = suites.load(NAME)
    m, n, k = batch.m, batch.n, batch.k
    layout = lay_out(m, n, k, GPU_TILES, GPU_SLOTS)
    live = np.flatnonzero((m > 0) & (n > 0))
    lines = [f"1 bypass   {len(m)} problems, {len(live)} with tiles; sizes differ, k not sorted"]
    table = Table.of(m, n, k, GPU_TILES)
    coarse = descending(live, k)
    lines += [
        f"2 measure  {tile.m} x {tile.n}: {int(counts.sum())} tiles,"
        f" {float((counts * seconds).sum()) / GPU_SLOTS.count * 1e6:.1f} µs spread evenly"
        for tile, counts, seconds in zip(GPU_TILES, table.counts, table.seconds, strict=True)
    ]
    lines += [f"3 coarse   k {k[live][:6].tolist()}... becomes {k[coarse][:6].tolist()}..."]
    for choice in choices(table, GPU_SLOTS):
        shared = np.bincount(choice.tile[live], minlength=len(GPU_TILES)).tolist()
        shapes = " + ".join(map(str, shared)) + " problems by shape"
        parts = int(choice.parts[choice.parts > 1].sum())
        cut = f"; {np.count_nonzero(choice.parts > 1)} cut into {parts} parts" if parts else ""
        needs = f"at least {choice.score(GPU_SLOTS) * 1e6:.1f} µs"
        lines.append(f"4 buckets  {choice.reason}: {shapes}{cut}; {needs}")
    taken = layout._taken.choice
    lines += [
        f"5 fine     {name}: {_count(launches(order, taken.tile), 'launch')}"
        for name, order in arrange(taken, live, coarse).items()
    ]
    return lines + _outcome(layout)


def _outcome(layout: GroupedLayout) -> list[str]:
    balance = layout.balance()
    spread = [float(work.max() / work.mean()) for work in (balance.before, balance.after)]
    buckets = ", ".join(
        f"{_count(bucket.stop - bucket.start, 'problem')} as {bucket.tiles} tiles of"
        f" {layout.tiles[bucket.tile].m} x {layout.tiles[bucket.tile].n}"
        for bucket in layout.buckets
    )
    key = signature(layout.m, layout.n, layout.k).hex()
    return [
        f"6 launch   {buckets}",
        *(f"7 predict  {name}: {s * 1e6:.1f} µs" for name, s in layout.predicted.items()),
        f"7 takes    {layout.reason}",
        f"7 balance  busiest unit {spread[0]:.2f}x the mean as given, {spread[1]:.2f}x as planned",
        f"8 cache    under {key[:16]}..., from sizes alone; options change it",
    ]


def _count(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{plural if count != 1 else ''}"


def _draw(path: Path) -> None:
    batch = suites.load(NAME)
    sizes = (batch.m, batch.n, batch.k)
    panels = [gpu_panel(*sizes)]
    from tilewright.products.grouped import plan_grouped

    device = resolve(None)
    layout = plan_grouped(*sizes, device=device).layout
    if layout is not None:
        name = f"{device.name.strip()}, {layout.slots.compute_units} units"
        panels.insert(0, Panel.of(name, layout))
    draw(panels, f"Work per compute unit: {len(batch)} products, {NAME}", path, "--plot")


if __name__ == "__main__":
    main()
