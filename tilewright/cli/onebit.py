"""`tilewright onebit`: binary networks: convert from ONNX, look inside, run, time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import typer

from tilewright.cli.common import RepeatsOption, check_npz, console, positive
from tilewright.cli.onebit_bench import bench
from tilewright.cli.optional import Command, Group
from tilewright.cli.pictures import picture
from tilewright.errors import ArgumentError, FileError
from tilewright.files import reading
from tilewright.nn.files import load, save
from tilewright.nn.network_of_bits import labelled
from tilewright.nn.onnx.load import MEMORY, import_onnx
from tilewright.report.network import checks_table, layers_table, summary, timings_table, verdict
from tilewright.report.sampling import seconds_of

_MOST_LABELS = 16 << 20  # bytes of a file of names

app = typer.Typer(
    name="onebit",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

app.command(cls=Command)(bench)

Model = Annotated[Path, typer.Argument(metavar="MODEL.npz", help="What `convert` wrote.")]


@app.command(cls=Command)
def convert(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="A float graph.")],
    output: Annotated[Path, typer.Argument(metavar="MODEL.npz", help="Where the network goes.")],
    labels: Annotated[
        Path | None,
        typer.Option("--labels", metavar="FILE", help="Names of the classes, one a line."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every layer's comparison, not the differing ones.")
    ] = False,
    memory: Annotated[
        int,
        typer.Option(
            "--memory",
            callback=positive,
            metavar="MIB",
            help="That constants and the comparison may take.",
        ),
    ] = MEMORY >> 20,
) -> None:
    """Import an ONNX model and compare every layer with the float graph.

    The float graph is run by onnxruntime, or by ONNX's own reference where that is not installed;
    nothing is written where a layer gives something else. Binary are convolutions and dense layers
    between signs (Sign, or Where of -1 and +1) whose weights are -a and +a. Real weights are
    rounded to half precision.

    Example: `tilewright onebit convert birealnet18.onnx birealnet18.npz`
    """
    check_npz(output, "MODEL.npz")
    network, report = import_onnx(model, labels=_labels(labels), memory=memory << 20)
    save(network, output)
    screen = console()
    if every or not report.exact or any(check.zeros for check in report.layers):
        screen.print(checks_table(report, every=every))
    for line in (*verdict(report), *summary(network)):
        print(line)
    before, after = model.stat().st_size, output.stat().st_size
    print(f"wrote {output}: {after:,} bytes; {model} has {before:,}")


@app.command(cls=Command)
def info(model: Model) -> None:
    """Show a network's layers, sizes and padding.

    Example: `tilewright onebit info birealnet18.npz`
    """
    network = load(model)
    console().print(layers_table(network))
    for line in summary(network):
        print(line)


@app.command(cls=Command)
def run(
    model: Model,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A picture, PNG or JPEG say.")],
    mean: Annotated[
        str,
        typer.Option(
            "--mean", metavar="NUMBERS", help="Taken from pixel / 255; one, or one a channel."
        ),
    ] = "0",
    std: Annotated[
        str, typer.Option("--std", metavar="NUMBERS", help="What is divided by then.")
    ] = "1",
    top: Annotated[
        int, typer.Option("--top", callback=positive, metavar="N", help="Classes to show.")
    ] = 5,
) -> None:
    """Classify a picture.

    It is resized to the network's input; --mean and --std are those the network was trained with.

    Example: `tilewright onebit run birealnet18.npz cat.png --mean 0.485,0.456,0.406
    --std 0.229,0.224,0.225`
    """
    network = load(model)
    x = picture(image, network.input_shape, _numbers(mean, "--mean"), _numbers(std, "--std"))
    for name, score in labelled(network, network.run(x).reshape(-1), top):
        print(f"{score:12.4f}  {name}")


@app.command(cls=Command)
def profile(
    model: Model,
    repeats: RepeatsOption = 20,
) -> None:
    """Time a network on this machine, one random input at a time, and each of its passes.

    Example: `tilewright onebit profile birealnet18.npz`
    """
    network = load(model)
    x = np.random.default_rng(0).standard_normal((1, *network.input_shape), dtype=np.float32)
    network.run(x)  # the first compiles
    whole = median(seconds_of(partial(network.run, x)) for _ in range(repeats))
    rows = network.profile(x, repeats)
    console().print(timings_table(rows, sum(row.seconds or 0.0 for row in rows)))
    print(f"a whole run: {1e3 * whole:.2f} ms")


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ArgumentError(f"{option}={text!r}: accepted are numbers and commas") from None


def _labels(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        return tuple(reading.content(path, _MOST_LABELS).decode().splitlines())
    except (OSError, ValueError) as error:
        raise FileError(f"--labels={str(path)!r}: cannot be read ({error})") from None
