"""Others' implementations of ONNX, which imports are checked with: onnxruntime, onnx.reference.

    engine_for(graph, x)   the first that runs the whole file; onnxruntime where it is installed
    engine.node(...)       one node on its own, so that no value is kept that nobody reads any more
    sizes_of(...)          ONNX's own inference of a result's sizes, before any memory is taken

Nothing here knows what an operator means: that is what makes the check worth something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.onnx.graph import OPSETS, Graph, Node
from tilewright.wording import in_one_line

Sizes = tuple[int, ...]
_IR = 8  # of models of one node: that of no implementation's newest
_SMALL = 1 << 10  # elements of a constant that says how large a result is


class Engine(Protocol):
    """An implementation of ONNX."""

    @property
    def name(self) -> str:
        """Its name and version."""

    def node(self, node: Node, opset: int, given: Mapping[str, NDArray]) -> NDArray:
        """The value of one node."""

    def whole(self, graph: Graph, x: NDArray) -> NDArray:
        """The output of a whole file. Raises CannotRunError for what is not implemented."""


class CannotRunError(Exception):
    """An engine lacks an operator or a version; the file may be as it should."""


@dataclass(frozen=True, slots=True)
class OnnxRuntime:
    """onnxruntime on one core, its optimisations off: each node as it is written."""

    module: Any
    sessions: dict[str, Any] = field(default_factory=dict)  # by the value that each gives

    @property
    def name(self) -> str:
        """Its name and version."""
        return f"onnxruntime {self.module.__version__}"

    def node(self, node: Node, opset: int, given: Mapping[str, NDArray]) -> NDArray:
        """The value of one node."""
        return self._run(node.output, lambda: one_node(node, opset, given), given)

    def whole(self, graph: Graph, x: NDArray) -> NDArray:
        """The output of a whole file."""
        return self._run("", lambda: graph.content, {graph.input: x})

    def _run(self, key: str, model: Callable[[], Any], given: Mapping[str, NDArray]) -> NDArray:
        """A session's only output; sessions are for one graph, and for batches of one size."""
        try:
            session = self.sessions.get(key)
            if session is None:
                made = model()
                content = made if isinstance(made, bytes) else made.SerializeToString()
                session = self.sessions[key] = self._session(content)
            result: NDArray = session.run(None, dict(given))[0]
        except Exception as error:  # its classes have no base but Exception
            if type(error).__name__ in ("NotImplemented", "Fail"):
                raise CannotRunError(in_one_line(error)) from None
            raise FileError(f"{self.name} refuses it: {in_one_line(error)}") from None
        return result

    def _session(self, content: bytes) -> Any:
        options = self.module.SessionOptions()
        options.graph_optimization_level = self.module.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        options.enable_cpu_mem_arena = False
        providers = ["CPUExecutionProvider"]
        return self.module.InferenceSession(content, options, providers=providers)


@dataclass(frozen=True, slots=True)
class Reference:
    """ONNX's own evaluation in NumPy."""

    version: str

    @property
    def name(self) -> str:
        """Its name and version."""
        return f"onnx.reference {self.version}"

    def node(self, node: Node, opset: int, given: Mapping[str, NDArray]) -> NDArray:
        """The value of one node."""
        return self._run(one_node(node, opset, given), given)

    def whole(self, graph: Graph, x: NDArray) -> NDArray:
        """The output of a whole file, once ONNX has found its types and sizes consistent."""
        from onnx import shape_inference

        try:
            shape_inference.infer_shapes(graph.content, check_type=True, strict_mode=True)
        except Exception as error:  # of C++
            raise FileError(f"ONNX refuses it: {in_one_line(error)}") from None
        return self._run(graph.content, {graph.input: x})

    def _run(self, model: Any, given: Mapping[str, NDArray]) -> NDArray:
        import onnx
        from onnx.reference import ReferenceEvaluator

        try:
            model = onnx.load_from_string(model) if isinstance(model, bytes) else model
            with np.errstate(all="ignore"):
                return np.asarray(ReferenceEvaluator(model).run(None, dict(given))[0])
        except Exception as error:  # whatever NumPy raises for what does not fit
            raise CannotRunError(in_one_line(error)) from None


def engines() -> tuple[Engine, ...]:
    """Those that are installed, the most used one first."""
    import onnx

    reference = Reference(onnx.__version__)
    try:
        import onnxruntime
    except ImportError:
        return (reference,)
    return OnnxRuntime(onnxruntime), reference


def engine_for(graph: Graph, x: NDArray) -> tuple[Engine, NDArray]:
    """The first engine that runs the whole file, and its output for `x`."""
    reasons = []
    for engine in engines():
        try:
            return engine, engine.whole(graph, x)
        except CannotRunError as error:
            reasons.append(f"{engine.name}: {error}")
        except FileError as error:
            raise FileError(f"{graph.label}: {error}") from None
    raise FileError(
        f"{graph.label}: nobody runs it, so it cannot be checked ({'; '.join(reasons)})"
    )


def folded(graph: Graph, node: Node, given: Mapping[str, NDArray]) -> NDArray:
    """The value of a node whose inputs are constants. Raises FileError that names it."""
    reasons = []
    for engine in engines():
        try:
            return engine.node(node, graph.opset, given)
        except (CannotRunError, FileError) as error:
            reasons.append(str(error))
    raise graph.refuse(node, "; ".join(reasons))


def sizes_of(
    graph: Graph,
    node: Node,
    shapes: Mapping[str, tuple[Sizes, int]],
    constants: Mapping[str, NDArray],
) -> tuple[Sizes, int]:
    """Sizes and element type of a node's value from those of its inputs, by ONNX's inference."""
    from onnx import defs, helper, numpy_helper, shape_inference

    known = {name for name in node.inputs if name}
    types = {
        name: helper.make_tensor_type_proto(kind, s) for name in known for s, kind in [shapes[name]]
    }
    data = {
        name: numpy_helper.from_array(constants[name], name)
        for name in known
        if name in constants and constants[name].size <= _SMALL
    }
    for opset in (graph.opset, OPSETS[1]):  # version 12 of GreaterOrEqual infers nothing
        schema = defs.get_schema(node.op, opset, "")
        imports = [helper.make_opsetid("", opset)]
        try:
            found = shape_inference.infer_node_outputs(
                schema, node.proto, types, data, opset_imports=imports, ir_version=_IR
            )[node.output].tensor_type
        except Exception as error:  # of C++
            raise graph.refuse(node, in_one_line(error)) from None
        dims = found.shape.dim if found.HasField("shape") else None
        if dims is not None and all(d.HasField("dim_value") for d in dims):
            return tuple(int(d.dim_value) for d in dims), int(found.elem_type)
    raise graph.refuse(node, "its sizes are not known before it is computed")


def one_node(node: Node, opset: int, given: Mapping[str, NDArray]) -> Any:
    """A model of this node alone; what is given are its inputs."""
    from onnx import ValueInfoProto, helper

    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in given.items()
    ]
    graph = helper.make_graph([node.proto], "node", inputs, [ValueInfoProto(name=node.output)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR)
