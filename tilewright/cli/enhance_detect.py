"""What `tilewright enhance` is asked to find in a film: its options, and the stages they mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tilewright.errors import ArgumentError
from tilewright.video.detection.lines import SUFFIXES
from tilewright.video.stages.contract import Stage
from tilewright.video.stages.detect import Detect
from tilewright.video.stages.draw import Draw
from tilewright.video.stages.follow import UNSURE, Follow
from tilewright.video.stages.listed import Listed

_FINDING = "Things found in pictures"
ALL = "all"

DetectOption = Annotated[
    str | None,
    typer.Option(
        "--detect",
        metavar="[CLASSES|FILE.jsonl]",
        help="Find small things, as ball,bird; alone: all that the network knows. A file: what"
        " --detections wrote, drawn with tracks' numbers.",
        rich_help_panel=_FINDING,
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        "--detect",
        metavar="[CLASSES]",
        help="Look for small things, as ball,bird; alone: all that the network knows.",
        rich_help_panel=_FINDING,
    ),
]
DrawOption = Annotated[
    bool,
    typer.Option("--draw", help="Draw boxes and names into the film.", rich_help_panel=_FINDING),
]
DetectionsOption = Annotated[
    Path | None,
    typer.Option(
        "--detections",
        metavar="FILE.jsonl",
        help="Write boxes, times and tracks, a line a picture.",
        rich_help_panel=_FINDING,
    ),
]
ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--detect-model",
        metavar="FILE",
        help="Find by this network: YOLO v5, v8, v11 or NanoDet, .onnx or .npz.",
        rich_help_panel=_FINDING,
    ),
]
NamesOption = Annotated[
    str | None,
    typer.Option(
        "--classes",
        metavar="NAMES",
        help="Names of that network's classes, in its order; left out: those in the file.",
        rich_help_panel=_FINDING,
    ),
]
ScoreOption = Annotated[
    float | None,
    typer.Option(
        "--score",
        metavar="S",
        help="How sure it has to be, 0 to 1; left out: 0.5.",
        rich_help_panel=_FINDING,
    ),
]
TilesOption = Annotated[
    bool,
    typer.Option(
        "--tiles",
        help="Look at pictures larger than that network's input in tiles too.",
        rich_help_panel=_FINDING,
    ),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a line."""

    detect: str | None
    draw: bool
    detections: Path | None
    model: Path | None
    names: str | None
    score: float | None
    tiles: bool
    device: str

    def stages(self) -> tuple[list[Stage], list[Stage]]:
        """What finds, before pictures are enlarged, and what draws, at the end.

        Raises ArgumentError for options that lack another, and what `Detect.of_file` does.
        """
        if self.detect is None and self.model is None:
            given = {"--draw": self.draw, "--detections": self.detections, "--score": self.score,
                     "--classes": self.names, "--tiles": self.tiles}  # fmt: skip
            for name, value in given.items():
                if value is not None and value is not False:
                    raise ArgumentError(
                        f"{name} without --detect: accepted is --detect or --detect-model beside it"
                    )
            return [], []
        if self.detect is not None and Path(self.detect).suffix.lower() in SUFFIXES:
            return self._listed(self.detect)
        if not self.draw and self.detections is None:
            raise ArgumentError(
                "--detect alone: nothing would come of it; accepted is --draw, --detections"
                " FILE.jsonl, or both beside it"
            )
        if self.score is not None and not 0 < self.score < 1:
            raise ArgumentError(f"--score={self.score:g}: accepted is between 0 and 1")
        sure = Follow() if self.score is None else Follow(self.score)
        found = finding(
            self.model, self.detect, self.names, UNSURE * sure.score, self.tiles, self.device
        )
        return [found, sure], [Draw()] if self.draw else []

    def _listed(self, file: str) -> tuple[list[Stage], list[Stage]]:
        """What draws lines of an earlier run."""
        given = {"--detections": self.detections, "--detect-model": self.model,
                 "--classes": self.names, "--score": self.score, "--tiles": self.tiles}  # fmt: skip
        for name, value in given.items():
            if value is not None and value is not False:
                raise ArgumentError(f"{name} beside --detect={file}: accepted is one of them")
        if not self.draw:
            raise ArgumentError(f"--detect={file} alone: accepted is --draw beside it")
        return [Listed(file)], [Draw()]


def finding(
    model: Path | None,
    classes: str | None,
    names: str | None,
    score: float,
    tiles: bool,
    device: str,
    door: str = "--detect-model",
) -> Detect:
    """The stage that options mean, `door` the one that names a model. Raises ArgumentError."""
    wanted = () if classes in (None, ALL) else _split(classes, "--detect")
    if model is None:
        if names is not None or tiles:
            option = "--tiles" if tiles else "--classes"
            raise ArgumentError(
                f"{option} without a model's file: accepted is {door} FILE beside it"
            )
        return Detect(wanted, score, device)
    given = _split(names, "--classes") if names is not None else ()
    return Detect.of_file(model, wanted, names=given, score=score, tiles=tiles, device=device)


def _split(text: str | None, option: str) -> tuple[str, ...]:
    """Names between commas."""
    found = tuple(one.strip() for one in (text or "").split(","))
    if not all(found):
        raise ArgumentError(f"{option}={text!r}: accepted are names between commas")
    return found
