"""Runs a graph by the definitions of its operators alone: slow, plain, what all else is held to.

On NumPy halves are computed as float32 and each value is rounded to its own type, so that float16
and bfloat16 mean the same there as on a device that stores them; bfloat16 is held as float32 whose
low bits are zero. A value goes after its last reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, DeviceMemoryError, OperandError, TilewrightError
from tilewright.nn.graph import Graph, Node
from tilewright.nn.operators.base import Operator


def namespace(array: Any) -> Any:
    """The array API of an array's library: NumPy itself, else array-api-compat's.

    Raises OperandError where array-api-compat is needed and not installed.
    """
    if isinstance(array, np.ndarray | np.generic):
        return np
    try:
        import array_api_compat
    except ImportError:
        raise OperandError(
            f"{type(array).__name__}: array-api-compat is not installed;"
            " 'pip install tilewright[nn]' brings it"
        ) from None
    return array_api_compat.array_namespace(array)


Look = Callable[[Any, Node, Sequence[Any]], None]


def run(
    graph: Graph,
    find: Any,
    kinds: Mapping[str, str],
    given: Mapping[str, Any],
    keep: Sequence[str] | None = None,
    look: Look | None = None,
) -> dict[str, Any]:
    """Values by name: the graph's outputs, or those in `keep`.

    find   the operator of a node
    kinds  element type of every value
    given  arrays of one library by the inputs' names, of those types
    look   what is asked of a node and its inputs before it is computed

    Raises ArgumentError, ShapeError, DeviceMemoryError that name the node.
    """
    wanted = set(graph.outputs if keep is None else keep)
    xp = namespace(next(iter(given.values()))) if given else np
    device = None if xp is np or not given else next(iter(given.values())).device
    values = {name: moved(xp, device, t.value, t.dtype) for name, t in graph.constants.items()}
    values.update(given)
    last = {name: at for at, node in enumerate(graph.nodes) for name in node.inputs}
    for at, node in enumerate(graph.nodes):
        inputs = [values[name] if name else None for name in node.inputs]
        with named(node):
            if look is not None:
                look(xp, node, inputs)
            made = computed(xp, find(node), node, inputs, [kinds.get(n, "") for n in node.outputs])
        values.update((n, v) for n, v in zip(node.outputs, made, strict=False) if n)
        for name in {*node.inputs, *node.outputs}:
            if last.get(name, -1) <= at and name not in wanted:
                values.pop(name, None)
    return {name: values[name] for name in wanted}


@contextmanager
def named(node: Node) -> Iterator[None]:
    """Errors of what is done inside as ours, with the node's name."""
    try:
        yield
    except MemoryError as error:
        raise DeviceMemoryError(f"{node.title}: {error}") from None
    except TilewrightError as error:
        raise type(error)(f"{node.title}: {error}") from None
    except (ValueError, IndexError, ArithmeticError) as error:
        raise ArgumentError(f"{node.title}: {error}") from None


def computed(
    xp: Any, operator: Operator, node: Node, given: Sequence[Any], dtypes: Sequence[str]
) -> list[Any]:
    """What a node gives by its definition, each array of the type that it should have."""
    if xp is not np:
        made = operator.compute(xp, node, *given)
        arrays = made if isinstance(made, tuple | list) else (made,)
        return [
            a if not d or a.dtype == getattr(xp, d) else xp.astype(a, getattr(xp, d))
            for a, d in zip(arrays, dtypes, strict=False)
        ]
    wide = [a.astype(np.float32) if _is_half(a) else a for a in given]
    with np.errstate(all="ignore"):
        made = operator.compute(np, node, *wide)
        arrays = made if isinstance(made, tuple | list) else (made,)
        return [rounded(a, d) if d else a for a, d in zip(arrays, dtypes, strict=False)]


def rounded(array: Any, dtype: str) -> NDArray:
    """A NumPy array as one of `dtype`; bfloat16 as float32 rounded to it, ties to even."""
    if dtype != "bfloat16" and getattr(array, "dtype", None) == dtype:
        return np.asarray(array)
    with np.errstate(all="ignore"):
        if dtype != "bfloat16":
            return np.asarray(array).astype(dtype)
        wide = np.asarray(array, np.float32)
        bits = np.ascontiguousarray(wide).reshape(-1).view(np.uint32)
        up = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        short = (bits + up) & np.uint32(0xFFFF0000)
        near: NDArray = np.where(np.isnan(wide.reshape(-1)), wide.reshape(-1), short.view("f4"))
    return near.reshape(wide.shape)


def moved(xp: Any, device: Any, value: Any, dtype: str) -> Any:
    """A constant's content where the graph runs."""
    if xp is np:
        return value
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    if not array.flags.writeable:
        array = array.copy()
    made = xp.asarray(array, device=device)
    return xp.astype(made, getattr(xp, dtype)) if str(made.dtype).split(".")[-1] != dtype else made


def _is_half(array: Any) -> bool:
    return array is not None and array.dtype == np.float16
