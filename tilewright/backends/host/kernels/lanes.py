"""Sixteen floats in one register, as a Numba type, and the few operations that kernels need on it.

LLVM's own vectoriser prefers half the register's width on this generation of processors and checks
short loops for aliasing every time; values of this type are vectors by construction. On processors
with narrower registers LLVM splits them.

A multiplication and the addition after it are fused by `fused` alone: where it is not asked for,
results equal NumPy's bit for bit.

Arrays are given by their address: as objects they would be counted, atomically, for every vector,
which took half of a short convolution's time.
"""

from __future__ import annotations

import math

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import models, register_model

from tilewright.backends.host.kernels.emitted import emitted

WIDTH = 16
SCRATCH = 1024
_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
_INTS = ir.VectorType(ir.IntType(32), WIDTH)


class LanesType(types.Type):
    """Numba's type of sixteen float32."""

    def __init__(self):
        super().__init__(name="Lanes")


LANES = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    """A vector register."""

    def __init__(self, manager, numba_type):
        super().__init__(manager, numba_type, _FLOATS)


def element(builder, address, index, kind):
    """A pointer to an element of an array that begins at `address`."""
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [index])


def vector_at(builder, address, index, vector):
    """A pointer to a vector whose first number is an element of an array."""
    pointer = element(builder, address, index, vector.element)
    return builder.bitcast(pointer, vector.as_pointer())


def apart(builder, address):
    """The same address, of which LLVM does not know that: what is loaded from there is not loaded
    together with its neighbour. Cortex-A55 loads two registers at once in six cycles, one in two.
    """
    one = ir.InlineAsm(ir.FunctionType(address.type, [address.type]), "", "=r,0")
    return builder.call(one, [address])


def keep_rolled(builder):
    """The loop that this stands in is not unrolled. LLVM unrolls for cores that go in order, by
    four: on Cortex-A55 what is left of a window of nine words took as long as all before it."""
    nothing = ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), "", "", side_effect=True)
    builder.call(nothing, [], attrs=("convergent",))


