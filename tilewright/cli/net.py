"""`tilewright net`: networks of any operators: convert, look inside, run, profile, time, int8."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tilewright.arrays.array import NDArray
from tilewright.cli import bars, common, files, pictures
from tilewright.cli.net_bench import bench
from tilewright.cli.net_inputs import (
    ModelArgument,
    NetDtypeOption,
    ShapeOption,
    given_arrays,
    shapes_of,
    times,
)
from tilewright.cli.net_quantise import quantise
from tilewright.cli.optional import Command, Group
from tilewright.cli.profile import profile
from tilewright.errors import ArgumentError, FileError, ShapeError
from tilewright.facts.ceilings import bytes_text
from tilewright.files.whole import check_writable
from tilewright.nn.free_sizes import outputs_by_name
from tilewright.nn.graph import Dimensions, Input, Shape
from tilewright.nn.infer import tensors
from tilewright.nn.net import Network
from tilewright.nn.profile import parameters
from tilewright.nn.stored import load, save

app = typer.Typer(
    name="net",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command(cls=Command)
def convert(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="Any ONNX file.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NET.npz", help="Where the network goes.")
    ],
) -> None:
    """Write an ONNX model as one .npz, its weights among it; both are read by all commands here.

    What is not understood of a model is named, all at once, and nothing is written.

    Example: `tilewright net convert model.onnx -o model.npz`
    """
    common.check_npz(output, "--output")
    network = load(model)
    save(network, output)
    for line in _summary(network):
        print(line)
    print(f"wrote {output}: {output.stat().st_size:,} bytes")


@app.command(cls=Command)
def info(model: ModelArgument, shape: ShapeOption = None) -> None:
    """Show inputs, outputs, operators and parameters; with sizes also operations and memory.

    Sizes that are free have the names that the file gives them, and those of outputs follow: `2·h`
    is twice h, `?` is told once --shape is given.

    Memory is what all values take at once on the host, fused; parameters and what engines take
    besides, as `explain()` says, are not among it.

    Example: `tilewright net info model.onnx --shape 1x3x224x224`
    """
    network = load(model)
    sizes = None
    if shape or not any(_free(source) for source in network.inputs):
        sizes = shapes_of(network.graph, shape)
    work = _work(network, sizes) if sizes else []
    for line in _summary(network, sizes):
        print(line)
    counts = Counter((node.operator, node.version) for node in network.graph.nodes)
    shown = (f"{name} {count} (version {v})" for (name, v), count in sorted(counts.items()))
    _listed("operators", list(shown))
    for line in work:
        print(line)


def _work(network: Network, sizes: Mapping[str, Shape]) -> list[str]:
    """Operations, bytes moved and bytes held, at sizes of the inputs. Raises as `bind`."""
    rows = network.profile(sizes)
    said = ", ".join(f"{name} {times(size)}" for name, size in sizes.items())
    free = {
        symbol: size
        for source in network.inputs
        for symbol, size in zip(source.shape or (), sizes[source.name], strict=False)
        if isinstance(symbol, str)
    }
    said += "".join(f", {symbol} = {size}" for symbol, size in free.items())
    flops, moved = sum(row.flops for row in rows), sum(row.bytes for row in rows)
    return [
        f"work        {flops / 1e6:,.1f} MFLOP and {bytes_text(moved)} moved, at {said}",
        f"memory      {bytes_text(network.peak_bytes(sizes, 'host'))}",
    ]


def _summary(network: Network, sizes: Mapping[str, Shape] | None = None) -> list[str]:
    """Inputs, outputs, parameters; outputs with their sizes where those of inputs are known."""
    count, size = parameters(network.graph)
    if sizes:
        found = tensors(network.graph, sizes)
        known: Mapping[str, Dimensions | None] = {n: found[n].shape for n in network.outputs}
    else:
        known = outputs_by_name(network.graph)
    shapes = {n: "" if shape is None else f"{times(shape)} " for n, shape in known.items()}
    return [
        *(f"input       {s.name}: {times(s.shape)} {s.dtype}" for s in network.inputs),
        *(f"output      {name}: {shapes[name]}{network.types[name]}" for name in network.outputs),
        f"nodes       {len(network.graph.nodes):,}",
        f"parameters  {count:,} in {bytes_text(size)}",
    ]


def _free(source: Input) -> bool:
    return source.shape is None or any(isinstance(size, str) for size in source.shape)


def _listed(head: str, parts: list[str]) -> None:
    """Parts in lines of 80, the first after its head."""
    lines, line = [], ""
    for part in parts:
        if line and len(line) + len(part) > 66:
            lines.append(f"{line},")
            line = ""
        line = f"{line}, {part}" if line else part
    for at, text in enumerate([*lines, line]):
        print(f"{head if not at else '':<12}{text}")


@app.command(cls=Command)
def run(
    model: ModelArgument,
    inputs: Annotated[
        list[str], typer.Argument(metavar="X...", help="x.npy, or NAME=x.npy, or a picture.")
    ],
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", metavar="FILE", help="y.npy or y.png; one for each output."),
    ] = None,
    device: common.DeviceOption = None,
    dtype: NetDtypeOption = None,
) -> None:
    """Run a network on arrays or a picture, and write what it gives.

    A picture is read as [1, channels, height, width] from 0 to 1, in the sizes that the network
    asks for; an output of one or three channels can be written as one.

    Examples:

    - `tilewright net run model.npz x.npy -o y.npy`
    - `tilewright net run upscaler.onnx small.png -o large.png`
    """
    network = load(model)
    outputs = output or []
    _check_outputs(outputs, network)
    given = given_arrays(network.inputs, inputs)
    with bars.working("making ready: kernels are compiled once, and kept"):
        bound = network.bind({n: x.shape for n, x in given.items()}, device or "auto", dtype)
        made = bound.run(**given)
    results = made if isinstance(made, tuple) else (made,)
    for at, (name, array) in enumerate(zip(network.outputs, results, strict=True)):
        print(f"{name}: {times(array.shape)} {array.dtype}{_range(array)}")
        if at < len(outputs):
            _write(outputs[at], np.asarray(array))
            print(f"wrote {outputs[at]}")


def _range(array: NDArray) -> str:
    """The least and the largest of numbers."""
    if not array.size or array.dtype == bool:
        return ""
    return f", {array.min():.4g} to {array.max():.4g}"


def _check_outputs(outputs: list[Path], network: Network) -> None:
    if len(outputs) > len(network.outputs):
        raise ArgumentError(
            f"--output: {len(outputs)} files; accepted is one for each of {list(network.outputs)}"
        )
    for path in outputs:
        if path.suffix.lower() not in (".npy", *pictures.SUFFIXES):
            raise FileError(
                f"--output={str(path)!r}: suffix {path.suffix!r}; accepted are .npy"
                f" and {', '.join(pictures.SUFFIXES)}"
            )
        (check_writable if path.suffix.lower() == ".npy" else pictures.check)(path, "--output")


def _write(path: Path, array: NDArray) -> None:
    if path.suffix.lower() == ".npy":
        files.save(path, lambda: array)
        return
    if array.ndim != 4 or array.shape[0] != 1 or array.shape[1] not in (1, 3):
        raise ShapeError(
            f"--output={str(path)!r}: the output is {list(array.shape)}; pictures are [1, 1, H, W]"
            " and [1, 3, H, W]; accepted is .npy"
        )
    pictures.save_planes(path, "--output", array[0])


app.command(cls=Command)(profile)
app.command(cls=Command)(bench)
app.command(cls=Command)(quantise)
