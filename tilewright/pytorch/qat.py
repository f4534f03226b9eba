"""Training for int8: layers that round as the network in int8 will, and let gradients through.

prepare       the layers of a module, replaced by those that round; with `ranges`, from a
              calibration say, what their inputs lie between stays as given
restored      a plain copy with the weights that training found, for export
ranges        what the layers' inputs lie between: `tilewright.nn.quantise(net, ranges=...)`

    training    whole numbers of x and weights, sums in float32; gradients pass as if nothing were
                rounded ("straight through"), but for what lies beyond the range of x
    evaluation  whole numbers, exact sums, the float32 operations of int8: the same bits as the
                network that `nn.quantise` makes of the exported file
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tilewright.errors import ArgumentError, DtypeError
from tilewright.wording import short

__all__ = ["QuantConv2d", "QuantLinear", "prepare", "ranges", "restored"]
_MOMENTUM = 0.1  # of a batch in the range that is kept
_BIAS = 1 << 30  # the largest bias as a whole number
_WHOLE = (1 << 31) - 1
_WIDE = (torch.float32, torch.float64)


class _Rounded(nn.Module):
    """What both layers share: the range of x, and the steps of x, weights and bias."""

    weight: Tensor
    bias: Tensor | None
    low: Tensor
    high: Tensor
    batches: Tensor
    held: bool

    def _begin(self) -> None:
        """Buffers of the range of x, which always holds 0; it follows the batches."""
        self.held = False
        where = self.weight.device
        self.register_buffer("low", torch.zeros((), device=where))
        self.register_buffer("high", torch.zeros((), device=where))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64, device=where))

    def _sums(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer itself, in the type of what it is given."""
        raise NotImplementedError

    def _along(self, numbers: Tensor) -> Tensor:
        """A number for each output, such that it broadcasts against the result."""
        raise NotImplementedError

    def hold(self, name: str, low: float, high: float) -> None:
        """Keep the range of x at these ends, 0 among them, whatever batches have."""
        if not -math.inf < low <= high < math.inf:
            raise ArgumentError(f"ranges[{name!r}]={(low, high)}: accepted are finite, low <= high")
        self.low.fill_(min(0.0, low))
        self.high.fill_(max(0.0, high))
        self.batches.fill_(1)
        self.held = True

    def forward(self, x: Tensor) -> Tensor:
        """As the layer it stands for, rounded. Raises DtypeError where training cannot take x."""
        if self.training:
            self._check_types(x)
            if not self.held and x.numel():
                self._observe(x.detach())
            return self._approached(x)
        return self._exact(x)

    def _check_types(self, x: Tensor) -> None:
        """Ranges and steps need float32; halves are for autocast, which rounds whole numbers."""
        if self.weight.dtype not in _WIDE:
            raise DtypeError(
                f"weight: {self.weight.dtype}; accepted in training is torch.float32: halves come"
                " by torch.autocast"
            )
        if x.dtype not in _WIDE and not torch.is_autocast_enabled(x.device.type):
            raise DtypeError(f"x: {x.dtype}; accepted is {self.weight.dtype}, or torch.autocast")

    @torch.no_grad()
    def _observe(self, x: Tensor) -> None:
        """Move the range towards that of a batch; the first one sets it.

        A batch with NaN or infinities, as a loss that is scaled too far gives, moves nothing; it is
        left out without a number that the host would wait for.
        """
        low, high = x.amin().clamp(max=0).float(), x.amax().clamp(min=0).float()
        fits = torch.isfinite(low) & torch.isfinite(high)
        share = torch.full_like(self.low, _MOMENTUM).masked_fill(self.batches == 0, 1.0)
        self.low += torch.where(fits, share * (low - self.low), 0.0)
        self.high += torch.where(fits, share * (high - self.high), 0.0)
        self.batches += fits

    def _steps(self) -> tuple[Tensor, Tensor, Tensor]:
        """Step and zero of x, and the step of each output's weights.

        No number comes from the host's memory here, so that a CUDA graph can hold it.
        """
        span = self.high.double() - self.low.double()
        step = (span / 255).masked_fill(span <= 0, 1.0).float()
        step = step.clamp(min=torch.finfo(torch.float32).tiny)
        zero = (-self.low / step).round().clamp(0, 255)
        largest = self.weight.detach().float().flatten(1).abs().amax(1)
        steps = largest.masked_fill(largest <= 0, 127.0) / 127.0
        steps = steps.clamp(min=torch.finfo(torch.float32).tiny)
        if self.bias is not None:
            least = self.bias.detach().double().abs() / _BIAS / step.double()
            steps = torch.maximum(steps, least.float())
        return step, zero, steps

    def rounded_weight(self) -> Tensor:
        """The weights as int8 has them: whole numbers of each output's step."""
        _, _, steps = self._steps()
        along = steps.reshape(-1, *[1] * (self.weight.ndim - 1))
        return self._whole_weights(steps) * along

    def _whole_weights(self, steps: Tensor) -> Tensor:
        along = steps.reshape(-1, *[1] * (self.weight.ndim - 1))
        return (self.weight.detach().float() / along).round().clamp(-127, 127)

    def _whole_bias(self, scale: Tensor) -> Tensor | None:
        if self.bias is None:
            return None
        return (self.bias.detach().double() / scale.double()).round().clamp(-_WHOLE, _WHOLE)

    def _approached(self, x: Tensor) -> Tensor:
        """Rounded; gradients as if nothing but the range's ends were there.

        Products are of whole numbers below 256, which TF32 and bfloat16 hold too: of steps times
        such numbers TF32 keeps eleven bits, a tenth of a code at the end of the range.
        """
        step, zero, steps = self._steps()
        inside = torch.minimum(torch.maximum(x / step, -zero), 255 - zero)
        codes = inside + (inside.round() - inside).detach()
        share = self.weight / steps.reshape(-1, *[1] * (self.weight.ndim - 1))
        weight = share + (self._whole_weights(steps) - share).detach()
        sums = self._sums(codes, weight, None) * self._along(step * steps)
        bias, whole = self.bias, self._whole_bias(step * steps)
        if bias is None or whole is None:
            return sums
        return sums + self._along(bias + (whole.float() * (step * steps) - bias).detach())

    @torch.no_grad()
    def _exact(self, x: Tensor) -> Tensor:
        """By whole numbers in float64, which sums them exactly."""
        step, zero, steps = self._steps()
        whole = ((x.float() / step).round() + zero).clamp(0, 255) - zero
        scale = step * steps
        weights = self._whole_weights(steps).double()
        sums = self._sums(whole.double(), weights, self._whole_bias(scale))
        return sums.float() * self._along(scale)


