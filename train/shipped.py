"""Nets that take damage away, as the package ships them: .npz, ONNX, int8, and their cards.

The net as it is shipped is the chain of convolutions alone: planes [N, 5, height, width] of half
the picture's sides in, what is to be added, [N, 4, height, width], out. Places of 2 x 2, the told
plane and the sum are the stage's (`tilewright/video/stages/restore.py`), in its own passes.

Figures of the cards are those that `python -m bench.restore` measured of shipped networks on the
test photographs and clips, so a card is written after that.
"""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tilewright import nn as networks
from train import cards, checkpoints
from train.restorer import DEPTHS, Restorer, planes
from train.restoring import Damaged

_OPSET = 17
_CALIBRATED = 32  # crops that ranges of int8 are of
_SAMPLE = 128


def export(kind: str, size: str, trained: Path, folder: Path, crops: Damaged) -> None:
    """Write a net in float32 and int8, that taught where it was, else calibrated."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{kind}-{size}"
    kept = checkpoints.read(trained / f"{name}.pt")
    net = Restorer(DEPTHS[size]).take(kept["steps"]["averages"])
    model = onnx_of(net)
    (folder / f"{name}.onnx").write_bytes(model)
    floats = networks.import_onnx(model)
    ints = _whole(trained / f"{name}-int8.pt", size) or networks.quantise(
        floats, list(sample(crops)), method="squares"
    )
    networks.save(floats, folder / f"{name}.npz")
    networks.save(ints, folder / f"{name}-int8.npz")


def _whole(path: Path, size: str) -> networks.Network | None:
    """The net in int8 as `restoring_eight` taught it, where it did."""
    if not path.exists():
        return None
    kept = torch.load(path, map_location="cpu", weights_only=True)
    floats = networks.import_onnx(onnx_of(Restorer(DEPTHS[size]).take(kept["tensors"])))
    return networks.quantise(floats, ranges=kept["ranges"])


def card(kind: str, size: str, trained: Path, figures: Path, folder: Path) -> None:
    """Write a net's card, its figures those of a file that `bench.restore` wrote."""
    kept = checkpoints.read(trained / f"{kind}-{size}.pt")
    facts = {
        "kind": kind,
        "size": size,
        "parameters": DEPTHS[size].parameters,
        "layers": DEPTHS[size].layers,
        "learned": {**kept["task"], "steps": kept["steps"]["done"], "seconds": kept["seconds"]},
        "rounded": _rounded(trained / f"{kind}-{size}-int8.pt"),
        "figures": json.loads(figures.read_text(encoding="utf-8")),
    }
    (folder / f"{kind}-{size}.md").write_text(cards.restoring(facts), encoding="utf-8")


def _rounded(path: Path) -> dict[str, float] | None:
    """How the net learned to round, where it did."""
    if not path.exists():
        return None
    kept = torch.load(path, map_location="cpu", weights_only=True)
    batch = kept["task"]["batch"]
    return {"steps": kept["steps"], "batch": batch, "minutes": kept["seconds"] / 60}


def sample(crops: Damaged) -> np.ndarray[Any, Any]:
    """What the first layer reads of drawn crops, [N, 1, 5, rows, columns]."""
    rows = crops.drawn(np.random.default_rng(0), 1, _CALIBRATED)[0]
    x, _ = crops.at(torch.from_numpy(rows))
    return np.asarray(planes(x)[:, None].numpy())


class Chain(nn.Sequential):
    """The convolutions of a net with ReLU between them."""

    def __init__(self, net: Restorer) -> None:
        layers: list[nn.Module] = []
        for layer in net.layers:
            layers += [layer, nn.ReLU()]
        super().__init__(*layers[:-1])


def onnx_of(net: Restorer) -> bytes:
    """A model: input `planes` [N, 5, height, width], output `added` [N, 4, height, width]."""
    file = io.BytesIO()
    axes = {0: "n", 2: "height", 3: "width"}
    x: Tensor = torch.zeros(1, 5, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that another exporter is torch's choice by now
        torch.onnx.export(
            Chain(net).eval(), (x,), file, dynamo=False, opset_version=_OPSET,
            input_names=["planes"], output_names=["added"],
            dynamic_axes={"planes": axes, "added": axes},
        )  # fmt: skip
    return file.getvalue()
