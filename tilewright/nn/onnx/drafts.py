"""Layers on their way from a file to a network: in float64, one operation each; then folded.

    conv -> affine -> affine -> sign      becomes   conv with a threshold for each channel
    conv -> affine -> add                 becomes   conv with scale and shift, add

Folding is done in float64 and rounded once. Where bits alone come out, scale and shift become an
integer threshold: float64 decides exactly what the float graph would, rounding aside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import FileError
from tilewright.nn.layers.add import Add
from tilewright.nn.layers.affine import Affine
from tilewright.nn.layers.average_pool import AveragePool
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.bit_conv import BitConv
from tilewright.nn.layers.clamp import Clamp
from tilewright.nn.layers.flatten import Flatten
from tilewright.nn.layers.max_pool import MaxPool
from tilewright.nn.layers.real_conv import RealConv
from tilewright.nn.layers.sign import Sign
from tilewright.nn.window import Window
from tilewright.onebit.matrix import pack

NDArray = npt.NDArray[Any]
_POINT = Window()
_HALF_RANGE = (2.0**-9, 2.0**15)  # where half precision keeps eleven bits, with room below
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, eq=False, kw_only=True)
class Draft:
    """One operation. `kind` is "conv", "affine", "sign", "clamp", "add", "max", "mean", "flatten".

    weights   of a conv: float64 [out, height, width, in / groups]; `binary` where they are +-1
    scale, shift  float64 [channels] of a conv's result or of an affine
    cut       of a sign: float64 number or [channels]; `strict` where x > cut counts, not x >= cut
    outside   of a conv: "zero" or "minus_one"
    title     the node, for errors
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    title: str = ""
    weights: Any = None
    binary: bool = False
    window: Window | None = _POINT
    groups: int = 1
    scale: Any = None
    shift: Any = None
    cut: Any = 0.0
    strict: bool = False
    outside: str = "zero"
    low: float = -np.inf
    high: float = np.inf
    count_padding: bool = False
    threshold: Any = None


def fold(drafts: Sequence[Draft], output: str) -> list[Draft]:
    """Join each draft with the one before it where nobody else reads what lies between."""
    result: list[Draft] = []
    renamed: dict[str, int] = {}
    for draft in drafts:
        previous = result[renamed[draft.inputs[0]]] if draft.inputs[0] in renamed else None
        joined = None
        if previous is not None and previous.name != output:
            readers = sum(previous.name in later.inputs for later in drafts)
            joined = _joined(previous, draft) if readers == 1 else None
        if joined is None:
            renamed[draft.name] = len(result)
            result.append(draft)
        else:
            assert previous is not None
            position = renamed.pop(previous.name)
            result[position] = joined
            renamed[joined.name] = position
    return result


def _joined(first: Draft, second: Draft) -> Draft | None:
    """Both in one, under the second's name; None where they do not go together."""
    if second.kind == "affine" and first.kind in ("conv", "affine") and first.threshold is None:
        return dataclasses.replace(
            first,
            name=second.name,
            scale=_or(first.scale, 1.0) * second.scale,
            shift=_or(first.shift, 0.0) * second.scale + second.shift,
        )
    if second.kind == "sign" and first.kind == "conv" and first.binary and first.threshold is None:
        return _thresholded(first, second)
    return None


def _thresholded(conv: Draft, sign: Draft) -> Draft:
    """A binary convolution whose bits alone are read.

    scale * dot + shift >= cut, for a negative scale of the negated weights: dot >= threshold.
    """
    outputs = len(conv.weights)
    scale = np.broadcast_to(_or(conv.scale, 1.0), outputs)
    room = np.broadcast_to(sign.cut - _or(conv.shift, 0.0), outputs)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bound = room / np.abs(scale)
    least = np.clip(np.where(scale == 0, 0.0, np.ceil(bound)), _INT32.min + 1, _INT32.max)
    # The quotient was rounded: step to the least number for which the inequality itself holds.
    holds = np.greater if sign.strict else np.greater_equal
    for _ in range(2):
        least = np.where(holds(np.abs(scale) * (least - 1), room), least - 1, least)
        least = np.where(holds(np.abs(scale) * least, room), least, least + 1)
    always = holds(0.0, room)
    least = np.where(scale == 0, np.where(always, _INT32.min, _INT32.max), least)
    flipped = np.where(scale < 0, -1.0, 1.0)[:, None, None, None]
    return dataclasses.replace(
        conv,
        name=sign.name,
        weights=conv.weights * flipped,
        scale=None,
        shift=None,
        threshold=np.clip(least, _INT32.min, _INT32.max).astype(np.int32),
    )


def finish(draft: Draft) -> Layer:
    """The layer of a draft, rounded to what files hold."""
    names: dict[str, Any] = {"name": draft.name, "inputs": draft.inputs}
    if draft.kind == "conv":
        return _finish_conv(draft, names)
    if draft.kind == "affine":
        return Affine(**names, scale=_single(draft.scale), shift=_single(draft.shift))
    if draft.kind == "sign":
        return Sign(**names, cut=_finish_cut(draft))
    if draft.kind == "clamp":
        return Clamp(**names, low=draft.low, high=draft.high)
    if draft.kind == "add":
        return Add(**names)
    if draft.kind == "flatten":
        return Flatten(**names)
    if draft.kind == "max":
        assert draft.window is not None
        return MaxPool(**names, window=draft.window)
    return AveragePool(**names, window=draft.window, count_padding=draft.count_padding)


def _finish_conv(draft: Draft, names: dict[str, Any]) -> Layer:
    outputs = len(draft.weights)
    assert draft.window is not None
    names |= {"window": draft.window, "groups": draft.groups}
    scale = None if draft.scale is None else np.broadcast_to(draft.scale, outputs)
    shift = None if draft.shift is None else np.broadcast_to(draft.shift, outputs)
    if draft.binary:
        return BitConv(
            **names,
            weights=pack(draft.weights),
            padding=draft.outside,
            scale=_plain(scale, 1.0),
            shift=_plain(shift, 0.0),
            threshold=draft.threshold,
        )
    largest = np.abs(draft.weights).reshape(outputs, -1).max(axis=1)
    low, high = _HALF_RANGE
    weights = draft.weights
    if np.any((largest < low) & (largest > 0) | (largest > high)):
        # A power of two for each channel brings its largest weight to 1/2..1 and rounds nothing.
        power = np.exp2(np.ceil(np.log2(np.where(largest > 0, largest, 1.0))))
        weights = weights / power[:, None, None, None]
        scale = power if scale is None else scale * power
    return RealConv(
        **names,
        weights=np.ascontiguousarray(weights, np.float16),
        scale=_plain(scale, 1.0),
        shift=_plain(shift, 0.0),
    )


def _finish_cut(draft: Draft) -> NDArray | None:
    """The least float32 that is +1."""
    cut = np.atleast_1d(np.asarray(draft.cut, np.float64))
    single = cut.astype(np.float32)
    up = (single <= cut) if draft.strict else (single < cut)
    single = np.where(up, np.nextafter(single, np.float32(np.inf)), single).astype(np.float32)
    return None if np.ndim(draft.cut) == 0 and not single.any() else single


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
