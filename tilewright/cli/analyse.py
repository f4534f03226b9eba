"""`tilewright analyse`: what a film is like, scene by scene, and which stages would help."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import common
from tilewright.errors import ArgumentError
from tilewright.files.whole import check_writable
from tilewright.report import film, plots
from tilewright.video import stills
from tilewright.video.advice import analyse as looked_at


def analyse(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A film.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Draw it: FILE.png or FILE.svg."),
    ] = None,
    json: common.JsonOption = None,
) -> None:
    """Say what a film is like, scene by scene, and which stages would help, with the reason.

    Cuts, light, noise, seams of blocks, blur, haze, bands, lines of two moments, screen content,
    text that stands still. `tilewright enhance IN -o OUT --auto` does what is advised.

    Examples:

    - `tilewright analyse film.mp4`
    - `tilewright analyse film.mp4 -o film.png --json film.json`
    """
    if source.suffix.lower() in stills.SUFFIXES:
        raise ArgumentError(f"source={str(source)!r}: a picture; accepted are films")
    check_writable(json, "--json")
    if output is not None:
        plots.check(output, "--output")
    with common.looking() as seen:
        found = looked_at(source, seen)
    common.console().print(film.table(found))
    common.deliver(json, lambda: film.document(found), output, partial(film.draw, found))
