"""Any array in, the same kind out: NumPy, DLPack (PyTorch, JAX on the CPU), pyopencl, `Array`.

`view()` turns whatever a caller passed into a `View`: memory, element offset, shape and strides, no
copy. `like()` makes a result of the caller's own kind.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from tilewright.arrays import torch_private as private
from tilewright.arrays.array import FREE, Array, NDArray
from tilewright.arrays.exported import exported, is_here
from tilewright.errors import DtypeError, OperandError
from tilewright.facts.dtypes import COMPLEX, Dtype
from tilewright.wording import short

DTYPES = ("float16", "float32", "float64")
OF_HOST = (*DTYPES, *COMPLEX)  # that the host multiplies in its own memory
NO_COMPLEX = "no kernel of an OpenCL device multiplies complex numbers"
_LISTS = (
    "; lists of matrices are for grouped_matmul, and plan_grouped(…).explain() says how they go"
)
_Arguments = ParamSpec("_Arguments")
_Made = TypeVar("_Made")
_GPUS = (2, 10, 13)  # DLPack's numbers for CUDA, ROCm and CUDA's managed memory


@dataclass(frozen=True, slots=True)
class View:
    """Where an operand lies: `memory` is a NumPy array (host) or a device buffer.

    `offset` and `strides` count elements; for host memory the offset is zero, as the array itself
    starts at its first element. `queue` is the command queue that a foreign device array came with.
    """

    memory: Any
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Dtype
    host: bool
    queue: Any = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def swapped(self) -> View:
        """The same elements with the last two dimensions swapped."""
        (*lead, rows, cols), (*steps, row, col) = self.shape, self.strides
        memory = np.swapaxes(self.memory, -1, -2) if self.host else self.memory
        return self.laid(memory, (*lead, cols, rows), (*steps, col, row))

    def laid(self, memory: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
        """The same memory from the same place on, seen otherwise; `memory` has a host's new shape.

        dataclasses.replace takes 3 µs longer.
        """
        return View(memory, self.offset, shape, strides, self.dtype, self.host, self.queue)


def view_host(array: NDArray) -> View:
    """The view of a NumPy array."""
    size = array.itemsize
    return View(
        array, 0, array.shape, tuple(step // size for step in array.strides), array.dtype, True
    )


def view(value: Any, name: str) -> View:
    """The view of any array, without a copy.

    Raises OperandError for what is no array or lies on a device that this call cannot reach,
    DtypeError for element types other than those of `OF_HOST`, on a device of `DTYPES`.
    """
    if isinstance(value, np.ndarray):
        return _view_numpy(plain(value, name), name)
    if isinstance(value, Array):
        if value.memory.mapped:
            raise OperandError(f"{name}={value!r}: it is mapped; {FREE}")
        return _view_array(value)
    if is_pyopencl(value):
        check_dtype(value.dtype, name, complex_too=False)
        return _view_pyopencl(value, name)
    if hasattr(value, "__dlpack__"):
        return _view_numpy(_from_dlpack(value, name), name)
    of_many = isinstance(value, (list, tuple)) and any(hasattr(one, "shape") for one in value)
    raise OperandError(
        f"{name}={short(value)}: not an array; accepted are NumPy, pyopencl and tilewright arrays"
        f" and any CPU array with __dlpack__{_LISTS if of_many else ''}"
    )


def _view_numpy(array: NDArray, name: str) -> View:
    check_dtype(array.dtype, name)
    return view_host(_whole_steps(array, name))


def plain(value: NDArray, name: str) -> NDArray:
    """The elements of a subclass of ndarray as a plain array, where that is all there is to them.

    matrix and memmap are plain. A mask would be lost here, and so would a unit: refused is what
    gives NumPy's functions a meaning of its own. Raises OperandError.
    """
    kind = type(value)
    if kind is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise OperandError(
            f"{name}={kind.__name__}: its mask would be lost; accepted are plain arrays, as"
            " .filled(0) gives one"
        )
    if kind.__array_ufunc__ is not np.ndarray.__array_ufunc__:
        raise OperandError(
            f"{name}={kind.__name__}: gives products a meaning of its own; accepted are plain"
            " arrays, as numpy.asarray gives one"
        )
    return value.view(np.ndarray)


def host_array(value: Any, name: str) -> NDArray:
    """Anything of which NumPy makes an array, to be copied: a list of numbers, too.

    Raises OperandError where it makes none, or one that is not all there was.
    """
    if isinstance(value, np.ndarray):
        return plain(value, name)
    if hasattr(value, "__dlpack__") and not isinstance(value, Array) and not is_pyopencl(value):
        return _from_dlpack(value, name)
    try:
        return np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise OperandError(f"{name}={short(value)}: not an array of numbers: {error}") from None


def _whole_steps(array: NDArray, name: str) -> NDArray:
    """The array itself, or a copy where its steps are no multiples of an element (packed records).

    Kernels count in elements, so the product could not be written there either.
    """
    size = array.itemsize
    if array.flags.aligned and not any(size and step % size for step in array.strides):
        return array
    if name.startswith("out"):
        raise OperandError(
            f"{name}.strides={array.strides} bytes: accepted are aligned arrays with steps of whole"
            f" elements ({size} bytes)"
        )
    return array.copy()


def _view_array(value: Array) -> View:
    if value.device.backend == "host":
        shaped: NDArray = np.lib.stride_tricks.as_strided(
            value.memory.map().view(value.dtype),
            value.shape,
            tuple(step * value.dtype.itemsize for step in value.strides),
        )
        value.memory.unmap()
        return view_host(shaped)
    handle = value.memory.buffer  # type: ignore[attr-defined]
    return View(handle, 0, value.shape, value.strides, value.dtype, False)


def _view_pyopencl(value: Any, name: str) -> View:
    """Ordered after what the array waits for, wherever that runs, by its own queue.

    Raises OperandError where it lies between elements, as kernels count in elements.
    """
    size = value.dtype.itemsize
    if size and any(step % size for step in (value.offset, *value.strides)):
        raise OperandError(
            f"{name}: begins at byte {value.offset} with steps of {value.strides} bytes; accepted"
            f" are multiples of an element's {size} bytes"
        )
    foreign = [event for event in value.events if event.command_queue != value.queue]
    if foreign and value.queue is not None:
        import pyopencl

        pyopencl.enqueue_barrier(value.queue, wait_for=foreign)
    strides = tuple(step // size for step in value.strides)
    offset = value.offset // size
    return View(value.base_data, offset, value.shape, strides, value.dtype, False, value.queue)


def _from_dlpack(value: Any, name: str) -> NDArray:
    if hasattr(value, "__dlpack_device__") and not is_here(value):
        raise OperandError(
            f"{name}={short(value)}: lies on a device that no back end here reaches; move it to"
            " the CPU or to a tilewright or pyopencl array"
        )
    # Autograd's tensors refuse to export themselves; their data does not.
    if hasattr(value, "detach") and _is_followed(value):
        raise OperandError(
            f"{name}={short(value)}: requires a gradient or has a tangent, which would be lost"
            " here; accepted are its .detach(), calls under torch.no_grad(), and operands that are"
            " all tensors"
        )
    return exported(value, name, loaded_torch())


def loaded_torch() -> Any:
    """torch where the program has imported it; None, too, while another thread is importing it."""
    if not _is_torch_loaded():
        return None
    import torch

    return torch


def is_compiling() -> bool:
    """Whether a compiler of torch's looks on."""
    if not _is_torch_loaded():
        return False
    import torch

    found: bool = torch.compiler.is_compiling()
    return found


