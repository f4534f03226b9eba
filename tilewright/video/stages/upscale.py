"""Twice as wide and high: luma by a network, chroma and opacity by a bicubic filter, rightly sited.

Networks saw luma of 16 to 235 over 255; full range and ten bits are brought there and back on the
way in and out, in the same pass that makes floats of whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tilewright import models
from tilewright.errors import ArgumentError, TilewrightError
from tilewright.facts.device import Device
from tilewright.nn.places import device_of
from tilewright.video.look import FULL_RANGE, Frame, Look
from tilewright.video.planes import blank, doubled, flat, kernels, offsets
from tilewright.video.stages.contract import Window, Work, check_luma, workers_on
from tilewright.video.stages.network_file import mark_of
from tilewright.wording import PATH, in_one_line, short

if TYPE_CHECKING:
    from tilewright.nn.net import Network

SIZES = ("s", "m", "l")
TYPES = ("float32", "int8")


@dataclass(frozen=True, slots=True)
class Upscale:
    """Pictures twice as large.

    size    "s", "m" or "l": the networks of `tilewright.models`; larger is slower and better
    dtype   "float32" or "int8"
    device  where the network runs, as of `Network.bind`
    model   a network file instead: float32 [1, 1, height, width] in, twice as high and wide out
    mark    tells that file from another; `of_file` fills it in
    """

    size: str = "s"
    dtype: str = "float32"
    device: str = "auto"
    model: str = ""
    mark: str = ""

    name: ClassVar[str] = "upscale"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0

    @property
    def workers(self) -> int:
        """A picture a core; on other devices one after the other."""
        return workers_on(device_of(self.device, self._network().graph))

    @property
    def card(self) -> str:
        """The network's name, whose card `tilewright.models` has; "" for a file's."""
        return "" if self.model else f"superres-{self.size}"

    @classmethod
    def of_file(cls, path: Path, device: str = "auto") -> Upscale:
        """By a network in an ONNX file, or one that `tilewright.nn.save` wrote."""
        mark = mark_of(path, "model")
        return cls(device=device, model=str(path), mark=mark)

    def turned(self, look: Look) -> Look:
        """Twice as large. Refuses interlaced pictures, and what has no plane of luma."""
        if self.size not in SIZES or self.dtype not in TYPES:
            raise ArgumentError(
                f"upscale: size={self.size!r}, dtype={self.dtype!r}; accepted are"
                f" {', '.join(SIZES)} and {', '.join(TYPES)}"
            )
        check_luma(self.name, look)
        if self.model:
            self._check(self._network(), look)
        return replace(look, width=2 * look.width, height=2 * look.height)

    def bound(self, look: Look) -> Work:
        """The network bound for the size, once; on the host for one core, as others have theirs."""
        net = self._network()
        device = device_of(self.device, net.graph)
        if device.backend == "host":
            device = replace(device, compute_units=1)
        return _Doubling(net, device, look, self.turned(look))

    def _network(self) -> Network:
        if not self.model:
            ending = "-int8" if self.dtype == "int8" else ""
            return models.load(f"superres-{self.size}{ending}")
        from tilewright.nn.stored import load

        return load(Path(self.model))

    def _check(self, net: Network, look: Look) -> None:
        """Raise ArgumentError for a network that is no upscaler of luma."""
        label = f"model={short(self.model, PATH)}"
        wanted = "float32 [1, 1, height, width] in, [1, 1, 2 height, 2 width] out"
        if len(net.inputs) != 1 or len(net.outputs) != 1 or net.inputs[0].dtype != "float32":
            raise ArgumentError(
                f"{label}: inputs {[f'{i.name} {i.dtype}' for i in net.inputs]}, outputs"
                f" {list(net.outputs)}; accepted is one of each: {wanted}"
            )
        for name, one in net.graph.constants.items():
            value = one.value  # of limits, which are no arrays, one may be infinite
            if value is not None and value.ndim > 1 and not np.isfinite(value).all():
                raise ArgumentError(f"{label}: weights {name!r} are not finite; accepted is finite")
        from tilewright.nn.infer import tensors
        from tilewright.nn.sizes import sizes_of

        try:
            sizes = sizes_of(net.graph, (1, 1, look.height, look.width))
            made = tensors(net.graph, sizes)[net.outputs[0]].shape
        except TilewrightError as error:
            raise ArgumentError(
                f"{label}: does not take [1, 1, {look.height}, {look.width}]"
                f" ({in_one_line(error)}); accepted is {wanted}"
            ) from None
        if tuple(made) != (1, 1, 2 * look.height, 2 * look.width):
            raise ArgumentError(
                f"{label}: of [1, 1, {look.height}, {look.width}] it makes {list(made)};"
                f" accepted is {wanted}"
            )


class _Doubling:
    """A bound network, and what chroma takes."""

    def __init__(self, net: Network, device: Device, look: Look, turned: Look) -> None:
        self._turned, self._most = turned, (1 << look.bits) - 1
        self._at = offsets(look)
        self._bound = net.bind((1, 1, look.height, look.width), device=device)
        self._given = _own(self._bound.inputs, net.inputs[0].name, look)
        self._made = _own(self._bound.results, net.outputs[0], turned)
        self._run = kernels()
        deep = 1 << (look.bits - 8)
        if look.range == FULL_RANGE:
            self._scale, self._offset = 219 / (255 * self._most), 16 / 255
        else:
            self._scale, self._offset = 1 / (255 * deep), 0.0

    def __call__(self, window: Window) -> Iterable[Frame]:
        frame = window.frame
        out = blank(frame, self._turned)
        self._luma(frame.planes[0], out.planes[0])
        colours = 3 if len(frame.planes) > 2 else 1
        for number in range(1, len(frame.planes)):
            at = self._at if number < colours else (-0.25, -0.25)
            doubled(frame.planes[number], out.planes[number], at, self._most)
        return (out,)

    def _luma(self, plane: Any, out: Any) -> None:
        source, pitch = flat(plane)
        into, pitch_out = flat(out)
        scale, offset = np.float32(self._scale), np.float32(self._offset)
        self._run.widen(source, pitch, *plane.shape, self._given.reshape(-1), scale, offset)
        self._bound(self._given, out=self._made)
        back, shift = np.float32(1 / self._scale), np.float32(-self._offset / self._scale)
        most = np.float32(self._most)
        self._run.narrow(self._made.reshape(-1), *out.shape, into, pitch_out, back, shift, most)


def _own(places: Any, name: str, look: Look) -> Any:
    """The network's own memory where that is plain NumPy's, which saves a copy; else new."""
    found = places.get(name)
    if isinstance(found, np.ndarray) and found.reshape(-1).base is not None:
        rows = np.lib.stride_tricks.as_strided  # its strides of single dimensions mean nothing
        if found.strides[-1] == 4 and found.strides[-2] == 4 * look.width:
            return rows(found, found.shape, _dense(found.shape))
    return np.empty((1, 1, look.height, look.width), np.float32)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    _, _, rows, columns = shape
    return (4 * rows * columns, 4 * rows * columns, 4 * columns, 4)
