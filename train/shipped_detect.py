"""The net that finds small objects, as the package ships it: .npz, ONNX and its card.

Heat is shifted so that a score of 0.5 is where photographs that the net did not learn from have a
false box in ten pictures. Figures of the card are those that `python -m bench.detect` measured of
the shipped network, so the card is written after that.
"""

from __future__ import annotations

import io
import json
import math
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tilewright import nn as networks
from tilewright.video.detection.heat import PLANES
from train import checkpoints
from train.seeking import SIZES, Seeker

_OPSET = 17


def export(size: str, trained: Path, folder: Path, kinds: int, score: float) -> Path:
    """Write a net of so many kinds, its `score` made 0.5; returns the .npz."""
    folder.mkdir(parents=True, exist_ok=True)
    net = Seeker(SIZES[size], kinds).take(learned_by(trained / f"detect-{size}.pt"))
    with torch.no_grad():
        net.layers[-1].bias[:kinds] -= math.log(score / (1 - score))
    model = onnx_of(net)
    (folder / f"detect-{size}.onnx").write_bytes(model)
    path = folder / f"detect-{size}.npz"
    networks.save(networks.import_onnx(model), path)
    return path


def learned_by(path: Path) -> list[Tensor]:
    """The averaged net of a run that found most of what was held out; else the last one."""
    kept = checkpoints.read(path)
    return list(kept.get("tensors") or kept["steps"]["averages"])


def onnx_of(net: Seeker) -> bytes:
    """A model: input `planes` [N, 24, height, width], output `heat` [N, kinds + 4, ...]."""
    layers: list[torch.nn.Module] = []
    for layer in net.layers:
        layers += [layer, torch.nn.ReLU()]
    chain = torch.nn.Sequential(*layers[:-1]).cpu().eval()
    file, axes = io.BytesIO(), {0: "n", 2: "height", 3: "width"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that another exporter is torch's choice by now
        torch.onnx.export(
            chain, (torch.zeros(1, PLANES, 8, 8),), file, dynamo=False, opset_version=_OPSET,
            input_names=["planes"], output_names=["heat"],
            dynamic_axes={"planes": axes, "heat": axes},
        )  # fmt: skip
    return file.getvalue()


def card(size: str, trained: Path, figures: Path, folder: Path) -> None:
    """Write the card, its figures those of a file that `bench.detect` wrote."""
    kept = checkpoints.read(trained / f"detect-{size}.pt")
    document: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    how, speed = kept["task"], document["speed"]
    page = Path(__file__).with_name("card_detect.md").read_text(encoding="utf-8")
    text = page.format(
        name=f"detect-{size}", size=size, layers=SIZES[size].layers,
        parameters=SIZES[size].parameters, rows="\n".join(_rows(document)),
        crop=how["crop"], batch=how["batch"], rate=how["rate"], each=how["each"],
        clips=how["clips"],
        steps=kept["steps"]["done"], minutes=kept["seconds"] / 60,
        speed=speed["tilewright"], once=speed["tilewright, without the mirror image"],
        peer=speed["onnxruntime, a picture a core"],
        processor=document["environment"]["device"]["name"],
    )  # fmt: skip
    (folder / f"detect-{size}.md").write_text(text, encoding="utf-8")


def _rows(document: dict[str, Any]) -> list[str]:
    return [
        f"| {case['name']} | {case['things']} | {case['recall']:.3f} | {case['at_half']:.3f} |"
        f" {case['false_at_half']:.3f} | {case['any_kind']:.3f} |"
        for case in document["cases"]
    ]