def unfollowed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, or where a compiler looks on, one that it calls and does not follow."""
    if not is_compiling():
        return function
    from tilewright.arrays import untraced

    return partial(untraced.call, function)


def never_followed(function: Callable[_Arguments, _Made]) -> Callable[_Arguments, _Made]:
    """The function, which compilers of torch's call as it is: followed into words of bits and
    engines of machine code, a call was 90 compiled frames, 1 to 2 s, and 1.3 ms ever after."""

    @wraps(function)
    def called(*given: _Arguments.args, **options: _Arguments.kwargs) -> _Made:
        if not (is_compiling() or _is_each_call_compiled()):
            return function(*given, **options)
        from tilewright.arrays import untraced

        made: _Made = untraced.call(function, *given, **options)
        return made

    return called


def _is_each_call_compiled() -> bool:
    """Whether a compiler looks at every function that is called: while it runs what it did not
    compile, too, when `is_compiling` is False."""
    return _is_torch_loaded() and _frame_callback()() not in (None, False)


@cache
def _frame_callback() -> Callable[[], Any]:
    import torch

    found: Callable[[], Any] = private.frame_callback(torch)
    return found


@private.constant
def _is_torch_loaded() -> bool:
    """Whether there is torch, down to one of the names that it makes last.

    A compiler that traced into it would read all of `sys.modules`, and fail where another thread
    imports something meanwhile.
    """
    return hasattr(sys.modules.get("torch"), "compile")


def _is_followed(value: Any) -> bool:
    """Whether something of torch's looks for this tensor in what is made of it."""
    torch = loaded_torch()
    if torch is None or not isinstance(value, torch.Tensor):
        return False
    if value.requires_grad and torch.is_grad_enabled():
        return True
    if private.forward_level(torch) < 0:
        return False
    return torch.autograd.forward_ad.unpack_dual(value).tangent is not None


