"""What stages share that find somebody's opacity, and those that use it.

    PlateMatte, KeyMatte, NetMatte, MaskMatte    pictures -> the same with a plane of opacity
    Blur, Background, Alpha                      such pictures -> pictures without one

The former see a picture by itself (a network those before it), the latter the pictures beside it
too, and hold opacity still over them. So a matte is worked out once a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.video.look import Frame, Look
from tilewright.video.mattes import Found
from tilewright.video.planes import blank, flat, kernels_of
from tilewright.video.pyav import pyav
from tilewright.video.stages.contract import Window, check_luma
from tilewright.video.tables import LIGHT, span

_STILL = 2.5  # codes of 255 of luma: further apart are two moments


def opaque(name: str, look: Look) -> Look:
    """A look with opacity. Raises ArgumentError for pictures that are not taken."""
    check_luma(name, look)
    if look.alpha:
        raise ArgumentError(
            f"{name}: pictures have opacity already ({look.format}); accepted are those without"
        )
    named = look.format.replace("yuv", "yuva", 1)
    try:
        pyav().video.format.VideoFormat(named)
    except ValueError:
        named = look.format  # no such format there; it goes no further than the next stage
    return replace(look, format=named, alpha=True)


def plain(name: str, look: Look) -> Look:
    """A look whose opacity is used up. Raises ArgumentError where there is none."""
    if not look.alpha or look.kind not in ("yuv", "grey"):
        raise ArgumentError(
            f"{name}: pictures have no opacity ({look.format}); accepted is a stage before it that"
            " finds it, as video.PlateMatte()"
        )
    return replace(look, format=look.format.replace("yuva", "yuv", 1), alpha=False)


def with_alpha(
    frame: Frame, look: Look, alpha: NDArray, colours: Sequence[NDArray] | None = None
) -> Frame:
    """A picture with opacity, float32 of 0 to 1, and other colours where some are given.

    What is no number is opaque, so that whom a blur is to hide stays hidden.
    """
    most = np.float32((1 << look.bits) - 1)
    plane = np.rint(np.fmax(np.fmin(alpha * most, most), 0)).astype(look.dtype)
    return replace(frame, planes=(*(colours or frame.planes), plane), look=look)


def cleaned(frame: Frame, found: Found) -> tuple[NDArray, ...]:
    """A picture's planes, rims in the person's colours alone."""
    run, look, made = kernels_of("layers").cleaned, frame.look, []
    black, wide = span(look)
    light = (np.float32(black), np.float32(wide / LIGHT))
    deep = (np.float32(0), np.float32(1 << (look.bits - 8)))
    for number, plane in enumerate(frame.planes):
        out = np.empty(plane.shape, plane.dtype)
        down, across = steps(look, number)
        behind = found.plate.luma if number == 0 else found.plate.colours[number]
        run(
            *flat(plane), *plane.shape, down, across, found.alpha, behind, found.own[number],
            found.there, light if number == 0 else deep, out.reshape(-1), plane.shape[1],
        )  # fmt: skip
        made.append(out)
    return tuple(made)


def steps(look: Look, plane: int) -> tuple[int, int]:
    """How many samples of the whole picture one of a plane is: down, across."""
    across, down = look.halved if plane in (1, 2) else (0, 0)
    return 1 << down, 1 << across


def steady(window: Window) -> NDArray:
    """Opacity of a window's picture, float32 of 0 to 1, held still by the two beside it."""
    frame = window.frame
    before = window.before[-1] if window.before else frame
    after = window.after[0] if window.after else frame
    three = (before, frame, after)
    alphas = [flat(one.planes[-1]) for one in three]
    lumas = [flat(one.planes[0]) for one in three]
    most = (1 << frame.look.bits) - 1
    out = np.empty(frame.planes[0].shape, np.float32)
    kernels_of("layers").steady(
        tuple(one for one, _ in alphas), tuple(one for one, _ in lumas),
        tuple(pitch for _, pitch in (*alphas, *lumas)), *out.shape, np.float32(1 / most),
        np.float32(_STILL * most / LIGHT), out,
    )  # fmt: skip
    return out


def laid(
    frame: Frame, look: Look, alpha: NDArray, under: Sequence[NDArray], *, above: bool
) -> Frame:
    """A picture over other planes, or those over it: `above` says which has the opacity."""
    run, out = kernels_of("layers").laid, blank(frame, look)
    for number, (to, other) in enumerate(zip(out.planes, under, strict=True)):
        into: Any = flat(to)
        first, second = frame.planes[number], other
        if not above:
            first, second = second, first
        run(*flat(first), *flat(second), *to.shape, *steps(look, number), alpha, *into)
    return out


def softened(frame: Frame, alpha: NDArray, high: float, *, aside: bool) -> list[NDArray]:
    """A picture's planes blurred; `high` is the share of the height that a blur reaches about.

    aside: whether what is opaque is left out of it, so that it throws no halo.
    """
    run, made = kernels_of("layers").softened, []
    for number, plane in enumerate(frame.planes[:-1]):
        out = np.empty(plane.shape, plane.dtype)
        step = max(1, round(plane.shape[0] * high / 4))
        run(
            *flat(plane), *plane.shape, *steps(frame.look, number), alpha, aside, step, 2,
            out.reshape(-1), plane.shape[1],
        )  # fmt: skip
        made.append(out)
    return made
