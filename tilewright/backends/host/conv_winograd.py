"""`winograd`: single 3x3 convolutions of wide layers, all tiles of the picture in each product.

F(4x4, 3x3) takes 2.25 multiplications for a result and an input channel where plain sums take 9,
but reads 36 numbers of weights for 9; F(2x2, 3x3) takes 4 and reads 16. Of small pictures the
weights' bytes decide: they come from memory in every run of a network, 15 GB/s a core of a Xeon.
`exact` work gets F(2x2, 3x3) alone. Infinities and NaN stay in their windows: such tiles are done
plainly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled, conv_pack, rates, refusals
from tilewright.backends.host import packed as store
from tilewright.backends.host.conv_bind import activation_of, pictures_of
from tilewright.backends.host.conv_constants import of_channels
from tilewright.backends.host.kernels.step_table import STEP
from tilewright.backends.host.program import GATHER, SPREAD, Program
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

_PRODUCTS = 7.0e10  # multiply-adds a second on the core that `rates` counts in
_READ = 1.5e10  # bytes of weights that a core reads from the last cache, or memory, a second
_KEPT = 1.2e6  # bytes of planes that stay in a core's cache while its products read them
_SPREAD, _GATHER = 3e-9, 2.5e-9  # seconds a plane of sixteen channels of a tile, there and back
_START = 1.5e-5  # seconds until a program runs on all cores
_LANES = 16


@dataclass(frozen=True, slots=True)
class Tiled:
    """How a work is cut: tiles of `tile` x `tile` results, `group` of them side by side.

    parts    tasks that a row of tiles is cut into, of `blocks` blocks of inputs each
    shares   tasks that a pair of blocks of outputs is cut into, of `groups` groups each
    """

    work: ConvWork
    tile: int
    group: int
    down: int
    across: int
    parts: int
    blocks: int
    shares: int
    groups: int
    planes: int
    scratch: int


class Winograd:
    """3x3 at stride 1 without groups, channels last."""

    name = "winograd"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """What the kernels do not take."""
        if not compiled.available():
            return compiled.why_none()
        if (why := refusals.but_one_of_floats(work)) is not None:
            return why
        layer = work.layers[0]
        for name, given, taken in (
            ("kernel", layer.kernel, (3, 3)),
            ("strides", layer.strides, (1, 1)),
            ("dilations", layer.dilations, (1, 1)),
            ("groups", layer.groups, 1),
            ("shuffle", layer.shuffle, 1),
        ):
            if given != taken:
                return f"{name}={given}: it takes {taken}"
        if min(layer.inputs, layer.outputs) < _LANES:
            return f"{layer.inputs} -> {layer.outputs} channels: wants {_LANES} and more"
        if "channels_first" in (work.source, work.result):
            return "wants pictures channels last"
        return None

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """F(4x4, 3x3) or F(2x2, 3x3), whichever is done first."""
        cores, found = device.compute_units, rates.of(device)
        options = [_tiled(work, tile, cores) for tile in ((2,) if work.exact else (4, 2))]
        best = min(options, key=lambda one: _seconds(one, cores, found.factor))
        return Proposal(
            self.name,
            device,
            _START + _seconds(best, cores, found.factor),
            f"F({best.tile}x{best.tile}, 3x3), {best.down * best.across * work.images} tiles,"
            f" {found.origin}",
            scratch=best.planes + cores * best.scratch,
            decisions=best,
        )

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Program:
        """Weights transformed, everything by address; float32 arrays channels last."""
        tiled: Tiled = proposal.decisions
        layer = tiled.work.layers[0]
        kernels = compiled.kernels("conv_winograd")
        spread = np.zeros(1, STEP)[0]
        pictures_of(spread, tiled.work, layer, operands)
        spread["top"], spread["left"] = layer.pads[:2]
        spread["inputs"], spread["tile"], spread["across"] = layer.inputs, tiled.tile, tiled.across
        spread["bands"], spread["tiles"] = tiled.down, tiled.work.images * tiled.down * tiled.across
        gather = spread.copy()
        spread["kind"], spread["parts"], spread["block_step"] = SPREAD, tiled.parts, tiled.blocks
        spread["tasks"] = tiled.work.images * tiled.down * tiled.parts
        keep = [operands, *_constants(gather, layer, tiled.tile, kernels.PAIR)]
        gather["kind"], gather["parts"], gather["block_step"] = GATHER, tiled.shares, tiled.groups
        gather["tasks"] = math.ceil(int(gather["blocks"]) / kernels.PAIR) * tiled.shares
        if layer.adds:
            gather["residual"] = operands.residuals[0].ctypes.data - operands.out.ctypes.data
        steps = np.array([spread, gather], STEP)
        cores, seconds = proposal.device.compute_units, proposal.seconds or 0.0
        return Program(steps, tiled.scratch, cores, seconds, keep, tiled.planes)


def _tiled(work: ConvWork, tile: int, cores: int) -> Tiled:
    """The cuts of a work, a few tasks for each core."""
    product = compiled.kernels("conv_product")
    layer, group = work.layers[0], product.GROUP
    rows, columns = layer.sums(work.height, work.width)
    down, across = math.ceil(rows / tile), math.ceil(columns / tile)
    planes = (tile + 2) ** 2
    inputs = math.ceil(layer.inputs / _LANES)
    pairs = math.ceil(math.ceil(layer.outputs / _LANES) / max(product.ROWS))
    groups = math.ceil(work.images * down * across / group)
    blocks = max(1, min(inputs, inputs * work.images * down // (8 * cores)))
    shares = max(1, min(groups, math.ceil(2 * cores / pairs)))
    each = math.ceil(groups / shares)
    room = (2 * group + 1) * planes + group * tile * tile
    lines = (tile + 2) * (across * tile + 2)
    return Tiled(
        work=work,
        tile=tile,
        group=group,
        down=down,
        across=across,
        parts=math.ceil(inputs / blocks),
        blocks=blocks,
        shares=math.ceil(groups / each),
        groups=each,
        planes=groups * inputs * planes * (group + 1) * 4 * _LANES,
        scratch=64 + 4 * _LANES * max(room, lines),
    )


def _seconds(tiled: Tiled, cores: int, scale: float) -> float:
    """Both steps: products as the tiles fill them or their weights read, and the transforms."""
    layer = tiled.work.layers[0]
    tiles = tiled.work.images * tiled.down * tiled.across
    planes = (tiled.tile + 2) ** 2
    inputs, outputs = math.ceil(layer.inputs / 4) * 4, math.ceil(layer.outputs / 32) * 32
    products = planes * _filled(tiles, tiled.group) * inputs * outputs / _PRODUCTS
    reading = 4.0 * planes * inputs * outputs * tiled.shares / _READ
    if tiled.planes > _KEPT:
        reading += tiled.planes * math.ceil(outputs / 32) / _READ
    around = tiles * planes / _LANES * (inputs * _SPREAD + outputs * _GATHER)
    return (products * scale + reading + around) / cores


def _filled(tiles: int, group: int) -> int:
    """Rows that the products of so many tiles compute: the least shapes that hold them."""
    shapes: list[int] = sorted(max(compiled.kernels("conv_product").ROWS.items())[1])
    most = shapes[-1]

    def rows(count: int) -> int:
        rest = next(shape for shape in shapes if shape >= count % most) if count % most else 0
        return count // most * most + rest

    return tiles // group * rows(group) + rows(tiles % group)


def _constants(step: np.void, layer: Conv, tile: int, pair: int) -> list[NDArray]:
    """Weights, biases, bounds; returns the arrays, which the step knows by address."""
    weights: NDArray = np.ascontiguousarray(layer.weights, np.float32)
    main = store.packed(
        ("winograd", tile, pair, False),
        weights,
        lambda: conv_pack.winograd(weights, tile, pair, folded=False),
    )
    bias = np.zeros(layer.outputs, np.float32) if layer.bias is None else layer.bias
    biases = of_channels(bias, _LANES)
    step["weights"], step["pieces"] = main.ctypes.data, weights.ctypes.data
    step["bias"], step["blocks"] = biases.ctypes.data, math.ceil(layer.outputs / _LANES)
    return [weights, main, biases, *activation_of(step, layer, later=layer.adds)]
