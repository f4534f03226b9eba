"""What `tilewright enhance` does with people: options, and the stages that they ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.errors import ArgumentError
from tilewright.video.stages.background import Background
from tilewright.video.stages.blur import WHAT, Blur
from tilewright.video.stages.contract import Stage
from tilewright.video.stages.plate_matte import PlateMatte

_PANEL = "People and what lies behind them: before all other stages"

Blurred = Annotated[
    str | None,
    typer.Option(
        "--blur",
        metavar="background|person",
        help="Blur what lies behind a person, or the person.",
        rich_help_panel=_PANEL,
    ),
]
Behind = Annotated[
    str | None,
    typer.Option(
        "--background",
        metavar="FILE|COLOUR",
        help="Put another background behind a person: a picture, green, #00ff00.",
        rich_help_panel=_PANEL,
    ),
]
Plate = Annotated[
    Path | None,
    typer.Option(
        "--plate",
        metavar="FILE",
        help="The empty scene as a picture; left out: the film's median, if its camera is still.",
        rich_help_panel=_PANEL,
    ),
]


def stages(blur: str | None, background: str | None, plate: Path | None) -> list[Stage]:
    """The stages that find a person, and what is done with them.

    Raises ArgumentError for options that exclude each other or miss one another.
    """
    if blur is None and background is None:
        if plate is not None:
            raise ArgumentError(
                f"--plate={plate} alone: accepted is --blur or --background beside it"
            )
        return []
    if blur is not None and background is not None:
        raise ArgumentError("--blur beside --background: accepted is one of them")
    if blur is not None and blur not in WHAT:
        raise ArgumentError(f"--blur={blur}: accepted are {' and '.join(WHAT)}")
    use: Stage = Blur(blur) if blur else Background.of(background or "")
    return [PlateMatte(str(plate or ""), careful=blur == "person"), use]
