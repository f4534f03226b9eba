"""What the stages share whose networks take damage away: half resolution, and a sum at the end.

    plane -> its places of 2 x 2 as four planes, and one of what the network is told
          -> network [1, 5, rows / 2, columns / 2] -> [1, 4, rows / 2, columns / 2]
          -> plane + what it says, to the nearest sample

Samples go over the largest one, whatever the range: the networks learned from both. The sum is made
in the pass that rounds, so that what is small is small inside the network too, in int8 as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright import models
from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.facts.device import Device
from tilewright.nn.places import device_of
from tilewright.video.look import Frame, Look
from tilewright.video.planes import blank, flat, kernels
from tilewright.video.stages.contract import Window, check_luma, workers_on

if TYPE_CHECKING:
    from tilewright.nn.net import Network

SIZES = ("s", "m")
TYPES = ("float32", "float16", "int8")
IN_INT8 = ("deblock",)  # denoise-s loses 0.8 dB at sigma 25, 0.26 when it has learned to round


@dataclass(frozen=True, slots=True)
class Means:
    """A stage's network, by its name and type, and where it runs."""

    name: str
    size: str
    dtype: str
    device: str

    @property
    def workers(self) -> int:
        """A picture a core; on other devices one after the other."""
        return workers_on(device_of(self.device, self.network().graph))

    def network(self) -> Network:
        """As it is shipped."""
        return models.load(f"{self.name}-{self.size}{'-int8' if self.dtype == 'int8' else ''}")

    def check(self, look: Look) -> None:
        """Raise ArgumentError for another size or type, and for pictures that are not taken."""
        types = TYPES if self.name in IN_INT8 else TYPES[:2]
        if self.size not in SIZES or self.dtype not in types:
            raise ArgumentError(
                f"{self.name}: size={self.size!r}, dtype={self.dtype!r}; accepted are"
                f" {', '.join(SIZES)} and {', '.join(types)}"
            )
        check_luma(self.name, look)


class Restoring:
    """Networks bound for the planes of a look; on the host for one core, as others have theirs.

    told    what the network is told of each of a picture's first planes, so many
    planes  how many of the first planes go through it; the others stay
    share   how much is added of what the network says
    """

    def __init__(
        self,
        means: Means,
        look: Look,
        told: Callable[[Frame, int], Sequence[float]],
        planes: int,
        share: float = 1.0,
    ) -> None:
        net = means.network()
        device = device_of(means.device, net.graph)
        if device.backend == "host":
            device = replace(device, compute_units=1)
        self._told = told
        colours = look.shapes[: len(look.shapes) - look.alpha][:planes]
        half = "float16" if means.dtype == "float16" else None
        shapes = {_halves(shape) for shape in colours}
        bound = {shape: _Bound(net, device, shape, half) for shape in shapes}
        self._bound = [bound[_halves(shape)] for shape in colours]
        self._run = kernels()
        self._most = np.float32((1 << look.bits) - 1)
        self._scale = np.float32(share * self._most)

    def __call__(self, window: Window) -> Iterable[Frame]:
        """The picture, corrected."""
        frame = window.frame
        out = blank(frame, frame.look)
        told = self._told(frame, len(self._bound))
        for number, (plane, to) in enumerate(zip(frame.planes, out.planes, strict=True)):
            if number < len(self._bound):
                self._one(self._bound[number], plane, to, told[number])
            else:
                to[...] = plane
        return (out,)

    def _one(self, net: _Bound, plane: NDArray, out: NDArray, told: float) -> None:
        source, pitch = flat(plane)
        into, pitch_out = flat(out)
        shape, most = plane.shape, self._most
        self._run.quarters(source, pitch, *shape, net.given.reshape(-1), 1 / most)
        said = net(told)
        self._run.corrected(source, pitch, *shape, said, into, pitch_out, self._scale, most)


class _Bound:
    """A network bound for one size, and its memory."""

    def __init__(
        self, net: Network, device: Device, halves: tuple[int, int], dtype: str | None
    ) -> None:
        self._bound: Any = net.bind((1, 5, *halves), device=device, dtype=dtype)
        self._half = dtype is not None
        self.given = np.zeros((1, 5, *halves), np.float32)
        self._made = np.empty((1, 4, *halves), np.float16 if self._half else np.float32)

    def __call__(self, told: float) -> NDArray:
        self.given[0, 4] = told
        self._bound(self.given.astype(np.float16) if self._half else self.given, out=self._made)
        return np.asarray(self._made, np.float32).reshape(-1)


def _halves(shape: tuple[int, int]) -> tuple[int, int]:
    rows, columns = shape
    return -(-rows // 2), -(-columns // 2)
