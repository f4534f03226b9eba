"""`tilewright net quantise`: a network in int8, from samples of what it will be given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.net_inputs import ModelArgument, given_arrays
from tilewright.errors import ArgumentError, FileError
from tilewright.files.whole import check_writable
from tilewright.nn.damages import damage
from tilewright.nn.quantising import quantise as quantised
from tilewright.nn.ranges import METHODS
from tilewright.nn.stored import load, save


def quantise(
    model: ModelArgument,
    samples: Annotated[
        list[str], typer.Argument(metavar="X...", help="x.npy or a picture: a sample each.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NET.npz", help="Where the network goes.")
    ],
    method: Annotated[
        str, typer.Option("--method", help=f"How ranges are found: {', '.join(METHODS)}.")
    ] = "squares",
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="NODE", help="A node that stays float32; again for more."),
    ] = None,
) -> None:
    """Write a network whose convolutions and dense layers hold int8, and show what that costs.

    Ranges of values are found on samples of what the network will be given, one file each.

    Example: `tilewright net quantise model.onnx a.npy b.npy -o model-int8.npz`
    """
    if output.suffix.lower() != ".npz":
        raise FileError(f"--output={str(output)!r}: suffix {output.suffix!r}; accepted is .npz")
    check_writable(output, "--output")
    network = load(model)
    if len(network.inputs) != 1:
        names = [source.name for source in network.inputs]
        raise ArgumentError(f"MODEL: inputs {names}; accepted here are networks of one input")
    given = [given_arrays(network.inputs, [text]) for text in samples]
    small = quantised(network, given, method=method, keep=tuple(keep or ()))
    print(damage(network, small, given).table())
    save(small, output)
    print(f"wrote {output}: {output.stat().st_size:,} bytes")
