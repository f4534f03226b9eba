"""Launches of the one-bit kernels: their parameters, tensor maps, grids.

Product     the kernels' parameters, field by field as in kernels/bits/bits_common.cuh
prepare_*   everything but the launch: compiled, arguments in place; the callable only enqueues

Operands are torch tensors on one GPU: words int64 [rows, words] with contiguous rows, a pitch of
any length between them, and counts int32 [rows]. Rows that do not begin at multiples of 16 bytes
are copied when the launch is prepared, but for `prepare_popc`, which takes them as they lie.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.machine.tensor_maps import BYTES, encoded
from tilewright.engines.bits import BitProblem, BitWork
from tilewright.errors import OperandError
from tilewright.remember import Shelf

Launch = Callable[[], None]
OUT = {"int32": 0, "float32": 1, "float16": 2, "bits": 3}
FORM = {"and": 1, "xor": 4}
_CACHED = 32 << 20  # bytes of operands that stay in a Hopper's L2 cache of 50 MB and more
_ALIGNED = 16  # what the copy engine and cp.async demand of addresses and pitches, in bytes


class Product(ctypes.Structure):
    """`struct Product` of kernels/bits/bits_common.cuh."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("a", "b", "a_counts", "b_counts")),
        *((name, ctypes.c_void_p) for name in ("scale", "shift", "threshold", "flip", "out")),
        *((name, ctypes.c_longlong) for name in ("pitch_a", "pitch_b", "pitch_out")),
        *((name, ctypes.c_int) for name in ("m", "n", "k", "words")),
    ]


class TensorMap(ctypes.Structure):
    """A CUtensorMap, copied out of the driver's object."""

    _fields_ = [("opaque", ctypes.c_char * BYTES)]


# Each follows from its key, the address included, and from nothing else.
_maps: Shelf[tuple[Any, ...], TensorMap] = Shelf("tensor maps of one-bit products", most=2 << 20)


def aligned(words: Any) -> Any:
    """Rows of words whose address and pitch are multiples of 16 bytes: themselves, or a copy."""
    import torch

    if words.data_ptr() % _ALIGNED == 0 and words.stride(0) % 2 == 0:
        return words
    return padded(tuple(words.shape), torch.int64, words.device).copy_(words)


