"""Block-sparse times block-sparse: SciPy's BSR matrices and torch's, multiplied block by block.

SciPy walks over both patterns on one core and multiplies each pair of blocks by a plain loop; here
all pairs are one batch, whose products are added into the blocks of the result. Where blocks are so
small that the loop is the faster it is called (docs/planner.md has what was measured).

    patterns -> planning/block_sparse.py: which blocks meet -> three RaggedBatch on the stored
    blocks, nothing copied -> grouped_matmul(..., into=) -> the result in the caller's kind
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from tilewright import settings
from tilewright.arrays.array import NDArray
from tilewright.arrays.views import check_dtype, loaded_torch
from tilewright.errors import DtypeError, OperandError, ShapeError
from tilewright.facts.device import Device
from tilewright.inputs.devices import resolve
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.planning.block_sparse import Indices, Meeting, Pattern, is_scipys, meeting
from tilewright.products.grouped import grouped_matmul
from tilewright.wording import short

__all__ = ["bsr_matmul"]

_ACCEPTED = (
    "accepted are scipy.sparse.bsr_array and bsr_matrix, or torch's sparse_bsr tensors of two"
    " dimensions on the CPU"
)
_OF_SCIPY = {"bsr_array", "bsr_matrix"}


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A matrix of `shape`: block e of `data` [count, R, C] stands where `pattern` says."""

    data: NDArray
    pattern: Pattern
    shape: tuple[int, int]
    kind: str  # "bsr_array", "bsr_matrix" or "sparse_bsr"


