"""What engines are asked of the other operators of networks: windows, elements, sums along axes.

    Pool       the largest of each window of a picture, or the mean
    Blend      along one axis: sums of old elements by their shares (resizing)
    Elements   a function of one or two operands, by elements; a copy is one, of whatever view
    WholeSum   two values, bytes or float32, added and rounded to bytes
    Rows       softmax or normalisation of each row by itself; Channels: of channels of pictures

A node of a graph becomes one of these, or several, one after another (`nn/lowered.py`); who takes
none of them leaves the node to its definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Activation

Views = Callable[[Sequence[NDArray], NDArray], list[tuple[NDArray, NDArray | None, NDArray]]]
PAIRS = ("add", "subtract", "multiply", "divide", "largest", "least")


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Windows over [N, C, H, W], channels last.

    kind       "largest" or "mean"
    result     rows and columns of the result
    divisors   float32 [rows, columns], what each sum is divided by; or None: it is times `share`
    """

    kind: str
    shape: tuple[int, int, int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    begins: tuple[int, int]
    result: tuple[int, int]
    divisors: NDArray | None = None
    share: float = 1.0

    @property
    def loads(self) -> int:
        """Elements of all windows."""
        images, channels = self.shape[:2]
        windows = images * self.result[0] * self.result[1]
        return windows * self.kernel[0] * self.kernel[1] * channels


@dataclass(frozen=True, slots=True, eq=False)
class Blend:
    """[outer, old, inner] to [outer, new, inner], as the arrays lie in memory.

    places, weights   int64 and float32 [new, taps]; a place below 0 is left out
    """

    outer: int
    old: int
    inner: int
    places: NDArray
    weights: NDArray

    @property
    def new(self) -> int:
        """Elements of the new axis."""
        return len(self.places)

    @property
    def loads(self) -> int:
        """Elements that are read."""
        return self.outer * self.inner * self.places.size


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """function(a, b), of views of one size each.

    function   one of `PAIRS`, or an activation of a alone; "none" copies
    views      what is read and written of sources and result: (a, b or None, out), each of one size
    count      elements of all results
    """

    function: str
    activation: Activation
    views: Views
    count: int

    @property
    def loads(self) -> int:
        """Elements that are read."""
        return self.count * (2 if self.function in PAIRS else 1)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """[rows, columns] without gaps, each row by itself.

    kind       "softmax"; "layer": (x - mean) / root(variance + epsilon) * scale + bias, scale and
               bias [columns]; "instance": the same, scale and bias [channels], row after row
    """

    kind: str
    rows: int
    columns: int
    channels: int = 1
    epsilon: float = 0.0

    @property
    def loads(self) -> int:
        """Elements that are read, in three passes."""
        return 3 * self.rows * self.columns


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """[images, pixels, channels] without gaps: each channel of an image is normalised by itself."""

    images: int
    channels: int
    pixels: int
    epsilon: float

    @property
    def loads(self) -> int:
        """Elements that are read, in three passes."""
        return 3 * self.images * self.channels * self.pixels


@dataclass(frozen=True, slots=True)
class Summand:
    """What a uint8 or int8 q is worth: (q - zero) * scale; float32 has no scale."""

    dtype: str = "float32"
    scale: float | None = None
    zero: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class WholeSum:
    """saturated(round(clip(a + b, low, high) / step) + shift), of arrays that lie alike.

    Each step is one float32 operation with one rounding; `dtype` is uint8 or int8.
    """

    summands: tuple[Summand, Summand]
    count: int
    step: float
    shift: int
    dtype: str
    low: float
    high: float

    @property
    def loads(self) -> int:
        """Elements that are read."""
        return 2 * self.count


ValueWork = Pool | Blend | Elements | Rows | Channels | WholeSum


@dataclass(frozen=True, slots=True, eq=False)
class ValueOperands:
    """Arrays of the host: what is read, in the order of the node's inputs, and what is written."""

    sources: tuple[NDArray, ...]
    out: NDArray
