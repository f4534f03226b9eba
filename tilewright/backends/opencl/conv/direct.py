"""conv_direct and conv_direct_image: any convolutions, layer by layer, channels in blocks.

A chain is laid into blocks of channels once, each layer reads and writes such blocks, and the last
one stores by the result's strides. Blocks are of 4 channels (NC4HW4) on GPUs, of 16 on CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tilewright.backends.opencl.conv import bound, endings, predict, refusals, weights
from tilewright.backends.opencl.conv.bound import Bound, Lowered, Steps, Texture
from tilewright.backends.opencl.lowering import grid
from tilewright.engines.conv import Conv, ConvOperands, ConvWork
from tilewright.facts.device import Device
from tilewright.facts.dtypes import VALUES
from tilewright.facts.kernel import Argument, Defines, Int, Launch, Long, Raw, Scratch, Texels
from tilewright.facts.verdict import Proposal

TURNS = ("conv_a", "conv_b")  # scratch that layers read and write in turns
_WIDE = (16, 14)  # lanes and pixels of CPUs: 14 sums, a vector of weights, a spare one
_FOUR = (4, 4)


class Direct:
    """Buffers: takes everything."""

    name = "conv_direct"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """What no engine of the back end takes."""
        return refusals.why_not(work, device)

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """At its share of the peak, every layer's pictures through memory."""
        lanes, _ = shape_of(work, device)
        scratch = refusals.check_memory(scratch_of(work, lanes, VALUES[work.dtype]), device)
        return propose(self.name, work, device, lanes, VALUES[work.dtype], scratch)

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Bound:
        """Weights packed, programs compiled."""
        work, device = proposal.decisions, proposal.device
        return bound.bind(work, device, operands, partial(_lower, work, device))


