"""Arrays of the caller's kind: NumPy, torch, CuPy, pyopencl in, and the same kind out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.arrays import torch_private as private
from tilewright.arrays.array import Array, NDArray
from tilewright.arrays.views import is_pyopencl, loaded_torch, plain
from tilewright.errors import OperandError
from tilewright.wording import short


def dtype_name(array: Any) -> str:
    """The element type of any array by name."""
    return str(array.dtype).rpartition(".")[2]


def is_tensor(value: Any) -> bool:
    """Whether it is one of torch's."""
    torch = loaded_torch()
    return torch is not None and isinstance(value, torch.Tensor)


def check_kind(value: Any, name: str) -> None:
    """Raise OperandError for what is no array, has no elements to read, or more to it than they."""
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise OperandError(
            f"{name}={short(value)}: accepted are arrays of NumPy, torch, CuPy, pyopencl and"
            " tilewright"
        )
    if isinstance(value, np.ndarray):
        plain(value, name)
    elif is_tensor(value) and value.device.type == "meta":
        raise OperandError(
            f"{name}: a tensor of torch's device 'meta', which holds no elements; accepted are"
            " tensors in memory"
        )


def check_one_library(arrays: Mapping[str, Any]) -> None:
    """Raise OperandError where arrays, by name, are of several libraries, or of one of which there
    is no array API."""
    first = None
    for name, array in arrays.items():
        module = type(array).__module__.partition(".")[0]
        kind = "torch" if is_tensor(array) else "numpy" if isinstance(array, np.ndarray) else module
        if isinstance(array, Array) or is_pyopencl(array):
            raise OperandError(
                f"input {name!r}={type(array).__name__}: definitions take arrays of NumPy, torch"
                " and CuPy; networks that are bound take this one, too"
            )
        first = first or (name, kind)
        if kind != first[1]:
            raise OperandError(
                f"input {name!r} is of {kind}, input {first[0]!r} of {first[1]}; accepted are"
                " arrays of one library"
            )


def check_unseen(value: Any, name: str) -> None:
    """Raise OperandError for a tensor whose gradient, tangent or tracer would be lost."""
    torch = loaded_torch()
    if torch is None or not isinstance(value, torch.Tensor):
        return
    why = None
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        why = type(value).__name__
    elif value.layout is not torch.strided:
        why = f"a tensor of layout {value.layout}"
    elif value.requires_grad and torch.is_grad_enabled():
        why = "a tensor that requires a gradient"
    elif is_traced(torch):
        why = "a tensor inside a transform, a mode or forward-mode differentiation"
    if why is not None:
        raise OperandError(
            f"{name}: {why}; bound networks give no gradients: accepted are plain tensors under"
            " torch.no_grad(), or after .detach()"
        )


def is_traced(torch: Any) -> bool:
    """Whether something of torch's looks at every operation: vmap, a mode, a tracer, tangents."""
    modes, transform, trace = (find(torch) for find in _TRACERS)
    level = private.forward_level(torch)
    return bool(modes() or transform() is not None or trace() is not None or level >= 0)


_TRACERS = (private.modes, private.transform, private.trace)


def copied(into: Any, value: Any) -> Any:
    """`into`, a tensor, after a copy: torch refuses inference tensors outside of inference mode."""
    if not into.is_inference():
        return into.copy_(value)
    from tilewright.inputs.tensors import writing

    with writing(into):
        return into.copy_(value)


def is_writable(value: Any) -> bool:
    """Whether an array may be written to, as far as it says."""
    return value.flags.writeable if isinstance(value, np.ndarray) else True


def to_numpy(value: Any, name: str) -> NDArray:
    """Any array as NumPy's, without a copy where it lies in the host's memory.

    bfloat16 comes as float32, which holds every such number. Raises OperandError.
    """
    if isinstance(value, np.ndarray):
        return plain(value, name)
    if is_tensor(value):
        host = value.detach().cpu().resolve_neg()
        wide = host.float() if dtype_name(host) == "bfloat16" else host
        array: NDArray = wide.numpy()
        return array
    if isinstance(value, Array):
        return np.asarray(value)
    if is_pyopencl(value) or type(value).__module__.partition(".")[0] == "cupy":
        return np.asarray(value.get())
    try:
        return np.from_dlpack(value)
    except (TypeError, AttributeError, BufferError, RuntimeError, ValueError):
        raise OperandError(
            f"{name}={type(value).__name__}: accepted are arrays of NumPy, torch, CuPy, pyopencl"
            " and tilewright, and CPU arrays with __dlpack__"
        ) from None


def maker(like: Any) -> Callable[[NDArray, str], Any]:
    """What makes of a NumPy array, of an element type by name, one of the kind of `like`."""
    if is_tensor(like):
        torch = loaded_torch()
        return lambda array, dtype: torch.from_numpy(array).to(like.device, getattr(torch, dtype))
    if is_pyopencl(like):
        import pyopencl.array

        return lambda array, _: pyopencl.array.to_device(like.queue, array)
    if type(like).__module__.partition(".")[0] == "cupy":
        import cupy

        return lambda array, _: cupy.asarray(array)
    if isinstance(like, Array):
        from tilewright.inputs.make import asarray

        return lambda array, _: asarray(array, device=like.device)
    return lambda array, _: array
