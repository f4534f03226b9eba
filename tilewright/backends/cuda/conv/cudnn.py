"""The vendor's convolutions, cuDNN or MIOpen through torch: takes every chain, layer by layer.

    x --conv2d, bias--> (+ residual) --activation--> pixel shuffle --> ... --> out

float32 is computed as float32: torch would allow tf32 in convolutions unless it is told not to.
Weights lie channels last, for halves run faster so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewright.backends.cuda.conv import cost
from tilewright.engines.conv import Activation, Conv, ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.dtypes import VALUES
from tilewright.facts.verdict import Proposal

Launch = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Cudnn:
    """torch.nn.functional.conv2d for every layer."""

    name: str = "cudnn"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """It takes all element types that the device has."""
        if work.dtype not in device.dtypes:
            return f"dtype={work.dtype!r}: {device.name} has {', '.join(device.dtypes)}"
        return None

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """As measured of an H200."""
        largest = max(c * h * w for c, h, w in work.sizes) * work.images
        reason = f"{len(work.layers)} convolutions of the vendor's library"
        seconds = cost.by_library(work, device, tuple(map(_passes, work.layers)))
        scratch = 2 * VALUES[work.dtype] * largest
        return Proposal(self.name, device, seconds, reason, scratch, decisions=work)

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Launch:
        """Weights go to the GPU; the launch enqueues on torch's current stream."""
        import torch

        work: ConvWork = proposal.decisions
        kind = getattr(torch, work.dtype)
        steps = []
        residuals = iter(operands.residuals)
        for layer in work.layers:
            added = next(residuals) if layer.adds else None
            steps.append(partial(_layer, layer, _held(layer, kind, operands.x.device), added))
        return partial(_run, tuple(steps), operands.x, operands.out)


@dataclass(frozen=True, slots=True)
class _Held:
    """A layer's numbers on the GPU."""

    weights: Any
    bias: Any
    slopes: Any


def _held(layer: Conv, kind: Any, device: Any) -> _Held:
    import torch

    weights = torch.tensor(layer.weights, device="cpu").to(device, kind)
    bias = None if layer.bias is None else torch.tensor(layer.bias, device="cpu").to(device, kind)
    slopes = layer.activation.slopes
    if slopes is not None:
        slopes = torch.tensor(slopes, device="cpu").to(device, kind)
    return _Held(weights.contiguous(memory_format=torch.channels_last), bias, slopes)


def _run(steps: tuple[Callable[[Any], Any], ...], x: Any, out: Any) -> None:
    import torch

    with torch.no_grad(), _whole_singles(x.dtype):
        for step in steps:
            x = step(x)
        out.copy_(x)


def _whole_singles(kind: Any) -> Any:
    """float32 without tf32, as a context; other types are what they are."""
    import torch

    library = torch.backends.cudnn
    if kind is not torch.float32 or not library.allow_tf32:
        return nullcontext()
    return library.flags(enabled=library.enabled, benchmark=library.benchmark, allow_tf32=False)


def _layer(layer: Conv, held: _Held, added: Any, x: Any) -> Any:
    import torch.nn.functional as nnf

    top, left, bottom, right = layer.pads
    pads = (top, left)
    if (top, left) != (bottom, right):
        x, pads = nnf.pad(x, (left, right, top, bottom)), (0, 0)
    if x.is_cuda and _passes(layer) == 0:
        y = _fused(layer, held, added, x, pads)
    else:
        how = (layer.strides, pads, layer.dilations, layer.groups)
        y = nnf.conv2d(x, held.weights, held.bias, *how)
        y = _activated(layer.activation, held.slopes, y if added is None else y + added)
    return y if layer.shuffle == 1 else nnf.pixel_shuffle(y, layer.shuffle)


def _passes(layer: Conv) -> int:
    """How often the result is read and written anew: never where the library does all itself.

    Depthwise it took 16 to 24 µs so where the convolution alone took 3.
    """
    import torch

    if layer.activation.kind == "relu" and layer.groups == 1 and torch.version.hip is None:
        return 0
    return (layer.bias is not None) + layer.adds + (layer.activation.kind != "none")


def _fused(layer: Conv, held: _Held, added: Any, x: Any, pads: tuple[int, int]) -> Any:
    """Convolution, bias, residual and ReLU in one call."""
    import torch

    how = (held.bias, layer.strides, pads, layer.dilations, layer.groups)
    if added is None:
        return torch.cudnn_convolution_relu(x, held.weights, *how)
    return torch.cudnn_convolution_add_relu(x, held.weights, added, 1.0, *how)


def _activated(how: Activation, slopes: Any, y: Any) -> Any:
    import torch
    import torch.nn.functional as nnf

    made: dict[str, Callable[[], Any]] = {
        "none": lambda: y,
        "relu": lambda: torch.relu_(y),
        "leaky": lambda: nnf.leaky_relu(y, how.low),
        "prelu": lambda: nnf.prelu(y, slopes),
        "clip": lambda: torch.clamp_(y, how.low, how.high),
        "sigmoid": lambda: torch.sigmoid(y),
        "hard_sigmoid": lambda: torch.clamp(how.low * y + how.high, 0, 1),
        "hard_swish": lambda: nnf.hardswish(y),
        "silu": lambda: nnf.silu(y),
        "tanh": lambda: torch.tanh(y),
        "gelu": lambda: nnf.gelu(y),
    }
    return made[how.kind]()
