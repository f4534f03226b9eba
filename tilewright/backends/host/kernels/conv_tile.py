"""The inner loop of float32 convolutions: a tile of pixels by channels, its sums in registers.

              WIDTH channels of the result: VECTORS registers of sixteen lanes
             +--------------------------------+
    pixel 0  | sum sum                        |   for every float of the window, as it lies:
    pixel 1  | sum sum                        |       sum += pixel's float, broadcast, x weights
      ...    |                                |
    row 2,   | sum sum      ROWS x COLUMNS    |   a window is a list of pieces, each of them
      ...    | sum sum      pixels            |   contiguous: the taps of a kernel row, all channels
             +--------------------------------+

Nothing is rearranged to the form of a product: the pixels of a tile lie a constant stride apart,
so do its two rows, and a piece begins so many bytes after a pixel's window. That covers strides,
dilation and groups. Two rows of seven suit pictures of 7, 14, 28, 56, 112 pixels and any others
that are not tiny; where one row of pixels is left, a tile has one.

Weights are asked for a few kilobytes ahead: those of 512 x 512 channels come from memory in every
run of a network, which took a third of the time of such a layer at 7 x 7 pixels.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tilewright.backends.host.kernels.conv_product import AHEAD, POINTER, prefetch
from tilewright.backends.host.kernels.features import features
from tilewright.backends.host.kernels.lanes import (
    broadcast,
    load_masked,
    overloaded,
    store_masked,
)

LANES = 16
# 28 sums, two vectors of weights, a broadcast: of 32 registers. Where LLVM must make two halves of
# every vector and has 16 registers, 12 halves of sums.
ROWS, COLUMNS, VECTORS = (2, 7, 2) if "avx512f" in features() else (2, 3, 1)
PIXELS = ROWS * COLUMNS
WIDTH = LANES * VECTORS
_UNROLL = 4
_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_FLOATS = ir.VectorType(_F32, LANES)
# Bytes of a piece: int64 offset in bytes, floats, which of the weights come first, and what becomes
# of the sums after it.
PIECE = 32
KEEP, BEGIN, ADD = 0, 1, 2  # nothing; they begin the totals; they are added to them


def _at(builder, address, kind):
    return builder.inttoptr(address, kind.as_pointer())


def _load(builder, address):
    return builder.load(_at(builder, address, _FLOATS), align=4)


class _Tile:
    """Code of one tile; `builder` emits as in every intrinsic of Numba."""

    def __init__(self, builder, rows, vectors, arguments):
        self.builder, self.rows, self.vectors = builder, rows, vectors
        (
            self.x, self.row, self.step, self.pieces, self.count, self.weights, self.valid,
            self.out, self.out_row, self.out_step, self.residual, self.bias, self.channels,
            self.low, self.high,
        ) = arguments  # fmt: skip
        zero = ir.Constant(_FLOATS, [0.0] * LANES)
        self.places = [(p, v) for p in range(rows * COLUMNS) for v in range(vectors)]
        self.sums = {at: cgutils.alloca_once_value(builder, zero) for at in self.places}
        room = ir.ArrayType(_FLOATS, len(self.places))
        self.totals = cgutils.alloca_once(builder, room)
        self.totals.align = 64

    def spread(self, start, row, step):
        """Addresses of the tile's pixels, few of them held: x86 adds once or twice a register."""
        builder, found = self.builder, []
        double = builder.shl(step, _I64(1))
        for line in range(self.rows):
            base = start if line == 0 else builder.add(start, row)
            for column in range(COLUMNS):
                if column and column % 3 == 0:
                    base = builder.add(base, builder.add(double, step))
                more = (None, step, double)[column % 3]
                found.append(base if more is None else builder.add(base, more))
        return found

    def advance(self, starts, weights, index, unroll):
        """One float of every pixel, or `unroll` of them, into the sums."""
        builder = self.builder
        fused = overloaded(builder, "llvm.fma.v16f32", _FLOATS, *[_FLOATS] * 3)
        for ahead in range(unroll):
            at = builder.add(index, _I64(ahead))
            offset = builder.shl(at, _I64(2))
            base = builder.add(weights, builder.mul(at, _I64(4 * LANES * self.vectors)))
            loaded = [
                _load(builder, builder.add(base, _I64(4 * LANES * v))) for v in range(self.vectors)
            ]
            for v in range(self.vectors):
                further = builder.add(base, _I64(AHEAD + 4 * LANES * v))
                prefetch(builder, builder.inttoptr(further, POINTER))
            for pixel, start in enumerate(starts):
                one = builder.load(_at(builder, builder.add(start, offset), _F32), align=4)
                value = broadcast(builder, one, _FLOATS)
                for v in range(self.vectors):
                    held = self.sums[pixel, v]
                    builder.store(builder.call(fused, [value, loaded[v], builder.load(held)]), held)

    def accumulate(self):
        """All pieces of the window."""
        builder = self.builder
        with cgutils.for_range(builder, self.count) as loop:
            piece = builder.add(self.pieces, builder.mul(loop.index, _I64(PIECE)))
            offset, length, first, after = (
                builder.load(_at(builder, builder.add(piece, _I64(8 * i)), _I64)) for i in range(4)
            )
            starts = self.spread(builder.add(self.x, offset), self.row, self.step)
            skipped = builder.mul(first, _I64(4 * LANES * self.vectors))
            begin = builder.add(self.weights, skipped)
            whole = builder.and_(length, _I64(-_UNROLL))
            with cgutils.for_range_slice(builder, _I64(0), whole, _I64(_UNROLL), _I64) as (at, _):
                self.advance(starts, begin, at, _UNROLL)
            with cgutils.for_range_slice(builder, whole, length, _I64(1), _I64) as (at, _):
                self.advance(starts, begin, at, 1)
            with builder.if_then(builder.icmp_signed("!=", after, _I64(KEEP)), likely=False):
                self.flush(builder.icmp_signed("==", after, _I64(ADD)))

    def total(self, index):
        """Where a total lies."""
        return self.builder.gep(self.totals, [_I32(0), _I32(index)])

    def flush(self, adds):
        """Sums to totals, so that no chain of additions is long."""
        builder = self.builder
        zero = ir.Constant(_FLOATS, [0.0] * LANES)
        for index, at in enumerate(self.places):
            place, value = self.total(index), builder.load(self.sums[at])
            old = builder.select(adds, builder.load(place), zero)
            builder.store(builder.fadd(old, value), place)
            builder.store(zero, self.sums[at])

    def gather_totals(self):
        """Totals into the sums, where the first piece began any."""
        builder = self.builder
        last = builder.add(self.pieces, builder.mul(self.count, _I64(PIECE)))
        state = builder.load(_at(builder, builder.sub(last, _I64(8)), _I64))
        with builder.if_then(builder.icmp_signed("==", state, _I64(ADD)), likely=False):
            for index, at in enumerate(self.places):
                builder.store(builder.load(self.total(index)), self.sums[at])

    def finish(self):
        """Bias, residual, bounds; what is valid to where it belongs."""
        builder = self.builder
        masks = [self.mask(v) for v in range(self.vectors)]
        biases = [
            _load(builder, builder.add(self.bias, _I64(4 * LANES * v))) for v in range(self.vectors)
        ]
        low, high = (broadcast(builder, bound, _FLOATS) for bound in (self.low, self.high))
        outs = self.spread(self.out, self.out_row, self.out_step)
        for pixel in range(self.rows * COLUMNS):
            wanted = builder.trunc(builder.lshr(self.valid, _I64(pixel)), ir.IntType(1))
            with builder.if_then(wanted, likely=True):
                for v in range(self.vectors):
                    value = builder.fadd(builder.load(self.sums[pixel, v]), biases[v])
                    place = builder.add(outs[pixel], _I64(4 * LANES * v))
                    value = self.with_residual(value, place, masks[v])
                    below = builder.fcmp_ordered(">", low, value)
                    value = builder.select(below, low, value)
                    above = builder.fcmp_ordered("<", high, value)
                    value = builder.select(above, high, value)
                    store_masked(builder, value, _at(builder, place, _FLOATS), masks[v])

    def with_residual(self, value, place, mask):
        """`value`, or with the residual added that lies `residual` bytes after the result."""
        builder = self.builder
        there = builder.icmp_signed("!=", self.residual, _I64(0))
        held = cgutils.alloca_once_value(builder, value)
        with builder.if_then(there, likely=False):
            source = _at(builder, builder.add(place, self.residual), _FLOATS)
            more = load_masked(builder, source, mask)
            builder.store(builder.fadd(value, more), held)
        return builder.load(held)

    def mask(self, vector):
        """Which lanes of a vector are channels."""
        builder = self.builder
        numbers = ir.Constant(ir.VectorType(_I64, LANES), list(range(LANES)))
        left = builder.sub(self.channels, _I64(LANES * vector))
        return builder.icmp_signed("<", numbers, broadcast(builder, left, numbers.type))


