"""Arrays that lie on a GPU, as views: torch tensors, CuPy arrays, and anything with DLPack.

    torch   asked for its address, sizes and steps; nothing is converted
    CuPy    likewise; its products run on CuPy's current stream
    others  through torch.from_dlpack, which orders their stream before torch's

A view's `offset` is the address in elements and its `memory` the GPU's number, so that whatever
lies on one GPU counts as one memory. Results are made by torch and handed over in the kind of `a`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from tilewright.arrays import storage
from tilewright.arrays import torch_private as private
from tilewright.arrays.addresses import Columns
from tilewright.arrays.views import View, on_gpu
from tilewright.backends.cuda.machine import addresses, cupy_lists, driver
from tilewright.errors import DtypeError, OperandError
from tilewright.facts.device import Device
from tilewright.facts.dtypes import TYPES, Dtype, ElementType
from tilewright.wording import short


@cache
def memory_of(ordinal: int) -> Gpu:
    """The memory of one GPU; always the same object."""
    return Gpu(ordinal)


@dataclass(frozen=True, slots=True)
class Gpu:
    """The memory of a GPU by torch's number; what views of its arrays share."""

    ordinal: int

    @property
    def device(self) -> Device:
        """The record of the GPU."""
        return driver.device_of(self.ordinal)


def element_type(dtype: Any) -> ElementType:
    """A dtype however it was spelled: torch's, NumPy's, or a name. Raises DtypeError."""
    name = str(dtype).rpartition(".")[2]
    if name not in TYPES:
        name = getattr(dtype, "__name__", getattr(dtype, "name", name))
    if name not in TYPES:
        raise DtypeError(f"dtype={str(dtype)!r}: accepted are {', '.join(TYPES)}")
    return TYPES[name]


def torch_type(dtype: Dtype) -> Any:
    """The same as torch's dtype."""
    return getattr(driver.need(), dtype.name)


