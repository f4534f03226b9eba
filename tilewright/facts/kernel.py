"""What a kernel declares and what a plan consists of: frozen records, no behaviour of a device.

A kernel lowers a problem to a `Step`: scratch to allocate, images to lay on it, launches in order.
Launches name their operands instead of holding them, so that a plan is pure data: it can be
cached, printed, compared in a test, and run on other arrays of the same shape.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol, runtime_checkable

from tilewright.facts.device import Device
from tilewright.facts.dtypes import sums_of
from tilewright.facts.problem import Problem
from tilewright.facts.verdict import Rejected

# -D options of a program: macro and value.
Defines = tuple[tuple[str, int | str], ...]


@dataclass(frozen=True, slots=True)
class Config:
    """The tunables of one kernel; zero where a kernel has no such thing.

    `tile_*` is what a work-group computes, `micro_*` what a work-item keeps in registers, `vector`
    the width of a load, `buffers` how many blocks local memory holds, `multiply_add` 0 for a*b+c, 1
    for mad(), 2 for fma(). `group_*` are work-items a group along C's rows and columns, 0 where the
    work-group rule decides; `unroll` is steps of k written out; `wide_sum` keeps dot
    products as vectors until the end. `rate` is a prior: the share of the kernel's best rate that
    whole tiles reach; only ratios between configurations of one kernel mean anything.
    """

    tile_m: int = 0
    tile_n: int = 0
    tile_k: int = 0
    micro_m: int = 1
    micro_n: int = 1
    vector: int = 1
    multiply_add: int = 2
    buffers: int = 1
    image_c: int = 0
    require_group: int = 0
    group_m: int = 0
    group_n: int = 0
    unroll: int = 1
    wide_sum: int = 0
    rate: float = 1.0

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.changed.items()) or "defaults"

    @property
    def changed(self) -> dict[str, int]:
        """What differs from its default, but `rate`: that is a prior, and no part of it."""
        values = {f.name: (getattr(self, f.name), f.default) for f in fields(self)}
        del values["rate"]
        return {name: value for name, (value, default) in values.items() if value != default}

    def macros(self, *names: str) -> Defines:
        """-D options: these fields in capitals."""
        return tuple((name.upper(), getattr(self, name)) for name in names)


@dataclass(frozen=True, slots=True)
class Resources:
    """What one work-group of a configuration occupies.

    `why_not` says why the numbers make no kernel on any device: tiles that micro-tiles do not
    divide, say. Empty where they do.
    """

    work_items: int
    local_bytes: int = 0
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that a tuner may change: choices, each the fields of `Config` it sets together."""

    choices: tuple[tuple[tuple[str, int], ...], ...]


def axis(field: str, *values: int) -> Axis:
    """The axis of one field."""
    return Axis(tuple(((field, value),) for value in values))


@dataclass(frozen=True, slots=True)
class Operand:
    """A kernel argument pair: the memory called `name` and an element offset into it.

    Names are "a", "b", "c", "bias" for the caller's operands, anything else for scratch.
    """

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Raw:
    """A kernel argument: the memory called `name`, with no offset beside it."""

    name: str


@dataclass(frozen=True, slots=True)
class Int:
    """A 32-bit kernel argument."""

    value: int


@dataclass(frozen=True, slots=True)
class Long:
    """A 64-bit kernel argument: strides and offsets."""

    value: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kernel argument of the accumulator's type: "alpha" or "beta" of the call, or a number."""

    value: str | float


@dataclass(frozen=True, slots=True)
class Texels:
    """A kernel argument: the image called `name`."""

    name: str


Argument = Operand | Raw | Int | Long | Scalar | Texels


@dataclass(frozen=True, slots=True)
class Scratch:
    """Device memory that lives as long as the step."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Image:
    """A 2-D RGBA image, `row_pitch` bytes a row, laid on the scratch called `scratch`.

    Where the device cannot lay an image on a buffer the rows are tight and copied into one.
    """

    name: str
    scratch: str
    width: int
    height: int
    row_pitch: int
    dtype: str
    written: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: program (stem of the source file), entry point, -D options, sizes."""

    program: str
    entry: str
    defines: Defines
    global_size: tuple[int, int]
    local_size: tuple[int, int]
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A problem lowered for one kernel and one configuration.

    `images` are made from their scratch after the launches that come before their first use.
    `computed_flops` counts the work of whole tiles, edges included; `moved_bytes` all traffic of
    packing and re-laying besides the product's own.
    """

    kernel: str
    config: Config
    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...] = ()
    images: tuple[Image, ...] = ()
    computed_flops: int = 0
    moved_bytes: int = 0


# Of equal products: fewer take as long as the tables of one launch for all, and larger ones ten
# times as long as a launch each.
_FEWEST = 8
_ALONE = 2 * 256**3


@dataclass(frozen=True, slots=True)
class Plan:
    """How one problem will be computed on one device, and why so.

    `seconds` is the prediction, None where nothing was ever measured on this device. `origin` says
    where the configuration came from, `ratio` its time over the default's where it was proved,
    `shape_class` on which side of every boundary the shape lies, and `forced` that the caller named
    the kernel.
    """

    device: Device
    problem: Problem
    step: Step
    seconds: float | None
    reason: str
    rejected: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()
    origin: str = ""
    ratio: float = 1.0
    shape_class: str = ""
    forced: bool = False

    @property
    def kernel(self) -> str:
        """Name of the kernel that was chosen; "host" for NumPy's BLAS."""
        return self.step.kernel

    def is_one_launch(self, products: int) -> bool:
        """Whether so many equal products are one launch of a grouped kernel's, not one each."""
        problem, device = self.problem, self.device
        return (
            products >= _FEWEST
            and device.backend == "opencl"
            and self.kernel != "host"
            and not self.forced
            and problem.dtype in device.dtypes
            and problem.accumulate == sums_of(problem.dtype)
            and problem.flops <= _ALONE
        )


@dataclass(frozen=True, slots=True)
class Priors:
    """What rules say before anything is measured: kernels in order of preference, and why.

    `digest` changes whenever the source of a kernel does; measurements are filed under it. Where a
    back end gives `digests`, one a kernel, a tuned configuration outlives changes of the others.
    """

    kernels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    digest: str = ""
    digests: tuple[tuple[str, str], ...] = ()

    def digest_of(self, kernel: str) -> str:
        """What changes whenever the source of this kernel does."""
        return dict(self.digests).get(kernel, self.digest)


class Kernel(Protocol):
    """What a file in a `kernels/` folder declares. Legality lives here, preference in planning."""

    @property
    def name(self) -> str:
        """The stem of its files, and what `kernel=` takes."""

    def why_not(self, problem: Problem, device: Device) -> str | None:
        """Why it cannot take a problem there, if so."""

    def configs(self, problem: Problem, device: Device) -> tuple[Config, ...]:
        """Every configuration worth trying for this problem, the default first."""

    def resources(self, config: Config, problem: Problem) -> Resources:
        """What a work-group of this configuration occupies."""

    def lower(self, problem: Problem, device: Device, config: Config) -> Step:
        """The problem as launches."""


@runtime_checkable
class Tunable(Protocol):
    """A kernel with more configurations than `configs` lists; others are tuned over that list."""

    def space(self, problem: Problem, device: Device) -> tuple[Axis, ...]:
        """What may be changed in the default configuration. Not every combination is legal."""
