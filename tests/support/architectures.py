"""Whole architectures with drawn weights, as ONNX files that torch exports.

Those of torchvision are made by it; a super-resolution net or two, a U-Net and a recurrent matting
net are written here, small, of the layers that theirs consist of.

    python -m tests.support.architectures FOLDER      all of them at sizes that people run
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

OPSET = 17


class FSRCNN(nn.Module):
    """Shrunk, mapped, expanded; a transposed convolution makes the pixels."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, 28, 5, padding=2), nn.PReLU(28)]
        layers += [nn.Conv2d(28, 12, 1), nn.PReLU(12)]
        for _ in range(3):
            layers += [nn.Conv2d(12, 12, 3, padding=1), nn.PReLU(12)]
        layers += [nn.Conv2d(12, 28, 1), nn.PReLU(28)]
        layers += [nn.ConvTranspose2d(28, 1, 9, stride=2, padding=4, output_padding=1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class ESPCN(nn.Module):
    """Three convolutions and a pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), nn.Tanh(),
            nn.Conv2d(32, 16, 3, padding=1), nn.Tanh(),
            nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class CompactSRVGG(nn.Module):
    """A plain chain, what it makes added to the picture of nearest pixels."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1), nn.PReLU(16)]
        for _ in range(4):
            layers += [nn.Conv2d(16, 16, 3, padding=1), nn.PReLU(16)]
        layers += [nn.Conv2d(16, 48, 3, padding=1), nn.PixelShuffle(4)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) + functional.interpolate(x, scale_factor=4, mode="nearest")


class Twice(nn.Module):
    """Two convolutions with batch norms and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for source in (inputs, outputs):
            layers += [nn.Conv2d(source, outputs, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class UNet(nn.Module):
    """Three levels down by pools and up by transposed convolutions, joined level by level."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = Twice(3, 8), Twice(8, 16), Twice(16, 32)
        self.up_second = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.up_first = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.join_second, self.join_first = Twice(32, 16), Twice(16, 8)
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 2))
        third = self.third(functional.max_pool2d(second, 2))
        second = self.join_second(torch.cat((self.up_second(third), second), 1))
        first = self.join_first(torch.cat((self.up_first(second), first), 1))
        return self.last(first)


class GRU(nn.Module):
    """A gated unit of convolutions on half of the channels, as recurrent matting has it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gates = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.candidate = nn.Conv2d(2 * channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = x.chunk(2, 1)
        r, z = torch.sigmoid(self.gates(torch.cat((b, state), 1))).chunk(2, 1)
        candidate = torch.tanh(self.candidate(torch.cat((b, r * state), 1)))
        state = (1 - z) * state + z * candidate
        return torch.cat((a, state), 1), state


class Matting(nn.Module):
    """A foreground and its opacity from a picture and two states, which it gives back anew.

    As the robust video matting nets: worked out at half the size, pooled context, gated units at
    two levels, then a guided filter by box means brings it to the full size.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.Hardswish())
        self.second = nn.Sequential(
            nn.Conv2d(16, 16, 5, 2, 2, groups=16), nn.BatchNorm2d(16), nn.Hardswish(),
            nn.Conv2d(16, 32, 1), nn.ReLU(),
        )  # fmt: skip
        self.context = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 32, 1), nn.Sigmoid())
        self.deep, self.shallow = GRU(16), GRU(8)
        self.join = nn.Sequential(nn.Conv2d(48, 16, 3, padding=1), nn.ReLU())
        self.last = nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x: torch.Tensor, state_1: torch.Tensor, state_2: torch.Tensor) -> Any:
        def up(y: torch.Tensor) -> torch.Tensor:
            return functional.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False)

        small = functional.interpolate(
            x, scale_factor=0.5, mode="bilinear", align_corners=False, recompute_scale_factor=False
        )
        first = self.first(small)
        second = self.second(first)
        deep, state_2 = self.deep(second * self.context(second), state_2)
        shallow, state_1 = self.shallow(self.join(torch.cat((up(deep), first), 1)), state_1)
        low = self.last(up(shallow))
        guide = small.mean(1, keepdim=True)
        mean_x, mean_y = (functional.avg_pool2d(t, 3, 1, 1) for t in (guide, low))
        variance = functional.avg_pool2d(guide * guide, 3, 1, 1) - mean_x * mean_x
        covariance = functional.avg_pool2d(guide * low, 3, 1, 1) - mean_x * mean_y
        slope = covariance / (variance + 1e-2)
        made = up(slope) * x.mean(1, keepdim=True) + up(mean_y - slope * mean_x)
        foreground, opacity = made.split([3, 1], 1)
        return (foreground + x).clamp(0.0, 1.0), opacity.clamp(0.0, 1.0), state_1, state_2


