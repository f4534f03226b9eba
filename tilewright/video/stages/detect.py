"""Things found in pictures: a network looks at each by itself, and what it finds goes along.

By itself the stage changes no sample. What was found lies in the chunks of the run (`chunk.py`),
from which a file of JSON lines is made when the film is whole, and the stage `Draw` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tilewright import models
from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.nn.places import device_of
from tilewright.video.detection import heat
from tilewright.video.detection.boxes import Boxes, merged
from tilewright.video.detection.brought import Brought, named, names_in, read
from tilewright.video.detection.kinds import KINDS
from tilewright.video.detection.things import Found, of_boxes
from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Window, Work, check_luma, workers_on
from tilewright.video.stages.network_file import mark_of

if TYPE_CHECKING:
    from tilewright.facts.device import Device
    from tilewright.nn.net import Network

_CARD = "detect-s"


@dataclass(frozen=True, slots=True)
class Detect:
    """Things found in every picture: `Frame.found`.

    classes  those that are looked for; () for all that the network knows
    score    how sure it has to be, 0 to 1
    mirrored whether the network that is brought along looks at the mirror image too, which finds
             more and takes twice as long
    device   where the network runs, as of `Network.bind`
    model    a network file instead: a YOLO or NanoDet detector, as `detection/heads.py` has them,
             or one that `train.detect` made
    names    of that file's classes, in its order; () as its metadata says
    tiles    of that file: pictures larger than its input are looked at in tiles too
    mark     tells that file from another; `of_file` fills it in
    """

    classes: tuple[str, ...] = ()
    score: float = 0.5
    device: str = "auto"
    model: str = ""
    names: tuple[str, ...] = ()
    tiles: bool = False
    mark: str = ""
    mirrored: bool = True

    name: ClassVar[str] = "detect"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0

    @property
    def workers(self) -> int:
        """A picture a core; on other devices one after the other."""
        return workers_on(device_of(self.device, self._network().graph))

    @property
    def card(self) -> str:
        """The network's name, whose card `tilewright.models` has; "" for a file's."""
        return "" if self.model else _CARD

    @classmethod
    def of_file(
        cls,
        path: Path,
        classes: Sequence[str] = (),
        *,
        names: Sequence[str] = (),
        score: float = 0.5,
        tiles: bool = False,
        device: str = "auto",
    ) -> Detect:
        """By a network in an ONNX file, or one that `tilewright.nn.save` wrote.

        Raises ArgumentError where it cannot be read.
        """
        mark = mark_of(path, "model")
        found = tuple(names) or names_in(path)
        return cls(tuple(classes), score, device, str(path), found, tiles, mark)

    def turned(self, look: Look) -> Look:
        """The same look. Refuses interlaced pictures, what has no plane of luma, unknown classes,
        and networks that are no detectors."""
        if not 0 < self.score < 1:
            raise ArgumentError(f"detect: score={self.score!r}; accepted is between 0 and 1")
        check_luma(self.name, look)
        known = self.known()
        for one in self.classes:
            if one not in known:
                raise ArgumentError(f"classes={one!r}: unknown; accepted are {', '.join(known)}")
        return look

    def known(self) -> tuple[str, ...]:
        """Names of all classes that the network knows."""
        if not self.model:
            return KINDS
        net = self._network()
        count = heat.classes(net) or read(net, self.model).classes
        return named(self.model, count, self.names)

    def bound(self, look: Look) -> Work:
        """The network bound, once; on the host for one core, as others have theirs."""
        net = self._network()
        device = device_of(self.device, net.graph)
        if device.backend == "host":
            device = replace(device, compute_units=1)
        names = self.known()
        wanted = np.array([not self.classes or name in self.classes for name in names])
        seen: Callable[[Frame], Boxes]
        if self.model and not heat.classes(net):
            seen = Brought(net, self.model, device, self.score, self.tiles)
        else:
            seen = _Own(net, device, look, self.score, self.mirrored)

        def looked(window: Window) -> Iterable[Frame]:
            frame = window.frame
            boxes = seen(frame)
            things = of_boxes(boxes.chosen(wanted[boxes.kinds]), names)
            found = Found(frame.time, frame.look.width, frame.look.height, things)
            return (replace(frame, found=found),)

        return looked

    def _network(self) -> Network:
        if not self.model:
            return models.load(_CARD)
        from tilewright.nn.stored import load

        return load(Path(self.model))


class _Own:
    """The network that is brought along, bound for a look or for a tile of it."""

    def __init__(
        self, net: Network, device: Device, look: Look, score: float, mirrored: bool
    ) -> None:
        cells = heat.tile_of(-(-look.height // heat.CELL), -(-look.width // heat.CELL))
        once: Callable[[NDArray], NDArray] = net.bind((1, heat.PLANES, *cells), device=device)
        self._run = partial(heat.both_ways, once) if mirrored else once
        self._score = score

    def __call__(self, frame: Frame) -> Boxes:
        said = heat.mapped(self._run, heat.planes(frame))
        return merged(heat.peaks(said, self._score).inside(frame.look.width, frame.look.height))