_SIGNATURE = types.void(*[types.intp] * 13, types.float32, types.float32)


def _tile(rows, vectors):
    def generate(context, builder, signature, arguments):
        tile = _Tile(builder, rows, vectors, arguments)
        tile.accumulate()
        tile.gather_totals()
        tile.finish()
        return context.get_dummy_value()

    return generate


@intrinsic
def full_tile(
    typing, x, row, step, pieces, count, weights, valid, out, out_row, out_step, residual, bias,
    channels, low, high,
):  # fmt: skip
    """Sums of ROWS x COLUMNS pixels and up to WIDTH channels, finished and stored.

    x, row, step   address of the first pixel's window; bytes to the next row's and pixel's
    pieces, count  int64 [count, 4]: bytes from a window to a piece of it, its floats, the first of
                   its weights, and KEEP, BEGIN or ADD: all KEEP, or the last of them ADD
    weights        float32 [floats, WIDTH]
    valid          bit r * COLUMNS + c: whether that pixel is stored
    out            address of the first pixel's result; out_row and out_step bytes as for x
    residual       bytes from a result to what is added to it; 0 for nothing
    bias           address of WIDTH floats
    channels       how many are stored
    low, high      bounds of the results; NaN passes
    """
    return _SIGNATURE, _tile(ROWS, VECTORS)


@intrinsic
def half_tile(
    typing, x, row, step, pieces, count, weights, valid, out, out_row, out_step, residual, bias,
    channels, low, high,
):  # fmt: skip
    """The same for up to LANES channels; weights are [floats, LANES]."""
    return _SIGNATURE, _tile(ROWS, 1)


@intrinsic
def full_line(
    typing, x, row, step, pieces, count, weights, valid, out, out_row, out_step, residual, bias,
    channels, low, high,
):  # fmt: skip
    """The first of the two rows of `full_tile` alone; `row` and `out_row` mean nothing."""
    return _SIGNATURE, _tile(1, VECTORS)


@intrinsic
def half_line(
    typing, x, row, step, pieces, count, weights, valid, out, out_row, out_step, residual, bias,
    channels, low, high,
):  # fmt: skip
    """The same of `half_tile`."""
    return _SIGNATURE, _tile(1, 1)
