"""Plans a chain of 3x3 convolutions as kernels whose rows never leave the multiprocessor; pure.

layers of the chain    | 1->64 | 64->64 | 64->64 | 64->64 | 64->64 | 64->4 |
kernels (`Part`)       | source  layer 1  layer 2 | layer 1  layer 2  layer 3 |   cut where shared
                                                 planes                         memory ends

A part's first layer is computed from few channels in registers (`inputs` 1 to 4), or its rows are
copied (`inputs` 0): from planes of eight channels that the part before wrote, or from a picture
whose channels lie side by side. What kernels/conv/chain_layout.cuh calls by a macro is computed
here, and what a step of a kernel takes is predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Conv, ConvWork
from tilewright.errors import KernelError
from tilewright.remember import once

FEW = 4  # channels that are read as they lie in memory
MOST_LAYERS = 7  # of one kernel after its source: 1024 threads
ACTIVATIONS = {"none": 0, "relu": 1, "leaky": 2, "clip": 3, "prelu": 4}
ROUNDED, WORTH = 5, 6  # endings of whole numbers
ELEMENTS = {"float16": 0, "bfloat16": 0, "float32": 1, "uint8": 2, "int8": 3}
SHARED = 227 * 1024  # bytes that a block of Hopper's may have
REGISTERS = 65536
# Registers that a thread needs, by the channels x 64 pixels of its sums, as the compiler counts
# them; with fewer it refuses, or has products wait for each other.
REGISTERS_OF = {16: 56, 32: 80, 48: 104, 64: 128}
MOST_SUMS = max(REGISTERS_OF)
_WIDTHS = (16, 32, 48, 64)


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
    shared   bytes that a block may have there
    """

    layers: tuple[Conv, ...]
    inputs: int
    planes: bool
    units: int = 1
    depth: int = 3
    shared: int = SHARED

    @once
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
    def slopes(self) -> tuple[int, ...]:
        """The stages, 0 being the source, that have a slope a channel, or a scale."""
        return tuple(i for i, one in self.stages if one.whole or one.activation.kind == "prelu")

    @property
    def stages(self) -> tuple[tuple[int, Conv], ...]:
        """The layers with their numbers in the kernel, where the source is 0."""
        return tuple(enumerate(self.layers, 0 if self.inputs else 1))

    @property
    def useful(self) -> int:
        """Columns of a strip: the others are its neighbours', computed once more."""
        return 64 * self.units - 2 * len(self.products)

    @property
    def threads(self) -> int:
        """Of a block: a warpgroup a layer and one for the source."""
        return 128 * (len(self.products) + 1)

    @property
    def window(self) -> int:
        """k of the source's products, whole sixteens."""
        return -(-9 * self.inputs // 16) * 16

    @once
    def places(self) -> dict[str, int]:
        """Where everything lies in shared memory, by the kernel's names; `SHARED` is the end."""
        at, found = 0, {}
        sizes = {f"WEIGHTS{i}": 18 * a * b for i, (a, b) in enumerate(pairwise(self.channels), 1)}
        if self.inputs:
            sizes = {"WEIGHTS0": 2 * self.window * self.channels[0], **sizes}
        sizes |= {f"BIAS{i}": 4 * width for i, width in enumerate(self.channels)}
        sizes |= {f"SLOPES{i}": 4 * self.channels[i] for i in self.slopes}
        sizes["BLOB"] = 0
        plane = 16 * (64 * self.units + 9)
        rings = self.channels[:-1]
        sizes |= {f"RING{i}": self.depth * width // 8 * plane for i, width in enumerate(rings)}
        sizes["BARRIERS"] = 16 * (self.depth * len(rings) + 2)
        sizes["WINDOWS"] = self._windows
        for name, size in sizes.items():
            found[name] = at
            at += -(-size // 16) * 16
        return {**found, "SHARED": at}

    @property
    def _windows(self) -> int:
        """Bytes of the source's windows: four of them for each of four warps."""
        return 4 * 4 * self.units * (3 * self.inputs + 1) * 48 if self.inputs else 0

    @property
    def fits(self) -> bool:
        """Whether a multiprocessor has the shared memory and the registers."""
        sums = self.units * max(self.channels)
        return (
            self.places["SHARED"] <= self.shared
            and sums <= MOST_SUMS
            and REGISTERS // self.threads >= REGISTERS_OF[sums]
            and len(self.products) <= MOST_LAYERS
            and self.useful > 0
        )


def ending(layer: Conv) -> int:
    """What a layer makes of its sums, as the kernel counts them."""
    if layer.whole is not None:
        return WORTH if layer.whole.step is None else ROUNDED
    return ACTIVATIONS[layer.activation.kind]


def defines(part: Part, dtype: str, *, pairs: bool) -> tuple[tuple[str, int], ...]:
    """The kernel's macros. `pairs`: two outputs of a pixel are neighbours in memory."""
    first, last = part.layers[0].whole, part.layers[-1]
    values = {
        "LAYERS": len(part.products),
        "INPUTS": part.inputs,
        "OUTPUTS": last.outputs,
        "UNITS": part.units,
        "DEPTH": part.depth,
        "SHUFFLE": last.shuffle,
        "PAIRS": int(pairs),
        "BF16": int(dtype == "bfloat16"),
        "ADDS": int(last.adds),
        "PLANES_OUT": int(part.planes),
        "CHUNKS": 0 if part.inputs else -(-part.layers[0].inputs // 8),
        "BLOB": part.places["BLOB"],
    }
    if first is not None:
        source = first.source if first.taken is None else "float32"
        values["SOURCE"] = ELEMENTS[source] if part.inputs else 0
    if last.whole is not None:
        values["RESULT"] = 0 if part.planes else ELEMENTS[last.whole.dtype]
    values |= {f"C{i}": width for i, width in enumerate(part.channels)}
    values |= {f"ACT{i}": ending(layer) for i, layer in part.stages}
    known = ("WEIGHTS", "BIAS", "SLOPES", "RING", "BARRIERS", "WINDOWS")
    places = {name: at for name, at in part.places.items() if name.startswith(known)}
    values |= {f"SHARED_{name}": at for name, at in places.items() if name != "WEIGHTS0"}
    return tuple(values.items())


def strips(part: Part, width: int) -> int:
    """Columns of a part's blocks in a picture's width."""
    return -(-width // part.useful)


def grid(part: Part, work: ConvWork, units: int) -> int:
    """Blocks: one a multiprocessor, each at least a row."""
    rows = work.images * work.height * strips(part, work.width)
    return min(rows, units)


def counted(part: Part, work: ConvWork) -> int:
    """Rows of all strips, with a halo for each strip: what is dealt evenly to the blocks."""
    halo = 2 * len(part.products)
    return work.images * strips(part, work.width) * (work.height + halo)


def shares(part: Part, work: ConvWork, units: int) -> NDArray:
    """Where each block's rows begin among those of all strips, and the end of all."""
    blocks, halo = grid(part, work, units), 2 * len(part.products)
    at = counted(part, work) * np.arange(blocks + 1, dtype=np.int64) // blocks
    strip, row = np.divmod(at, work.height + halo)
    found: NDArray = strip * work.height + np.maximum(row - halo, 0)
    return found


def steps(part: Part, work: ConvWork, units: int) -> int:
    """Rows that the busiest block's layers make, those that only fill the rings included."""
    at, layers = shares(part, work, units), len(part.products)
    begins, ends = at[:-1], at[1:]
    parts = (ends - 1) // work.height - begins // work.height + 1
    return int(np.max(ends - begins + 2 * layers * parts)) + layers - 1


@dataclass(frozen=True, slots=True)
class Machine:
    """What planning knows of a GPU: multiprocessors, a block's shared memory, and measured rates.

    launch    seconds of a kernel besides its steps
    product   seconds of products that would take a clock at the full rate, by units of a row
    handing   seconds of a row of 64 pixels from a layer to the next, and of any row besides
    written   bytes a second of what a kernel writes
    whole     seconds that whole numbers add for 64 pixels of a channel
    """

    units: int
    shared: int
    launch: float
    product: tuple[float, float]
    handing: tuple[float, float]
    written: float
    whole: float


def clocks(part: Part) -> int:
    """Of the tensor cores for a step, a row through every layer; narrow ones wait for the left."""
    source = part.window // 16 * max(24, part.channels[0] // 2) if part.inputs else 0
    rows = (3 * (a // 16) * max(24, 3 * b // 2) for a, b in pairwise(part.channels))
    return part.units * (source + sum(rows))


def seconds(part: Part, work: ConvWork, machine: Machine) -> float:
    """Predicted: steps of the busiest block, each bound by products or by handing rows over."""
    row, any_row = machine.handing
    step = max(machine.product[part.units - 1] * clocks(part), row * part.units + any_row)
    if part.layers[0].whole is not None:
        step += machine.whole * part.units * sum(part.channels)
    outputs = part.channels[-1] if part.planes else part.layers[-1].outputs
    written = 2 * work.images * work.height * work.width * outputs
    return machine.launch + step * steps(part, work, machine.units) + written / machine.written


def cut(work: ConvWork, machine: Machine) -> tuple[Part, ...]:
    """The chain as parts, those of least predicted time: as few as fit, or one more.

    Raises KernelError where not even a layer fits a block's shared memory.
    """
    few = work.layers[0].inputs <= FEW and len(work.layers) > 1
    found: list[tuple[Part, ...]] = []
    for count in range(1, len(work.layers) + 1):
        parts = _even(work, count, few, machine)
        if parts is not None:
            found.append(parts)
        if len(found) == 2:
            break
    if not found:
        raise KernelError(f"a layer of this chain needs more than {machine.shared} shared bytes")
    return min(found, key=lambda parts: sum(seconds(part, work, machine) for part in parts))


def _even(work: ConvWork, count: int, few: bool, machine: Machine) -> tuple[Part, ...] | None:
    """`count` parts of about as many products each; None where one does not fit."""
    products = len(work.layers) - few
    if products < count:
        return None
    found, at = [], 0
    for index in range(count):
        take = (products * (index + 1)) // count - (products * index) // count
        take += few and index == 0
        inputs = work.layers[0].inputs if few and index == 0 else 0
        part = best(work, work.layers[at : at + take], inputs, index < count - 1, machine)
        if part is None:
            return None
        found.append(part)
        at += take
    return tuple(found)


def best(
    work: ConvWork, layers: tuple[Conv, ...], inputs: int, planes: bool, machine: Machine
) -> Part | None:
    """A part's units and ring depth; None where none fits. Rings of 3 rows were 9 % slower."""
    shapes = ((units, depth) for units in (1, 2) for depth in (4, 2))
    parts = (Part(layers, inputs, planes, *shape, machine.shared) for shape in shapes)
    fitting = [part for part in parts if part.fits]
    return min(fitting, key=lambda part: seconds(part, work, machine), default=None)
