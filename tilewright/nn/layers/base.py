"""`Layer`: what every operator of a network offers; families of them lie beside this file.

    output    the sizes of its result, from those of its inputs
    compute   its result in plain NumPy: what runs without Numba, and what tests compare with
    bind      its result by the host's compiled kernels, bound to memory beforehand
    header, arrays, restored    to a file and back

Layers are frozen records that check their own sizes.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, DtypeError, ShapeError
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.value import Value
from tilewright.nn.window import Window
from tilewright.wording import short


@dataclass(frozen=True, eq=False, kw_only=True)
class Layer(ABC):
    """A layer: `name` is also the name of the value it gives, `inputs` are names of values."""

    name: str
    inputs: tuple[str, ...]
    takes: ClassVar[int] = 1
    adds: ClassVar[bool] = False  # whether its result is a sum of its inputs' elements
    vectors: ClassVar[tuple[str, ...]] = ()  # fields that are arrays, for files

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ArgumentError(f"name={self.name!r}: accepted is a text that is not empty")
        fine = isinstance(self.inputs, tuple) and all(isinstance(i, str) for i in self.inputs)
        if not fine or len(self.inputs) != self.takes:
            raise ArgumentError(
                f"layer {self.name!r}: inputs={self.inputs!r}; accepted are {self.takes} names"
            )
        self._check()

    def _check(self) -> None:  # noqa: B027 (some have nothing to check)
        """Raise for fields that do not fit each other."""

    @abstractmethod
    def output(self, inputs: Sequence[Value]) -> Value:
        """What comes out. Raises ShapeError, OperandError for inputs that do not fit."""

    @abstractmethod
    def compute(self, *inputs: NDArray) -> NDArray:
        """The result in NumPy: reals float32, bits int8 of -1 and +1, [N, H, W, C]."""

    @abstractmethod
    def bind(self, host: Binding, ending: Ending) -> None:
        """Add the steps that compute it with the host's kernels."""

    def flops(self, value: Value) -> float:
        """Operations that give `value`, its result for one picture: one an element by default."""
        return float(value.size)

    @property
    def border(self) -> int:
        """Pixels of zeros that its kernel needs around bits it reads."""
        return 0

    def may_go_on(self, result: Value) -> bool:
        """Whether its pass may end with an addition and a sign, before anything is stored."""
        return result.kind == "real"

    # Files

    def header(self) -> dict[str, Any]:
        """Everything but its arrays, as JSON."""
        found: dict[str, Any] = {"type": type(self).__name__}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Window):
                found[field.name] = {n: list(v) for n, v in dataclasses.asdict(value).items()}
            elif field.name not in self.vectors and value is not None:
                found[field.name] = list(value) if isinstance(value, tuple) else value
        return found

    def arrays(self) -> dict[str, NDArray]:
        """Its arrays by field."""
        named = {name: getattr(self, name) for name in self.vectors}
        return {name: array for name, array in named.items() if array is not None}

    @property
    def parameters(self) -> int:
        """Numbers that were trained, bits among them."""
        return sum(array.size for array in self.arrays().values())

    @property
    def bytes(self) -> int:
        """Of its arrays in a file."""
        return sum(array.nbytes for array in self.arrays().values())

    @classmethod
    def restored(cls, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The layer of a header, without its type, and of arrays."""
        given = dict(header)
        given["inputs"] = tuple(given["inputs"])
        if "window" in given:
            names = [field.name for field in dataclasses.fields(Window)]
            given["window"] = Window(**{name: tuple(given["window"][name]) for name in names})
        return cls(**given, **arrays)

    # Checks

    def fail(self, what: str, error: Callable[[str], Exception] = ShapeError) -> Exception:
        """An error that names the layer."""
        return error(f"layer {self.name!r}: {what}")

    def vector(self, field: str, count: int | None = None) -> None:
        """Check a float32 vector, if there is one: finite, of `count` elements."""
        array = getattr(self, field)
        if array is None:
            return
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            raise self.fail(f"{field}={short(array)}; accepted is a float32 vector", DtypeError)
        if array.ndim != 1 or (count is not None and len(array) != count):
            wanted = "a vector" if count is None else f"({count},)"
            raise self.fail(f"{field}.shape={array.shape}; must be {wanted}")
        if field != "cut" and not np.isfinite(array).all():
            raise self.fail(f"{field}: has NaN or infinities; accepted are numbers", ArgumentError)
        if np.isnan(array).any():
            raise self.fail(f"{field}: has NaN; accepted are numbers", ArgumentError)

    def channels(self, field: str, value: Value) -> None:
        """Check that a vector has an element for each channel."""
        array = getattr(self, field)
        if array is not None and len(array) != value.channels:
            raise self.fail(
                f"{field} has {len(array)} elements, its input {value.channels} channels"
            )


def evaluate(layers: Iterable[Layer], values: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """All values of layers in NumPy, from those that are given by name."""
    found = dict(values)
    for layer in layers:
        found[layer.name] = layer.compute(*(found[name] for name in layer.inputs))
    return found
