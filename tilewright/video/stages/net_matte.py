"""Somebody's opacity by a network of yours, of single pictures or recurrent, as of Lin et al. 2021.

What its inputs are shows in their shapes: a picture [1, 3, rows, columns], red, green and blue of
0 to 1; states, which go in and come out again; a number, such as the share it shrinks pictures by,
which is told 1. Free sizes become at most 512 a side; its opacity is brought to the film's size by
a guided filter along luma.

What a stage gives may depend on its window alone, and a state depends on all that was. So a state
begins as zeros again, at every thirtieth picture of the film, which has seen the ten before it: the
network sees the last ten to forty pictures, wherever a run or a worker begins.

Where a network gives no number (a division by zero in it, say) nobody knows who is there: a careful
stage has all of such a picture as somebody, and says so; any other refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, TilewrightError
from tilewright.nn.places import device_of
from tilewright.video import mattes
from tilewright.video.chunk import carried
from tilewright.video.look import Frame, Look
from tilewright.video.planes import kernels_of
from tilewright.video.stages.contract import Pace, Window, Work, workers_on
from tilewright.video.stages.network_file import mark_of
from tilewright.video.stages.opacity import opaque, with_alpha
from tilewright.video.stages.plate_matte import grown
from tilewright.wording import PATH, in_one_line, short

if TYPE_CHECKING:
    from tilewright.nn.net import Network

EVERY, RUN_UP = 30, 10  # pictures
_SIDE, _GRID = 512, 32
_RADIUS, _EPS = 4, 1e-4
_SURE = (0.05, 0.95)
_BEYOND = 0.25  # by so much rounding or a filter may overstep 0 to 1; further is no opacity
WANTED = (
    "a picture float32 [1, 3, rows, columns], states of four dimensions and single numbers in;"
    " an opacity [1, 1, rows, columns] and as many states out"
)


@dataclass(frozen=True, slots=True)
class NetMatte:
    """Pictures with opacity, by a network file.

    model    .onnx, or what `tilewright.nn.save` wrote
    careful  as of `PlateMatte`: what the network is not sure of is somebody
    device   where it runs, as of `Network.bind`
    mark     tells that file from another; `of_file` fills it in
    begins   times of pictures that states begin at, in the film's units; `retimed` fills it in
    """

    model: str
    careful: bool = False
    device: str = "auto"
    mark: str = ""
    begins: tuple[int, ...] = ()

    name: ClassVar[str] = "matte"
    after: ClassVar[int] = 0

    @classmethod
    def of_file(cls, path: Path, device: str = "auto", *, careful: bool = False) -> NetMatte:
        """By a file. Raises ArgumentError where it cannot be read or is no such network."""
        mark = mark_of(path, "matte-model")
        made = cls(str(path), careful=careful, device=device, mark=mark)
        shaped(made.network(), 64, 64, made.label)
        return made

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"matte-model={short(self.model, PATH)}"

    @property
    def before(self) -> int:
        """Pictures since a state began, and those before that."""
        return EVERY + RUN_UP if _states(self.network()) else 0

    @property
    def workers(self) -> int:
        """A picture a core; one where a state goes from picture to picture."""
        net = self.network()
        return 1 if _states(net) else workers_on(device_of(self.device, net.graph))

    def network(self) -> Network:
        """As it lies in its file."""
        from tilewright.nn.stored import load

        return load(Path(self.model))

    def turned(self, look: Look) -> Look:
        """The same look with opacity. Refuses a network that does not take pictures so large."""
        shaped(self.network(), *_seen_as(look), self.label)
        return opaque(self.name, look)

    def retimed(self, pace: Pace) -> tuple[NetMatte, Pace]:
        """With the times that states begin at; the pace stays."""
        return replace(self, begins=pace.times[::EVERY]), pace

    def bound(self, look: Look) -> Work:
        """The network bound for the size, its states at zeros."""
        return _Running(self, look, self.turned(look))


def _states(net: Network) -> list[str]:
    """Names of inputs that are neither the picture nor numbers."""
    named = [one.name for one in net.inputs if one.shape is not None and len(one.shape) == 4]
    return named[1:]


def _seen_as(look: Look) -> tuple[int, int]:
    """Rows and columns of what a network with free sizes is shown."""
    scale = min(1.0, _SIDE / max(look.width, look.height))
    sides = (look.height * scale, look.width * scale)
    rows, columns = (max(_GRID, round(side / _GRID) * _GRID) for side in sides)
    return rows, columns


@dataclass(frozen=True, slots=True, eq=False)
class Shaped:
    """A network whose sizes are all known.

    sizes   of each input, by name; the first is the picture's
    states  names of inputs, and of the outputs that come back to them
    alpha   the place of opacity among its outputs
    """

    net: Network
    sizes: dict[str, tuple[int, ...]]
    states: tuple[tuple[str, str], ...]
    alpha: int


def shaped(net: Network, rows: int, columns: int, label: str) -> Shaped:
    """A network for pictures so large, where sizes are free. Raises ArgumentError for others."""
    four = [one for one in net.inputs if one.shape is not None and len(one.shape) == 4]
    others = [one for one in net.inputs if one not in four]
    said = ", ".join(f"{one.name} {_listed(one.shape)} {one.dtype}" for one in net.inputs)
    picture = four[0] if four else None
    numbers = all(one.shape in ((), (1,)) or len(one.shape or (0, 0)) == 1 for one in others)
    colours = picture is not None and (picture.shape or ())[1] in (3,)
    types = all(one.dtype == "float32" for one in net.inputs)
    if picture is None or not (colours and numbers and types):
        raise ArgumentError(f"{label}: inputs {said}; accepted are {WANTED}")
    known = _with_numbers(net, {one.name for one in others})
    free = (1, 3, rows, columns)
    sizes = {one.name: _filled(one.shape, (1, 1, 1, 1)) for one in four}
    sizes[picture.name] = _filled(picture.shape, free)
    try:
        made = _made(known, sizes)
        backs = list(net.outputs)[len(net.outputs) - (len(four) - 1) :]
        sizes |= {one.name: made[back] for one, back in zip(four[1:], backs, strict=True)}
        again = _made(known, sizes)
    except (TilewrightError, ValueError, KeyError) as error:
        raise ArgumentError(
            f"{label}: inputs {said} do not fit ({in_one_line(error)}); accepted are {WANTED}"
        ) from None
    first = list(net.outputs)[: len(net.outputs) - (len(four) - 1)]
    alphas = [n for n, name in enumerate(first) if len(again[name]) == 4 and again[name][1] == 1]
    states = tuple((one.name, back) for one, back in zip(four[1:], backs, strict=True))
    if not alphas or any(again[back] != sizes[name] for name, back in states):
        found = ", ".join(f"{name} {_listed(again[name])}" for name in net.outputs)
        raise ArgumentError(f"{label}: outputs {found}; accepted are {WANTED}")
    return Shaped(known, sizes, states, alphas[-1])


def _listed(shape: Any) -> str:
    return f"[{', '.join(str(one) for one in shape or ())}]"


def _filled(shape: Any, free: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        one if isinstance(one, int) and one > 0 else other
        for one, other in zip(shape, free, strict=True)
    )


def _made(net: Network, sizes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Sizes of all outputs."""
    from tilewright.nn.infer import tensors

    found = tensors(net.graph, sizes)
    return {name: tuple(found[name].shape) for name in net.outputs}


