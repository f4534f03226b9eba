"""ONNX's tensors as arrays, their claims compared with the bytes that are there first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.graph import Tensor

# ONNX's element types: ours, bytes of an element, the field of unpacked numbers.
TYPES = {
    "FLOAT": ("float32", 4, "float_data"),
    "FLOAT16": ("float16", 2, "int32_data"),
    "BFLOAT16": ("bfloat16", 2, "int32_data"),
    "DOUBLE": ("float64", 8, "double_data"),
    "INT64": ("int64", 8, "int64_data"),
    "INT32": ("int32", 4, "int32_data"),
    "INT16": ("int16", 2, "int32_data"),
    "INT8": ("int8", 1, "int32_data"),
    "UINT64": ("uint64", 8, "uint64_data"),
    "UINT32": ("uint32", 4, "uint64_data"),
    "UINT16": ("uint16", 2, "int32_data"),
    "UINT8": ("uint8", 1, "int32_data"),
    "BOOL": ("bool", 1, "int32_data"),
}


def name_of(number: int) -> str | None:
    """Our name of one of ONNX's element types; None where we have none."""
    from onnx import TensorProto

    return next((v[0] for k, v in TYPES.items() if getattr(TensorProto, k) == number), None)


def array_of(tensor: Any, label: str, what: str) -> NDArray:
    """A TensorProto that holds its own numbers, as an array. Raises FileError."""
    from onnx import TensorProto, numpy_helper

    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        raise FileError(f"{label}: {what} lies in another file; accepted are models in one file")
    _, width, field = _kind_of(tensor, label, what)
    count = math.prod(tensor.dims)
    there = len(tensor.raw_data) / width if tensor.raw_data else len(getattr(tensor, field))
    if any(size < 0 for size in tensor.dims) or count != there:
        raise FileError(
            f"{label}: {what} claims {list(tensor.dims)}, {count} elements; it holds {there:g}"
        )
    try:
        array: NDArray = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError) as error:
        raise FileError(f"{label}: {what} cannot be read ({error})") from None
    return array


def tensor_of(tensor: Any, label: str, what: str, folder: Path | None) -> Tensor:
    """A TensorProto as a constant of a graph; data in other files of `folder` are read.

    Raises FileError.
    """
    from onnx import TensorProto

    if tensor.data_location == TensorProto.EXTERNAL:
        array = _from_file(tensor, label, what, folder)
    else:
        array = array_of(tensor, label, what)
    return constant(array)


def constant(array: NDArray) -> Tensor:
    """An array as a constant; ml_dtypes' bfloat16, which onnx gives, is held as float32."""
    name = str(array.dtype)
    held = array.astype(np.float32) if name == "bfloat16" else np.asarray(array)
    return Tensor(held.shape, name, held)


def content_of_constant(given: Mapping[str, Any]) -> NDArray:
    """The one number, list or tensor of a Constant's attributes. Raises FileError."""
    kinds = {
        "value": None,
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    if len(given) != 1 or not set(given) <= set(kinds):
        raise FileError(f"attributes {sorted(given)}; accepted is one of {', '.join(kinds)}")
    ((name, value),) = given.items()
    return np.asarray(value, kinds[name])


def _kind_of(tensor: Any, label: str, what: str) -> tuple[str, int, str]:
    """The element type of a TensorProto. Raises FileError for one that is not accepted."""
    from onnx import TensorProto

    found = next((v for k, v in TYPES.items() if getattr(TensorProto, k) == tensor.data_type), None)
    if found is None:
        number = tensor.data_type
        raise FileError(f"{label}: {what} is of type {number}; accepted are {', '.join(TYPES)}")
    return found


def _from_file(tensor: Any, label: str, what: str, folder: Path | None) -> NDArray:
    """Numbers that lie in a file beside the model, or in a folder below it."""
    if folder is None:
        raise FileError(
            f"{label}: {what} lies in another file; accepted are bytes of models in one file"
        )
    name, width, _ = _kind_of(tensor, label, what)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _inside(entries.get("location", ""), label, what, folder)
    begin, length = (_number(entries, key, label, what) for key in ("offset", "length"))
    needed = width * math.prod(tensor.dims)
    try:
        size = path.stat().st_size
        there = size - begin if length is None else min(length, size - begin)
        if any(d < 0 for d in tensor.dims) or needed != (needed if length is None else length):
            raise FileError(
                f"{label}: {what} claims {list(tensor.dims)}, {needed} bytes; its length is"
                f" {length}"
            )
        if needed > there:
            raise FileError(
                f"{label}: {what} claims {list(tensor.dims)}, {needed} bytes; {path.name!r} has"
                f" {max(there, 0)} of them"
            )
        with path.open("rb") as file:
            file.seek(begin)
            content = file.read(needed)
    except OSError as error:
        raise FileError(
            f"{label}: {what}: {path.name!r} cannot be read ({error.strerror})"
        ) from None
    return _unpacked(content, name, tuple(tensor.dims))


def _unpacked(content: bytes, name: str, shape: tuple[int, ...]) -> NDArray:
    if name != "bfloat16":
        return np.frombuffer(content, np.dtype(name).newbyteorder("<")).reshape(shape)
    import ml_dtypes

    short: NDArray = np.frombuffer(content, np.dtype("<u2")).view(ml_dtypes.bfloat16)
    return short.reshape(shape)


def _inside(location: str, label: str, what: str, folder: Path) -> Path:
    """A file of the model's folder, links followed. Raises FileError for any other."""
    try:
        home = folder.resolve()
        path = (home / location).resolve()
        fine = bool(location) and path.is_relative_to(home) and path.is_file()
    except (OSError, ValueError, RuntimeError):
        fine = False
    if not fine:
        raise FileError(
            f"{label}: {what} lies in {location!r}; accepted are files in the model's folder"
        )
    return path


def _number(entries: dict[str, str], key: str, label: str, what: str) -> Any:
    text = entries.get(key)
    if text is None:
        return None if key == "length" else 0
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise FileError(f"{label}: {what}: {key}={text!r}; accepted are whole numbers from 0")
    return int(text)
