"""Small fp32 tiles by a warp each, in CUDA C++ (grouped_warps.cu): what runs, and how it is launched."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.machine.placing import At, Launch, Step, in_order
from tilewright.backends.cuda.tile_seconds import TileShape
from tilewright.backends.cuda.tiled.layouts import Group
from tilewright.backends.cuda.work import Ints, Work
from tilewright.facts.problem import ACTIVATIONS

CODES = {(16, 16): 0, (32, 16): 1, (16, 32): 2, (32, 32): 3, (64, 16): 4, (64, 8): 5, (32, 8): 6}
CODE = 3  # layouts.codes of rows that lie element by element, loads of one
_END = 48  # bytes at most of what only the end of a tile needs


@dataclass(frozen=True, slots=True)
class Tuning:
    """Warps a block, warps on a multiprocessor, steps on their way; k from which a block shares."""

    warps: int = 4
    resident: int = 48
    stages: int = 2
    mixed: int = 0
    ahead: int = 2
    depth: int = 16
    share: int = 1 << 30
    carveout: int = -1
    tiles: int = 1


TUNING: dict[tuple[int, int] | str, Tuning] = {}


def tuning(shape: TileShape) -> Tuning:
    return TUNING.get((shape.m, shape.n), TUNING.get("all", Tuning()))


def is_warp(shape: TileShape) -> bool:
    return shape.cuda and (shape.m, shape.n) in CODES


def joined(shapes: tuple[TileShape, ...]) -> Ints:
    """The shape that stands for each in launches: those that a launch takes together are one."""
    own = np.arange(len(shapes))
    for number, shape in enumerate(shapes):
        if is_warp(shape) and tuning(shape).mixed:
            others = [
                x for x, one in enumerate(shapes)
                if is_warp(one) and tuning(one).mixed == tuning(shape).mixed
            ]
            own[number] = others[0]
    return own


def ordered(
    entry: npt.NDArray[np.int32], depth: Ints, group: Group, shape: TileShape
) -> Group:
    """Tiles of a long k first, of which each has a block."""
    mine = slice(group.first, group.first + group.count)
    is_long = depth[mine] >= tuning(shape).share
    count = int(np.count_nonzero(is_long))
    if count:
        order = np.argsort(~is_long, kind="stable")
        entry[mine] = entry[mine][order]
        depth[mine] = depth[mine][order]
    return replace(group, shared=count)


def product(
    work: Work, shape: TileShape, group: Group, table_at: int, tiles_at: int, *, plain: bool
) -> Launch:
    general = not (plain or group.parts)
    tune = tuning(shape)
    most = {0: [(shape.m, shape.n)], 1: [(32, 16), (16, 32)], 2: [(32, 32)], 4: [(32, 16), (16, 32)]}
    sides = most.get(tune.mixed, [(32, 32), (64, 16)])
    given = macros(shape, near=group.near, general=general, activation=work.activation)
    shared = tune.warps * (_END + max(each(*side, tune) for side in sides))
    kernel = nvrtc.function("grouped_warps", given, work.ordinal, shared=shared)
    if tune.carveout >= 0:
        from cuda.bindings import driver

        name = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        nvrtc.check(driver.cuFuncSetAttribute(kernel.handle, name, tune.carveout), "carveout")
    blocks = group.shared + -(-(group.count - group.shared) // (tune.warps * tune.tiles))
    counts = (ctypes.c_int(group.count), ctypes.c_int(group.shared))
    values = (At(table_at), At(tiles_at + 16 * group.first), *counts)
    return in_order([Step(kernel, blocks, 32 * tune.warps, values)])


def macros(
    shape: TileShape, *, near: bool, general: bool, activation: str = "none"
) -> tuple[tuple[str, int], ...]:
    """What is compiled in."""
    tune = tuning(shape)
    rows, columns = (shape.m, shape.n) if not tune.mixed else (16, 16)
    return (
        ("GENERAL", int(general)),
        ("ACTIVATION", ACTIVATIONS.index(activation) if general else 0),
        ("NEAR", int(near)),
        ("WARPS", tune.warps),
        ("RESIDENT", tune.resident),
        ("STAGES", tune.stages),
        ("DEPTH", tune.depth),
        ("AHEAD", tune.ahead),
        ("MIXED", tune.mixed),
        ("TILES", tune.tiles),
        ("CARVEOUT", tune.carveout),
        ("ROWS", rows),
        ("COLUMNS", columns),
    )


def each(m: int, n: int, tune: Tuning) -> int:
    """Bytes of shared memory of a warp."""
    stage = tune.depth * (m + 2) * 4 + tune.depth * n * 4
    return max(tune.stages * stage, m * (20 if n == 8 else n + 8) * 4)