def _with_numbers(net: Network, numbers: set[str]) -> Network:
    """A network told 1 for every single number; free sizes are each input's own."""
    from tilewright.nn.graph import Tensor
    from tilewright.nn.net import Network

    graph = net.graph
    constants = dict(graph.constants)
    for one in graph.inputs:
        if one.name in numbers:
            value = np.ones((1,) if one.shape else (), np.float32)
            constants[one.name] = Tensor(value.shape, "float32", value)
    inputs = tuple(
        replace(one, shape=tuple(_own(one.name, n, s) for n, s in enumerate(one.shape or ())))
        for one in graph.inputs
        if one.name not in numbers
    )
    return Network(replace(graph, inputs=inputs, constants=constants), net.title)


def _own(name: str, axis: int, size: int | str) -> int | str:
    return f"{name} {axis}" if isinstance(size, str) else size


class _Running:
    """A bound network, and the state that it was left in."""

    def __init__(self, stage: NetMatte, look: Look, turned: Look) -> None:
        self._turned, self._careful = turned, stage.careful
        self._begins = frozenset(stage.begins)
        self._net = shaped(stage.network(), *_seen_as(look), stage.label)
        self._picture = next(iter(self._net.sizes))
        device = device_of(stage.device, self._net.net.graph)
        if device.backend == "host" and not self._net.states:
            device = replace(device, compute_units=1)
        self._bound = self._net.net.bind(self._net.sizes, device=device)
        self._run: list[int] = []  # time stamps that the state has seen
        self._states: dict[str, NDArray] = {}
        self._alpha: NDArray | None = None

    def __call__(self, window: Window) -> Iterable[Frame]:
        frames = self._past(window)
        stamps = [one.pts for one in frames]
        if not self._run or self._run != stamps[:-1]:
            self._states = {
                name: np.zeros(self._net.sizes[name], np.float32) for name, _ in self._net.states
            }
            self._run = []
        for frame in frames[len(self._run) :]:
            self._step(frame)
        self._run = stamps
        return (self._given(window.frame),)

    def _past(self, window: Window) -> list[Frame]:
        """The pictures that the state of a window's picture has seen, and that picture."""
        if not self._net.states:
            return [window.frame]
        frames = [*window.before, window.frame]
        begun = [n for n, one in enumerate(frames) if one.pts in self._begins]
        return frames[max(0, begun[-1] - RUN_UP) :] if begun else frames

    def _step(self, frame: Frame) -> None:
        inputs = {self._picture: _red_green_blue(frame, self._net.sizes[self._picture])}
        made = self._bound(**{**inputs, **self._states})
        several = made if isinstance(made, tuple) else (made,)
        self._alpha = self._checked(several[self._net.alpha][0, 0], frame)
        names = list(self._net.net.outputs)
        # What is no number would stay in a state, and all pictures after it be unknown too.
        self._states = {
            name: np.nan_to_num(several[names.index(back)], nan=0.0, posinf=0.0, neginf=0.0)
            for name, back in self._net.states
        }

    def _checked(self, given: NDArray, frame: Frame) -> NDArray | None:
        """Opacity of 0 to 1; None where it is not known. Raises ArgumentError for what is none."""
        least, most = float(given.min()), float(given.max())
        if not np.isfinite((least, most)).all():
            if self._careful:
                return None
            wrong = "numbers that are not finite"
        elif least >= -_BEYOND and most <= 1 + _BEYOND:
            return np.asarray(given.clip(0, 1), np.float32)
        else:
            wrong = f"{least:.3g} to {most:.3g}"
        raise ArgumentError(
            f"matte-model: its opacity at {float(frame.time):.2f} s is {wrong}; accepted is a"
            " network that gives 0 to 1"
        )

    def _given(self, frame: Frame) -> Frame:
        """A picture with opacity as large as it is."""
        if self._alpha is None:
            every = np.ones(self._turned.shapes[0], np.float32)
            return grown(with_alpha(frame, self._turned, every), 1.0)
        seen = mattes.halves(frame)
        half = np.ascontiguousarray(_resized(self._alpha, seen.colours.shape[1:]))
        run, guide = kernels_of("mattes"), seen.colours[0] / np.float32(255)
        slope, shift = np.empty_like(half), np.empty_like(half)
        run.slopes(guide, half, _RADIUS, np.float32(_EPS), slope, shift)
        alpha = np.empty_like(seen.luma)
        run.applied(slope, shift, seen.luma / np.float32(255), np.ones_like(half), alpha)
        if not self._careful:
            return with_alpha(frame, self._turned, alpha)
        weak = (half > _SURE[0]).astype(np.float32)
        whole = np.empty_like(alpha)
        kernels_of("layers").spread(weak, whole)
        made = with_alpha(frame, self._turned, np.maximum(alpha, whole))
        more = float(weak.mean() - (half > _SURE[1]).mean())
        return grown(made, more)


def _red_green_blue(frame: Frame, size: tuple[int, ...]) -> NDArray:
    """A picture as networks take it: float32 [1, 3, rows, columns], 0 to 1."""
    matrix, span = frame.look.coding
    made = carried(frame, frame.look).reformat(
        size[3], size[2], "rgb24", src_colorspace=matrix, src_color_range=span,
        interpolation="AREA",
    )  # fmt: skip
    found: NDArray = made.to_ndarray().transpose(2, 0, 1)[None].astype(np.float32) / 255
    return np.ascontiguousarray(found)


def _resized(values: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Values at places between, by distance; the edges' repeated."""
    found = values
    for axis in (0, 1):
        place = (np.arange(shape[axis]) + 0.5) * (found.shape[axis] / shape[axis]) - 0.5
        place = place.clip(0, found.shape[axis] - 1)
        low = np.floor(place).astype(int)
        high = np.minimum(low + 1, found.shape[axis] - 1)
        part = (place - low).astype(np.float32)
        part = part[:, None] if axis == 0 else part
        found = np.take(found, low, axis) * (1 - part) + np.take(found, high, axis) * part
    return found
