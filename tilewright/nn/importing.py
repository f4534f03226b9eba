"""Networks from ONNX files of any operators; a file of our own is read by `stored.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.files.whole import path_of
from tilewright.nn.net import Network
from tilewright.nn.onnx.general import read_graph


def import_onnx(model: str | Path | bytes | Any) -> Network:
    """A network from an ONNX file, its bytes, or what `onnx.load` gives.

    Args:
        model: any inputs and outputs, sizes free or not; opsets 7 to 28. Weights may lie in other
            files of the model's folder.

    Raises FileError: a file that is damaged or lies; and for operators, versions, attributes and
    element types that are not implemented: all of a model's at once, with the names of its nodes.
    ArgumentError: something else than a model.
    """
    if hasattr(model, "SerializeToString"):  # an onnx.ModelProto
        model = model.SerializeToString()
    if not isinstance(model, bytes):
        model = path_of(model, "model")
    title = "network" if isinstance(model, bytes) else model.stem
    return Network(read_graph(model), title)
