"""The node tests of the ONNX package: models with inputs and results, run and compared as there.

    every case whose nodes are all operators that we declare -> import -> sizes inferred -> run

A case passes where element types, sizes and numbers are those of the standard, inferred ones too.
Inputs that sizes depend on (the shape given to Reshape) become constants of the model, since a
network is bound to sizes that are known before a run.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import nn
from tilewright.arrays.array import NDArray
from tilewright.errors import ShapeError, TilewrightError
from tilewright.nn import operators
from tilewright.nn.evaluate import rounded
from tilewright.nn.graph import Tensor
from tilewright.nn.infer import tensors
from tilewright.nn.onnx.model import OPSETS

EXPANDED = "functions of several nodes"
# Cases that are refused, by name, and why.
REFUSED = (
    (r"(FLOAT8|FLOAT4|U?INT[24])|e4m3fn|e5m2|e8m0|float4|float8|u?int[24](_|$)", "small types"),
    (r"^test_equal_string", "strings"),
    (r"^test_identity_(sequence|opt)$", "sequences and optional values"),
    (r"^test_training_dropout(_default)?(_mask)?$", "training"),
)
REASONS = {
    "small types": "element types of 8, 4 and 2 bits that NumPy has not",
    "strings": "element types that are no numbers",
    "sequences and optional values": "values that are no arrays",
    "training": "training, which drops elements at random",
}
Run = Callable[[nn.Network, Sequence[NDArray]], Sequence[NDArray]]


def declared() -> list[str]:
    """The operators here that ONNX has; others are made by passes."""
    from onnx import defs

    return [name for name in operators.found() if defs.has(name)]


@functools.cache
def cases() -> dict[str, list[Any]]:
    """Cases by the operator of the only node; those of several nodes under `EXPANDED`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        every = load_model_tests(kind="node")
    found: dict[str, list[Any]] = {name: [] for name in (*declared(), EXPANDED)}
    for case in every:
        nodes = case.model.graph.node
        opsets = {entry.domain: entry.version for entry in case.model.opset_import}
        ours = all(node.op_type in found and node.domain == "" for node in nodes)
        if ours and OPSETS[0] <= opsets.get("", 0) <= OPSETS[1]:
            found[nodes[0].op_type if len(nodes) == 1 else EXPANDED].append(case)
    return found


def refusal(case: Any, run: Run | None = None) -> str | None:
    """None where a case passes, the error's text where it is refused; else AssertionError.

    run: how a network is run; by its definitions on NumPy by default.
    """
    for given, wanted in case.data_sets:
        inputs, outputs = ([_array(value) for value in values] for values in (given, wanted))
        try:
            made = _made(case.model, inputs, run or _by_definition)
        except TilewrightError as error:
            return str(error)
        _compare(made, outputs, case)
    return None


def listed(name: str) -> str | None:
    """Why a case of this name is to be refused; None where it is to pass."""
    return next((why for pattern, why in REFUSED if re.search(pattern, name)), None)


def _array(value: Any) -> NDArray:
    """Some values are ONNX's tensors; of sequences and optional values, whatever NumPy makes."""
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    return np.asarray(value, None if hasattr(value, "dtype") else object)


def _by_definition(net: nn.Network, inputs: Sequence[NDArray]) -> Sequence[NDArray]:
    made = net.run(*inputs)
    return made if isinstance(made, tuple) else (made,)


def _made(model: Any, inputs: list[NDArray], run: Run) -> list[tuple[str, NDArray]]:
    """Element types and arrays of the outputs, found to have the sizes that are inferred."""
    wide = [rounded(a, "bfloat16") if a.dtype.name == "bfloat16" else a for a in inputs]
    net, known = _inferred(model, inputs, wide)
    arrays = run(net, wide[: len(net.inputs)])
    for name, array in zip(net.outputs, arrays, strict=True):
        assert known[name].shape == array.shape, (known[name].shape, array.shape)
    return [(net.types[n], array) for n, array in zip(net.outputs, arrays, strict=True)]


def _inferred(
    model: Any, inputs: Sequence[NDArray], wide: Sequence[NDArray]
) -> tuple[nn.Network, dict[str, Tensor]]:
    """The network and what is known of its values, with as few constants as will do."""
    for kept in (len(inputs), 1, 0):
        net = nn.import_onnx(_with_constants(model, inputs, kept))
        sizes = zip(net.inputs, wide[:kept], strict=True)
        try:
            return net, tensors(net.graph, {source.name: array.shape for source, array in sizes})
        except ShapeError as error:
            if "accepted are constants" not in str(error):
                raise
    raise AssertionError("sizes are not known although all inputs are")


def _with_constants(model: Any, inputs: Sequence[NDArray], kept: int) -> bytes:
    """The model with all inputs but the first `kept` as initializers."""
    from onnx import ModelProto, numpy_helper

    made = ModelProto()
    made.CopyFrom(model)
    names = [value.name for value in model.graph.input]
    for name, array in list(zip(names, inputs, strict=True))[kept:]:
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    del made.graph.input[kept:]
    content: bytes = made.SerializeToString()
    return content


def _compare(made: Sequence[tuple[str, NDArray]], wanted: Sequence[Any], case: Any) -> None:
    """As ONNX's runner does."""
    assert len(made) == len(wanted)
    for (dtype, array), right in zip(made, wanted, strict=True):
        assert dtype == np.asarray(right).dtype.name, (dtype, np.asarray(right).dtype.name)
        assert array.shape == np.shape(right), (array.shape, np.shape(right))
        exact = right.astype(np.float32) if dtype == "bfloat16" else right
        np.testing.assert_allclose(array, exact, rtol=case.rtol, atol=case.atol)
