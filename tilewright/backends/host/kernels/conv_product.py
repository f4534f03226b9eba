"""Sums of products of convolutions, held in registers: pixels x channels of the output.

    for each input channel k:     numbers[pixel][k], broadcast   x   weights[k][channels], loaded
                                  sums[pixel][channels] += both

    ROWS pixels x VECTORS registers of sixteen channels: 14 x 2 where there are 32 registers of
    sixteen floats (28 sums, two weights, a number), 28 x 1 for sixteen channels alone; 6 x 1
    where a register holds eight floats or four, which LLVM splits the sixteen into.

A product is an LLVM function of its own that nothing is inlined into, so that every sum keeps its
register. Distances between pixels are constants: addresses then cost no register.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tilewright.backends.host.kernels.features import features
from tilewright.backends.host.kernels.lanes import WIDTH, broadcast, overloaded

INT, I32, FLOAT = ir.IntType(64), ir.IntType(32), ir.FloatType()
BYTE = ir.IntType(8)
FLOATS = ir.VectorType(FLOAT, WIDTH)
BYTES = 4 * WIDTH  # of a vector
POINTER = BYTE.as_pointer()

WIDE = "avx512f" in features()
# Tiles or pixels that lie side by side, a vector of sixteen channels each.
GROUP = 28 if WIDE else 24
# Bytes between a weight and what is asked for meanwhile: at most, or it is gone when it is wanted.
AHEAD = 8192
# Rows of a product by its vectors of output channels; few shapes, as each is compiled.
ROWS = {2: (14, 8, 4), 1: (28, 16, 8)} if WIDE else {1: (6, 4, 2)}


def at(builder, base, offset):
    """A byte pointer so many bytes on; the offset is a number or a value."""
    return builder.gep(base, [INT(offset) if isinstance(offset, int) else offset])


def load_floats(builder, pointer, vector=FLOATS):
    """A vector, or one number, from a byte pointer."""
    return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=4)


def store_floats(builder, value, pointer):
    """The other way."""
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=4)


def fused(builder, x, y, z):
    """x * y + z, rounded once."""
    vector = x.type
    function = overloaded(builder, f"llvm.fma.v{vector.count}f32", vector, vector, vector, vector)
    return builder.call(function, [x, y, z])


def prefetch(builder, pointer, near=3):
    """Ask for the line of a byte pointer; nowhere is an address that must not be. `near`: 3 is the
    first cache, 2 the second."""
    kind = ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(function, [pointer, I32(0), I32(near), I32(1)])


def private(module, name, kinds, result=None):
    """A function of its own, which nothing is inlined into: its builder and its arguments."""
    function = ir.Function(module, ir.FunctionType(result or ir.VoidType(), kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return ir.IRBuilder(function.append_basic_block("entry")), function.args


def counted(builder, count, values, body):
    """Code that runs `body(index, values) -> values` so many times, at least once."""
    before = builder.block
    loop, after = (builder.append_basic_block(name) for name in ("again", "done"))
    builder.branch(loop)
    builder.position_at_end(loop)
    index = builder.phi(INT)
    held = [builder.phi(value.type) for value in values]
    found = body(index, held)
    following = builder.add(index, INT(1))
    last = builder.block
    index.add_incoming(INT(0), before)
    index.add_incoming(following, last)
    for phi, start, value in zip(held, values, found, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(value, last)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    builder.position_at_end(after)
    return found


def _steps(builder, numbers, weights, sums, rows, vectors, ahead):
    """Four input channels: `numbers` is the first pixel's, the next pixel's a vector on."""
    for step in range(4):
        loaded = []
        for vector in range(vectors):
            place = at(builder, weights, (step * vectors + vector) * BYTES)
            loaded.append(load_floats(builder, place))
            prefetch(builder, at(builder, place, ahead))
        for row in range(rows):
            one = load_floats(builder, at(builder, numbers, row * BYTES + 4 * step), FLOAT)
            wide = broadcast(builder, one, FLOATS)
            for vector in range(vectors):
                index = row * vectors + vector
                sums[index] = fused(builder, wide, loaded[vector], sums[index])
    return sums


def _folding_step(builder, numbers, weights, sums, rows):
    """Four input channels at once: lanes are four outputs x four parts of their sums."""
    quad = ir.VectorType(FLOAT, 4)
    loaded = load_floats(builder, weights)
    again = ir.Constant(ir.VectorType(I32, WIDTH), [I32(lane % 4) for lane in range(WIDTH)])
    for row in range(rows):
        four = load_floats(builder, at(builder, numbers, row * BYTES), quad)
        wide = builder.shuffle_vector(four, four, again)
        sums[row] = fused(builder, wide, loaded, sums[row])
    return sums


def _product(module, rows, vectors, folding):
    """tiles [blocks][rows][16] x weights [4 quarters][vectors][16] -> out [vectors][GROUP][16].

    Folding: weights [quarters][4 outputs][4 inputs], out [GROUP][4 outputs][4 parts].
    """
    name = f"tilewright_product_{rows}x{vectors}{'_folding' if folding else ''}"
    if name in module.globals:
        return module.globals[name]
    builder, arguments = private(module, name, [POINTER] * 3 + [INT] * 2)
    tiles, weights, out, quarters, block = arguments
    whole = BYTES if folding else 4 * vectors * BYTES
    plane = builder.mul(quarters, INT(whole))
    ahead = builder.select(builder.icmp_signed("<", plane, INT(AHEAD)), plane, INT(AHEAD))

    def body(index, sums):
        skipped = builder.mul(builder.ashr(index, INT(2)), block)
        within = builder.mul(builder.and_(index, INT(3)), INT(16))
        numbers = at(builder, tiles, builder.add(skipped, within))
        place = at(builder, weights, builder.mul(index, INT(whole)))
        if folding:
            return _folding_step(builder, numbers, place, list(sums), rows)
        return _steps(builder, numbers, place, list(sums), rows, vectors, ahead)

    start = [ir.Constant(FLOATS, [0.0] * WIDTH)] * (rows * vectors)
    for index, total in enumerate(counted(builder, quarters, start, body)):
        row, vector = divmod(index, vectors)
        store_floats(builder, total, at(builder, out, (vector * GROUP + row) * BYTES))
    builder.ret_void()
    return module.globals[name]


def product_of(vectors, folding=False):
    """product(rows, tiles, weights, out, quarters, block): the least of `ROWS` that has the rows.

    `quarters` are quarters of the input's blocks of sixteen channels; a block lies `block` bytes
    after the one before. `folding` is for four outputs: what their lanes hold `_product` says.
    """
    shapes = ROWS[vectors]

    @intrinsic
    def product(typing, rows, tiles, weights, out, quarters, block):
        def generate(context, builder, signature, arguments):
            wanted, *places, quarters, block = arguments
            given = [builder.inttoptr(place, POINTER) for place in places] + [quarters, block]

            def call(rows):
                function = _product(builder.module, rows, vectors, folding)
                builder.call(function, given)

            by_rows(builder, wanted, shapes, call)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 6), generate

    return product


def by_rows(builder, wanted, shapes, call):
    """Run `call(rows)` for the least of the shapes that holds the rows wanted."""
    done = builder.append_basic_block("multiplied")
    shapes = sorted(shapes)
    for rows in shapes[:-1]:
        fits = builder.icmp_signed("<=", wanted, INT(rows))
        here, other = (builder.append_basic_block(name) for name in ("fits", "larger"))
        builder.cbranch(fits, here, other)
        builder.position_at_end(here)
        call(rows)
        builder.branch(done)
        builder.position_at_end(other)
    call(shapes[-1])
    builder.branch(done)
    builder.position_at_end(done)
