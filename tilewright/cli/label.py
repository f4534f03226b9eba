"""`tilewright label`: boxes proposed for pictures of a film, in a table that a person corrects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import bars, common
from tilewright.cli.enhance_detect import finding
from tilewright.errors import ArgumentError, FileError
from tilewright.files.whole import check_writable
from tilewright.video import stills
from tilewright.video.detection import labels
from tilewright.video.labelling import proposed
from tilewright.wording import counted


def label(
    source: Annotated[Path, typer.Argument(metavar="FILM", help="A film.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="LABELS.csv", help="Where the table goes.")
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="A detector, .onnx or .npz; left out: the one that is brought along.",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option("--classes", metavar="NAMES", help="Names of the model's classes."),
    ] = None,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="0: every picture.")
    ] = 0.5,
    score: Annotated[
        float,
        typer.Option(
            "--score",
            metavar="S",
            help="How sure it has to be; wrong rows are soon deleted.",
        ),
    ] = 0.3,
    tiles: Annotated[
        bool, typer.Option("--tiles", help="Look at pictures larger than the model in tiles too.")
    ] = False,
    device: common.DeviceOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace LABELS.csv where it exists.")
    ] = False,
) -> None:
    """Propose boxes for pictures of a film, to be corrected by a person and learned from.

    The table has a row a box (frame, time, class, x, y, w, h, score, keep). Write 0 into `keep`
    where a box is wrong, change what is not right, add rows for what was missed; then
    `python -m train.detect --labels LABELS.csv --film FILM` learns from it.

    Examples:

    - `tilewright label field.mp4 -o labels.csv`
    - `tilewright label field.mp4 -o labels.csv --model yolo11n.onnx --every 2 --score 0.2`
    """
    if source.suffix.lower() in stills.SUFFIXES:
        raise ArgumentError(f"source={str(source)!r}: a picture; accepted are films")
    if output.suffix.lower() != ".csv":
        raise ArgumentError(f"--output={str(output)!r}: suffix {output.suffix!r}; accepted is .csv")
    if output.exists() and not overwrite:
        raise FileError(
            f"--output={str(output)!r}: exists, and may hold corrections; accepted is another name,"
            " or --overwrite"
        )
    check_writable(output, "--output")
    stage = finding(model, None, classes, score, tiles, device or "auto", door="--model")
    with bars.looking() as looked:
        pictures = list(proposed(source, stage, every, looked))
    boxes = labels.write(output, pictures)
    print(f"wrote {output}: {counted(boxes, 'proposal')} in {counted(len(pictures), 'picture')}")
