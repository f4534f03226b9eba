"""The picture of a plan's balance: work of every compute unit as given and as planned.

Two panels, one a scheduler: the device's own, in its plan's model, and a GPU of 64 compute units
with four resident work-groups each, whatever device is at hand. Both are simulated, not measured.
Dashed lines say when all is done: what lies between them and a unit's bar is waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.facts.problem import Column
from tilewright.planning.buckets import Tile
from tilewright.planning.deal import Floats
from tilewright.planning.grouped import GroupedLayout, lay_out
from tilewright.planning.makespan import Slots
from tilewright.report import plots
from tilewright.report.grouped_tables import spread

GPU_SLOTS = Slots(64, 4, launch=5e-6)
# No chip in particular: 20 TFLOP/s on whole 64 x 64 tiles, less on smaller ones.
GPU_TILES = (
    Tile(64, 64, 20e12 / GPU_SLOTS.count, 2e-6),
    Tile(32, 32, 14e12 / GPU_SLOTS.count, 1.5e-6),
    Tile(16, 16, 7e12 / GPU_SLOTS.count, 1e-6),
)
_BEFORE, _AFTER = "#E69F00", "#0072B2"
_FEW = 16  # units that have room for a pair of bars each
_WIDE, _NARROW = 7.5, 5.0  # inches of a panel of many units, and of the smallest picture


@dataclass(frozen=True)
class Panel:
    """One scheduler: seconds that its units are busy, and when the last of them is done.

    A unit's work is divided by its resident groups, which share it: so it compares with the ends.
    """

    title: str
    chosen: str
    before: Floats
    after: Floats
    ends: tuple[float, float]

    @classmethod
    def of(cls, title: str, layout: GroupedLayout) -> Panel:
        """Simulated exactly, tile by tile."""
        balance = layout.balance()
        ends = layout.predicted["given"], layout.seconds
        before, after = (work / layout.slots.resident for work in (balance.before, balance.after))
        return cls(title, layout.chosen, before, after, ends)


def gpu_panel(m: Column, n: Column, k: Column) -> Panel:
    """The batch on the modelled GPU."""
    return Panel.of("a GPU of 64 units, modelled", lay_out(m, n, k, GPU_TILES, GPU_SLOTS))


def draw(panels: list[Panel], title: str, path: Path, argument: str) -> None:
    """Draw into `path`, PNG or SVG, a whole file or none."""
    with plots.canvas(path, argument) as save:
        from matplotlib.figure import Figure

        pad = 72 if min(len(panel.before) for panel in panels) < _FEW else 48  # points, for legends
        wide = [_inches(len(panel.before)) for panel in panels]
        figure = Figure(figsize=(max(sum(wide), _NARROW), 4.8), layout="constrained")
        grid = figure.add_gridspec(1, len(panels), width_ratios=wide)
        for index, panel in enumerate(panels):
            _panel(figure.add_subplot(grid[index]), panel, pad)
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=13)
        save(figure)


def _panel(axes: Any, panel: Panel, pad: float) -> None:
    units = len(panel.before)
    scale, unit = (1e3, "ms") if max(panel.ends) >= 1e-3 else (1e6, "µs")
    columns = (
        ("as given", panel.before, _BEFORE),
        (f"planned, {panel.chosen}", panel.after, _AFTER),
    )
    for place, (name, work, colour) in enumerate(columns):
        end = panel.ends[place] * scale
        between = " " if units >= _FEW else "\n"  # a narrow panel has short lines
        label = f"{name}:{between}done after {end:.3g} {unit}, busiest {spread(work):.2f}× the mean"
        _bars(axes, np.sort(work)[::-1] * scale, place, {"color": colour, "label": label})
        axes.axhline(end, color=colour, linewidth=1.6, linestyle=(3 * place, (3, 3)))
    axes.set_ylim(0, 1.06 * max(*panel.ends, 1e-12) * scale)
    axes.set_xlim(0.4, units + 0.6)
    axes.set_xticks(np.arange(1, units + 1) if units < _FEW else (1, 16, 32, 48, units))
    axes.set_xlabel("compute unit, the busiest first")
    axes.set_ylabel(f"busy, {unit}")
    plots.clean(axes, "top", "right")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1), frameon=False, fontsize=9)
    axes.set_title(panel.title, loc="left", fontsize=11.5, pad=pad)


def _inches(units: int) -> float:
    """How wide a panel is: as many bars as it has, and words over two of them."""
    return min(_WIDE, 3.3 + 0.3 * (units - 2)) if units < _FEW else _WIDE


def _bars(axes: Any, heights: Floats, place: int, style: dict[str, Any]) -> None:
    """Pairs of bars for a few units; for many a filled outline and a line over it."""
    units = len(heights)
    if units < _FEW:
        axes.bar(np.arange(1, units + 1) + (place - 0.5) * 0.38, heights, width=0.36, **style)
    elif place == 0:
        axes.stairs(heights, np.arange(units + 1) + 0.5, fill=True, alpha=0.5, **style)
    else:
        axes.plot(np.arange(1, units + 1), heights, linewidth=2.4, **style)