def check_dtype(
    dtype: np.dtype[Any], name: str, *, complex_too: bool = True, more: tuple[str, ...] = ()
) -> None:
    """Raise DtypeError unless the host multiplies such elements; OpenCL devices no complex ones.

    `more` are names of what else the caller takes.
    """
    if dtype.char in ("efdFD" if complex_too else "efd") and dtype.isnative:
        return  # OF_HOST or DTYPES; asking for a name takes 1.5 µs
    if dtype.kind == "c" and not complex_too:
        raise DtypeError(
            f"{name}.dtype={str(dtype)!r}: {NO_COMPLEX}; accepted are {', '.join(DTYPES)}, and"
            f" {' and '.join(COMPLEX)} in the host's memory"
        )
    accepted = ", ".join((*(OF_HOST if complex_too else DTYPES), *more))
    raise DtypeError(f"{name}.dtype={str(dtype)!r}: accepted are {accepted} in native byte order")


def like(value: Any) -> Callable[[NDArray], Any]:
    """How a NumPy result becomes an array of `value`'s kind."""
    if isinstance(value, np.ndarray):
        # A product of two vectors is a scalar, as NumPy's is.
        return lambda result: result[()]
    module: Any = sys.modules.get(type(value).__module__.partition(".")[0])
    if hasattr(value, "__array_namespace__"):  # JAX's arrays come from jaxlib, which makes none
        module = value.__array_namespace__()
    convert = getattr(module, "from_dlpack", None)
    return convert if convert is not None else lambda result: result


def is_pyopencl(value: Any) -> bool:
    """Whether this is pyopencl's array, asked without importing it."""
    return type(value).__module__ == "pyopencl.array" and hasattr(value, "base_data")


def on_gpu(value: Any) -> bool:
    """Whether an array lies on a GPU that torch reaches: torch's, CuPy's, any with DLPack there."""
    if type(value) is np.ndarray:
        return False
    known = getattr(value, "is_cuda", None)
    if known is not None:
        return known is True
    where = getattr(value, "__dlpack_device__", None)
    return where is not None and int(where()[0]) in _GPUS
