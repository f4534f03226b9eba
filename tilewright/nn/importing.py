"""Networks from ONNX files of any operators; a file of our own is read by `stored.py`."""

from __future__ import annotations

from pathlib import Path

from tilewright.nn.net import Network
from tilewright.nn.onnx.general import read_graph


def import_onnx(model: str | Path | bytes) -> Network:
    """A network from an ONNX file, or its bytes.

    Args:
        model: any inputs and outputs, sizes free or not; opsets 7 to 28. Weights may lie in other
            files of the model's folder.

    Raises FileError: a file that is damaged or lies; and for operators, versions, attributes and
    element types that are not implemented: all of a model's at once, with the names of its nodes.
    """
    title = "network" if isinstance(model, bytes) else Path(model).stem
    return Network(read_graph(model), title)
