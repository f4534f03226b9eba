"""The outermost part of ONNX files: bytes to a parsed model whose versions are understood.

`onnx.checker` is not asked: it refuses outputs whose rank no exporter wrote, which onnxruntime runs
and many files have. What it knows of nodes (numbers of inputs, attributes and their types) is asked
of the same tables, `onnx.defs`, by schemas.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.errors import FileError

MISSING = "onnx is not installed; 'pip install tilewright[onebit]' brings it"
OPSETS = (7, 28)  # below 7 constants are broadcast by attributes; beyond 28 nothing was tried
IR_VERSIONS = (3, 14)
DOMAINS = ("", "ai.onnx")  # of ONNX's own operators
_LARGEST_FILE = 1 << 31  # protobuf's own limit


def content_of(path: Path, label: str) -> bytes:
    """A file's bytes. Raises FileError for what is absent or larger than protobuf takes."""
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise FileError(f"{label}: {size} bytes; accepted are files up to 2 GiB")
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{label}: cannot be read ({error.strerror})") from None


def model_of(content: bytes, label: str) -> Any:
    """The ModelProto. Raises FileError for bytes that are none, and for one without nodes."""
    try:
        import onnx
    except ImportError:
        raise FileError(f"{label}: {MISSING}") from None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # of protobuf, which onnx does not name
        raise FileError(f"{label}: no ONNX model ({error}); accepted is a whole file") from None
    if not model.graph.node:
        raise FileError(f"{label}: no ONNX model, or one without nodes")
    if model.graph.sparse_initializer or model.functions:
        raise FileError(f"{label}: has sparse weights or functions; accepted are plain graphs")
    return model


def opset_of(model: Any, label: str) -> int:
    """The version of ONNX's own operators; those of others may be imported and not used."""
    low, high = IR_VERSIONS
    if not low <= model.ir_version <= high:
        raise FileError(f"{label}: ir_version={model.ir_version}; accepted are {low} to {high}")
    found = [entry.version for entry in model.opset_import if entry.domain in DOMAINS]
    low, high = OPSETS
    if len(found) != 1 or not low <= found[0] <= high:
        said = ", ".join(map(str, found)) or "none"
        raise FileError(
            f"{label}: opset_import names opset {said}; accepted is one from {low} to {high}"
        )
    return int(found[0])


def unique_initializers(model: Any, label: str) -> Any:
    """The initializers. Raises FileError where two have one name."""
    names = [tensor.name for tensor in model.graph.initializer]
    if len(set(names)) < len(names):
        raise FileError(f"{label}: two initializers have one name")
    return model.graph.initializer