def view(value: Any, name: str) -> View:
    """The view of an array on a GPU, without a copy.

    Raises OperandError for what lies elsewhere and DtypeError for other element types.
    """
    if not on_gpu(value):
        where = "the processor's memory" if hasattr(value, "shape") else "no array"
        raise OperandError(
            f"{name}={_shown(value)}: {where}; accepted are arrays on the GPU of the other"
            " operands (tensor.to('cuda'))"
        )
    why = driver.missing()
    if why is not None:
        raise OperandError(
            f"{name}={_shown(value)}: lies on a GPU that cannot be used here ({why}); move it to"
            f" the CPU, or {driver.HINT}"
        )
    if _is_cupy(value):
        kind = _checked_type(value.dtype, name)
        _check_whole((value.data.ptr, *value.strides), kind, name)
        strides = tuple(step // kind.itemsize for step in value.strides)
        return _view(value.data.ptr, value.shape, strides, kind, value.device.id)
    tensor = as_torch(value, name)
    kind = _checked_type(tensor.dtype, name)
    _check_memory(tensor, name)
    _check_whole((tensor.data_ptr(),), kind, name)
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return _view(tensor.data_ptr(), shape, strides, kind, tensor.device.index)


def extent(tensor: Any) -> tuple[int, int]:
    """Bytes from a tensor's address to its lowest element, and past its highest: torch has no
    steps backwards, so the first is 0."""
    return 0, storage.reach(tensor)


def written(values: Sequence[Any]) -> None:
    """Tell autograd that these were written in place: what it saved of them is no more."""
    counted = _counted(values)
    if counted:
        sys.modules["torch"].autograd.graph.increment_version(counted)


def writer(values: Sequence[Any]) -> Callable[[], None]:
    """What does `written` for these again and again, at a call for each memory that they share.

    Views share the count of writes with what they are views of (torch's Tensor._version), so that
    of a thousand results in one allocation is raised once: raising each took 200 us.
    """
    whole = [x._base if x._is_view() else x for x in _counted(values)]
    if not whole:
        return lambda: None
    counted = tuple({id(x): x for x in whole}.values())
    return partial(sys.modules["torch"].autograd.graph.increment_version, counted)


def _counted(values: Sequence[Any]) -> list[Any]:
    """The tensors among these whose writes torch counts."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    return [x for x in values if isinstance(x, torch.Tensor) and not x.is_inference()]


def as_torch(value: Any, name: str) -> Any:
    """An array on a GPU as a torch tensor of the same memory, after what its stream has to do."""
    return value if hasattr(value, "data_ptr") else _from_dlpack(value, name)


def columns(values: Sequence[Any], name: str) -> tuple[Columns, ElementType, int]:
    """Where these matrices lie, their dtype and their GPU.

    Raises OperandError, DtypeError or ShapeError-like complaints that name the first odd one.
    """
    first = view(values[0], f"{name}[0]")
    kind, ordinal = element_type(first.dtype.name), first.memory.ordinal
    item = kind.itemsize
    torch = driver.need()
    own = type(values[0]) in (torch.Tensor, torch.nn.Parameter)
    read = addresses.read(values) if own else None
    if read is not None:
        address, sizes, steps = read
        if not (address % item).any() and address[sizes.all(axis=1)].all():
            return Columns(address, *sizes.T, *(steps * item).T), kind, ordinal
    alike = cupy_lists.columns(values, item, ordinal) if _is_cupy(values[0]) else None
    if alike is not None:
        return alike, kind, ordinal
    seen = [view(value, f"{name}[{index}]") for index, value in enumerate(values)]
    for index, one in enumerate(seen):
        if one.dtype != first.dtype:
            raise DtypeError(
                f"{name}[{index}].dtype={one.dtype.name!r}: must equal the first's,"
                f" {first.dtype.name}"
            )
        if one.memory != first.memory:
            raise OperandError(
                f"{name}[{index}]: lies on cuda:{one.memory.ordinal}, the first on cuda:{ordinal};"
                " accepted are matrices of one GPU"
            )
        if len(one.shape) != 2:
            raise OperandError(f"{name}[{index}].shape={one.shape}: must have two dimensions")
    lies = np.array([(one.offset, *one.shape, *one.strides) for one in seen], np.int64)
    return Columns(*(lies * (item, 1, 1, item, item)).T), kind, ordinal


def empty(count: int, dtype: Dtype, ordinal: int) -> Any:
    """`count` uninitialised elements as a torch tensor of one dimension."""
    torch = driver.need()
    return torch.empty(count, dtype=torch_type(dtype), device=torch.device("cuda", ordinal))


def like(value: Any) -> Callable[[Any], Any]:
    """How a torch tensor becomes an array of `value`'s kind."""
    if hasattr(value, "data_ptr"):
        return lambda tensor: tensor
    module = sys.modules.get(type(value).__module__.partition(".")[0])
    convert: Callable[[Any], Any] | None = getattr(module, "from_dlpack", None)
    return convert if convert is not None else lambda tensor: tensor


def stream_of(value: Any, ordinal: int) -> AbstractContextManager[Any]:
    """The stream on which products of `value` run, as a context: torch's own, or CuPy's."""
    if not _is_cupy(value):
        return nullcontext()
    import cupy

    torch = driver.need()
    with cupy.cuda.Device(ordinal):  # each has a current stream of its own
        pointer = cupy.cuda.get_current_stream().ptr
    if pointer == private.raw_stream(torch)(ordinal):
        return nullcontext()
    device = torch.device("cuda", ordinal)
    context: AbstractContextManager[Any] = torch.cuda.stream(
        torch.cuda.ExternalStream(pointer, device)
    )
    return context


def _view(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], kind: ElementType, ordinal: int
) -> View:
    return View(memory_of(ordinal), address // kind.itemsize, shape, strides, kind, host=False)


def _checked_type(dtype: Any, name: str) -> ElementType:
    try:
        return element_type(dtype)
    except DtypeError:
        raise DtypeError(f"{name}.dtype={str(dtype)!r}: accepted are {', '.join(TYPES)}") from None


def _check_whole(places: tuple[int, ...], kind: Any, name: str) -> None:
    """Raise where an address or a step in bytes is not one of whole elements."""
    if any(place % kind.itemsize for place in places):
        raise OperandError(
            f"{name}: begins or steps between elements of {kind.itemsize} bytes; accepted are"
            f" addresses and strides that are multiples of {kind.itemsize}"
        )


def _check_memory(tensor: Any, name: str) -> None:
    """Raise where a tensor's elements are not what its memory holds, or it has none."""
    torch = driver.need()
    if not isinstance(tensor, torch.Tensor):  # anything else with an address
        return
    if tensor.is_neg():  # of a conjugate's imaginary part memory has the negative
        raise OperandError(f"{name}: its memory holds the negative; use {name}.resolve_neg()")
    if tensor.is_conj():
        raise OperandError(f"{name}: its memory holds the conjugate; use {name}.resolve_conj()")
    try:
        held = tensor.layout is torch.strided and (tensor.data_ptr() or not tensor.numel())
    except RuntimeError:  # what torch says of fake tensors, and within its transforms
        held = False
    if not held:
        raise OperandError(
            f"{name}={type(tensor).__name__} of shape {tuple(tensor.shape)}: has elements and no"
            " memory of its own; accepted are dense tensors (no fake ones, no wrappers, no sparse"
            " ones, no storage that was freed)"
        )
    storage.check(tensor, name)


def _is_cupy(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "cupy"


def _from_dlpack(value: Any, name: str) -> Any:
    try:
        return driver.need().from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise OperandError(
            f"{name}={short(value)}: __dlpack__ failed: {error}; accepted is what torch.from_dlpack"
            " takes, or move it to the CPU"
        ) from None


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return short(value) if shape is None else f"{type(value).__name__} of shape {tuple(shape)}"