def overloaded(builder, name, result, *arguments):
    """An LLVM intrinsic on vectors, by its full name."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


@emitted(LANES, types.intp, types.intp)
def load(builder, address, index):
    """Sixteen float32 from number `index` of the array at `address`."""
    return builder.load(vector_at(builder, address, index, _FLOATS), align=4)


@emitted(types.intp)
def scratch(builder):
    """The address of a kilobyte that lasts until the function that asks for it returns.

    An array would be freed after its last use by name, while its address is still written to.
    """
    room = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(8), SCRATCH))
    room.align = 64
    return builder.ptrtoint(room, ir.IntType(64))


@emitted(types.intp, types.intp, types.intp)
def whole(builder, address, index):
    """One int64."""
    return builder.load(element(builder, address, index, ir.IntType(64)))


@emitted(types.void, types.intp, types.intp, types.intp)
def put(builder, address, index, value):
    """One int64 the other way."""
    builder.store(value, element(builder, address, index, ir.IntType(64)))


@emitted(types.float32, types.intp, types.intp)
def number(builder, address, index):
    """One float32."""
    return builder.load(element(builder, address, index, ir.FloatType()))


@emitted(types.void, types.intp, types.intp, types.float32)
def put_number(builder, address, index, value):
    """One float32 the other way."""
    builder.store(value, element(builder, address, index, ir.FloatType()))


@emitted(types.float32, LANES, types.intp)
def lane(builder, value, index):
    """One of the sixteen."""
    return builder.extract_element(value, index)


@emitted(LANES, LANES, LANES, LANES)
def fused(builder, x, y, z):
    """x * y + z, rounded once."""
    function = overloaded(builder, f"llvm.fma.v{WIDTH}f32", _FLOATS, *[_FLOATS] * 3)
    return builder.call(function, [x, y, z])


@emitted(types.void, types.intp, types.intp, LANES)
def store(builder, address, index, value):
    """The other way."""
    builder.store(value, vector_at(builder, address, index, _FLOATS), align=4)


@emitted(LANES, *[types.intp] * 4)
def from_counts(builder, start, start_index, counts, index):
    """float32(start - 2 counts) of int32 arrays: the dot products of sixteen channels."""
    first, second = (
        builder.load(vector_at(builder, *pair, _INTS), align=4)
        for pair in ((start, start_index), (counts, index))
    )
    return builder.sitofp(builder.sub(first, builder.add(second, second)), _FLOATS)


@emitted(LANES, types.float32)
def splat(builder, value):
    """The same float32 sixteen times."""
    return broadcast(builder, value, _FLOATS)


def broadcast(builder, scalar, vector):
    """A vector whose lanes all hold `scalar`."""
    empty = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(empty, scalar, ir.Constant(ir.IntType(32), 0))
    lanes = ir.VectorType(ir.IntType(32), vector.count)
    return builder.shuffle_vector(one, empty, ir.Constant(lanes, [0] * vector.count))


@emitted(LANES, LANES, LANES)
def add(builder, left, right):
    """left + right."""
    return builder.fadd(left, right)


@emitted(LANES, LANES, LANES)
def multiply(builder, left, right):
    """left * right."""
    return builder.fmul(left, right)


@emitted(LANES, LANES)
def root(builder, value):
    """The square root."""
    return builder.call(overloaded(builder, "llvm.sqrt.v16f32", _FLOATS, _FLOATS), [value])


def _larger(builder, left, right):
    first = builder.fcmp_ordered(">", left, right)
    first = builder.or_(first, builder.fcmp_unordered("uno", left, left))
    return builder.select(first, left, right)


@emitted(LANES, LANES, LANES)
def larger(builder, left, right):
    """Where left > right or left is NaN left, elsewhere right: NaN of either stays, as in NumPy."""
    return _larger(builder, left, right)


def _across(builder, value, join):
    """One number of the sixteen, halves joined with halves."""
    width = WIDTH
    while width > 1:
        width //= 2
        kind = ir.VectorType(ir.IntType(32), width)
        nothing = ir.Constant(value.type, ir.Undefined)
        halves = [
            builder.shuffle_vector(value, nothing, ir.Constant(kind, list(range(at, at + width))))
            for at in (0, width)
        ]
        value = join(builder, *halves)
    return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))


@emitted(types.float32, LANES)
def sum_of(builder, value):
    """The sum of the sixteen."""
    return _across(builder, value, lambda builder, left, right: builder.fadd(left, right))


@emitted(types.float32, LANES)
def largest_of(builder, value):
    """The largest of the sixteen, NaN where one is."""
    return _across(builder, value, _larger)


@emitted(LANES, LANES, LANES)
def at_least(builder, value, floor):
    """The floor where value < floor: NaN stays, and so does -0 at a floor of 0, as in NumPy."""
    return builder.select(builder.fcmp_ordered("<", value, floor), floor, value)


@emitted(LANES, LANES, LANES)
def at_most(builder, value, ceiling):
    """The ceiling where value > ceiling."""
    return builder.select(builder.fcmp_ordered(">", value, ceiling), ceiling, value)


@emitted(types.void, types.intp, types.intp, LANES, LANES)
def store_signs(builder, address, index, value, cut):
    """Half word `index` of the array at `address`: bit i is value[i] >= cut[i]."""
    bits = builder.fcmp_ordered(">=", value, cut)
    half = ir.IntType(WIDTH)
    builder.store(builder.bitcast(bits, half), element(builder, address, index, half), align=2)


def _some(builder, count):
    """A mask of the first `count` lanes."""
    numbers = ir.Constant(ir.VectorType(ir.IntType(64), WIDTH), list(range(WIDTH)))
    return builder.icmp_signed("<", numbers, broadcast(builder, count, numbers.type))


def load_masked(builder, pointer, mask, beyond=0.0):
    """Lanes of the mask, `beyond` elsewhere; what is not in it is not touched."""
    kinds = (_FLOATS.as_pointer(), ir.IntType(32), mask.type, _FLOATS)
    call = overloaded(builder, "llvm.masked.load.v16f32.p0v16f32", _FLOATS, *kinds)
    other = ir.Constant(_FLOATS, [beyond] * WIDTH)
    return builder.call(call, [pointer, ir.IntType(32)(4), mask, other])


def store_masked(builder, value, pointer, mask):
    """The other way."""
    kinds = (_FLOATS, _FLOATS.as_pointer(), ir.IntType(32), mask.type)
    call = overloaded(builder, "llvm.masked.store.v16f32.p0v16f32", ir.VoidType(), *kinds)
    builder.call(call, [value, pointer, ir.IntType(32)(4), mask])


@emitted(LANES, types.intp, types.intp, types.intp)
def load_some(builder, address, index, count):
    """As `load`, of which only the first `count` lanes are read; zeros beyond."""
    pointer = vector_at(builder, address, index, _FLOATS)
    return load_masked(builder, pointer, _some(builder, count))


@emitted(LANES, LANES, types.intp)
def first_of(builder, value, count):
    """The first `count` lanes, zeros beyond."""
    return builder.select(_some(builder, count), value, ir.Constant(_FLOATS, [0.0] * WIDTH))


@emitted(LANES, types.intp, types.intp, types.intp)
def load_above(builder, address, index, count):
    """As `load_some`, minus infinity beyond."""
    pointer = vector_at(builder, address, index, _FLOATS)
    return load_masked(builder, pointer, _some(builder, count), -math.inf)


@emitted(types.void, types.intp, types.intp, LANES, types.intp)
def store_some(builder, address, index, value, count):
    """As `store`, of the first `count` lanes."""
    pointer = vector_at(builder, address, index, _FLOATS)
    store_masked(builder, value, pointer, _some(builder, count))


@emitted(types.void, types.intp, LANES, types.intp)
def store_apart(builder, address, value, count):
    """The first `count` lanes to every other float32 from `address` on; those between stay."""
    for half in range(2):
        source = [half * WIDTH // 2 + lane // 2 for lane in range(WIDTH)]
        order = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), source)
        spread = builder.shuffle_vector(value, ir.Constant(_FLOATS, ir.Undefined), order)
        numbers = [at if lane % 2 == 0 else 1 << 62 for lane, at in enumerate(source)]
        wanted = ir.Constant(ir.VectorType(ir.IntType(64), WIDTH), numbers)
        mask = builder.icmp_signed("<", wanted, broadcast(builder, count, wanted.type))
        pointer = vector_at(builder, address, ir.IntType(64)(half * WIDTH), _FLOATS)
        store_masked(builder, spread, pointer, mask)


def _apart(builder, address, hop):
    """Pointers to sixteen float32, `hop` bytes from one to the next."""
    numbers = ir.Constant(ir.VectorType(ir.IntType(64), WIDTH), list(range(WIDTH)))
    steps = builder.mul(numbers, broadcast(builder, hop, numbers.type))
    places = builder.add(broadcast(builder, address, numbers.type), steps)
    return builder.inttoptr(places, ir.VectorType(ir.FloatType().as_pointer(), WIDTH))


@emitted(LANES, types.intp, types.intp, types.intp)
def gather(builder, address, hop, count):
    """The first `count` of sixteen float32 that lie `hop` bytes apart; zeros beyond."""
    places, mask = _apart(builder, address, hop), _some(builder, count)
    kinds = (places.type, ir.IntType(32), mask.type, _FLOATS)
    call = overloaded(builder, "llvm.masked.gather.v16f32.v16p0f32", _FLOATS, *kinds)
    zero = ir.Constant(_FLOATS, [0.0] * WIDTH)
    return builder.call(call, [places, ir.IntType(32)(4), mask, zero])


@emitted(types.void, types.intp, types.intp, LANES, types.intp)
def scatter(builder, address, hop, value, count):
    """The other way."""
    places, mask = _apart(builder, address, hop), _some(builder, count)
    kinds = (_FLOATS, places.type, ir.IntType(32), mask.type)
    name = "llvm.masked.scatter.v16f32.v16p0f32"
    call = overloaded(builder, name, ir.VoidType(), *kinds)
    builder.call(call, [value, places, ir.IntType(32)(4), mask])
