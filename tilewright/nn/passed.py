"""What a caller passes to a network, checked before anything is written: inputs, `out`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.nn.apart import check_single
from tilewright.nn.kinds import check_kind, check_unseen, dtype_name, is_writable
from tilewright.nn.plan import Plan

_HALVES = ("float16", "bfloat16")
# Types of inputs that are taken for others: rounded to halves, or widened.
_TAKEN = frozenset(pair for half in _HALVES for pair in ((half, "float32"), ("float32", half)))


def matched(
    names: Sequence[str], inputs: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Arrays by the names of inputs, each once. Raises ArgumentError."""
    if len(inputs) > len(names):
        raise ArgumentError(f"{len(inputs)} inputs; accepted are {len(names)}: {names}")
    found = dict(zip(names, inputs, strict=False))
    for name, array in named.items():
        if name in found or name not in names:
            raise ArgumentError(f"input {name!r}: accepted is each of {names} once")
        found[name] = array
    absent = [name for name in names if name not in found]
    if absent:
        raise ArgumentError(f"input {absent[0]!r} is absent; accepted are {names}")
    return found


def inputs_of(plan: Plan, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by name, of the sizes and types that the plan is for. Raises errors by name."""
    found = matched([source.name for source in plan.graph.inputs], inputs, named)
    for name, array in found.items():
        check_kind(array, f"input {name!r}")
        check_unseen(array, f"input {name!r}")
        sizes, wanted = plan.tensors[name].shape, plan.dtype_of(name)
        if tuple(array.shape) != sizes:
            raise ShapeError(f"input {name!r}: shape {list(array.shape)}; bound for {list(sizes)}")
        dtype = dtype_name(array)
        if dtype != wanted and (dtype, wanted) not in _TAKEN:
            raise DtypeError(f"input {name!r}: {dtype}; accepted is {wanted}")
    return found


def outs_of(plan: Plan, out: Any, results: Mapping[str, Any]) -> tuple[Any, ...]:
    """An `out` for each output, or None. Raises errors that name it.

    results: planned arrays of outputs, which are taken as they are.
    """
    names = plan.graph.outputs
    if out is None:
        return (None,) * len(names)
    several = tuple(out) if isinstance(out, tuple | list) else (out,)
    if len(several) != len(names):
        raise ArgumentError(
            f"out: {len(several)} given; accepted are {len(names)} arrays, one for each output"
        )
    for one, name in zip(several, names, strict=True):
        check_kind(one, "out")
        check_unseen(one, "out")
        tensor = plan.tensors[name]
        if tuple(one.shape) != tensor.shape:
            raise ShapeError(f"out.shape={list(one.shape)}: accepted is {list(tensor.shape)}")
        wanted = plan.dtype_of(name)
        wide = wanted == "bfloat16" and isinstance(one, np.ndarray)  # as NumPy holds it
        fits = one is results.get(name) or dtype_name(one) == ("float32" if wide else wanted)
        if not fits:
            raise DtypeError(f"out.dtype={dtype_name(one)}: accepted is {wanted}")
        if not is_writable(one):
            raise OperandError("out: it is read-only; accepted are arrays that may be written")
        check_single(one, "out")
    return several
