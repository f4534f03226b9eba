"""What `tilewright enhance` does with people: options, and the stages that they ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.enhance_said import told
from tilewright.errors import ArgumentError
from tilewright.video.beside import begin, end, planned_beside
from tilewright.video.job import Job
from tilewright.video.making import Progress, made
from tilewright.video.stages.alpha import Alpha
from tilewright.video.stages.background import Background
from tilewright.video.stages.blur import WHAT, Blur
from tilewright.video.stages.box_matte import BoxMatte
from tilewright.video.stages.contract import Stage
from tilewright.video.stages.key_matte import KeyMatte
from tilewright.video.stages.mask_matte import MaskMatte
from tilewright.video.stages.net_matte import NetMatte
from tilewright.video.stages.plate_matte import PlateMatte

FINDING = (PlateMatte, KeyMatte, NetMatte)
_PANEL = "People and what lies behind them: before all other stages"

Blurred = Annotated[
    str | None,
    typer.Option(
        "--blur",
        metavar="background|person|FILE",
        help="Blur what lies behind a person, or the person, or what a matte's film has in white.",
        rich_help_panel=_PANEL,
    ),
]
Boxes = Annotated[
    list[str] | None,
    typer.Option(
        "--blur-box",
        metavar="X,Y,W,H",
        help="Blur what this box of the first picture has in it, wherever that goes; several times"
        " for several.",
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
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="[COLOUR]",
        help="Tell a person by the wall's colour, as green; alone: what prevails at the border.",
        rich_help_panel=_PANEL,
    ),
]
Model = Annotated[
    Path | None,
    typer.Option(
        "--matte-model",
        metavar="FILE",
        help="Tell a person by this network, recurrent ones too: .onnx or .npz.",
        rich_help_panel=_PANEL,
    ),
]
Matte = Annotated[
    Path | None,
    typer.Option(
        "--matte",
        metavar="FILE",
        help="Write opacity as a grey film too; the name of OUT again: that alone.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class Asked:
    """What a line asks of people.

    plate, key, model  how they are told from what is behind; none is by the film's median
    matte              where opacity goes
    boxes              parts of the first picture that are hidden, X,Y,W,H
    """

    blur: str | None = None
    background: str | None = None
    plate: Path | None = None
    key: str | None = None
    model: Path | None = None
    matte: Path | None = None
    device: str | None = None
    boxes: tuple[str, ...] = ()

    @property
    def wanted(self) -> bool:
        """Whether anybody is to be told from what is behind."""
        return bool(self.blur or self.background or self.matte)


def alone(asked: Asked, output: Path) -> bool:
    """Whether opacity is all that is to be written."""
    return asked.matte is not None and asked.matte == output


def stages(asked: Asked, output: Path) -> list[Stage]:
    """The stages that find a person or a part, and what is done with them, for the film itself.

    Raises ArgumentError for options that exclude each other or miss one another.
    """
    if asked.boxes and alone(asked, output):
        raise ArgumentError("--blur-box beside --matte of OUT's name: accepted is another name")
    found = _persons(asked, output)
    for one in asked.boxes:
        found += [BoxMatte(box_of(one)), Blur("person")]
    return found


def box_of(given: str) -> tuple[int, int, int, int]:
    """Left, top, width and height. Raises ArgumentError for what is no four whole numbers."""
    parts = given.split(",")
    if len(parts) != 4 or not all(one.strip().isdecimal() for one in parts):
        raise ArgumentError(f"--blur-box={given}: accepted are four numbers, X,Y,WIDTH,HEIGHT")
    left, top, wide, high = (int(one) for one in parts)
    return left, top, wide, high


def _persons(asked: Asked, output: Path) -> list[Stage]:
    ways = {"--plate": asked.plate, "--key": asked.key, "--matte-model": asked.model}
    given = [f"{name}={value}" for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise ArgumentError(f"{given[0]} beside {given[1]}: accepted is one of them")
    if given and not asked.wanted:
        raise ArgumentError(
            f"{given[0]} alone: accepted is --blur, --background or --matte beside it"
        )
    uses = [n for n, v in (("--blur", asked.blur), ("--background", asked.background)) if v]
    if alone(asked, output):
        if uses:
            raise ArgumentError(f"{uses[0]} beside --matte of OUT's name: accepted is another name")
        return [_finding(asked, careful=False), Alpha()]
    if len(uses) > 1:
        raise ArgumentError("--blur beside --background: accepted is one of them")
    if asked.blur and asked.blur not in WHAT:
        return [_given(asked, given), Blur("person")]
    if asked.blur:
        hides = asked.blur == "person"
        return [_finding(asked, careful=hides), Blur(asked.blur)]
    if asked.background:
        return [_finding(asked, careful=False), Background.of(asked.background)]
    return []


def _given(asked: Asked, ways: list[str]) -> Stage:
    """The stage that has opacity from a file. Raises ArgumentError for what is no file's name."""
    if not Path(str(asked.blur)).suffix:
        raise ArgumentError(
            f"--blur={asked.blur}: accepted are {', '.join(WHAT)}, and a matte's file"
        )
    if other := [*ways, *(["--matte"] if asked.matte else [])]:
        raise ArgumentError(f"{other[0]} beside --blur={asked.blur}: accepted is one of them")
    return MaskMatte(str(asked.blur))


def _finding(asked: Asked, *, careful: bool) -> Stage:
    """The stage that finds a person's opacity."""
    if asked.key is not None:
        return KeyMatte(asked.key, careful)
    if asked.model is not None:
        return NetMatte.of_file(asked.model, asked.device or "auto", careful=careful)
    return PlateMatte(str(asked.plate or ""), careful)


def beside(asked: Asked, job: Job, *, overwrite: bool) -> Job | None:
    """What `--matte` is to make beside a film that was planned; None where nothing is to do."""
    if asked.matte is None or alone(asked, job.out):
        return None
    known = [replace(one, careful=False) for one in job.stages if isinstance(one, FINDING)]
    finding: list[Stage] = [*known] or [_finding(asked, careful=False)]
    return planned_beside(job.film.path, asked.matte, [*finding, Alpha()], overwrite=overwrite)


def made_beside(job: Job, progress: Callable[[Progress], None], workers: int | str | None) -> None:
    """Make opacity's film, and say what came of it."""
    begin(job)
    print("\n".join(told(made(job, progress, workers))))


def ended(asked: Asked) -> None:
    """Both films are there."""
    if asked.matte is not None:
        end(asked.matte)
