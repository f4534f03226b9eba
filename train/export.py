"""What was learned, as files: ONNX, the .npz that the package ships, and the card with its figures.

The figures are of all test photographs, by torch: `qat`'s layers give the bits of the network in
int8, and float16 is products of halves summed in float32, as devices do them.
"""

from __future__ import annotations

import copy
import io
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from tilewright import nn as networks
from tilewright.pytorch import qat
from train import cards, checkpoints
from train.eight_bits import ranges_on, sample
from train.judged import Figures, bicubic, judged
from train.nets import SIZES, balanced, convolutions, plain_of
from train.photographs import Crops, Pair, middle, pairs_of

_OPSET = 17
_CROP = 192  # pixels of two test photographs, whose figures tests compare


def export(size: str, trained: Path, data: Path, folder: Path) -> None:
    """Write a size's networks, their card and the list of photographs to a folder.

    trained: the folder of checkpoints. Both must be there, of the net and of its int8.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = f"superres-{size}"
    kept, whole = (checkpoints.read(trained / f"{name}{tail}.pt") for tail in ("", "-int8"))
    pairs = pairs_of(data / "train")
    crops = Crops(pairs, kept["task"]["crop"], "cpu")
    x = sample(crops, kept["task"]["seed"])
    net = plain_of(SIZES[size], kept["steps"]["averages"])
    balanced(net, x)
    rounded = plain_of(SIZES[size], whole["steps"]["averages"])
    module = qat.prepare(rounded, whole["ranges"]).eval()
    model = onnx_of(net)
    (folder / f"{name}.onnx").write_bytes(model)
    whole_net = networks.quantise(
        networks.import_onnx(onnx_of(qat.restored(module))), ranges=qat.ranges(module)
    )
    networks.save(networks.import_onnx(model), folder / f"{name}.npz")
    networks.save(whole_net, folder / f"{name}-int8.npz")
    test = pairs_of(data / "test")
    figures = figures_of(net, module, ranges_on(net, x), test)
    damage = networks.damage(networks.import_onnx(model), whole_net, x[:8].numpy()).psnr
    facts = {
        "size": size,
        "parameters": SIZES[size].parameters,
        "products": sum(layer.weight.numel() for layer in convolutions(net)),
        "layers": SIZES[size].layers,
        "learned": {**kept["task"], **checkpoints.spent(kept)},
        "rounded": checkpoints.spent(whole),
        "closer": sum(pair.name.endswith("-b") for pair in pairs),
        "photographs": len(pairs),
        "test": len(test),
        "crops": {
            pair.name: [judged(kind, [pair], structure=False).psnr for kind in (net, module)]
            for pair in (middle(pair, _CROP) for pair in test[:2])
        },
        "last": kept["steps"]["done"] if kept["task"].get("decibels") else 0,
        "damage": damage,
        "figures": {kind: asdict(found) for kind, found in figures.items()},
    }
    print(json.dumps(facts, indent=2))
    (folder / f"{name}.md").write_text(cards.card(facts), encoding="utf-8")
    listed = cards.photographs((data / "README.md").read_text(encoding="utf-8"))
    (folder / "photographs.md").write_text(listed, encoding="utf-8")


def figures_of(
    net: nn.Module, module: nn.Module, ranges: dict[str, tuple[float, float]], test: list[Pair]
) -> dict[str, Figures]:
    """Bicubic and the net in float32, float16, int8 as it learned it, and int8 of calibration."""
    calibrated = qat.prepare(copy.deepcopy(net), ranges).eval()
    means: dict[str, Callable[[Tensor], Tensor]] = {
        "bicubic": bicubic,
        "float32": net,
        "float16": lambda x: in_halves(net, x),
        "int8": module,
        "int8, calibrated only": calibrated,
    }
    return {kind: judged(enlarge, test) for kind, enlarge in means.items()}


def in_halves(net: nn.Module, x: Tensor) -> Tensor:
    """A plain net with weights and values in float16, sums in float32."""

    def half(value: Tensor) -> Tensor:
        return value.half().float()

    layers = convolutions(net)
    x = half(x)
    for layer in layers:
        assert layer.bias is not None
        x = functional.conv2d(x, half(layer.weight), half(layer.bias), padding=1)
        x = half(functional.relu(x) if layer is not layers[-1] else x)
    return functional.pixel_shuffle(x, 2)


def onnx_of(net: nn.Module) -> bytes:
    """A model: input `luma` [N, 1, height, width], output `enlarged` twice as wide and high."""
    file = io.BytesIO()
    axes = {0: "n", 2: "height", 3: "width"}
    twice = {0: "n", 2: "2 * height", 3: "2 * width"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that another exporter is torch's choice by now
        torch.onnx.export(
            net.eval(), (torch.zeros(1, 1, 8, 8),), file, dynamo=False, opset_version=_OPSET,
            input_names=["luma"], output_names=["enlarged"],
            dynamic_axes={"luma": axes, "enlarged": twice},
        )  # fmt: skip
    return file.getvalue()
