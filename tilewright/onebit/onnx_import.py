"""ONNX to `Network`: recognise what is binary, fold, and check every layer against the float graph.

    file -> Graph -> float64 values of a sample -> drafts -> folded -> Network
                              |______________________________________________|
                                        every layer compared: Report

Binary is a convolution or dense layer whose input went through Sign or a Where of -1 and +1, and
whose weights are -a and +a in each output channel (weights that constants compute count too).
ONNX's Sign gives 0 for 0; a bit cannot, so 0 becomes +1 and the report counts where that happened.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import ArgumentError, FileError, TilewrightError
from tilewright.onebit.drafts import finish, fold
from tilewright.onebit.float_graph import evaluate_graph
from tilewright.onebit.network import Network
from tilewright.onebit.onnx_check import Report, check
from tilewright.onebit.onnx_convert import Importer
from tilewright.onebit.onnx_model import Graph, parse_onnx, read_onnx

NDArray = npt.NDArray[Any]


def import_onnx(
    model: str | Path | bytes, sample: NDArray | None = None, labels: tuple[str, ...] = ()
) -> tuple[Network, Report]:
    """A network from an ONNX file (or its bytes), and how each layer compares with the file's.

    Args:
        model: one input [batch, channels, height, width] or [batch, features], one output.
        sample: inputs for the comparison, channels last, [N, *input_shape]; by default one of
            standard normal numbers.
        labels: names of the classes.

    Raises:
        FileError: a damaged or hostile file; a node that is not supported, by its name.
        ArgumentError: a sample that does not fit.
    """
    graph = parse_onnx(model) if isinstance(model, bytes) else read_onnx(Path(model), "model")
    x = _sample(graph, sample)
    evaluation = evaluate_graph(graph, x)
    importer = Importer(graph, evaluation)
    drafts = importer.drafts()
    sizes = graph.input_shape
    shape = sizes if len(sizes) == 1 else (sizes[1], sizes[2], sizes[0])
    try:
        layers = [finish(draft) for draft in fold(drafts, graph.output)]
        network = Network(shape, tuple(layers), drafts[-1].name, labels)
    except TilewrightError as error:
        raise FileError(f"{graph.label}: {error}") from None
    return network, check(network, importer.truth(), x)


def _sample(graph: Graph, sample: NDArray | None) -> NDArray:
    """The sample as ONNX wants it: channels first."""
    sizes = graph.input_shape
    if sample is None:
        sizes = (1, *sizes)
        return np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    wanted = sizes if len(sizes) == 1 else (sizes[1], sizes[2], sizes[0])
    if sample.ndim != len(wanted) + 1 or sample.shape[1:] != wanted or not len(sample):
        raise ArgumentError(
            f"sample.shape={sample.shape}: must be [N, {', '.join(map(str, wanted))}]"
        )
    array = np.asarray(sample, np.float32)
    return array if array.ndim == 2 else np.ascontiguousarray(array.transpose(0, 3, 1, 2))
