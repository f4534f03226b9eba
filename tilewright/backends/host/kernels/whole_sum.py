"""Sums of two values, bytes or float32, rounded to bytes: sixteen at a time, a step of a program.

    a: 16 bytes -> (a - zero) * scale \\
                                       + -> limits -> / step, rounded, + shift -> 16 bytes
    b: 16 float32, or as a            /

One float32 operation after another, each rounded once, as the definition has them.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import (
    LANES,
    WIDTH,
    add,
    at_least,
    at_most,
    broadcast,
    load,
    multiply,
    number,
    splat,
)
from tilewright.backends.host.kernels.step import step_at
from tilewright.backends.host.kernels.whole_rows import byte, put_bytes

# Of the table of numbers: scale and zero of a and of b, step, shift, low, high.
SCALE, ZERO, BESIDE, STEP, SHIFT, LOW, HIGH = 0, 1, 2, 4, 5, 6, 7
_BYTES = ir.VectorType(ir.IntType(8), WIDTH)
_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)


@emitted(LANES, types.intp, types.intp)
def load_bytes(builder, address, flip):
    """Sixteen bytes, each xor `flip`, as float32 from 0 to 255."""
    pointer = builder.inttoptr(address, _BYTES.as_pointer())
    value = builder.load(pointer, align=1)
    value = builder.xor(value, broadcast(builder, builder.trunc(flip, ir.IntType(8)), _BYTES))
    return builder.uitofp(value, _FLOATS)


def sum_task(address, task, scratch):
    """A run of numbers; what is left of sixteen goes one by one."""
    step = step_at(address)
    last = min(step.rows, (task + 1) * step.band)
    at = task * step.band
    while at + WIDTH <= last:
        a = _some(step, step.x, step.groups, SCALE, at)
        _sum(step, a, _some(step, step.weights, step.blocks, SCALE + BESIDE, at), at, WIDTH)
        at += WIDTH
    while at < last:
        a = _one(step, step.x, step.groups, SCALE, at)
        _sum(step, a, _one(step, step.weights, step.blocks, SCALE + BESIDE, at), at, 1)
        at += 1


@helper
def _some(step, source, flip, place, at):
    """Sixteen numbers for what they are worth; those with a scale of 0 are float32."""
    scale = number(step.pieces, place)
    if scale == 0:
        return load(source, at)
    lower = add(load_bytes(source + at, flip), splat(-number(step.pieces, place + 1)))
    return multiply(lower, splat(scale))


@helper
def _one(step, source, flip, place, at):
    """The same of one."""
    scale = number(step.pieces, place)
    if scale == 0:
        return splat(number(source, at))
    lower = splat(float(byte(source, at) ^ flip) - number(step.pieces, place + 1))
    return multiply(lower, splat(scale))


@helper
def _sum(step, a, b, at, count):
    """Added, limited, rounded."""
    pieces = step.pieces
    y = at_most(at_least(add(a, b), splat(number(pieces, LOW))), splat(number(pieces, HIGH)))
    put_bytes(
        step.out + at, y, number(pieces, STEP), number(pieces, SHIFT), step.least, step.most,
        step.through, count,
    )  # fmt: skip
