"""Plans a chain of 3x3 convolutions as kernels whose rows never leave the multiprocessor; pure.

layers of the chain    | 1->64 | 64->64 | 64->64 | 64->64 | 64->64 | 64->4 |
kernels (`Part`)       | source  layer 1  layer 2 | layer 1  layer 2  layer 3 |   cut where shared
                                                 planes                         memory ends

A part's first layer is computed from few channels in registers (`inputs` 1 to 4), or its rows come
as planes of eight channels (`inputs` 0), which the part before wrote or a copy made. What
kernels/conv/chain_layout.cuh calls by a macro is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.engines.conv import Conv, ConvWork

FEW = 4  # channels that are read as they lie in memory
MOST_LAYERS = 8  # of one kernel after its source: as many columns of zeros stand beside planes
MARGIN = 8
ACTIVATIONS = {"none": 0, "relu": 1, "leaky": 2, "clip": 3}
SHARED = 227 * 1024  # bytes that a block of Hopper's may have
REGISTERS = 65536
# Registers that a thread needs, by the channels x 64 pixels of its sums, as the compiler counts
# them; with fewer it refuses, or has products wait for each other.
REGISTERS_OF = {16: 56, 32: 80, 64: 144}
MOST_SUMS = max(REGISTERS_OF)
_WIDTHS = (16, 32, 64)


def padded(channels: int, *, last: bool = False) -> int:
    """The number of channels that the kernel computes: products have these widths."""
    return next(width for width in ((8, *_WIDTHS) if last else _WIDTHS) if channels <= width)


def unfit(layer: Conv) -> str | None:
    """Why a layer cannot be one of a chain's."""
    facts = (
        ("kernel", layer.kernel, (3, 3)),
        ("strides", layer.strides, (1, 1)),
        ("dilations", layer.dilations, (1, 1)),
        ("pads", layer.pads, (1, 1, 1, 1)),
        ("groups", layer.groups, 1),
    )
    for name, value, accepted in facts:
        if value != accepted:
            return f"{name}={value}: takes {accepted}"
    if max(layer.inputs, layer.outputs) > _WIDTHS[-1]:
        return f"{layer.inputs} to {layer.outputs} channels: takes at most {_WIDTHS[-1]}"
    if layer.activation.kind not in ACTIVATIONS:
        return f"activation={layer.activation.kind!r}: takes {', '.join(ACTIVATIONS)}"
    return None