class Detector(nn.Module):
    """The backbone and heads of SSDLite: boxes and classes before any is chosen."""

    def __init__(self) -> None:
        super().__init__()
        whole = _vision("detection").ssdlite320_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5
        )
        self.backbone, self.head = whole.backbone, whole.head

    def forward(self, x: torch.Tensor) -> Any:
        found = self.head(list(self.backbone(x).values()))
        return found["bbox_regression"], found["cls_logits"]


class Segmenter(nn.Module):
    """DeepLabV3 on MobileNetV3."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = _vision("segmentation").deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.whole(x)["out"]


@dataclass(frozen=True)
class Architecture:
    """How a net is made, and the shapes of its inputs."""

    make: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]


def _classifier(name: str, size: int = 64) -> Architecture:
    """One of torchvision's, for few classes."""
    return Architecture(
        lambda: getattr(_vision(), name)(weights=None, num_classes=10), ((1, 3, size, size),)
    )


ARCHITECTURES = {
    "ResNet-18": _classifier("resnet18"),
    "ResNet-50": _classifier("resnet50"),
    "MobileNetV2": _classifier("mobilenet_v2"),
    "MobileNetV3": _classifier("mobilenet_v3_large"),
    "EfficientNet-B0": _classifier("efficientnet_b0"),
    "ShuffleNetV2": _classifier("shufflenet_v2_x1_0"),
    "SqueezeNet": _classifier("squeezenet1_1"),
    "DeepLabV3": Architecture(Segmenter, ((1, 3, 65, 65),)),
    "SSDLite": Architecture(Detector, ((1, 3, 128, 128),)),
    "FSRCNN": Architecture(FSRCNN, ((2, 1, 24, 20),)),
    "ESPCN": Architecture(ESPCN, ((2, 1, 24, 20),)),
    "compact SRVGG": Architecture(CompactSRVGG, ((1, 3, 20, 24),)),
    "U-Net": Architecture(UNet, ((1, 3, 32, 48),)),
    "recurrent matting": Architecture(Matting, ((1, 3, 32, 48), (1, 8, 8, 12), (1, 16, 4, 6))),
}


# Where people run them, if not on one picture of 224 x 224.
LARGE: dict[str, tuple[tuple[int, ...], ...]] = {
    "SSDLite": ((1, 3, 320, 320),),
    "FSRCNN": ((1, 1, 180, 320),),
    "ESPCN": ((1, 1, 360, 640),),
    "compact SRVGG": ((1, 3, 180, 320),),
    "U-Net": ((1, 3, 256, 256),),
    "recurrent matting": ((1, 3, 256, 256), (1, 8, 64, 64), (1, 16, 32, 32)),
}


@functools.cache
def exported(name: str, shapes: tuple[tuple[int, ...], ...] | None = None) -> bytes:
    """A net of `ARCHITECTURES` as an ONNX file, for inputs of these shapes or its own.

    Inputs are `x0`, `x1`, …, outputs `y0`, `y1`, ….
    """
    torch.manual_seed(0)
    net = ARCHITECTURES[name].make().eval()
    _draw(net)
    given = tuple(torch.randn(shape) for shape in shapes or ARCHITECTURES[name].shapes)
    with torch.no_grad():
        made = net(*given)
    count = len(made) if isinstance(made, tuple) else 1
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, given, file, dynamo=False, opset_version=OPSET,
            input_names=[f"x{at}" for at in range(len(given))],
            output_names=[f"y{at}" for at in range(count)],
        )  # fmt: skip
    return file.getvalue()


def _draw(net: nn.Module) -> None:
    """Statistics and scales as training leaves them: none is 0 or 1 throughout."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0.0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0.0, 0.1)


def _vision(part: str = "") -> Any:
    """torchvision's models. Raises ImportError where it is not installed."""
    _declare()
    return importlib.import_module(f"torchvision.models{'.' + part if part else ''}")


@functools.cache
def _declare() -> torch.library.Library:
    """Operators that torchvision looks for and has not beside torch without CUDA.

    Where its own library can be loaded it has them; to declare them before would end the process.
    What is given back must live on: the operators go when it does.
    """
    found = importlib.util.find_spec("torchvision")
    for path in Path(found.origin).parent.glob("_C*") if found and found.origin else ():
        with contextlib.suppress(OSError):
            torch.ops.load_library(str(path))
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def main() -> None:
    """Write NAME-big.onnx for each."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in ARCHITECTURES:
        model = exported(name, LARGE.get(name, ((1, 3, 224, 224),)))
        (folder / f"{name}-big.onnx").write_bytes(model)


if __name__ == "__main__":
    main()
