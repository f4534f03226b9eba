"""`Network`: a graph of operators that somebody trained, to be run, explained and bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.arrays.views import loaded_torch
from tilewright.backends import conv_engines, value_engines
from tilewright.errors import DtypeError
from tilewright.facts.device import Device
from tilewright.inputs.devices import host_for
from tilewright.nn import evaluate
from tilewright.nn.bound import AnyEngine, Bound
from tilewright.nn.graph import Graph, Input
from tilewright.nn.infer import operator_of, tensors, types
from tilewright.nn.kinds import check_kind, check_one_library
from tilewright.nn.looked import check_node
from tilewright.nn.operators.bits import LAYER
from tilewright.nn.passed import matched
from tilewright.nn.passes import simplified
from tilewright.nn.passes.int8 import with_int8
from tilewright.nn.passes.retyped import retyped, widened
from tilewright.nn.places import device_of, home_of, product_engines
from tilewright.nn.plan import Plan, planned
from tilewright.nn.profile import Row, rows
from tilewright.nn.show import explained
from tilewright.nn.sizes import check_shape, sizes_of
from tilewright.remember import once
from tilewright.wording import short

DTYPES = ("float32", "float16", "bfloat16")
# What back ends compute in float32 all the way: their engines have no such type.
_WIDENED = {"host": ("float16", "bfloat16"), "opencl": ("bfloat16",)}


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """A network of ONNX's operators.

    graph  its nodes, inputs, outputs and constants
    title  what `explain` calls it
    """

    graph: Graph
    title: str = "network"

    def __repr__(self) -> str:
        inputs = ", ".join(f"{i.name} {list(i.shape or ())} {i.dtype}" for i in self.inputs)
        return f"<Network {self.title}: {len(self.graph.nodes)} nodes, {inputs}>"

    def __reduce__(self) -> Any:
        return Network, (self.graph, self.title)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Names, sizes (free ones by name) and element types of what `run` takes."""
        return self.graph.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of what `run` gives."""
        return self.graph.outputs

    @once
    def types(self) -> Mapping[str, str]:
        """The element type of every value."""
        return MappingProxyType(types(self.graph))

    def run(self, *inputs: Any, **named: Any) -> Any:
        """The outputs by the definitions of the operators alone: slow, and what all is held to.

        Args:
            inputs: arrays of NumPy, torch or CuPy, all of one library, in the order of `inputs`.
            named: arrays by the names of inputs.

        Returns:
            An array of the same library, or a tuple of them where there are several outputs.

        Raises ArgumentError, OperandError, DtypeError, ShapeError, DeviceMemoryError, those of a
        node with its name, before it is computed.
        """
        return self._entry(inputs, named)

    @once
    def _entry(self) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Any]:
        """`_run`; where torch.compile comes by, it breaks its graph there."""
        torch = loaded_torch()
        return self._run if torch is None else torch.compiler.disable(self._run)

    def _run(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        given = self.checked(inputs, named)
        found = evaluate.run(self.graph, operator_of, self.types, given, look=check_node)
        made = tuple(found[name] for name in self.outputs)
        return made[0] if len(made) == 1 else made

    def bind(
        self,
        shape: Any = None,
        device: Device | str = "auto",
        dtype: str | None = None,
        *,
        exact: bool = False,
        fuse: bool = True,
    ) -> Bound:
        """The network made ready: planned, memory taken, weights laid out, kernels compiled.

        Args:
            shape: sizes of the input; of several {name: sizes}. None where no size is free.
            device: "auto" is a GPU where there is one, else the host; or as in `tilewright.matmul`.
            dtype: "float32", "float16" or "bfloat16", of all values that are one of them in the
                file, inputs and outputs too; None is each as the file has it. Weights are rounded
                to it once, sums are float32. Where engines have no halves (on the host; for
                bfloat16 on OpenCL devices) values between layers are float32 as well: inputs are
                widened, outputs rounded, and results as near as the definitions' or nearer.
            exact: no engine of convolutions whose rounding exceeds that of a plain sum.
            fuse: False does the file's nodes one by one, to compare with.

        Raises:
            ArgumentError, ShapeError: sizes that an input does not take, or that do not fit inside.
            DeviceError, DeviceMemoryError: the device is absent or has too little memory, which is
                found before any is taken.
        """
        known = isinstance(device, Device)  # with what it was made with
        if not known and device_of(device, self.graph).backend == "host":
            host_for(bits=any(node.operator == LAYER for node in self.graph.nodes))
        plan, engines = self._plan(shape, device, dtype, exact, fuse)
        return Bound(plan, home_of(plan), engines, product_engines(plan.device), self.title)

    def explain(
        self,
        shape: Any = None,
        device: Device | str = "auto",
        dtype: str | None = None,
        *,
        exact: bool = False,
        fuse: bool = True,
    ) -> str:
        """What `bind` with these arguments would do, step by step; nothing is allocated."""
        return explained(self._plan(shape, device, dtype, exact, fuse)[0], self.title)

    def peak_bytes(
        self, shape: Any = None, device: Device | str = "auto", dtype: str | None = None
    ) -> int:
        """What all values take at once where `bind` with these arguments lays them.

        Nothing is allocated; weights and what engines take besides are not among it.
        """
        return self._plan(shape, device, dtype, exact=False, fuse=True)[0].peak_bytes

    def profile(self, shape: Any = None, dtype: str | None = None) -> tuple[Row, ...]:
        """The work of every node of the file: operations, bytes, and how many operations a byte.

        Nothing is measured: `bind(...).profile(...)` does that, of the steps after fusion.

        Args:
            shape, dtype: as of `bind`.

        Raises ArgumentError, ShapeError, DtypeError.
        """
        graph = _in(self.graph, dtype)
        return rows(graph, tensors(graph, sizes_of(graph, shape)))

    def planned(self, shape: Any, device: Device) -> Plan:
        """What `bind` follows, with every step's predicted seconds."""
        return self._plan(shape, device, None, exact=False, fuse=True)[0]

    def _plan(
        self, shape: Any, device: Device | str, dtype: str | None, exact: bool, fuse: bool
    ) -> tuple[Plan, tuple[AnyEngine, ...]]:
        chosen = device_of(device, self.graph)
        whole = _in(with_int8(self.graph) if fuse else self.graph, dtype)
        sizes = sizes_of(self.graph, shape)
        absent = _WIDENED.get(chosen.backend, ())
        graph, outside = widened(whole, absent)
        kinds = () if graph is whole else tuple(sorted({*absent} & {*types(whole).values()}))
        adds = chosen.backend == "host"
        graph = simplified(graph, tensors(graph, sizes), fuse=fuse, whole_adds=adds)
        engines, others = conv_engines(chosen.backend), value_engines(chosen.backend)
        found = tensors(graph, sizes)
        products = product_engines(chosen)
        plan = planned(graph, found, chosen, engines, others, outside, products, exact=exact)
        return replace(plan, widened=kinds), (*engines, *others)

    def checked(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """What a run is given, as arrays by name; raises what `run` does."""
        found = matched([source.name for source in self.inputs], inputs, named)
        check_one_library(found)
        sizes: dict[str, int] = {}
        return {source.name: _fitting(source, found[source.name], sizes) for source in self.inputs}


def _in(graph: Graph, dtype: Any) -> Graph:
    """The graph in a type that values may be stored in: its name, or NumPy's or torch's type."""
    if dtype is None:
        return graph
    name = str(getattr(dtype, "__name__", dtype)).removeprefix("torch.")
    if name not in DTYPES:
        raise DtypeError(f"dtype={short(dtype)}: accepted are {', '.join(DTYPES)}")
    return retyped(graph, name)


def _fitting(source: Input, array: Any, sizes: dict[str, int]) -> Any:
    """An array as an input takes it; `sizes` of free dimensions are the same everywhere."""
    check_kind(array, f"input {source.name!r}")
    check_shape(source, tuple(array.shape), sizes)
    dtype = str(array.dtype).split(".")[-1]
    if dtype != source.dtype and not (source.dtype == "bfloat16" and dtype == "float32"):
        raise DtypeError(f"input {source.name!r}: {dtype}; accepted is {source.dtype}")
    if not isinstance(array, np.ndarray | np.generic):
        return array
    return evaluate.rounded(array, source.dtype)