class DirectImage:
    """Images of texels, for GPUs whose L1 is their textures' alone."""

    name = "conv_direct_image"

    def why_not(self, work: ConvWork, device: Device) -> str | None:
        """Pictures past an image's sides, odd groups, a shuffle before the end."""
        why = refusals.why_not(work, device)
        if why is not None or not device.has("images"):
            return why or "the device has no images"
        if any(weights.mode_of(layer, 4) == weights.ANY for layer in work.layers):
            return "groups of channels that are no multiples of 4"
        if any(layer.shuffle > 1 for layer in work.layers[:-1]):
            return "a pixel shuffle before the last layer"
        wide, high = device.image_width, device.image_height
        for one in _textures(work, values=False):
            if one.width > wide or one.height > high:
                return f"an image of {one.width} x {one.height} texels, past {wide} x {high}"
        return None

    def propose(self, work: ConvWork, device: Device) -> Proposal:
        """As `Direct`, by textures."""
        size = 16 if work.dtype == "float32" else 8
        images = _textures(work, values=False)
        scratch = tuple(Scratch(one.name, one.width * one.height * size) for one in images)
        most = refusals.check_memory(scratch, device)
        return propose(self.name, work, device, 4, size // 4, most)

    def bind(self, proposal: Proposal, operands: ConvOperands) -> Bound:
        """Weights and pictures as images of their own."""
        work, device = proposal.decisions, proposal.device
        return bound.bind(work, device, operands, partial(_lower_images, work, device))


def propose(
    name: str, work: ConvWork, device: Device, lanes: int, item: int, scratch: int
) -> Proposal:
    """Flops with whole blocks of outputs, bytes of every picture once in and once out."""
    flops = 0.0
    for layer, (_, height, width) in zip(work.layers, work.sizes, strict=False):
        rows, columns = layer.sums(height, width)
        whole = -(-layer.outputs // lanes) * lanes / layer.outputs
        flops += 2.0 * work.images * rows * columns * layer.weights.size * whole
    between = sum(c * h * w for c, h, w in work.sizes[:-1])
    moved = work.bytes + 2.0 * item * work.images * between
    return predict.propose(
        name,
        work,
        device,
        work,
        flops=flops,
        moved=moved,
        launches=len(work.layers) + 1,
        scratch=scratch,
    )


def shape_of(work: ConvWork, device: Device) -> tuple[int, int]:
    """Channels of a block and pixels of a work-item."""
    if device.kind != "cpu":
        return _FOUR
    # Groups of whole fours, but not of sixteens, would be picked one by one.
    odd = any(
        weights.mode_of(layer, 16) == weights.ANY and weights.mode_of(layer, 4) == weights.FULL
        for layer in work.layers
    )
    return _FOUR if odd else _WIDE


def scratch_of(work: ConvWork, lanes: int, item: int) -> tuple[Scratch, ...]:
    """Two pictures in blocks, `item` bytes a number: what layers read and write in turns."""
    most = [0, 0]
    for index, (channels, height, width) in enumerate(work.sizes[:-1]):
        size = work.images * -(-channels // lanes) * lanes * height * width * item
        most[index % 2] = max(most[index % 2], size)
    return tuple(Scratch(name, size) for name, size in zip(TURNS, most, strict=True) if size)


def _lower(work: ConvWork, device: Device, steps: Mapping[str, Steps]) -> Lowered:
    lanes, pixels = shape_of(work, device)
    constants = {}
    launches = [_lay_in(work, device, steps["x"], (("LANES", lanes),), Raw(TURNS[0]))]
    for index, layer in enumerate(work.layers):
        constants[f"weights{index}"] = weights.packed(layer, lanes, work.dtype)
        constants[f"bias{index}"] = weights.per_output(layer.bias, layer, lanes)
        constants[f"slopes{index}"] = weights.per_output(layer.activation.slopes, layer, lanes)
        last = index == len(work.layers) - 1
        to = steps["out"] if last else Steps(TURNS[(index + 1) % 2])
        defines = (
            *endings.defines(work, device, layer),
            ("LANES", lanes),
            ("PIXELS", pixels),
            ("MODE", weights.mode_of(layer, lanes)),
            ("PACKED", int(not last)),
            ("STRIDE", layer.strides[1]),
        )
        zeros_at = constants[f"weights{index}"].size - lanes
        arguments = (
            *sizes_of(work, index, inputs=True),
            Raw(TURNS[index % 2]),
            Raw(f"weights{index}"),
            Long(zeros_at),
            *endings.arguments(work, index, steps),
            *endings.stored(layer, to),
        )
        launches.append(
            launch_of("conv_direct", work, index, device, defines, arguments, (lanes, pixels))
        )
    return Lowered(tuple(launches), scratch_of(work, lanes, VALUES[work.dtype]), constants)


def _lower_images(work: ConvWork, device: Device, steps: Mapping[str, Steps]) -> Lowered:
    constants = {}
    launches = [_lay_in(work, device, steps["x"], (("IMAGE", 1),), Texels(TURNS[0]))]
    for index, layer in enumerate(work.layers):
        constants[f"bias{index}"] = weights.per_output(layer.bias, layer, 4)
        constants[f"slopes{index}"] = weights.per_output(layer.activation.slopes, layer, 4)
        last = index == len(work.layers) - 1
        to = (Texels(TURNS[(index + 1) % 2]),) if not last else ()
        defines = (
            *endings.defines(work, device, layer),
            ("MODE", weights.mode_of(layer, 4)),
            ("TO_IMAGE", int(not last)),
        )
        arguments = (
            *sizes_of(work, index, inputs=False),
            Texels(TURNS[index % 2]),
            Texels(f"weights{index}"),
            *to,
            *endings.arguments(work, index, steps),
            *endings.stored(layer, steps["out"]),
        )
        launches.append(
            launch_of("conv_direct_image", work, index, device, defines, arguments, _FOUR)
        )
    return Lowered(tuple(launches), (), constants, _textures(work, values=True))


def _lay_in(work: ConvWork, device: Device, x: Steps, defines: Defines, to: Raw | Texels) -> Launch:
    """x into blocks of channels."""
    channels, height, width = work.sizes[0]
    options = dict(defines)
    blocks = -(-channels // int(options.get("LANES", 4)))
    size, local = grid((width * blocks, work.images * height), device)
    arguments = (
        *map(Int, (channels, height, width, work.images * height)),
        *x.arguments,
        to,
    )
    bits = ("BITS", endings.BITS[work.dtype])
    return Launch("conv_lay_in", "conv_lay_in", (bits, *defines), size, local, arguments)


def sizes_of(work: ConvWork, index: int, *, inputs: bool) -> tuple[Argument, ...]:
    """The integers of a layer, as the kernels of buffers and of images take them."""
    layer, (channels, height, width) = work.layers[index], work.sizes[index]
    rows, columns = layer.sums(height, width)
    stride_x = () if inputs else (layer.strides[1],)
    numbers = (
        *(
            work.images,
            rows,
            columns,
            *((channels,) if inputs else ()),
            height,
            width,
            layer.outputs,
        ),
        *(*layer.kernel, layer.strides[0], *stride_x, *layer.dilations, *layer.pads[:2]),
        *(layer.inputs // layer.groups, layer.outputs // layer.groups),
    )
    return tuple(map(Int, numbers))


def launch_of(
    program: str,
    work: ConvWork,
    index: int,
    device: Device,
    defines: Defines,
    arguments: tuple[Argument, ...],
    shape: tuple[int, int],
) -> Launch:
    """A work-item for some pixels of a block of outputs."""
    layer = work.layers[index]
    lanes, pixels = shape
    rows, columns = layer.sums(*work.sizes[index][1:])
    blocks = -(-layer.outputs // lanes)
    extent = (-(-columns // pixels) * blocks, work.images * rows)
    size, local = ((extent[0], extent[1]), (1, 1)) if lanes == 16 else grid(extent, device)
    return Launch(program, program, defines, size, local, arguments)


def _textures(work: ConvWork, *, values: bool) -> tuple[Texture, ...]:
    """Pictures in turns, then every layer's weights."""
    sides = [[0, 0], [0, 0]]
    for index, (channels, height, width) in enumerate(work.sizes[:-1]):
        side = sides[index % 2]
        side[0] = max(side[0], -(-channels // 4) * width)
        side[1] = max(side[1], work.images * height)
    found = [
        Texture(name, side[0], side[1], work.dtype)
        for name, side in zip(TURNS, sides, strict=True)
        if side[0]
    ]
    for index, layer in enumerate(work.layers):
        high, wide = _texels_of(layer)
        packed = weights.texels(layer, work.dtype) if values else None
        found.append(Texture(f"weights{index}", wide, high, work.dtype, packed))
    return tuple(found)


def _texels_of(layer: Conv) -> tuple[int, int]:
    """Rows and columns of a layer's image of weights."""
    taps, blocks = layer.kernel[0] * layer.kernel[1], -(-layer.outputs // 4)
    if weights.mode_of(layer, 4) == weights.DEPTHWISE:
        return blocks, taps
    return blocks * taps, int(np.ceil(layer.weights.shape[1] / 4)) * 4