class QuantConv2d(_Rounded, nn.Conv2d):
    """nn.Conv2d that trains with the rounding of int8; zeros are what it pads with."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        nn.Conv2d.__init__(self, *args, **kwargs)
        self._begin()

    def _sums(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.conv2d(
            x, weight, bias, self.stride, self.padding, self.dilation, self.groups
        )

    def _along(self, numbers: Tensor) -> Tensor:
        return numbers.reshape(-1, 1, 1)


class QuantLinear(_Rounded, nn.Linear):
    """nn.Linear that trains with the rounding of int8."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        nn.Linear.__init__(self, *args, **kwargs)
        self._begin()

    def _sums(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(x, weight, bias)

    def _along(self, numbers: Tensor) -> Tensor:
        return numbers


def prepare(
    module: nn.Module, ranges: Mapping[str, tuple[float, float]] | None = None
) -> nn.Module:
    """Replace every nn.Conv2d and nn.Linear in a module by one that trains for int8.

    Parameters stay the same objects, so an optimiser keeps its hold of them. Fold batch norms into
    convolutions first. Returns the module, or what stands for it where it is such a layer itself.

    Args:
        module: any module.
        ranges: lowest and highest input of layers by the name of their weights, as `ranges` gives
            them; these stay so, others follow the batches. A trained network loses less where the
            steps that its weights settle on do not move.

    Raises ArgumentError for what is no module, a convolution that pads with anything but zeros, a
    range of a name that no layer has, and one that is not finite or ends below its beginning.
    """
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"module={short(module)}: accepted are modules of torch")
    module = _prepared(module, {})
    found = {
        f"{name}.weight" if name else "weight": layer
        for name, layer in module.named_modules()
        if isinstance(layer, _Rounded)
    }
    for name, ends in (ranges or {}).items():
        if name not in found:
            names = ", ".join(map(repr, found)) or "none"
            raise ArgumentError(f"ranges: no layer has weights {name!r}; accepted are {names}")
        found[name].hold(name, *ends)
    return module


def _prepared(module: nn.Module, known: dict[nn.Module, nn.Module]) -> nn.Module:
    """known: what stands for modules that were met: one that has several places stays one."""
    if module not in known:
        known[module] = module
        if type(module) in (nn.Conv2d, nn.Linear):
            known[module] = _twin(module)
        _replace(module, lambda child: _prepared(child, known))
    return known[module]


def _replace(module: nn.Module, by: Callable[[nn.Module], nn.Module]) -> None:
    """Every child at each of its places: `named_children` has a shared one but once."""
    for name, child in tuple(module._modules.items()):
        if child is not None:
            setattr(module, name, by(child))


def restored(module: nn.Module) -> nn.Module:
    """A copy with plain layers in the place of those that round: what is exported to ONNX."""

    known: dict[nn.Module, nn.Module] = {}

    def plain(layer: nn.Module) -> nn.Module:
        if layer not in known:
            known[layer] = _plain(layer) if isinstance(layer, _Rounded) else layer
            _replace(layer, plain)
        return known[layer]

    return plain(copy.deepcopy(module))


def ranges(module: nn.Module) -> dict[str, tuple[float, float]]:
    """Lowest and highest input of every layer that rounds, by the name of its weights.

    These are the names that torch.onnx.export gives them. Raises ArgumentError for a layer that no
    batch went through.
    """
    found = {}
    for name, layer in module.named_modules():
        if isinstance(layer, _Rounded):
            if not int(layer.batches):
                raise ArgumentError(
                    f"module: no batch of finite numbers went through {name or 'it'!r} in training"
                )
            found[f"{name}.weight" if name else "weight"] = (float(layer.low), float(layer.high))
    return found


def _twin(layer: nn.Module) -> nn.Module:
    """The layer that rounds, with the same parameters."""
    if isinstance(layer, nn.Conv2d) and layer.padding_mode != "zeros":
        raise ArgumentError(f"module: padding_mode={layer.padding_mode!r}; accepted is 'zeros'")
    return _made(layer, QuantConv2d if isinstance(layer, nn.Conv2d) else QuantLinear)


def _plain(layer: nn.Module) -> nn.Module:
    return _made(layer, nn.Conv2d if isinstance(layer, nn.Conv2d) else nn.Linear)


def _made(layer: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """A layer of another kind with the same sizes and parameters."""
    bias = layer.bias is not None
    if isinstance(layer, nn.Conv2d):
        made = kind(
            layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding,
            layer.dilation, layer.groups, bias, device="meta",
        )  # fmt: skip
    else:
        made = kind(layer.in_features, layer.out_features, bias, device="meta")
    made.weight, made.bias = layer.weight, layer.bias
    if isinstance(made, _Rounded):
        made._begin()
    return made.train(layer.training)
