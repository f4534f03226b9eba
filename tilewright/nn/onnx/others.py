"""Others' implementations of ONNX, which imports are checked with: onnxruntime, onnx.reference.

    engine_for(file, x)   the first that runs the whole file; onnxruntime where it is installed
    engine.node(...)      one node on its own, so that no value is kept that nobody reads any more

Nothing here knows what an operator means: that is what makes the check worth something.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.onnx.file import File
from tilewright.nn.onnx.model import OPSETS
from tilewright.wording import in_one_line

_IR = 8  # of models of one node: that of no implementation's newest


class CannotRunError(Exception):
    """An engine lacks an operator or a version; the file may be as it should."""


class Engine(ABC):
    """An implementation of ONNX, by its name and version."""

    name: str

    def node(self, node: Node, given: Mapping[str, NDArray]) -> NDArray:
        """The value of one node."""
        return self._run(node.outputs[0], lambda: one_node(node, given).SerializeToString(), given)

    def whole(self, file: File, x: NDArray) -> NDArray:
        """The output of a whole file. Raises CannotRunError for what is not implemented."""
        return self._run("", lambda: file.content, {file.input: x})

    @abstractmethod
    def _run(self, key: str, model: Callable[[], bytes], given: Mapping[str, NDArray]) -> NDArray:
        """The only output of the model that a node's value, or "" for a whole file, names."""


class OnnxRuntime(Engine):
    """onnxruntime on one core, its optimisations off: each node as it is written."""

    def __init__(self, module: Any) -> None:
        self.name = f"onnxruntime {module.__version__}"
        self._module = module
        self._sessions: dict[str, Any] = {}  # for one graph, and for batches of one size

    def _run(self, key: str, model: Callable[[], bytes], given: Mapping[str, NDArray]) -> NDArray:
        try:
            if key not in self._sessions:
                self._sessions[key] = self._session(model())
            result: NDArray = self._sessions[key].run(None, dict(given))[0]
        except Exception as error:  # its classes have no base but Exception
            if type(error).__name__ in ("NotImplemented", "Fail"):
                raise CannotRunError(in_one_line(error)) from None
            raise FileError(f"{self.name} refuses it: {in_one_line(error)}") from None
        return result

    def _session(self, content: bytes) -> Any:
        options = self._module.SessionOptions()
        options.graph_optimization_level = self._module.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        options.enable_cpu_mem_arena = False
        providers = ["CPUExecutionProvider"]
        return self._module.InferenceSession(content, options, providers=providers)


class Reference(Engine):
    """ONNX's own evaluation in NumPy."""

    def __init__(self, version: str) -> None:
        self.name = f"onnx.reference {version}"

    def _run(self, key: str, model: Callable[[], bytes], given: Mapping[str, NDArray]) -> NDArray:
        """Of a whole file once ONNX has found its types and sizes consistent."""
        import onnx
        from onnx import shape_inference
        from onnx.reference import ReferenceEvaluator

        content = model()
        try:
            if not key:
                shape_inference.infer_shapes(content, check_type=True, strict_mode=True)
        except Exception as error:  # of C++
            raise FileError(f"ONNX refuses it: {in_one_line(error)}") from None
        try:
            with np.errstate(all="ignore"):
                evaluator = ReferenceEvaluator(onnx.load_from_string(content))
                return np.asarray(evaluator.run(None, dict(given))[0])
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
