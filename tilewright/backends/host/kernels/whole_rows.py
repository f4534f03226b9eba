"""Rows of int8 chains as they come and go: float32 to bytes, signed bytes, results in float32."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tilewright.backends.host.kernels.atomics import copy
from tilewright.backends.host.kernels.conv_product import BYTE, INT, at
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import (
    LANES as VECTOR,
)
from tilewright.backends.host.kernels.lanes import (
    add,
    at_least,
    at_most,
    broadcast,
    gather,
    lane,
    load,
    load_some,
    multiply,
    number,
    overloaded,
    put_number,
    splat,
    store_some,
)
from tilewright.backends.host.kernels.whole_dot import I8, I32, INTS, LANES
from tilewright.backends.host.kernels.whole_ends import FLOATS
from tilewright.backends.host.kernels.whole_tile import COLUMNS, FEW_PIXELS

_RUN = 16 * LANES  # pixels of several channels that are rounded at a time


@intrinsic
def from_ints(typing, address, index):
    """Sixteen int32, as float32, rounded once."""

    def generate(context, builder, signature, arguments):
        pointer = builder.gep(builder.inttoptr(arguments[0], I32.as_pointer()), [arguments[1]])
        value = builder.load(builder.bitcast(pointer, INTS.as_pointer()), align=4)
        return builder.sitofp(value, FLOATS)

    return VECTOR(types.intp, types.intp), generate


@intrinsic
def put_bytes(typing, address, value, step, shift, low, high, flip, count):
    """saturated(round(value / step) + shift) xor `flip`, the first `count` of sixteen; NaN: low."""

    def generate(context, builder, signature, arguments):
        address, value, *numbers, flip, count = arguments
        step, shift, low, high = (broadcast(builder, one, FLOATS) for one in numbers)
        nearest = overloaded(builder, f"llvm.rint.v{LANES}f32", FLOATS, FLOATS)
        whole = builder.call(nearest, [builder.fdiv(value, step)])
        whole = builder.fadd(whole, shift)
        whole = builder.select(builder.fcmp_ordered(">", whole, low), whole, low)
        whole = builder.select(builder.fcmp_ordered("<", whole, high), whole, high)
        bytes_ = ir.VectorType(I8, LANES)
        made = builder.trunc(builder.fptosi(whole, INTS), bytes_)
        made = builder.xor(made, broadcast(builder, builder.trunc(flip, I8), bytes_))
        pointer = builder.inttoptr(address, BYTE.as_pointer())
        all_ = builder.icmp_signed(">=", count, INT(LANES))
        with builder.if_else(all_, likely=True) as (then, otherwise):
            with then:
                builder.store(made, builder.bitcast(pointer, bytes_.as_pointer()), align=1)
            with otherwise:
                room = cgutils.alloca_once(builder, bytes_)
                builder.store(made, room)
                source = builder.bitcast(room, BYTE.as_pointer())
                cgutils.raw_memcpy(builder, pointer, source, count, 1)
        return context.get_dummy_value()

    floats = [types.float32] * 4
    return types.void(types.intp, VECTOR, *floats, types.intp, types.intp), generate


@intrinsic
def byte(typing, address, index):
    """One byte."""

    def generate(context, builder, signature, arguments):
        pointer = at(builder, builder.inttoptr(arguments[0], BYTE.as_pointer()), arguments[1])
        return builder.zext(builder.load(pointer), INT)

    return types.intp(types.intp, types.intp), generate


@intrinsic
def put_byte(typing, address, index, value):
    """One byte the other way."""

    def generate(context, builder, signature, arguments):
        address, index, value = arguments
        pointer = at(builder, builder.inttoptr(address, BYTE.as_pointer()), index)
        builder.store(builder.trunc(value, BYTE), pointer)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


@helper
def taken_row(stage, source, to, run):
    """A row of float32 to bytes; `run` is room for a few."""
    channels, width = stage.channels, stage.width
    if channels == 1 or (stage.x_channel == 1 and stage.x_pixel == channels):
        _rounded(stage, source, channels * width, to)
        return
    for begin in range(0, width, _RUN):
        count = min(_RUN, width - begin)
        for c in range(channels):
            at = source + 4 * (c * stage.x_channel + begin * stage.x_pixel)
            if stage.x_pixel == 1:
                _rounded(stage, at, count, run)
                for x in range(count):
                    put_byte(to, (begin + x) * channels + c, byte(run, x))
            else:
                for x in range(count):
                    value = splat(number(at, x * stage.x_pixel))
                    place = to + (begin + x) * channels + c
                    put_bytes(place, value, stage.step, stage.shift, stage.least, stage.most, 0, 1)


@helper
def _rounded(stage, source, count, to):
    for x in range(0, count, LANES):
        value = load_some(source, x, count - x)
        put_bytes(to + x, value, stage.step, stage.shift, stage.least, stage.most, 0, count - x)


@helper
def copied_row(stage, source, to):
    """A row of bytes, signed ones by 128 more, pixel after pixel."""
    channels, width = stage.channels, stage.width
    if stage.flip == 0 and (channels == 1 or stage.x_channel == 1) and stage.x_pixel == channels:
        copy(to, source, channels * width)
        return
    for x in range(width):
        for c in range(channels):
            value = byte(source, x * stage.x_pixel + c * stage.x_channel)
            put_byte(to, x * channels + c, value ^ stage.flip)


@helper
def divided(stage, sums, vectors, scale, to, valid, left):
    """A group's sums to bytes, where a multiplication would not give a division's ties."""
    low, high = splat(stage.low), splat(stage.high)
    for pixel in range(valid):
        for v in range(vectors):
            y = from_ints(sums, (pixel * vectors + v) * LANES)
            y = at_most(at_least(multiply(y, load(scale, v * LANES)), low), high)
            count = min(LANES, left - v * LANES)
            if count > 0:
                put_bytes(
                    to + pixel * stage.channels + v * LANES, y, stage.step, stage.shift,
                    stage.least, stage.most, stage.flip, count,
                )  # fmt: skip


@helper
def floats(stage, sums, vectors, scale, to, channel, valid, left):
    """A group's sums to float32: channel by channel where they do not lie side by side."""
    low, high = splat(stage.low), splat(stage.high)
    r = stage.shuffle
    for pixel in range(valid):
        for v in range(vectors):
            y = multiply(from_ints(sums, (pixel * vectors + v) * LANES), load(scale, v * LANES))
            count = min(LANES, left - v * LANES)
            if stage.out_channel == 1 and r == 1:
                place, c = to + 4 * pixel * stage.out_pixel, channel + v * LANES
                if stage.residual:
                    y = add(y, load_some(place + stage.residual, c, count))
                store_some(place, c, at_most(at_least(y, low), high), count)
                continue
            if stage.residual:
                place = to + stage.residual
                place += 4 * (pixel * stage.out_pixel + (channel + v * LANES) * stage.out_channel)
                y = add(y, gather(place, 4 * stage.out_channel, count))
            y = at_most(at_least(y, low), high)
            for c in range(count):
                which, rest = (
                    (channel + v * LANES + c) // (r * r),
                    (channel + v * LANES + c) % (r * r),
                )
                place = which * stage.out_channel + rest // r * stage.out_row
                place += (pixel * r + rest % r) * stage.out_pixel
                put_number(to, place, lane(y, c))


@helper
def few_rows(stage, sums, slot, to, valid):
    """A group of what `few_end` wrote, to its rows: results lie one pixel beside the other."""
    if stage.shuffle == 2:
        for row in range(2):
            source = sums + 4 * (row * 2 * FEW_PIXELS + 2 * slot * COLUMNS)
            place = to + 4 * row * stage.out_row
            store_some(place, 0, load(source, 0), 2 * valid)
        return
    for output in range(stage.outputs):
        source = sums + 4 * (output * FEW_PIXELS + slot * COLUMNS)
        place = to + 4 * output * stage.out_channel
        store_some(place, 0, load(source, 0), valid)
