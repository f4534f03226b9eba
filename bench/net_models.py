"""ResNet-18 and MobileNetV2 as torch modules with drawn weights, and modules as networks."""

from __future__ import annotations

import io
import warnings
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from bench.conv_model import CHANNELS
from tilewright.nn import Network, import_onnx


class Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions of 3x3, and what they are given added."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.beside = nn.Sequential()
        if stride != 1 or inputs != outputs:
            turned = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.beside = nn.Sequential(turned, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return torch.relu(self.layers(x) + self.beside(x))


class Inverted(nn.Module):  # type: ignore[misc]
    """Widened, a convolution of each channel, narrowed; what it is given added where it fits."""

    def __init__(self, inputs: int, outputs: int, stride: int, times: int) -> None:
        super().__init__()
        wide = inputs * times
        self.adds = stride == 1 and inputs == outputs
        layers = [] if times == 1 else _point(inputs, wide)
        layers += [nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False)]
        layers += [nn.BatchNorm2d(wide), nn.ReLU6(), *_point(wide, outputs)[:2]]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return x + self.layers(x) if self.adds else self.layers(x)


def _point(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU6()]


def resnet18() -> nn.Module:
    """K. He and others, "Deep residual learning for image recognition", 2015."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers += [nn.MaxPool2d(3, 2, 1)]
    for inputs, outputs in pairwise((64, 64, 128, 256, 512)):
        layers += [Residual(inputs, outputs, 1 if inputs == outputs else 2)]
        layers += [Residual(outputs, outputs, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def mobilenet_v2() -> nn.Module:
    """M. Sandler and others, "MobileNetV2: inverted residuals and linear bottlenecks", 2018."""
    layers = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    inputs = 32
    blocks = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
    for times, outputs, count, stride in (*blocks, (6, 160, 3, 2), (6, 320, 1, 1)):
        for at in range(count):
            layers.append(Inverted(inputs, outputs, stride if at == 0 else 1, times))
            inputs = outputs
    layers += [*_point(320, 1280), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers)


def upscaler(name: str) -> nn.Module:
    """A chain of 3x3 convolutions, ReLU between, a pixel shuffle by two at the end."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(CHANNELS[name]):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        nn.init.normal_(layers[-2].weight, std=(2 / (9 * inputs)) ** 0.5)
    return nn.Sequential(*layers[:-1], nn.PixelShuffle(2))


def drawn(net: nn.Module) -> nn.Module:
    """Statistics as training leaves them; ready to be run."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0.0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return net.eval().requires_grad_(False)


MAKERS = {"ResNet-18": resnet18, "MobileNetV2": mobilenet_v2}


def network(net: nn.Module, shape: tuple[int, ...]) -> Network:
    """The module by way of an ONNX file."""
    file = io.BytesIO()
    options: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"], "dynamo": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (torch.zeros(shape),), file, opset_version=17, **options)
    return import_onnx(file.getvalue())