@dataclass(frozen=True, eq=False)
class Part:
    """Some layers of a chain as one kernel.

    layers   the convolutions; with `inputs` the first of them is the source
    inputs   channels read as they lie in memory, 0: rows come as planes
    planes   the result leaves as planes
    units    how many times 64 pixels a row has
    depth    rows of a ring
    blocks   of a multiprocessor
    """

    layers: tuple[Conv, ...]
    inputs: int
    planes: bool
    units: int = 1
    depth: int = 3
    blocks: int = 1

    @cached_property
    def channels(self) -> tuple[int, ...]:
        """Of ring 0 and of each layer after the source, as computed."""
        source = padded(self.layers[0].outputs if self.inputs else self.layers[0].inputs)
        after = [padded(layer.outputs) for layer in self.products]
        after[-1] = padded(self.products[-1].outputs, last=not self.planes)
        return (source, *after)

    @property
    def products(self) -> tuple[Conv, ...]:
        """The layers after the source, a warpgroup each."""
        return self.layers[1:] if self.inputs else self.layers

    @property
    def useful(self) -> int:
        """Columns of a strip: the others are its neighbours', computed once more."""
        return 64 * self.units - 2 * len(self.products)

    @property
    def threads(self) -> int:
        """Of a block: a warpgroup a layer and one for the source, of planes a warp."""
        return 128 * len(self.products) + (128 if self.inputs else 32)

    @property
    def window(self) -> int:
        """k of the source's products, whole sixteens."""
        return -(-9 * self.inputs // 16) * 16

    @cached_property
    def places(self) -> dict[str, int]:
        """Where everything lies in shared memory, by the kernel's names; `SHARED` is the end."""
        at, found = 0, {}
        sizes = {f"WEIGHTS{i}": 18 * a * b for i, (a, b) in enumerate(self._pairs, 1)}
        if self.inputs:
            sizes = {"WEIGHTS0": 2 * self.window * self.channels[0], **sizes}
        sizes |= {f"BIAS{i}": 4 * width for i, width in enumerate(self.channels)}
        sizes["BLOB"] = 0
        plane = 16 * (64 * self.units + 8)
        rings = self.channels[:-1]
        sizes |= {f"RING{i}": self.depth * width // 8 * plane for i, width in enumerate(rings)}
        sizes["BARRIERS"] = 16 * (self.depth * len(rings) + 1)
        sizes |= {"WINDOWS": self._windows, "RESULTS": self._results}
        for name, size in sizes.items():
            found[name] = at
            at += -(-size // 16) * 16
        return {**found, "SHARED": at}

    @property
    def _pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self.channels[:-1], self.channels[1:], strict=True))

    @property
    def _windows(self) -> int:
        """Bytes of the source's windows: four of them for each of four warps."""
        return 4 * 4 * self.units * (3 * self.inputs + 1) * 48 if self.inputs else 0

    @property
    def _results(self) -> int:
        """Bytes of the rows on their way to planes: two for each of four warps."""
        return 2 * 4 * self.channels[-1] // 8 * 256 * self.units if self.planes else 0

    @property
    def fits(self) -> bool:
        """Whether a multiprocessor has the shared memory and the registers."""
        most = min(SHARED, (SHARED + 1024) // self.blocks - 1024)
        sums = self.units * max(self.channels)
        return (
            self.places["SHARED"] <= most
            and sums <= MOST_SUMS
            and REGISTERS // (self.blocks * self.threads) >= REGISTERS_OF[sums]
            and len(self.products) <= MOST_LAYERS
            and self.threads <= 1024
            and self.useful > 0
        )


def defines(part: Part, dtype: str, *, pairs: bool) -> tuple[tuple[str, int], ...]:
    """The kernel's macros. `pairs`: two outputs of a pixel are neighbours in memory."""
    last = part.layers[-1]
    values = {
        "LAYERS": len(part.products),
        "INPUTS": part.inputs,
        "OUTPUTS": last.outputs,
        "UNITS": part.units,
        "DEPTH": part.depth,
        "BLOCKS": part.blocks,
        "SHUFFLE": last.shuffle,
        "PAIRS": int(pairs),
        "BF16": int(dtype == "bfloat16"),
        "ADDS": int(last.adds),
        "PLANES_OUT": int(part.planes),
        "BLOB": part.places["BLOB"],
    }
    values |= {f"C{i}": width for i, width in enumerate(part.channels)}
    kinds = [ACTIVATIONS[layer.activation.kind] for layer in part.layers]
    kinds = kinds if part.inputs else [0, *kinds]
    values |= {f"ACT{i}": kind for i, kind in enumerate(kinds)}
    known = ("WEIGHTS", "BIAS", "RING", "BARRIERS", "WINDOWS", "RESULTS")
    places = {name: at for name, at in part.places.items() if name.startswith(known)}
    values |= {f"SHARED_{name}": at for name, at in places.items() if name != "WEIGHTS0"}
    return tuple(values.items())


def strips(part: Part, width: int) -> int:
    """Columns of a part's blocks in a picture's width."""
    return -(-width // part.useful)


def grid(part: Part, work: ConvWork, units: int) -> int:
    """Blocks: as many as the GPU holds at a time, each at least a row."""
    rows = work.images * work.height * strips(part, work.width)
    return min(rows, units * part.blocks)


def steps(part: Part, work: ConvWork, units: int) -> int:
    """Rows that the busiest block's layers make."""
    rows = work.images * work.height * strips(part, work.width)
    most = -(-rows // grid(part, work, units))
    parts = min(most, (most - 2) // work.height + 2) if most > 1 else 1
    return most + 2 * len(part.products) * parts + len(part.products) - 1


def cut(layers: Sequence[Conv]) -> tuple[Part, ...]:
    """The chain as parts: as many layers in each as shared memory holds, evenly."""
    few = layers[0].inputs <= FEW
    for count in range(1, len(layers) + 1):
        parts = _even(tuple(layers), count, few)
        if parts is not None:
            return parts
    raise AssertionError(f"{len(layers)} layers: a kernel of one layer fits always")


def _even(layers: tuple[Conv, ...], count: int, few: bool) -> tuple[Part, ...] | None:
    """`count` parts of about as many products each; None where one does not fit."""
    products = len(layers) - few
    if products < count:
        return None
    found, at = [], 0
    for index in range(count):
        take = (products * (index + 1)) // count - (products * index) // count
        take += few and index == 0
        part = best(layers[at : at + take], few and index == 0, planes=index < count - 1)
        if part is None:
            return None
        found.append(part)
        at += take
    return tuple(found)


def best(layers: tuple[Conv, ...], few: bool, *, planes: bool) -> Part | None:
    """A part's units, ring depth and blocks: the first of these that fits; None where none does."""
    inputs = layers[0].inputs if few else 0
    for units, depth, blocks in ((1, 3, 2), (1, 3, 1), (1, 2, 1)):
        part = Part(layers, inputs, planes, units, depth, blocks)
        if part.fits:
            return part
    return None
