"""Others' implementations of ONNX, which imports are checked with: onnxruntime, onnx.reference.

    engine_for(file, x)   the first that runs the whole file; onnxruntime where it is installed
    engine.node(...)      one node on its own, so that no value is kept that nobody reads any more

Nothing here knows what an operator means: that is what makes the check worth something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.onnx.file import File
from tilewright.nn.onnx.model import OPSETS
from tilewright.wording import in_one_line

_IR = 8  # of models of one node: that of no implementation's newest


class Engine(Protocol):
    """An implementation of ONNX."""

    @property
    def name(self) -> str:
        """Its name and version."""

    def node(self, node: Node, given: Mapping[str, NDArray]) -> NDArray:
        """The value of one node."""

    def whole(self, file: File, x: NDArray) -> NDArray:
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

    def node(self, node: Node, given: Mapping[str, NDArray]) -> NDArray:
        """The value of one node."""
        return self._run(node.outputs[0], lambda: one_node(node, given), given)

    def whole(self, file: File, x: NDArray) -> NDArray:
        """The output of a whole file."""
        return self._run("", lambda: file.content, {file.input: x})

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

    def node(self, node: Node, given: Mapping[str, NDArray]) -> NDArray:
        """The value of one node."""
        return self._run(one_node(node, given), given)

    def whole(self, file: File, x: NDArray) -> NDArray:
        """The output of a whole file, once ONNX has found its types and sizes consistent."""
        from onnx import shape_inference

        try:
            shape_inference.infer_shapes(file.content, check_type=True, strict_mode=True)
        except Exception as error:  # of C++
            raise FileError(f"ONNX refuses it: {in_one_line(error)}") from None
        return self._run(file.content, {file.input: x})

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


def engine_for(file: File, x: NDArray) -> Engine:
    """The first engine that runs the whole file."""
    reasons = []
    for engine in engines():
        try:
            engine.whole(file, x)
        except CannotRunError as error:
            reasons.append(f"{engine.name}: {error}")
        except FileError as error:
            raise FileError(f"{file.label}: {error}") from None
        else:
            return engine
    raise FileError(f"{file.label}: nobody runs it, so it cannot be checked ({'; '.join(reasons)})")


def one_node(node: Node, given: Mapping[str, NDArray]) -> Any:
    """A model of this node alone; what is given are its inputs."""
    from onnx import ValueInfoProto, helper

    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in given.items()
    ]
    proto = helper.make_node(node.operator, node.inputs, node.outputs, **node.attributes)
    graph = helper.make_graph([proto], "node", inputs, [ValueInfoProto(name=node.outputs[0])])
    opset = helper.make_opsetid("", max(OPSETS[0], node.version))
    return helper.make_model(graph, opset_imports=[opset], ir_version=_IR)
