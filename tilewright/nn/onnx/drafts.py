"""Drafts of layers during an import: one operation each, in float64, then folded into few layers.

    conv -> affine -> affine -> sign      becomes   conv with a threshold for each channel
    conv -> affine -> add                 becomes   conv with scale and shift, add

Folding is done in float64 and rounded once. Where bits alone come out, scale and shift become an
integer threshold: float64 decides exactly what the float graph would, rounding aside.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.bit_conv import BitConv
from tilewright.nn.layers.conv import RealConv
from tilewright.nn.layers.maps import Affine, Sign
from tilewright.nn.window import Window
from tilewright.onebit.matrix import pack

_HALF_RANGE = (2.0**-9, 2.0**15)  # where half precision keeps eleven bits, with room below
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, eq=False, kw_only=True)
class Draft(ABC):
    """One operation under way; names as a layer's."""

    name: str
    inputs: tuple[str, ...]

    def joined(self, later: Draft) -> Draft | None:
        """Both in one, under the later one's name; None where they do not go together."""
        return None

    @abstractmethod
    def layer(self) -> Layer:
        """The layer, rounded to what files hold."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerDraft(Draft):
    """A layer as it is, with nothing to fold: its class and its own fields."""

    kind: type[Layer]
    fields: Mapping[str, Any]

    def layer(self) -> Layer:
        """The layer."""
        return self.kind(name=self.name, inputs=self.inputs, **self.fields)


@dataclass(frozen=True, eq=False, kw_only=True)
class AffineDraft(Draft):
    """scale, shift: float64 [channels]."""

    scale: NDArray
    shift: NDArray

    def joined(self, later: Draft) -> Draft | None:
        """With another one."""
        return _scaled(self, later) if isinstance(later, AffineDraft) else None

    def layer(self) -> Layer:
        """The layer."""
        scale, shift = _single(self.scale), _single(self.shift)
        return Affine(name=self.name, inputs=self.inputs, scale=scale, shift=shift)


@dataclass(frozen=True, eq=False, kw_only=True)
class SignDraft(Draft):
    """cut: float64, a number or [channels]; `strict` where x > cut counts, not x >= cut."""

    cut: Any = 0.0
    strict: bool = False

    def layer(self) -> Layer:
        """Its cut is the least float32 that is +1."""
        cut = np.atleast_1d(np.asarray(self.cut, np.float64))
        single = cut.astype(np.float32)
        up = (single <= cut) if self.strict else (single < cut)
        single = np.where(up, np.nextafter(single, np.float32(np.inf)), single).astype(np.float32)
        is_zero = np.ndim(self.cut) == 0 and not single.any()
        return Sign(name=self.name, inputs=self.inputs, cut=None if is_zero else single)


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvDraft(Draft):
    """A convolution or a dense layer.

    weights   float64 [out, height, width, in / groups]; `binary` where they and the input are +-1
    scale, shift  float64 [channels] of the result
    outside   what lies around the image: "zero" or "minus_one"
    """

    weights: NDArray
    binary: bool
    window: Window
    groups: int
    scale: Any
    shift: Any
    outside: str
    threshold: NDArray | None = None

    def joined(self, later: Draft) -> Draft | None:
        """With an affine; where it is binary with a sign."""
        if self.threshold is None and isinstance(later, AffineDraft):
            return _scaled(self, later)
        if self.threshold is None and isinstance(later, SignDraft) and self.binary:
            return self._thresholded(later)
        return None

    def _thresholded(self, sign: SignDraft) -> Draft:
        """A binary convolution whose bits alone are read.

        scale * dot + shift >= cut, for a negative scale of the negated weights: dot >= threshold.
        """
        outputs = len(self.weights)
        scale = np.broadcast_to(_or(self.scale, 1.0), outputs)
        room = np.broadcast_to(sign.cut - _or(self.shift, 0.0), outputs)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            bound = room / np.abs(scale)
        least = np.clip(np.ceil(bound), _INT32.min, _INT32.max)
        # The quotient was rounded: step to the least number for which the inequality itself holds.
        holds = np.greater if sign.strict else np.greater_equal
        for _ in range(2):
            least = np.where(holds(np.abs(scale) * (least - 1), room), least - 1, least)
            least = np.where(holds(np.abs(scale) * least, room), least, least + 1)
        always = holds(0.0, room)
        least = np.where(scale == 0, np.where(always, _INT32.min, _INT32.max), least)
        flipped = np.where(scale < 0, -1.0, 1.0)[:, None, None, None]
        return dataclasses.replace(
            self,
            name=sign.name,
            weights=self.weights * flipped,
            scale=None,
            shift=None,
            threshold=np.clip(least, _INT32.min, _INT32.max).astype(np.int32),
        )

    def layer(self) -> Layer:
        """Of bits where it is binary, else of reals in half precision."""
        outputs = len(self.weights)
        names: dict[str, Any] = {"name": self.name, "inputs": self.inputs}
        names |= {"window": self.window, "groups": self.groups}
        scale = None if self.scale is None else np.broadcast_to(self.scale, outputs)
        shift = None if self.shift is None else np.broadcast_to(self.shift, outputs)
        if self.binary:
            return BitConv(
                **names,
                weights=pack(self.weights),
                padding=self.outside,
                scale=_plain(scale, 1.0),
                shift=_plain(shift, 0.0),
                threshold=self.threshold,
            )
        largest = np.abs(self.weights).reshape(outputs, -1).max(axis=1)
        low, high = _HALF_RANGE
        weights = self.weights
        if np.any((largest < low) & (largest > 0) | (largest > high)):
            # A power of two a channel brings its largest weight to 1/2..1 and rounds nothing.
            power = np.exp2(np.ceil(np.log2(np.where(largest > 0, largest, 1.0))))
            weights = weights / power[:, None, None, None]
            scale = power if scale is None else scale * power
        return RealConv(
            **names,
            weights=np.ascontiguousarray(weights, np.float16),
            scale=_plain(scale, 1.0),
            shift=_plain(shift, 0.0),
        )


def fold(drafts: Sequence[Draft], output: str) -> list[Draft]:
    """Join each draft with the one before it where nobody else reads what lies between."""
    result: list[Draft] = []
    renamed: dict[str, int] = {}
    for draft in drafts:
        previous = result[renamed[draft.inputs[0]]] if draft.inputs[0] in renamed else None
        joined = None
        if previous is not None and previous.name != output:
            readers = sum(previous.name in later.inputs for later in drafts)
            joined = previous.joined(draft) if readers == 1 else None
        if joined is None:
            renamed[draft.name] = len(result)
            result.append(draft)
        else:
            assert previous is not None
            position = renamed.pop(previous.name)
            result[position] = joined
            renamed[joined.name] = position
    return result


def _scaled(first: AffineDraft | ConvDraft, second: AffineDraft) -> Draft:
    """The same, scaled and shifted once more."""
    return dataclasses.replace(
        first,
        name=second.name,
        scale=_or(first.scale, 1.0) * second.scale,
        shift=_or(first.shift, 0.0) * second.scale + second.shift,
    )


def _plain(vector: Any, plain: float) -> NDArray | None:
    """None where it changes nothing."""
    if vector is None or np.all(vector == plain):
        return None
    return _single(vector)


def _single(vector: Any) -> NDArray:
    with np.errstate(over="ignore"):
        result: NDArray = np.asarray(vector, np.float64).astype(np.float32)
    if not np.isfinite(result).all():
        raise FileError("a scale or shift is larger than float32 holds")
    return result


def _or(value: Any, default: float) -> Any:
    return default if value is None else value
