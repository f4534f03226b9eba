"""RaggedBatch: one allocation, many matrices of unlike sizes.

Worked example, float32, so that 64 bytes are 16 elements:

    shapes    (2, 3) (0, 5) (4, 4)         rows 2 0 4    cols 3 5 4
    offsets    0      16     16            elements from the start of `flat`, each a multiple of 16
    flat      [m0 m0 m0 m0 m0 m0 . . . . . . . . . . | m2 ... ]     32 elements

A batch made by `from_rows` borrows the caller's rows instead: they follow each other without gaps,
so its matrices are aligned as the rows are. `save` writes an uncompressed .npz, `load` maps it.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Column, numbers_of
from tilewright.arrays.aligned import aligned_offsets
from tilewright.arrays.array import Array, NDArray
from tilewright.arrays.operators import product
from tilewright.arrays.views import OF_HOST, check_dtype, host_array, on_gpu, plain
from tilewright.errors import ArgumentError, DtypeError, FileError, OperandError, ShapeError
from tilewright.facts.device import Device
from tilewright.files import reading
from tilewright.files.whole import path_of, replacing
from tilewright.inputs.checks import checked_dtype
from tilewright.inputs.devices import resolve
from tilewright.inputs.make import asarray, empty
from tilewright.wording import PATH, short

_MEMBERS = ("flat", "rows", "cols", "offsets")


class RaggedBatch:
    """Matrices [rows[i], cols[i]], row-major, at `offsets[i]` elements into `flat`.

    `flat` is a NumPy array, an `Array` where the batch lives on a device, or an array of torch,
    CuPy or DLPack on a GPU. Indexing gives views. `a @ b` of two batches is
    `tilewright.grouped_matmul(a, b)`, a batch.
    """

    __array_ufunc__ = None  # NumPy's array @ a batch is no stack of products: TypeError

    def __init__(
        self,
        flat: Any,
        rows: npt.ArrayLike,
        cols: npt.ArrayLike,
        offsets: npt.ArrayLike,
    ) -> None:
        _check_flat(flat)
        self.flat = flat
        self.rows = _sizes(rows, "rows")
        self.cols = _sizes(cols, "cols")
        self.offsets = _sizes(offsets, "offsets")
        if not len(self.rows) == len(self.cols) == len(self.offsets):
            raise ShapeError(
                f"rows, cols, offsets: have {len(self.rows)}, {len(self.cols)} and"
                f" {len(self.offsets)} entries; must have one each a matrix"
            )
        _check_extent(self.rows, self.cols, self.offsets, int(np.prod(flat.shape)))

    @classmethod
    def empty(
        cls,
        shapes: Sequence[tuple[int, int]] | npt.NDArray[Any],
        dtype: npt.DTypeLike = np.float32,
        device: Device | str | None = "host",
    ) -> RaggedBatch:
        """Uninitialised 64-byte aligned matrices. Raises ShapeError, DtypeError."""
        table = numbers_of(shapes)
        if table.size == 0:
            table = np.empty((0, 2), np.int64)
        if table.ndim != 2 or table.shape[1] != 2:
            raise ShapeError(f"shapes of shape {table.shape}: must be [count, 2], rows and columns")
        rows, cols = _sizes(table[:, 0], "shapes"), _sizes(table[:, 1], "shapes")
        if device != "host" and resolve(device).backend == "cuda":
            return cls(*_on_gpu().empty_ragged(rows, cols, dtype, resolve(device)))
        wanted = checked_dtype(dtype)
        offsets, total = aligned_offsets(rows, cols, wanted.itemsize)
        return cls(_flat(empty(total, wanted, device)), rows, cols, offsets)

    @classmethod
    def from_list(
        cls, matrices: Sequence[NDArray], device: Device | str | None = "host"
    ) -> RaggedBatch:
        """A copy of these 2-D arrays, which share one dtype; on their GPU where they lie on one.

        Raises OperandError for what are no arrays, ShapeError, DtypeError.
        """
        try:
            given = list(matrices)
        except (TypeError, NotImplementedError):  # the latter of memoryview's of two dimensions
            raise OperandError(
                f"matrices={short(matrices)}: accepted is a list of arrays of two dimensions"
            ) from None
        if not given:
            return cls.empty([], device=device)
        if on_gpu(given[0]):
            return cls(*_on_gpu().ragged_of(given))
        arrays = [host_array(matrix, f"matrices[{at}]") for at, matrix in enumerate(given)]
        dtype = arrays[0].dtype
        for index, array in enumerate(arrays):
            if array.ndim != 2:
                raise ShapeError(f"matrices[{index}].shape={array.shape}: must have two dimensions")
            if array.dtype != dtype:
                raise DtypeError(f"matrices[{index}].dtype={array.dtype}: must equal {dtype}")
        batch = cls.empty([array.shape for array in arrays], dtype)
        for index, array in enumerate(arrays):
            batch[index][...] = array
        return batch if device == "host" else batch.to(device)

    @classmethod
    def from_rows(cls, x: NDArray, offsets: npt.ArrayLike) -> RaggedBatch:
        """Matrix i is x[offsets[i]:offsets[i+1]], without a copy; x is [rows, columns], C-ordered.

        This is how tokens sorted by expert, or nodes sorted by type, come. Raises ShapeError for
        offsets that decrease or run past the rows.
        """
        gpu = on_gpu(x)
        if gpu:
            x = _on_gpu().matrix(x)
        elif not isinstance(x, np.ndarray) or x.ndim != 2 or not x.flags.c_contiguous:
            shown = f"x.shape={x.shape}" if isinstance(x, np.ndarray) else f"x={type(x).__name__}"
            raise OperandError(f"{shown}: must be a C-ordered matrix")
        else:
            x = plain(x, "x")
        bounds = _sizes(offsets, "offsets")
        steps = np.diff(bounds)
        if len(bounds) == 0 or (steps < 0).any():
            at = int(np.argmax(steps < 0)) + 1 if len(bounds) else 0
            raise ShapeError(f"offsets[{at}]: must not decrease, and there must be one at least")
        if bounds[-1] > x.shape[0]:
            raise ShapeError(f"offsets[-1]={bounds[-1]}: runs past the {x.shape[0]} rows of x")
        width = np.full(len(steps), x.shape[1], np.int64)
        return cls(x.reshape(-1), steps, width, bounds[:-1] * x.shape[1])

    @classmethod
    def from_bsr(cls, matrix: Any) -> RaggedBatch:
        """The blocks of a SciPy BSR matrix, without a copy, in the order of its `indices`."""
        data = getattr(matrix, "data", None)
        if getattr(matrix, "format", None) != "bsr" or not isinstance(data, np.ndarray):
            raise OperandError(f"matrix={type(matrix).__name__}: must be a scipy.sparse BSR matrix")
        count, height, width = data.shape
        flat = np.ascontiguousarray(data).reshape(-1)
        full = np.ones(count, np.int64)
        return cls(flat, full * height, full * width, np.arange(count) * (height * width))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RaggedBatch:
        """The batch that `save` wrote, its elements mapped from the file instead of read.

        Raises FileError for anything that is not such a file, or whose sizes do not fit.
        """
        path = path_of(path)
        label = f"path={short(str(path), PATH)}"
        with reading.refusing(label, "not a saved RaggedBatch"):
            with zipfile.ZipFile(path) as archive:
                missing = [n for n in _MEMBERS if f"{n}.npy" not in archive.namelist()]
                if missing:
                    raise FileError(f"{label}: lacks {', '.join(missing)}")
                flat = reading.mapped_npz_array(archive, path, "flat", OF_HOST)
                most = os.path.getsize(path)  # what is stored is no larger than its file
                rows, cols, offsets = (
                    reading.npz_array(archive, name, most) for name in _MEMBERS[1:]
                )
            return cls(flat, rows, cols, offsets)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an uncompressed .npz: flat, rows, cols, offsets.

        The file takes the place of an older one when it is whole: that may be the one mapped here.
        Raises FileError where the folder is absent or cannot be written.
        """
        columns = {name: getattr(self, name) for name in _MEMBERS[1:]}
        with replacing(path_of(path), "path") as part, part.open("wb") as file:
            np.savez(file, flat=self.host(), **columns)

    def to(self, device: Device | str | None) -> RaggedBatch:
        """A copy on a device; the host's elements again with "host"."""
        if device == "host":
            return RaggedBatch(self.host(), self.rows, self.cols, self.offsets)
        if resolve(device).backend == "cuda":
            flat = _on_gpu().moved(self.flat, resolve(device))
            return RaggedBatch(flat, self.rows, self.cols, self.offsets)
        flat = _flat(asarray(self.host(), device=device))
        return RaggedBatch(flat, self.rows, self.cols, self.offsets)

    def host(self) -> NDArray:
        """The elements as a flat NumPy array; a copy where they live on a device.

        Raises DtypeError for bfloat16, which NumPy has not.
        """
        if isinstance(self.flat, Array):
            return np.asarray(self.flat)
        flat: NDArray = _on_gpu().to_host(self.flat) if on_gpu(self.flat) else self.flat
        return flat

    @property
    def dtype(self) -> Any:
        """The element type of every matrix, as `flat` has it: NumPy's, or torch's."""
        return self.flat.dtype

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and columns of every matrix."""
        return list(zip(self.rows.tolist(), self.cols.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.flat, Array):
            raise OperandError(
                f"batch on {self.flat.device.id!r}: index the batch that .to('host') gives"
            )
        if not isinstance(index, int | np.integer):
            raise ArgumentError(f"index={short(index)}: accepted are whole numbers")
        rows, cols = int(self.rows[index]), int(self.cols[index])
        start = int(self.offsets[index])
        return self.flat[start : start + rows * cols].reshape(rows, cols)

    def __matmul__(self, other: Any) -> Any:
        both = isinstance(other, RaggedBatch)
        return product("grouped_matmul", self, other) if both else NotImplemented

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        where = self.flat.device.id if isinstance(self.flat, Array) else "host"
        if on_gpu(self.flat):
            where = str(self.flat.device)
        return f"<tilewright.RaggedBatch of {len(self)} matrices, {self.dtype}, on {where}>"


def _on_gpu() -> Any:
    """Batches on a GPU, imported where one is met."""
    from tilewright.inputs import ragged_batch_gpu

    return ragged_batch_gpu


def _check_flat(flat: Any) -> None:
    if on_gpu(flat):
        _on_gpu().check_flat(flat)
        return
    if not isinstance(flat, np.ndarray | Array) or flat.ndim != 1:
        shown = getattr(flat, "shape", type(flat).__name__)
        raise OperandError(f"flat={shown}: must be a NumPy or tilewright array of one dimension")
    on_device = isinstance(flat, Array) and flat.device.backend != "host"
    check_dtype(flat.dtype, "flat", complex_too=not on_device)
    if isinstance(flat, np.ndarray):
        plain(flat, "flat")  # raises where there is more to it than elements
        dense = flat.flags.c_contiguous
    else:
        dense = flat.shape[0] < 2 or flat.strides == (1,)
    if not dense:
        raise OperandError(f"flat.strides={flat.strides}: its elements must follow each other")


def _sizes(values: npt.ArrayLike, name: str) -> Column:
    array = numbers_of(values)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ArgumentError(
            f"{name} of {array.dtype} {array.shape}: must be whole numbers, one a row"
        )
    if (array < 0).any():
        at = int(np.argmax(array < 0))
        raise ShapeError(f"{name}[{at}]={array[at]}: must not be negative")
    if int(array.max()) > np.iinfo(np.int64).max:
        at = int(np.argmax(array))
        raise ShapeError(f"{name}[{at}]={array[at]}: must be less than 2^63")
    sizes = array.astype(np.int64)
    sizes.flags.writeable = False  # they were checked against the buffer, which products rely on
    return sizes


def _check_extent(rows: Column, cols: Column, offsets: Column, count: int) -> None:
    """Every matrix must end within the buffer, counted in float64, which cannot overflow."""
    ends = offsets.astype(np.float64) + rows.astype(np.float64) * cols
    beyond = ends > count
    if beyond.any():
        at = int(np.argmax(beyond))
        raise ShapeError(
            f"offsets[{at}]={offsets[at]}: its {rows[at]} x {cols[at]} matrix runs past the"
            f" {count} elements of the buffer"
        )


def _flat(array: Array) -> Any:
    """What a batch holds of an array: on the host NumPy's view."""
    if array.device.backend != "host":
        return array
    with array.map() as view:
        return view
