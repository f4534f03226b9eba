"""What a film is like, as a table, a picture over time, and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tilewright.report import plots
from tilewright.report.sheet import grey, sheet
from tilewright.video import advice
from tilewright.video.advice import Analysis
from tilewright.wording import counted

SCHEMA = "tilewright-film/1"
# Measures as columns and rows of the picture: heading, field, digits, limit of an advice.
MEASURES: tuple[tuple[str, str, int, float | None], ...] = (
    ("light", "mean", 2, advice.DARK),
    ("noise", "noise", 1, advice.NOISE),
    ("blocks", "blocks", 2, advice.BLOCKS),
    ("blur", "blur", 1, advice.BLUR),
    ("haze", "haze", 2, advice.HAZE),
    ("bands", "banding", 1, advice.BANDS),
    ("combed", "combing", 1, advice.COMBED),
    ("drawn", "screen", 2, advice.DRAWN),
    ("text", "text", 3, advice.TEXT),
)
_SCENE, _INK = "#D55E00", "#6B6B6B"


def table(found: Analysis) -> RenderableType:
    """Scenes with what was measured, and what would help, with the reason."""
    survey = found.survey
    heads = ("scene", "from, s", *(head for head, *_ in MEASURES), "would help")
    scenes = sheet(found.film, heads, "would help", wrap=True)
    for number, start in enumerate(survey.starts):
        samples = survey.scene(number)
        cells = [f"{advice.typical(samples, field):.{n}f}" for _, field, n, _ in MEASURES]
        helps = [one.stage for one in found.advice if number in one.scenes]
        scenes.add_row(str(number), f"{start:.2f}", *cells, ", ".join(helps) or "-")
    note = (
        f"{counted(survey.frames, 'picture')}, {counted(len(survey.cuts), 'cut')}"
        f"{' at ' + ', '.join(map(str, survey.cuts)) if survey.cuts else ''}; medians of"
        f" {counted(len(survey.samples), 'picture')}"
    )
    return Group(scenes, *grey([note, *found.notes]), Text(), _advice(found))


def _advice(found: Analysis) -> RenderableType:
    if not found.advice:
        return Text("nothing here would help it")
    shown: Table = sheet("Advice", ("stage", "reason", "scenes"), "reason", "scenes", wrap=True)
    for one in found.advice:
        shown.add_row(one.stage, one.reason, ", ".join(map(str, one.scenes)))
    return shown


def draw(found: Analysis, path: Path, argument: str) -> None:
    """Every measure over time, cuts and limits as lines, into `path`, a whole file or none."""
    with plots.canvas(path, argument) as save:
        save(_figure(found))


def _figure(found: Analysis) -> Any:
    from matplotlib.figure import Figure

    survey = found.survey
    figure = Figure(figsize=(9, 1.1 * len(MEASURES) + 0.8), layout="constrained")
    rows = figure.subplots(len(MEASURES), sharex=True)
    times = [one.time for one in survey.samples]
    for axes, (head, field, _, limit), colour in zip(
        rows, MEASURES, (*plots.LINES, *plots.LINES), strict=False
    ):
        values = [getattr(one, field) for one in survey.samples]
        axes.plot(times, values, color=colour, marker="o", markersize=3, linewidth=1.4)
        axes.set_ylim(0, max(*values, limit or 0) * 1.15 + 1e-6)
        if limit is not None:
            axes.axhline(limit, color=_INK, linewidth=0.8, linestyle=":")
        for start in survey.starts[1:]:
            axes.axvline(start, color=_SCENE, linewidth=1.0, linestyle="--")
        axes.set_ylabel(head, rotation=0, ha="right", va="center")
        plots.clean(axes, "top", "right")
    rows[-1].set_xlabel("seconds; dashed: cuts; dotted: limits of advice")
    figure.suptitle(found.film, fontsize=11)
    return figure


def document(found: Analysis) -> dict[str, Any]:
    """All of it, as JSON has it."""
    return {"schema": SCHEMA, **found.plain()}
