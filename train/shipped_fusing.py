"""The net that fuses moved pictures, as the package ships it: .npz, ONNX and its card.

The net as it is shipped is the chain of convolutions alone; what it reads and what is made of what
it says is the stage's (`tilewright/backends/host/kernels/fusing.py`). Figures of the card are those
that `python -m bench.interpolate` measured of the shipped network, so the card is written after it.
"""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from tilewright import nn as networks
from train import checkpoints
from train.fuser import DEPTHS, READ, SAID, Fuser

_OPSET = 17


def export(size: str, trained: Path, folder: Path) -> Path:
    """Write a net; returns the .npz."""
    folder.mkdir(parents=True, exist_ok=True)
    net = Fuser(DEPTHS[size]).take(checkpoints.net(trained / f"fuse-{size}.pt"))
    model = onnx_of(net)
    (folder / f"fuse-{size}.onnx").write_bytes(model)
    path = folder / f"fuse-{size}.npz"
    networks.save(networks.import_onnx(model), path)
    return path


def onnx_of(net: Fuser) -> bytes:
    """A model: input `planes` [N, 23, height, width], output `said` [N, 8, height, width]."""
    layers: list[torch.nn.Module] = []
    for layer in net.layers:
        layers += [layer, torch.nn.ReLU()]
    chain = torch.nn.Sequential(*layers[:-1]).cpu().eval()
    file, axes = io.BytesIO(), {0: "n", 2: "height", 3: "width"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that another exporter is torch's choice by now
        torch.onnx.export(
            chain, (torch.zeros(1, READ, 8, 8),), file, dynamo=False, opset_version=_OPSET,
            input_names=["planes"], output_names=["said"],
            dynamic_axes={"planes": axes, "said": axes},
        )  # fmt: skip
    return file.getvalue()


def card(size: str, trained: Path, figures: Path, folder: Path) -> None:
    """Write the card, its figures those of a file that `bench.interpolate` wrote."""
    from bench.interpolate import means  # a machine that only learns has no films

    kept = checkpoints.read(trained / f"fuse-{size}.pt")
    document: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    how, net = kept["task"], f"fuse-{size}"
    rows = [
        _row(f"{name}, {len(entry['stage'])}", means(entry), net)
        for name, entry in document["clips"].items()
    ]
    gains = [gain for gain, _ in rows]
    page = Path(__file__).with_name("card_fuse.md").read_text(encoding="utf-8")
    text = page.format(
        name=f"fuse-{size}", layers=DEPTHS[size].layers, parameters=DEPTHS[size].parameters,
        products=DEPTHS[size].parameters - DEPTHS[size].channels * (DEPTHS[size].inner + 1) - SAID,
        rows="\n".join(row for _, row in rows), mean=fmean(gains), least=min(gains),
        crop=2 * how["crop"], batch=how["batch"], rate=how["rate"], scenes=how["scenes"],
        clips=how["clips"], steps=kept["steps"]["done"], minutes=kept["seconds"] / 60,
        fallen=sum(gain < 0 for gain in gains),
        speed=document[f"speed, fuse-{size}"]["960x540, own time"],
        without=document["speed"]["960x540, own time"],
        processor=document["environment"]["device"]["name"],
    )  # fmt: skip
    (folder / f"fuse-{size}.md").write_text(text, encoding="utf-8")


def _row(name: str, found: dict[str, float], net: str) -> tuple[float, str]:
    """How much better a clip is with the network, and a line of the card."""
    before, after = found["stage"], found[net]
    gain = after - before
    return gain, f"| {name} | {before:.2f} | {after:.2f} | {gain:+.2f} |"
