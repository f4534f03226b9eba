"""Whole architectures without their weights, for machines that cannot export them.

    python -m tests.support.outlines FOLDER      where onnx and torchvision are installed
    TILEWRIGHT_OUTLINES=FOLDER pytest ...        where they are not

A file is the graph with its small constants; large ones are drawn from a seed when it is read.
"""

from __future__ import annotations

import importlib
import math
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from tilewright.nn.graph import Tensor
from tilewright.nn.importing import import_onnx
from tilewright.nn.net import Network

_KEPT = 2048  # elements of a constant that a file holds


def network_of(name: str) -> Network:
    """An architecture by name. Raises ModuleNotFoundError where neither way is open."""
    folder = os.environ.get("TILEWRIGHT_OUTLINES")
    if folder:
        return _drawn(pickle.loads((Path(folder) / f"{name}.pickle").read_bytes()))
    importlib.import_module("onnx")  # torch's exporter has an error of its own where it is absent
    from tests.support.architectures import exported

    return import_onnx(exported(name))


def _outline(network: Network) -> Network:
    constants = {
        name: tensor if tensor.size <= _KEPT else Tensor(tensor.shape, tensor.dtype)
        for name, tensor in network.graph.constants.items()
    }
    return Network(replace(network.graph, constants=constants), network.title)


def _drawn(network: Network) -> Network:
    """Weights as large as layers leave the size of what they are given."""
    rng = np.random.default_rng(0)
    constants = {}
    for name, tensor in network.graph.constants.items():
        value = tensor.value
        if value is None:
            rows = max(1, math.prod(tensor.shape[1:]))
            drawn = rng.standard_normal(tensor.shape, np.float32) * math.sqrt(2 / rows)
            value = drawn.astype(tensor.dtype)
        constants[name] = Tensor(tensor.shape, tensor.dtype, value)
    return Network(replace(network.graph, constants=constants), network.title)


def _write(folder: Path) -> None:
    from tests.support.architectures import ARCHITECTURES

    folder.mkdir(parents=True, exist_ok=True)
    for name in ARCHITECTURES:
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(_outline(network_of(name))))


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