def padded(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """An uninitialised tensor whose rows begin at multiples of 16 bytes."""
    import torch

    *lead, width = shape
    step = _ALIGNED // dtype.itemsize
    whole = torch.empty((*lead, -(-width // step) * step), dtype=dtype, device=device)
    return whole[..., :width]


@dataclass(frozen=True, slots=True)
class WgmmaTile:
    """How bits_wgmma.cu is cut: the macros of the same names there."""

    rows: int
    cluster: int
    stages: int
    group: int
    buffers: int = 2

    @property
    def defines(self) -> nvrtc.Defines:
        """Its macros."""
        sizes = (("BN", self.rows), ("CLUSTER", self.cluster), ("GROUP", self.group))
        return (*sizes, ("STAGES", self.stages), ("BUFFERS", self.buffers))

    def shared(self, out: str) -> int:
        """Bytes of `struct Shared`, rounded up."""
        vectors = 3 if out in ("float16", "float32") else 1
        ring = self.stages * (64 + self.rows) * 128
        buffers = 0 if out == "bits" else self.buffers * 8 * 2048
        return ring + buffers + 2 * vectors * self.rows * 4 + 512


def shape_of(problem: BitProblem) -> WgmmaTile:
    """The widest tile that the product fills, as many stages as fit beside it.

    Strips of 4 clusters where the L2 cache holds both operands anyway, so that what is stored lies
    close together: 9,050 TOP/s instead of 8,580 for 8192 cubed to int32 on an H200; for 16384 cubed
    strips of 8 are the faster ones, 10,660 and 10,000.
    """
    bits = problem.out == "bits"
    cluster = 2 if problem.m > 64 else 1
    group = 4 if 8 * problem.words * (problem.m + problem.n) <= _CACHED else 8
    if problem.n <= 128:
        return WgmmaTile(128, cluster, 8 if bits else 7, group)
    return WgmmaTile(256, cluster, 5 if bits else 4, group)


def prepare_wgmma(work: BitWork) -> Launch:
    """Hopper's kernel: tensor maps of the operands and, where its rows allow, of the result."""
    work = _laid_out(work)
    a, b = aligned(work.a), aligned(work.b)
    ordinal = a.device.index
    problem = work.problem
    shape = shape_of(problem)
    copies = problem.out != "bits" and _copy_engine_can_write(work.out)
    defines = (*_variant(work), *shape.defines, ("COPY_OUT", int(copies)))
    kernel = nvrtc.function("bits_wgmma", defines, ordinal, shared=shape.shared(problem.out))
    down = -(-problem.m // (64 * shape.cluster))
    clusters = min(down * -(-problem.n // shape.rows), _processors(ordinal) // shape.cluster)
    maps = (
        _operand_map(a, problem.words, 64),
        _operand_map(b, problem.words, shape.rows // shape.cluster),
        _result_map(work.out) if copies else TensorMap(),
    )
    arguments = nvrtc.Arguments((*maps, _product(work, a, b)))
    return _launch(kernel, clusters * shape.cluster, 384, arguments, (work, a, b))


def prepare_mma(work: BitWork) -> Launch:
    """The kernel of sm_80 and later: blocks of 128 x 128."""
    work = _laid_out(work)
    a, b = aligned(work.a), aligned(work.b)
    stages = 4
    defines = (*_variant(work), ("STAGES", stages))
    shared = stages * 256 * 64
    kernel = nvrtc.function("bits_mma", defines, a.device.index, shared=shared)
    arguments = nvrtc.Arguments((_product(work, a, b),))
    return _launch(kernel, _blocks(work, 128), 256, arguments, (work, a, b))


def prepare_popc(work: BitWork) -> Launch:
    """The kernel of every GPU: blocks of 64 x 64."""
    work = _laid_out(work)
    kernel = nvrtc.function("bits_popc", _variant(work), work.a.device.index)
    arguments = nvrtc.Arguments((_product(work, work.a, work.b),))
    return _launch(kernel, _blocks(work, 64), 256, arguments, (work,))


def _laid_out(work: BitWork) -> BitWork:
    """The work with `out` as a matrix; raises OperandError for one that is not dense."""
    out = work.out
    if out.ndim == 2 and (out.stride(1) == 1 or out.shape[1] == 1):
        return work
    if not out.is_contiguous():
        raise OperandError(
            f"out: has strides {tuple(out.stride())} and shape {tuple(out.shape)}; accepted are"
            " dense, row-major tensors"
        )
    return replace(work, out=out.view(work.problem.m, -1))


def _launch(
    kernel: nvrtc.Function, blocks: int, threads: int, arguments: nvrtc.Arguments, keep: Any
) -> Launch:
    def launch(keep: Any = keep) -> None:
        kernel.launch(blocks, threads, arguments)

    return launch


def _variant(work: BitWork) -> nvrtc.Defines:
    return (("OUT", OUT[work.problem.out]), ("FORM", FORM[work.problem.form]))


def _blocks(work: BitWork, side: int) -> int:
    return -(-work.problem.m // side) * -(-work.problem.n // side)


def _product(work: BitWork, a: Any, b: Any) -> Product:
    problem = work.problem
    wide = 2 if problem.out == "bits" else 1  # kernels write words of 32 bits
    names = ("a_counts", "b_counts", "scale", "shift", "threshold", "flip")
    return Product(
        a=a.data_ptr(),
        b=b.data_ptr(),
        out=work.out.data_ptr(),
        **{name: _pointer(getattr(work, name)) for name in names},
        pitch_a=a.stride(0),
        pitch_b=b.stride(0),
        pitch_out=work.out.stride(0) * wide,
        **{name: getattr(problem, name) for name in ("m", "n", "k", "words")},
    )


def _pointer(tensor: Any) -> int | None:
    return None if tensor is None else int(tensor.data_ptr())


def _copy_engine_can_write(out: Any) -> bool:
    pitch = out.stride(0) * out.element_size()
    return bool(out.data_ptr() % _ALIGNED == 0 and pitch % _ALIGNED == 0)


def _operand_map(words: Any, row_words: int, rows: int) -> TensorMap:
    """Boxes of 128 bytes by `rows` rows; zeros past the edges."""
    sizes = (row_words * 8, words.shape[0])
    return _map("UINT8", words.data_ptr(), sizes, words.stride(0) * 8, (128, rows))


def _result_map(out: Any) -> TensorMap:
    """Boxes of 128 bytes by 16 rows, clipped at the edges."""
    name = str(out.dtype).removeprefix("torch.").upper()
    size = out.element_size()
    sizes = (out.shape[1], out.shape[0])
    return _map(name, out.data_ptr(), sizes, out.stride(0) * size, (128 // size, 16))


def _map(
    dtype: str, address: int, sizes: tuple[int, int], pitch: int, box: tuple[int, int]
) -> TensorMap:
    """A map says where bytes lie, not whose they are, so one of an earlier tensor serves again.

    Kept because making one through the driver takes 30 µs of Python.
    """
    key = (dtype, address, sizes, pitch, box)
    return _maps.found(key, lambda: TensorMap.from_buffer_copy(encoded(*key)), ctypes.sizeof)


@cache
def _processors(ordinal: int) -> int:
    import torch

    return int(torch.cuda.get_device_properties(ordinal).multi_processor_count)
