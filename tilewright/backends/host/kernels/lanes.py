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

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

WIDTH = 16
SCRATCH = 1024
_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
_INTS = ir.VectorType(ir.IntType(32), WIDTH)


class LanesType(types.Type):  # type: ignore[misc]
    """Numba's type of sixteen float32."""

    def __init__(self):
        super().__init__(name="Lanes")


LANES = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
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


def overloaded(builder, name, result, *arguments):
    """An LLVM intrinsic on vectors, by its full name."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


@intrinsic
def load(typing, address, index):
    """Sixteen float32 from number `index` of the array at `address`."""

    def generate(context, builder, signature, arguments):
        return builder.load(vector_at(builder, *arguments, _FLOATS), align=4)

    return LANES(types.intp, types.intp), generate


@intrinsic
def scratch(typing):
    """The address of a kilobyte that lasts until the function that asks for it returns.

    An array would be freed after its last use by name, while its address is still written to.
    """

    def generate(context, builder, signature, arguments):
        room = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(8), SCRATCH))
        room.align = 64
        return builder.ptrtoint(room, ir.IntType(64))

    return types.intp(), generate


@intrinsic
def whole(typing, address, index):
    """One int64."""

    def generate(context, builder, signature, arguments):
        return builder.load(element(builder, *arguments, ir.IntType(64)))

    return types.intp(types.intp, types.intp), generate


@intrinsic
def put(typing, address, index, value):
    """One int64 the other way."""

    def generate(context, builder, signature, arguments):
        address, index, value = arguments
        builder.store(value, element(builder, address, index, ir.IntType(64)))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


@intrinsic
def number(typing, address, index):
    """One float32."""

    def generate(context, builder, signature, arguments):
        return builder.load(element(builder, *arguments, ir.FloatType()))

    return types.float32(types.intp, types.intp), generate


@intrinsic
def put_number(typing, address, index, value):
    """One float32 the other way."""

    def generate(context, builder, signature, arguments):
        address, index, value = arguments
        builder.store(value, element(builder, address, index, ir.FloatType()))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.float32), generate


@intrinsic
def lane(typing, value, index):
    """One of the sixteen."""

    def generate(context, builder, signature, arguments):
        return builder.extract_element(*arguments)

    return types.float32(LANES, types.intp), generate


@intrinsic
def fused(typing, x, y, z):
    """x * y + z, rounded once."""

    def generate(context, builder, signature, arguments):
        function = overloaded(builder, f"llvm.fma.v{WIDTH}f32", _FLOATS, *[_FLOATS] * 3)
        return builder.call(function, arguments)

    return LANES(LANES, LANES, LANES), generate


@intrinsic
def store(typing, address, index, value):
    """The other way."""

    def generate(context, builder, signature, arguments):
        address, index, value = arguments
        builder.store(value, vector_at(builder, address, index, _FLOATS), align=4)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, LANES), generate


@intrinsic
def from_counts(typing, start, start_index, counts, index):
    """float32(start - 2 counts) of int32 arrays: the dot products of sixteen channels."""

    def generate(context, builder, signature, arguments):
        first, second = (
            builder.load(vector_at(builder, *pair, _INTS), align=4)
            for pair in (arguments[:2], arguments[2:])
        )
        return builder.sitofp(builder.sub(first, builder.add(second, second)), _FLOATS)

    return LANES(*[types.intp] * 4), generate


@intrinsic
def splat(typing, value):
    """The same float32 sixteen times."""

    def generate(context, builder, signature, arguments):
        return broadcast(builder, arguments[0], _FLOATS)

    return LANES(types.float32), generate


def broadcast(builder, scalar, vector):
    """A vector whose lanes all hold `scalar`."""
    empty = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(empty, scalar, ir.Constant(ir.IntType(32), 0))
    lanes = ir.VectorType(ir.IntType(32), vector.count)
    return builder.shuffle_vector(one, empty, ir.Constant(lanes, [0] * vector.count))


@intrinsic
def add(typing, left, right):
    """left + right."""

    def generate(context, builder, signature, arguments):
        return builder.fadd(*arguments)

    return LANES(LANES, LANES), generate


@intrinsic
def multiply(typing, left, right):
    """left * right."""

    def generate(context, builder, signature, arguments):
        return builder.fmul(*arguments)

    return LANES(LANES, LANES), generate


@intrinsic
def larger(typing, left, right):
    """Where left > right or left is NaN left, elsewhere right: NaN of either stays, as in NumPy."""

    def generate(context, builder, signature, arguments):
        left, right = arguments
        first = builder.fcmp_ordered(">", left, right)
        first = builder.or_(first, builder.fcmp_unordered("uno", left, left))
        return builder.select(first, left, right)

    return LANES(LANES, LANES), generate


@intrinsic
def at_least(typing, value, floor):
    """The floor where value < floor: NaN stays, and so does -0 at a floor of 0, as in NumPy."""

    def generate(context, builder, signature, arguments):
        value, floor = arguments
        return builder.select(builder.fcmp_ordered("<", value, floor), floor, value)

    return LANES(LANES, LANES), generate


@intrinsic
def at_most(typing, value, ceiling):
    """The ceiling where value > ceiling."""

    def generate(context, builder, signature, arguments):
        value, ceiling = arguments
        return builder.select(builder.fcmp_ordered(">", value, ceiling), ceiling, value)

    return LANES(LANES, LANES), generate


@intrinsic
def store_signs(typing, address, index, value, cut):
    """Half word `index` of the array at `address`: bit i is value[i] >= cut[i]."""

    def generate(context, builder, signature, arguments):
        address, index, value, cut = arguments
        bits = builder.fcmp_ordered(">=", value, cut)
        half = ir.IntType(WIDTH)
        builder.store(builder.bitcast(bits, half), element(builder, address, index, half), align=2)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, LANES, LANES), generate


def _some(builder, count):
    """A mask of the first `count` lanes."""
    numbers = ir.Constant(ir.VectorType(ir.IntType(64), WIDTH), list(range(WIDTH)))
    return builder.icmp_signed("<", numbers, broadcast(builder, count, numbers.type))


def load_masked(builder, pointer, mask):
    """Lanes of the mask, zeros elsewhere; what is not in it is not touched."""
    kinds = (_FLOATS.as_pointer(), ir.IntType(32), mask.type, _FLOATS)
    call = overloaded(builder, "llvm.masked.load.v16f32.p0v16f32", _FLOATS, *kinds)
    zero = ir.Constant(_FLOATS, [0.0] * WIDTH)
    return builder.call(call, [pointer, ir.IntType(32)(4), mask, zero])


def store_masked(builder, value, pointer, mask):
    """The other way."""
    kinds = (_FLOATS, _FLOATS.as_pointer(), ir.IntType(32), mask.type)
    call = overloaded(builder, "llvm.masked.store.v16f32.p0v16f32", ir.VoidType(), *kinds)
    builder.call(call, [value, pointer, ir.IntType(32)(4), mask])


@intrinsic
def load_some(typing, address, index, count):
    """As `load`, of which only the first `count` lanes are read; zeros beyond."""

    def generate(context, builder, signature, arguments):
        address, index, count = arguments
        pointer = vector_at(builder, address, index, _FLOATS)
        return load_masked(builder, pointer, _some(builder, count))

    return LANES(types.intp, types.intp, types.intp), generate


@intrinsic
def store_some(typing, address, index, value, count):
    """As `store`, of the first `count` lanes."""

    def generate(context, builder, signature, arguments):
        address, index, value, count = arguments
        pointer = vector_at(builder, address, index, _FLOATS)
        store_masked(builder, value, pointer, _some(builder, count))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, LANES, types.intp), generate
