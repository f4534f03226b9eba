"""What was learned, as files: ONNX, the .npz that the package ships, and the card with its figures.

The figures are of all test photographs, by what is shipped, bound to this processor; float16 is
torch's products of halves summed in float32, as devices do them.
"""

from __future__ import annotations

import functools
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
from train.eight_bits import rounding, sample
from train.judged import bicubic, judged
from train.nets import SIZES, balanced, convolutions, plain_of
from train.photographs import Crops, NDArray, middle, pairs_of

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
    tensors = [parameter.detach() for parameter in net.parameters()]
    module = rounding(SIZES[size], whole["steps"]["averages"])
    model = onnx_of(net)
    (folder / f"{name}.onnx").write_bytes(model)
    floats = networks.import_onnx(model)
    ints, unlearned = (in_int8(one) for one in (module, rounding(SIZES[size], tensors)))
    networks.save(floats, folder / f"{name}.npz")
    networks.save(ints, folder / f"{name}-int8.npz")
    test = pairs_of(data / "test")
    means = {
        "bicubic": bicubic,
        "float32": on_this(floats),
        "float16": lambda x: in_halves(net, x),
        "int8": on_this(ints),
        "int8, not learned": on_this(unlearned),
    }
    figures = {kind: judged(enlarge, test) for kind, enlarge in means.items()}
    damage = networks.damage(floats, ints, x[:8].numpy()).psnr
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
            pair.name: [
                judged(means[kind], [pair], structure=False).psnr for kind in ("float32", "int8")
            ]
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


def in_int8(module: nn.Module) -> networks.Network:
    """The network in int8 of a module of layers that round, and of their ranges."""
    floats = networks.import_onnx(onnx_of(qat.restored(module)))
    return networks.quantise(floats, ranges=qat.ranges(module))


def on_this(net: networks.Network) -> Callable[[Tensor], Tensor]:
    """A network bound to this processor, for each shape of picture once."""

    @functools.cache
    def bound(*shape: int) -> Callable[[NDArray], NDArray]:
        return net.bind(shape, device="host")

    return lambda x: torch.from_numpy(bound(*x.shape)(x.numpy()))


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
