"""Motion between two pictures on a GPU: both go up, `kernels/film` runs, what is made comes back.

    given      planes of both -> pinned memory -> GPU: taken, halved, repeated
    repeats    waits for one number
    found      tried, searched, spread a size; trusted; stroked, widened, counted, softened
    between    cleared, thrown, landed, gathered, little, settled; warped, mixed a plane -> planes

Everything stays on the device in between, in memory that `Plan` lays out once; launches keep their
arguments, of which only the time between the two pictures changes. One thread at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.cuda.film.plan import Plan
from tilewright.backends.cuda.machine import nvrtc
from tilewright.planning.film import CELL, bordered

_THREADS = 256
_WARP = 32
_BUSY = 1024  # threads of the one block that does all small sizes
_WHITE = 255.0  # light of the largest sample
_INT, _FLOAT = ctypes.c_int, ctypes.c_float
_FILES = {
    "film_pictures": ("taken", "halved", "repeated"),
    "film_search": ("tried", "searched", "spread"),
    "film_trust": ("trusted", "stroked", "widened", "counted", "softened"),
    "film_between": (
        *("cleared", "thrown", "landed", "gathered", "settled", "little", "warped", "mixed"),
    ),
}
Call = tuple[nvrtc.Function, nvrtc.Blocks, int, nvrtc.Arguments]


class _Mask(ctypes.Structure):
    """`struct Mask` of kernels/film/film_between.cu."""

    _fields_ = [
        ("at", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("high", "wide", "down", "across")),
    ]


class FilmMotion:
    """Memory and launches for pictures of one plan on one GPU."""

    def __init__(self, plan: Plan, ordinal: int, same: float, unsure: float) -> None:
        """`same` and `unsure`: mean difference that is none, deviation from which on is doubt."""
        import torch

        self._torch, self._plan, self._ordinal = torch, plan, ordinal
        self._same, self._limit = same, unsure
        defines = (("BYTES", plan.bytes_each),)
        self._kernels = {
            name: nvrtc.function(f"{source}:{name}", defines, ordinal)
            for source, names in _FILES.items()
            for name in names
        }
        kind = np.uint8 if plan.bytes_each == 1 else np.uint16
        device = torch.device("cuda", ordinal)
        with torch.cuda.device(ordinal):
            self._stream = torch.cuda.Stream(ordinal)
            with torch.cuda.stream(self._stream):
                self._memory = torch.zeros(plan.offsets["end"], dtype=torch.uint8, device=device)
            self._up = self._pinned(2 * plan.bytes_each * plan.starts[-1])
            self._down = self._pinned(plan.offsets["end"] - plan.offsets["unsure"])
            self._differ = self._pinned(4)
        self._given = self._up.numpy().view(kind).reshape(2, -1)
        self._made = self._down.numpy()[8:].view(kind)
        self._share = _FLOAT(0.0)
        self._taking = nvrtc.launcher(*self._pictures())
        self._finding = nvrtc.launcher(*self._search(), *self._trust())
        self._making = nvrtc.launcher(*self._through(), *self._mix())

    def _pinned(self, size: int) -> Any:
        return self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True)

    def given(self, first: Sequence[NDArray], second: Sequence[NDArray]) -> None:
        """Look at two pictures' planes; `between` then makes those between them."""
        self._stream.synchronize()  # what was given before has been read
        starts = self._plan.starts
        for planes, into in zip((first, second), self._given, strict=True):
            for plane, begin, end in zip(planes, starts, starts[1:], strict=False):
                np.copyto(into[begin:end].reshape(plane.shape), plane)
        self._copied(self._memory[: len(self._up)], self._up)
        self._run(self._taking)
        at = self._plan.offsets["differ"]
        self._copied(self._differ, self._memory[at : at + 4])

    def repeats(self) -> bool:
        """Whether the two are the same, but for what coding left."""
        self._stream.synchronize()
        return bool(self._differ.numpy().view(np.float32)[0] < self._same * self._plan.alike)

    def found(self) -> None:
        """Find motion between the two, both ways, and what stands still."""
        self._run(self._finding)

    def between(self, share: float, out: Sequence[NDArray]) -> float:
        """Write planes of the picture at a share of the time, 0 to 1; how much of it is unsure."""
        self._share.value = share
        self._run(self._making)
        self._copied(self._down, self._memory[self._plan.offsets["unsure"] :])
        self._stream.synchronize()
        starts = self._plan.starts
        for plane, begin, end in zip(out, starts, starts[1:], strict=False):
            np.copyto(plane, self._made[begin:end].reshape(plane.shape))
        return int(self._down.numpy()[:8].view(np.int64)[0]) / prod(self._plan.cells)

    def _copied(self, to: Any, source: Any) -> None:
        with self._torch.cuda.stream(self._stream):
            to.copy_(source, non_blocking=True)

    def _run(self, launch: Callable[[int], None]) -> None:
        with self._torch.cuda.device(self._ordinal):
            launch(self._stream.cuda_stream)

    def _call(self, name: str, blocks: nvrtc.Blocks, threads: int, *values: Any) -> Call:
        """A launch; whole numbers are int, others float, and ctypes values what they are."""
        kinds = {int: _INT, float: _FLOAT}
        made = [kinds[type(v)](v) if type(v) in kinds else v for v in values]
        return self._kernels[name], blocks, threads, nvrtc.Arguments(made)

    def _at(self, name: str, further: int = 0) -> ctypes.c_void_p:
        begin = int(self._memory.data_ptr())
        return ctypes.c_void_p(begin + self._plan.offsets[name] + further)

    def _pictures(self) -> list[Call]:
        plan, calls = self._plan, []
        scale = _WHITE / ((1 << plan.bits) - 1)
        apart = ctypes.c_longlong(plan.starts[-1])
        for (name, shape), start in zip(plan.images, plan.starts, strict=False):
            begin = self._at("samples", plan.bytes_each * start)
            into = (self._at(name), self._at("differ"))
            blocks = (_blocks(bordered(shape)), 2)
            calls.append(self._call("taken", blocks, _THREADS, begin, apart, *shape, scale, *into))
        for n, (larger, size) in enumerate(zip(plan.sizes, plan.sizes[1:], strict=False)):
            where = (self._at(f"size {n}"), *larger, self._at(f"size {n + 1}"))
            blocks = (_blocks(bordered(size)), 2)
            calls.append(self._call("halved", blocks, _THREADS, *where, *size))
        rows, columns = plan.sizes[0]
        cells = rows // min(CELL, rows) * (columns // min(CELL, columns))
        where = (self._at("size 0"), rows, columns, self._at("differ"))
        calls.append(self._call("repeated", _blocks(cells * _WARP), _THREADS, *where))
        return calls

    def _search(self) -> list[Call]:
        plan, calls = self._plan, []
        coarse = ctypes.c_void_p(None)
        for n in plan.searched:
            image, field = (self._at(f"size {n}"), *plan.sizes[n]), self._at(f"field {n}")
            high, wide = patches = plan.patches(n)
            kept, found, begun = self._at("tried"), self._at("found"), self._at("begun")
            given = (*image, coarse, *patches, kept, found, begun)
            samples = (_blocks(prod(plan.sizes[n])), 2)
            calls += [
                self._call("tried", (_blocks(high * wide * _WARP), 2), _THREADS, *given),
                self._call("searched", 2 * high, _WARP, *given),
                self._call("spread", samples, _THREADS, *image, found, *patches, field),
            ]
            coarse = field
        return calls

    def _trust(self) -> list[Call]:
        plan, calls = self._plan, []
        if plan.finest in plan.searched:
            image, field = self._at(f"size {plan.finest}"), self._at(f"field {plan.finest}")
            given = (image, *plan.place, field, self._at("trust"))
            calls.append(self._call("trusted", (_blocks(prod(plan.place)), 2), _THREADS, *given))
        luma, blocks = (self._at("size 0"), *plan.sizes[0]), _blocks(prod(plan.sizes[0]))
        strokes, left, counts = self._at("strokes"), self._at("left"), self._at("counts")
        return [
            *calls,
            self._call("stroked", blocks, _THREADS, *luma, strokes),
            self._call("widened", blocks, _THREADS, *luma, strokes, left),
            self._call("counted", prod(plan.cells), CELL * CELL, left, *plan.sizes[0], counts),
            self._call("softened", blocks, _THREADS, *luma, left, counts, self._at("mask")),
        ]

    def _through(self) -> list[Call]:
        """Motion through every place at a share of the time."""
        plan, place = self._plan, self._plan.place
        landing, sums = self._at("landing"), plan.sums
        begins = [sum(map(prod, sums[:n])) for n in range(len(sums))]
        at = [self._at("sums", 12 * begin) for begin in begins]
        through = [self._at("through", 8 * begin) for begin in begins]
        given = (self._at(f"field {plan.finest}"), self._at("trust"), *place, self._share)
        calls = [
            self._call(
                "cleared", _blocks(3 * prod(place) + 1), _THREADS, landing, 3 * prod(place) + 1
            ),
            self._call("thrown", (_blocks(prod(place)), 2), _THREADS, *given, landing),
            self._call(
                "landed", _blocks(3 * prod(place)), _THREADS, landing, 3 * prod(place), at[0]
            ),
        ]
        single = plan.single
        for n in range(single):
            blocks = _blocks(prod(sums[n + 1]))
            calls.append(self._call("gathered", blocks, _THREADS, at[n], *sums[n], at[n + 1]))
        calls.append(self._call("little", 1, _BUSY, at[single], through[single], *sums[single]))
        for n in reversed(range(single)):
            under = (at[n], *sums[n], through[n + 1], through[n])
            calls.append(self._call("settled", _blocks(prod(sums[n])), _THREADS, *under))
        return calls

    def _mix(self) -> list[Call]:
        plan, calls, luma = self._plan, [], self._plan.sizes[0]
        most = float((1 << plan.bits) - 1)
        cells, count = self._at("cells"), self._at("unsure")
        for (name, shape), start in zip(plan.images, plan.starts, strict=False):
            steps = plan.steps(shape)
            ratio = [step / (1 << plan.finest) for step in steps]
            mask = _Mask(self._at("mask").value, *luma, *steps)
            image, moved = (self._at(name), *shape), self._at("moved")
            four = -(-prod(-(-length // CELL) for length in shape) // 4)  # cells a block
            rates = (*plan.cells, *(step / CELL for step in steps), most / _WHITE, most)
            where = (*image, self._at("through"), *plan.place, *ratio, self._share, mask, moved)
            unsure = cells if start == 0 else ctypes.c_void_p(None)
            out = self._at("out", plan.bytes_each * start)
            given = (*image, moved, self._share, cells, *rates, out)
            calls += [
                self._call("warped", four, _THREADS, *where, self._limit, unsure, count),
                self._call("mixed", _blocks(prod(shape)), _THREADS, *given),
            ]
        return calls


def _blocks(threads: int) -> int:
    return -(-threads // _THREADS)
