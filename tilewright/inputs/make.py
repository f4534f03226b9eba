"""Makes new arrays on a device: `tilewright.empty` and `asarray`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import settings
from tilewright.arrays.array import Array
from tilewright.arrays.views import check_dtype, host_array
from tilewright.errors import DtypeError, OperandError
from tilewright.facts.device import Device
from tilewright.facts.dtypes import COMPLEX
from tilewright.inputs.checks import checked_dtype, checked_shape
from tilewright.inputs.devices import backend_of, resolve
from tilewright.wording import short


def empty(
    shape: int | tuple[int, ...],
    dtype: npt.DTypeLike = np.float32,
    device: Device | str | None = None,
    *,
    memory: str | None = None,
) -> Array:
    """An uninitialised `Array` on a device.

    Args:
        shape: sizes from 0 up, or one.
        dtype: float16, float32 or float64; on the host also complex64 and complex128.
        device: as in `matmul`; GPUs of torch's make their own arrays.
        memory: "allocate" (default: memory that host and device both reach), "copy" or "use";
            TILEWRIGHT_MEMORY changes the default.

    Raises: ShapeError, DtypeError, ArgumentError, DeviceError, DeviceMemoryError.
    """
    chosen = resolve(device)
    sizes = checked_shape(shape)
    wanted = checked_dtype(dtype)
    _check_there(wanted, "dtype", chosen)
    size = int(np.prod(sizes, dtype=object)) * wanted.itemsize
    held = backend_of(chosen).allocate(size, chosen, settings.memory(memory))
    return Array(held, sizes, wanted)


def asarray(
    value: Any,
    dtype: npt.DTypeLike | None = None,
    device: Device | str | None = None,
    *,
    memory: str | None = None,
) -> Array:
    """`value` as an `Array` on a device: C-ordered, in one of the three ways of `empty`.

    With memory="use" the device works in `value`'s own memory, which must then be C-ordered and of
    the right dtype; nothing is copied and `value` must not be touched while the array is in use.

    Args:
        value: numbers of any shape: what NumPy or DLPack makes an array of.
        dtype: as in `empty`; None is that of `value`.
        device: as in `empty`.
        memory: as in `empty`.

    Returns: an Array of value's shape.

    Raises: OperandError for what is no array of numbers, or cannot be used where it lies;
        DtypeError, ArgumentError, DeviceError, DeviceMemoryError.
    """
    chosen = resolve(device)
    way = settings.memory(memory)
    source = host_array(value, "value")
    wanted = checked_dtype(source.dtype, "value.dtype") if dtype is None else checked_dtype(dtype)
    _check_there(wanted, "value.dtype", chosen)
    if source.dtype.kind == "c" and wanted.kind != "c":
        raise DtypeError(
            f"value.dtype={str(source.dtype)!r}: its imaginary part would be lost in"
            f" dtype={wanted.name!r}; accepted are real numbers, as value.real gives, and"
            f" dtype={' or '.join(COMPLEX)}"
        )
    try:
        dense = np.asarray(source, dtype=wanted, order="C")
    except (TypeError, ValueError) as error:
        raise OperandError(f"value={short(value)}: not an array of numbers: {error}") from None
    if way == "use" and not (dense is source and source.flags.writeable):
        raise OperandError(
            f"value={source.dtype} of strides {source.strides}"
            f"{'' if source.flags.writeable else ', read-only'}: memory='use' takes writable"
            f" C-ordered arrays of {wanted} only; use memory='copy'"
        )
    held = backend_of(chosen).allocate(dense.nbytes, chosen, way, dense)
    return Array(held, source.shape, wanted)


def _check_there(dtype: np.dtype[Any], name: str, device: Device) -> None:
    """Raise DtypeError where a device other than the host is to hold complex numbers."""
    if device.backend != "host":
        check_dtype(dtype, name.removesuffix(".dtype"), complex_too=False)
