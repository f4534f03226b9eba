"""`tilewright analyse`: what a film is like, scene by scene, and which stages would help."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import bars, common, results
from tilewright.cli import enhance_detect as detecting
from tilewright.cli.enhance_detect import finding
from tilewright.errors import ArgumentError
from tilewright.files.whole import check_writable
from tilewright.report import film, plots
from tilewright.video import stills
from tilewright.video.advice import analyse as looked_at
from tilewright.video.labelling import proposed, summed
from tilewright.wording import counted

_SURE, _EVERY = 0.5, 0.5  # score of what counts, and seconds between pictures


def analyse(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A film.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Draw it: FILE.png or FILE.svg."),
    ] = None,
    json: common.JsonOption = None,
    detect: detecting.ClassesOption = None,
    model: detecting.ModelOption = None,
    names: detecting.NamesOption = None,
) -> None:
    """Say what a film is like, scene by scene, and which stages would help, with the reason.

    Cuts, light, noise, seams of blocks, blur, haze, bands, lines of two moments, screen content,
    text that stands still, motion; with --detect or --detect-model also which things are seen, as
    people where that network knows them, and in how many of the pictures looked at, two a second.
    `tilewright enhance IN -o OUT --auto` does what is advised.

    Examples:

    - `tilewright analyse film.mp4`
    - `tilewright analyse film.mp4 --detect all`
    - `tilewright analyse film.mp4 -o film.png --json film.json`
    """
    if source.suffix.lower() in stills.SUFFIXES:
        raise ArgumentError(f"source={str(source)!r}: a picture; accepted are films")
    check_writable(json, "--json")
    if output is not None:
        plots.check(output, "--output")
    stage = None
    if detect is not None or model is not None:
        stage = finding(model, detect, names, _SURE, tiles=False, device="auto")
    elif names is not None:
        raise ArgumentError("--classes without --detect-model: accepted is one beside it")
    with bars.looking() as seen:
        pictures = None if stage is None else proposed(source, stage, _EVERY, seen)
        found = looked_at(source, seen)
        things = None if pictures is None else summed(pictures)
    common.console().print(film.table(found))
    if things is not None:
        for name, count in things.seen.items():
            print(f"{name}: in {count} of {counted(things.pictures, 'picture')}")
        if not things.seen:
            print(f"nothing found in {counted(things.pictures, 'picture')}")
    more = {} if things is None else {"things": asdict(things)}
    results.deliver(json, lambda: film.document(found) | more, output, partial(film.draw, found))