def bsr_matmul(a: Any, b: Any, *, device: Device | str | None = None) -> Any:
    """a @ b of two block-sparse matrices, block-sparse too.

    Args:
        a: [m, k] in blocks of R x C; scipy.sparse.bsr_array or bsr_matrix, or a torch.sparse_bsr
            tensor of the CPU.
        b: [k, n] in blocks of C x D, of the same library.
        device: as in `matmul`.

    Returns: [m, n] in blocks of R x D, of the kind of `a` and `b` (a bsr_array where one of them
        is): a block wherever two stored blocks meet, none twice. Columns are sorted, but as SciPy
        leaves them (`has_sorted_indices` tells) where that multiplies. Operands may be unsorted and
        have blocks twice, which count as their sum.

    On the host small blocks and few are SciPy's own `a @ b`, where that is predicted faster: of
    fewer than about 12 x 12, of complex ones to 16 x 16 (planning/block_sparse.py).

    dtypes are float16 (torch's), float32, float64, complex64 and complex128; of unlike ones the
    result has what NumPy's rules make of both. Each block is a sum of products, added in the order
    in which a's blocks are stored, so that an engine gives the same bits in every run.

    Raises: ShapeError where sizes or the blocks' do not fit, DtypeError, OperandError for what is
        no such matrix, whose indices are out of range, or that requires a gradient.
    """
    left, right = _blocks(a, "a"), _blocks(b, "b")
    kinds = {left.kind, right.kind}
    if len(kinds) > 1 and kinds != _OF_SCIPY:
        raise OperandError(f"b={right.kind}: a is a {left.kind}; accepted are two of one library")
    _check_sizes(left, right)
    dtype = np.result_type(left.data, right.data)
    if _is_scipys(left, right, dtype, device):
        return a @ b if kinds < _OF_SCIPY else _by_scipy(left, right, min(kinds))
    found = meeting(left.pattern, right.pattern)
    height, width = left.data.shape[1], right.data.shape[2]
    data = np.empty((len(found.result.columns), height, width), dtype)
    if len(found.into):
        x, y = (one.data.astype(dtype, order="C", copy=False) for one in (left, right))
        _multiply(x, y, found, data, device)
    index = _index_type(left, right, max(len(data), right.shape[1] // width))
    pattern = Pattern(found.result.starts.astype(index), found.result.columns.astype(index))
    # Of an array and a matrix an array is made, which is first by its name too.
    return _made(_Blocks(data, pattern, (left.shape[0], right.shape[1]), min(kinds)))


def _is_scipys(a: _Blocks, b: _Blocks, dtype: Any, device: Device | str | None) -> bool:
    """Whether SciPy multiplies: on the host, where it is the faster, and has the dtype."""
    wanted = settings.device() if device is None else device
    if wanted is not None and resolve(wanted).backend != "host":
        return False
    if dtype == np.float16 or find_spec("scipy") is None:
        return False
    sizes = (*a.data.shape[1:], b.data.shape[2])
    return is_scipys(a.pattern, b.pattern, sizes, dtype.kind)


def _by_scipy(a: _Blocks, b: _Blocks, kind: str) -> Any:
    """SciPy's product where the operands are not both of one of its kinds."""
    found = _made(replace(a, kind="bsr_array")) @ _made(replace(b, kind="bsr_array"))
    if kind != "sparse_bsr":
        return found
    found.sort_indices()  # as torch wants them
    index = _index_type(a, b, max(len(found.indices), found.shape[1]))
    pattern = Pattern(found.indptr.astype(index), found.indices.astype(index))
    return _made(_Blocks(found.data, pattern, found.shape, kind))


def _multiply(
    a: NDArray, b: NDArray, found: Meeting, data: NDArray, device: Device | str | None
) -> None:
    """All products, each into its block of `data`."""
    grouped_matmul(
        _batch(a, found.left),
        _batch(b, found.right),
        out=_batch(data, np.arange(len(data))),
        into=found.into,
        device=device,
    )


def _batch(data: NDArray, at: Indices) -> RaggedBatch:
    """Blocks at these indices, some of them more than once; none is copied."""
    _, rows, cols = data.shape
    every = np.ones(len(at), np.int64)
    return RaggedBatch(data.reshape(-1), every * rows, every * cols, at * (rows * cols))


def _blocks(matrix: Any, name: str) -> _Blocks:
    """The blocks and the pattern of a matrix, checked, as offsets into memory are made of it."""
    torch = loaded_torch()
    if torch is not None and isinstance(matrix, torch.Tensor):
        found = _blocks_of_tensor(torch, matrix, name)
    else:
        data = matrix.data if getattr(matrix, "format", None) == "bsr" else None
        if not isinstance(data, np.ndarray):
            raise OperandError(f"{name}={type(matrix).__name__}: {_ACCEPTED}")
        from scipy.sparse import sparray

        kind = "bsr_array" if isinstance(matrix, sparray) else "bsr_matrix"
        found = _Blocks(data, Pattern(matrix.indptr, matrix.indices), matrix.shape, kind)
    check_dtype(found.data.dtype, name)
    return _checked(found, name)


def _blocks_of_tensor(torch: Any, tensor: Any, name: str) -> _Blocks:
    if tensor.layout is not torch.sparse_bsr or tensor.device.type != "cpu" or tensor.ndim != 2:
        shown = f"{tensor.layout} {tuple(tensor.shape)} on {tensor.device}"
        raise OperandError(f"{name}={shown}: {_ACCEPTED}")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise OperandError(
            f"{name}: requires a gradient, which would be lost here; accepted are its .detach() and"
            " calls under torch.no_grad()"
        )
    values = tensor.detach().values().resolve_conj().resolve_neg()
    if values.ndim != 3:
        raise OperandError(f"{name}: its blocks are of shape {tuple(values.shape)}; {_ACCEPTED}")
    if values.dtype is torch.bfloat16:
        raise DtypeError(f"{name}.dtype='bfloat16': accepted is float32, as .float() gives")
    pattern = Pattern(tensor.crow_indices().numpy(), tensor.col_indices().numpy())
    return _Blocks(values.numpy(), pattern, tuple(tensor.shape), "sparse_bsr")


def _checked(found: _Blocks, name: str) -> _Blocks:
    """The matrix less what is stored behind its last row. Raises OperandError."""
    data, starts, columns = found.data, found.pattern.starts, found.pattern.columns
    if data.ndim != 3 or 0 in data.shape[1:]:
        raise OperandError(f"{name}.data of shape {data.shape}: must be [count, R, C], R and C > 0")
    rows, width = (size // block for size, block in zip(found.shape, data.shape[1:], strict=True))
    if len(starts) != rows + 1 or starts[0] != 0 or (np.diff(starts) < 0).any():
        raise OperandError(
            f"{name}.indptr={short(starts.tolist())}: must be {rows + 1} numbers from 0 up that do"
            " not decrease"
        )
    count = int(starts[-1])
    if count > min(len(columns), len(data)):
        raise OperandError(
            f"{name}.indptr[-1]={count}: there are {len(columns)} indices and {len(data)} blocks"
        )
    columns = columns[:count]
    wrong = (columns < 0) | (columns >= width)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise OperandError(f"{name}.indices[{at}]={columns[at]}: accepted are 0 to {width - 1}")
    pattern = Pattern(starts, columns)
    return _Blocks(data[:count], pattern, found.shape, found.kind)


def _check_sizes(a: _Blocks, b: _Blocks) -> None:
    """Raise ShapeError where the matrices, or their blocks, do not fit each other."""
    if a.shape[1] != b.shape[0]:
        raise ShapeError(f"b.shape={b.shape}: must have {a.shape[1]} rows, as a.shape={a.shape}")
    inner, width = a.data.shape[2], b.data.shape[2]
    if inner != b.data.shape[1]:
        raise ShapeError(
            f"b's blocks are {b.data.shape[1]} x {width}, those of a {a.data.shape[1]} x {inner};"
            f" accepted are {inner} x any, as b.tobsr(blocksize=({inner}, D)) gives of SciPy's"
        )


def _index_type(a: _Blocks, b: _Blocks, most: int) -> np.dtype[Any]:
    """The operands' integers, 64 bits where `most` does not fit in them."""
    kind = np.result_type(a.pattern.columns, b.pattern.columns)
    return kind if most <= np.iinfo(kind).max else np.dtype(np.int64)


def _made(result: _Blocks) -> Any:
    """The matrix as its library has it."""
    starts, columns = result.pattern.starts, result.pattern.columns
    if result.kind == "sparse_bsr":
        torch = loaded_torch()
        tensors = map(torch.from_numpy, (starts, columns, result.data))
        return torch.sparse_bsr_tensor(*tensors, size=result.shape)
    from scipy import sparse

    parts = (result.data, columns, starts)
    blocks = result.data.shape[1:]
    return getattr(sparse, result.kind)(parts, shape=result.shape, blocksize=blocks)
