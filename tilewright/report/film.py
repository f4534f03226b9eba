"""What a film is like, as a table, a picture over time, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the table and a row of the picture.

    head    what stands over it
    field   of a sample
    digits  behind the point
    limit   from which on there is an advice or a note
    unit    in words
    """

    head: str
    field: str
    digits: int
    limit: float
    unit: str


MEASURES = (
    Measure("light", "mean", 2, advice.DARK, "0 to 1"),
    Measure("noise", "noise", 1, advice.NOISE, "of 255"),
    Measure("blocks", "blocks", 2, advice.BLOCKS, "0: none"),
    Measure("blur", "blur", 1, advice.BLUR, "samples"),
    Measure("haze", "haze", 2, advice.HAZE, "of light"),
    Measure("bands", "banding", 1, advice.BANDS, "% of samples"),
    Measure("combed", "combing", 1, advice.COMBED, "% of samples"),
    Measure("drawn", "screen", 2, advice.DRAWN, "0 to 1"),
    Measure("text", "text", 3, advice.TEXT, "0 to 1"),
    Measure("motion", "motion", 1, advice.MOTION, "% of height"),
)
_LEGEND = (
    "light: mean, 0 (black) to 1; noise: deviation, of 255; blocks: how far steps at",
    "seams exceed others; blur: samples; haze, drawn, text: shares, 0 to 1; bands,",
    "combed: in 100 samples; motion: to the next picture, of 100 heights. Bold:",
    "beyond the limit (light: below it)",
)
_SCENE, _INK = "#D55E00", "#6B6B6B"


def table(found: Analysis) -> RenderableType:
    """Scenes with what was measured and limits; below, what would help, where, and why."""
    survey = found.survey
    scenes = sheet(found.film, ("scene", "from, s", *(one.head for one in MEASURES)), gap=0)
    for number, start in enumerate(survey.starts):
        samples = survey.scene(number)
        cells = (_cell(one, advice.typical(samples, one.field)) for one in MEASURES)
        scenes.add_row(str(number), f"{start:.2f}", *cells)
    scenes.add_section()
    scenes.add_row("limit", "", *(f"{one.limit:.{one.digits}f}" for one in MEASURES), style="dim")
    note = (
        f"{counted(survey.frames, 'picture')}, {counted(len(survey.cuts), 'cut')}"
        f"{' at ' + ', '.join(map(str, survey.cuts)) if survey.cuts else ''}; medians of"
        f" {counted(len(survey.samples), 'picture')}"
    )
    notes = [Text(one) for one in found.notes]
    return Group(scenes, *grey([note, *_LEGEND]), *notes, Text(), _advice(found))


def _cell(measure: Measure, value: float) -> Text:
    beyond = value < measure.limit if measure.field == "mean" else value > measure.limit
    return Text(f"{value:.{measure.digits}f}", style="bold" if beyond else "")


def _advice(found: Analysis) -> RenderableType:
    if not found.advice:
        return Text("nothing here would help it")
    heads = ("would help", "reason", "scenes")
    shown: Table = sheet("Advice", heads, "reason", "scenes", wrap=True)
    for one in found.advice:
        shown.add_row(one.stage, one.reason, _ranges(one.scenes))
    return shown


def _ranges(numbers: Sequence[int]) -> str:
    """`0-3, 7` of 0, 1, 2, 3 and 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if run[1:] else str(run[0]) for run in runs)


def draw(found: Analysis, path: Path, argument: str) -> None:
    """Every measure over time, cuts and limits as lines, into `path`, a whole file or none."""
    with plots.canvas(path, argument) as save:
        save(_figure(found))


def _figure(found: Analysis) -> Any:
    from matplotlib.figure import Figure

    survey = found.survey
    figure = Figure(figsize=(9, 1.1 * len(MEASURES) + 0.8), layout="constrained")
    rows = figure.subplots(len(MEASURES), sharex=True)
    scenes = [survey.scene(number) for number in range(len(survey.starts))]
    for axes, measure, colour in zip(rows, MEASURES, (*plots.LINES, *plots.LINES), strict=False):
        for samples in scenes:
            times = [one.time for one in samples]
            values = [getattr(one, measure.field) for one in samples]
            axes.plot(times, values, color=colour, marker="o", markersize=3, linewidth=1.4)
        most = max(getattr(one, measure.field) for one in survey.samples)
        axes.set_ylim(0, 1.15 * max(measure.limit, most))
        axes.axhline(measure.limit, color=_INK, linewidth=0.8, linestyle=":")
        for start in survey.starts[1:]:
            axes.axvline(start, color=_SCENE, linewidth=1.0, linestyle="--")
        axes.set_ylabel(f"{measure.head}\n{measure.unit}", rotation=0, ha="right", va="center")
        plots.clean(axes, "top", "right")
    rows[-1].set_xlabel("seconds; dashed: cuts; dotted: limits of advice and notes (light: below)")
    figure.suptitle(found.film, fontsize=11)
    return figure


def document(found: Analysis) -> dict[str, Any]:
    """All of it, as JSON has it."""
    return {"schema": SCHEMA, **found.plain()}
