"""ONNX to `Network`: recognise what is binary, fold, and check every layer against the file.

    file -> File (a Graph, its sizes and constants) -> drafts -> folded -> Network
              |                                                              |
              onnxruntime, or onnx.reference: each node's values  -> every layer compared: Report

Binary is a convolution or dense layer whose input went through Sign or a Where of -1 and +1, and
whose weights are -a and +a in each output channel (weights that constants compute count too).
ONNX's Sign gives 0 for 0; a bit cannot, so 0 becomes +1 and the report counts where that happened.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, FileError, TilewrightError
from tilewright.files.whole import path_of
from tilewright.nn.network_of_bits import Network
from tilewright.nn.onnx.check import Checked, Report, check
from tilewright.nn.onnx.drafts import fold
from tilewright.nn.onnx.file import File, parsed_file
from tilewright.nn.onnx.model import content_of
from tilewright.nn.onnx.operators import convert

_IMAGES, _ENOUGH = 8, 1 << 12  # images of a sample at most, and elements for which one will do
MEMORY = 1 << 30  # bytes that an import takes unless told otherwise


def import_onnx(
    model: str | Path | bytes,
    sample: NDArray | None = None,
    labels: tuple[str, ...] = (),
    *,
    memory: int = MEMORY,
) -> tuple[Network, Report]:
    """A network from an ONNX file (or its bytes), and how each layer compares with the file's.

    Args:
        model: one input [batch, channels, height, width] or [batch, features] in float32, one
            output; opsets 7 to 28.
        sample: inputs for the comparison, channels last, [N, *input_shape]; by default standard
            normal numbers: the file's batch, or up to eight images where they are small.
        labels: names of the classes.
        memory: bytes that constants of the graph, and the values of the comparison, may take.

    Raises:
        FileError: a damaged or hostile file; a node, an attribute or a version that is not
            supported, by its name; what takes more than `memory`; a network whose layers do not
            give what onnxruntime (where it is not installed, onnx.reference) computes.
        ArgumentError: a sample or a `memory` that does not fit.
    """
    if not isinstance(memory, int) or isinstance(memory, bool) or memory < 1:
        raise ArgumentError(f"memory={memory!r}: accepted are bytes, 1 and more")
    if isinstance(model, bytes):
        file = parsed_file(model, memory)
    else:
        path = path_of(model, "model")
        label = f"model={str(path)!r}"
        file = parsed_file(content_of(path, label), memory, label)
    x = _sample(file, sample, memory)
    importer = convert(file)
    try:
        layers = [draft.layer() for draft in fold(importer.made, file.output)]
        shape = _channels_last(file.input_shape)
        network = Network(shape, tuple(layers), importer.made[-1].name, labels)
    except TilewrightError as error:
        raise FileError(f"{file.label}: {error}") from None
    item = Checked(file, network, importer.sources(), importer.signs)
    return network, check(item, x, memory)


def _sample(file: File, sample: NDArray | None, memory: int) -> NDArray:
    """The sample as ONNX wants it: channels first. Raises where a file's batch is too large."""
    if sample is None:
        sizes = file.input_shape
        images = min(_IMAGES, -(-_ENOUGH // math.prod(sizes)))
        sizes = (max(images, file.batch or 1), *sizes)
        needed = (8 + 4) * math.prod(sizes)  # as drawn, and as float32
        file.check_memory(needed, memory, "a sample of its input")
        return np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    wanted = _channels_last(file.input_shape)
    if sample.ndim != len(wanted) + 1 or sample.shape[1:] != wanted or not len(sample):
        raise ArgumentError(
            f"sample.shape={sample.shape}: must be [N, {', '.join(map(str, wanted))}]"
        )
    array = np.asarray(sample, np.float32)
    return array if array.ndim == 2 else np.ascontiguousarray(array.transpose(0, 3, 1, 2))


def _channels_last(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (*sizes[1:], sizes[0])
