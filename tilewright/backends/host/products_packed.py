"""`tiles` where B is not known before the run: it is packed in each run, then multiplied by tiles.

    B [..., k, n], however it lies  --one copy of all whole blocks, one of the rest-->  panels
    A [..., m, k], rows dense       --a step of 1 x 1 convolutions for each matrix-->   C

All are steps of one program. NumPy's BLAS for the same has threads of its own: between steps of
ours they took 2.5 ms for products of 0.1, as those who waited busily had the cores.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.backends.host.conv_bind import Layout, described
from tilewright.backends.host.program import Program, joined
from tilewright.backends.host.values import SCRATCH, ElementsEngine
from tilewright.engines.conv import Activation, ConvOperands, ConvWork
from tilewright.engines.product import ProductOperands, ProductWork
from tilewright.engines.values import Elements, ValueOperands

MOST = 256  # matrices, each of which is a step
_WIDEST = 32  # columns of a panel at most: how many, the tile says, by the processor's registers
_ROWS = 14  # of a tile
_LEADING = 3  # leading dimensions that a copy counts beside its own three
_COPIED, _STEP = 1.0e9, 1e-6  # numbers a second of a core that are packed; seconds of a step


def why_not(work: ProductWork) -> str | None:
    """Rows of A must be dense, and C without gaps."""
    if work.sizes[0] < _ROWS:
        return f"B is not known before the run: fewer than {_ROWS} rows do not pay for packing it"
    if products(work) > MOST or sum(size > 1 for size in work.c.sizes[:-2]) > _LEADING:
        return f"B is not known before the run: takes up to {MOST} such products, {_LEADING} axes"
    if work.a.steps[-1] != 1 or not work.c.is_whole:
        return "wants dense rows of A and C"
    return None


def products(work: ProductWork) -> int:
    """How many there are, those by one B and of rows that follow each other being one."""
    return 1 if work.b.is_one and work.a.is_whole else work.count


def seconds(work: ProductWork, cores: int, each: float) -> float:
    """Of all, where one takes `each`."""
    packing = packed_bytes(work) / 4 / _COPIED / cores
    return packing + products(work) * (each + _STEP)


def packed_bytes(work: ProductWork) -> int:
    """Of the panels of all different matrices B, at most."""
    _, n, k = work.sizes
    return 4 * _matrices(work) * k * math.ceil(n / _WIDEST) * _WIDEST


def bound(
    work: ProductWork,
    conv: ConvWork,
    layout: Layout,
    operands: ProductOperands,
    cores: int,
    took: float,
) -> Program:
    """The program of all steps; `conv` is one product as a convolution, `took` predicted."""
    _, n, k = work.sizes
    tile = compiled.kernels("conv_tile")
    blocks, count = math.ceil(n / tile.WIDTH), _matrices(work)
    room = np.zeros(packed_bytes(work) // 4 + 16, np.float32)
    panels = room[-room.ctypes.data % 64 // 4 :][: count * blocks * k * tile.WIDTH]
    panels = panels.reshape(count, blocks, k * tile.WIDTH)
    a, b, out = operands.a, operands.b, operands.out
    if products(work) == 1:
        a, out = a.reshape(1, -1, k), out.reshape(1, -1, n)
    if count == 1:
        b = b[(0,) * (b.ndim - 2)]
    pairs = packing(b, panels, tile.WIDTH, tile.LANES)
    programs = [_copy(*pair, work.alpha, cores) for pair in pairs]
    first, keep = described(conv, layout, _pictures(conv, out.reshape(-1, *out.shape[-2:])[0]))
    share = took / products(work)
    for index, place in enumerate(np.ndindex(*out.shape[:-2])):
        step = first.copy()
        step["x"], step["out"] = a[place].ctypes.data, out[place].ctypes.data
        step["x_pixel"] = step["pixel"] = a.strides[-2]
        step["x_row"] = step["line"] = a.strides[-2] * conv.width
        step["weights"] = panels[index % count].ctypes.data
        held = [operands, a, panels, *keep]
        programs.append(Program(step.reshape(1), layout.scratch, cores, share, held))
    return joined(programs)


def _matrices(work: ProductWork) -> int:
    return 1 if work.b.is_one else work.count


def _pictures(conv: ConvWork, out: NDArray) -> ConvOperands:
    """One product's rows as pixels; where A lies is set behind it."""
    channels = conv.layers[0].inputs
    nothing = np.broadcast_to(np.float32(0), (1, channels, conv.height, conv.width))
    rows = out.reshape(1, conv.height, conv.width, out.shape[-1])
    return ConvOperands(nothing, rows.transpose(0, 3, 1, 2))


def packing(b: NDArray, panels: NDArray, width: int, lanes: int) -> list[tuple[NDArray, NDArray]]:
    """Every B [..., k, n] and where it goes: whole blocks, then the columns that are left.

    As conv_constants.weights lays out, panels [matrices, blocks, k * width] have `width` columns,
    and the last one `lanes` where no more are left.
    """
    *lead, k, n = b.shape
    full, rest = divmod(n, width)
    panels = panels.reshape(*lead, *panels.shape[1:])
    pairs = []
    if full:
        steps = (*b.strides[:-2], width * b.strides[-1], *b.strides[-2:])
        cut = np.lib.stride_tricks.as_strided(b, (*lead, full, k, width), steps)
        pairs.append((cut, _split(panels[..., :full, :], k, width)))
    if rest:
        wide = lanes if rest <= lanes else width
        last = _split(panels[..., full, : k * wide], k, wide)
        pairs.append((b[..., full * width :], last[..., :rest]))
    return pairs


def _split(array: NDArray, k: int, wide: int) -> NDArray:
    """The last axis as two: never a copy."""
    view = array.reshape(*array.shape[:-1], k, wide)
    assert np.may_share_memory(view, array)
    return view


def _copy(source: NDArray, to: NDArray, alpha: float, cores: int) -> Program:
    """One copy, times alpha."""
    factor = None if alpha == 1 else np.broadcast_to(np.float32(alpha), to.shape)
    work = Elements(
        "none" if factor is None else "multiply",
        Activation(),
        lambda sources, out: [(source, factor, out)],
        to.size,
    )
    ((step, keep),) = ElementsEngine().steps(work, ValueOperands((source,), to), cores)
    held = [source, to, *keep] + ([] if factor is None else [factor])
    return Program(step.reshape(1), SCRATCH, cores, to.size / _COPIED / cores, held)
