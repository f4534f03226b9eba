"""`tilewright net quantise`: a network in int8, calibrated on samples, and what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.arrays.array import NDArray
from tilewright.cli.common import check_npz
from tilewright.cli.net_inputs import ModelArgument, array_of, given_arrays
from tilewright.nn.damages import damage
from tilewright.nn.net import Network
from tilewright.nn.quantising import quantise as quantised
from tilewright.nn.ranges import METHODS, pieces
from tilewright.nn.stored import load, save


def quantise(
    model: ModelArgument,
    samples: Annotated[
        list[str],
        typer.Argument(
            metavar="SAMPLES...",
            help="x.npy files, their first axis counting samples, or pictures.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NET.npz", help="Where the network goes.")
    ],
    method: Annotated[
        str, typer.Option("--method", help=f"How ranges are found: {', '.join(METHODS)}.")
    ] = "squares",
    percentile: Annotated[
        float,
        typer.Option(
            "--percentile", metavar="SHARE", help="That stays inside, of --method percentile."
        ),
    ] = 99.99,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="NODE", help="A node that stays float32; again."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Show what it costs on the samples.")
    ] = True,
) -> None:
    """Write a network whose convolutions and dense layers compute in int8.

    Scales are found on samples: a few dozen of what the network will see. What it costs is said of
    every layer in decibels, on the same samples.

    Example: `tilewright net quantise model.onnx samples.npy -o small.npz`
    """
    check_npz(output, "--output")
    network = load(model)
    given = _samples(network, samples)
    made = quantised(network, given, method=method, percentile=percentile, keep=keep or ())
    shown = damage(network, made, given).table() if compare else None
    save(made, output)
    if shown is not None:
        print(shown)
    print(f"wrote {output}: {output.stat().st_size:,} bytes")


def _samples(network: Network, texts: list[str]) -> Any:
    """What files hold as `nn.quantise` takes it."""
    if len(network.inputs) == 1:
        arrays = [array_of(network.inputs[0], text.partition("=")[2] or text) for text in texts]
        return [piece for array in arrays for piece in pieces(network, array)]
    found = given_arrays(network.inputs, texts)
    return [_nth(found, at) for at in range(min(len(array) for array in found.values()))]


def _nth(arrays: dict[str, NDArray], at: int) -> dict[str, NDArray]:
    return {name: array[at : at + 1] for name, array in arrays.items()}
