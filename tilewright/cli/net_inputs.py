"""What commands of networks share: the model's file, sizes as they are typed, inputs drawn."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tilewright.arrays.array import NDArray
from tilewright.cli import pictures
from tilewright.cli.common import positive
from tilewright.errors import ArgumentError, FileError
from tilewright.facts.ceilings import bytes_text
from tilewright.facts.dtypes import VALUES
from tilewright.files import reading
from tilewright.files.whole import DAMAGED
from tilewright.inputs.devices import host
from tilewright.nn.graph import Graph, Input, Shape
from tilewright.nn.net import DTYPES, Network
from tilewright.nn.sizes import sizes_of
from tilewright.wording import in_one_line

ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An .onnx file, or what `net convert` wrote.")
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="SIZES",
        help="1x3x224x224, or x=1x3x224x224 of one of several inputs; again for the next.",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads", callback=positive, metavar="N", help="Of peers; default as many as they take."
    ),
]
NetDtypeOption = Annotated[
    str | None,
    typer.Option("--dtype", help="float32, float16 or bfloat16; default as the file has it."),
]


def shapes_of(graph: Graph, texts: Sequence[str] | None) -> dict[str, Shape]:
    """Sizes of every input: typed ones, else the file's, a free one in front being 1.

    Raises ArgumentError, ShapeError.
    """
    names = [source.name for source in graph.inputs]
    given: dict[str, Shape] = {}
    for text in texts or ():
        name, sizes = _typed(text, names)
        if name in given:
            raise ArgumentError(f"--shape={text!r}: {name!r} has sizes already")
        given[name] = sizes
    for source in graph.inputs:
        if source.name not in given:
            given[source.name] = _of_file(source)
    return sizes_of(graph, given)


def _typed(text: str, names: Sequence[str]) -> tuple[str, Shape]:
    name, _, sizes = text.rpartition("=")
    accepted = "accepted are sizes as 1x3x224x224, or NAME=1x3x224x224"
    if not re.fullmatch(r"\d{1,18}(x\d{1,18})*", sizes):
        raise ArgumentError(f"--shape={text!r}: {accepted}")
    if not name and len(names) != 1:
        raise ArgumentError(f"--shape={text!r}: which input of {names}? {accepted}")
    name = name or names[0]
    if name not in names:
        raise ArgumentError(f"--shape={text!r}: no input {name!r}; there are {names}")
    return name, tuple(map(int, sizes.split("x")))


def _of_file(source: Input) -> Shape:
    sizes = list(source.shape or ("?",))
    if isinstance(sizes[0], str) and source.shape is not None:
        sizes[0] = 1
    if any(isinstance(size, str) for size in sizes):
        said = "unknown sizes" if source.shape is None else f"sizes {list(source.shape)}"
        shown = "x".join(str(size) if isinstance(size, int) else "N" for size in sizes)
        raise ArgumentError(
            f"--shape is absent: input {source.name!r} has {said}; accepted is"
            f" --shape {source.name}={shown} with numbers"
        )
    return tuple(int(size) for size in sizes)


def type_of(network: Network, dtype: str | None) -> str:
    """The type that a network is said to run in: the one asked for, or that of its inputs."""
    reals = (source.dtype for source in network.inputs if source.dtype in DTYPES)
    return dtype or next(reals, DTYPES[0])


def check_drawn(graph: Graph, sizes: Mapping[str, Shape]) -> None:
    """Raise ArgumentError for inputs whose sizes are beyond the host's memory."""
    needed = sum(VALUES[s.dtype] * int(np.prod(sizes[s.name], dtype=object)) for s in graph.inputs)
    if 4 * needed > host().memory:
        raise ArgumentError(
            f"--shape: inputs take {bytes_text(needed)}; accepted is a quarter of the host's"
            f" {bytes_text(host().memory)}"
        )


def drawn(graph: Graph, sizes: Mapping[str, Shape], seed: int) -> dict[str, NDArray]:
    """Inputs for timings: real numbers from a seed, zeros of whole ones, which may be indices.

    Raises as `check_drawn`.
    """
    check_drawn(graph, sizes)
    random = np.random.default_rng(seed)
    found = {}
    for source in graph.inputs:
        held = "float32" if source.dtype == "bfloat16" else source.dtype
        if "float" in held:
            array = random.standard_normal(sizes[source.name], np.float32).astype(held)
        else:
            array = np.zeros(sizes[source.name], held)
        found[source.name] = array
    return found


def given_arrays(inputs: Sequence[Input], texts: Sequence[str]) -> dict[str, NDArray]:
    """Arrays by the names of inputs, from files as they are typed: `x.npy`, `NAME=x.npy`, pictures.

    Raises ArgumentError, FileError.
    """
    by_name = {source.name: source for source in inputs}
    found: dict[str, NDArray] = {}
    for text in texts:
        name, mark, file = text.partition("=")
        if mark and name not in by_name and not Path(text).exists():
            raise ArgumentError(f"X={text!r}: no input {name!r}; there are {list(by_name)}")
        if not mark or name not in by_name:
            waiting = [one for one in by_name if one not in found]
            if not waiting:
                raise ArgumentError(f"X={text!r}: accepted is one for each of {list(by_name)}")
            name, file = waiting[0], text
        if name in found:
            raise ArgumentError(f"X={text!r}: {name!r} has an array already")
        found[name] = array_of(by_name[name], file)
    absent = [name for name in by_name if name not in found]
    if absent:
        raise ArgumentError(f"X: none for input {absent[0]!r}; accepted is one for each input")
    return found


def array_of(source: Input, file: str) -> NDArray:
    """An .npy, or a picture for an input of one or three channels. Raises as `given_arrays`."""
    path, label = Path(file), f"X={file!r}"
    if path.suffix.lower() in pictures.SUFFIXES:
        shape = source.shape
        if shape is None or len(shape) != 4 or shape[1] not in (1, 3):
            raise ArgumentError(
                f"{label}: input {source.name!r} takes {times(shape)}; pictures are for"
                " N × 1 × H × W and N × 3 × H × W"
            )
        height, width = (size if isinstance(size, int) else None for size in shape[2:])
        return pictures.planes(path, "X", int(shape[1]), height, width)
    if path.suffix.lower() != ".npy":
        raise FileError(
            f"{label}: suffix {path.suffix!r}; accepted are .npy and {', '.join(pictures.SUFFIXES)}"
        )
    try:
        return reading.mapped_npy(path)
    except FileNotFoundError:
        raise FileError(f"{label}: no such file; accepted is an .npy or a picture") from None
    except DAMAGED as error:
        raise FileError(f"{label}: cannot be read as .npy ({in_one_line(error)})") from None


def times(shape: Sequence[int | str] | None) -> str:
    """`1 × 3 × 224 × 224`."""
    if shape is None:
        return "any sizes"
    return " × ".join(map(str, shape)) or "one number"
