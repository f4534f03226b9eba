"""Sums of products of small matrices, held in registers: rows x vectors of columns of C.

    for each step of k:     A[row][k], broadcast     x     B[k][columns], loaded
                            sums[row][columns] +=   both

                 V vectors of B's columns, the last one masked
                +-------+-------+
    A: R rows,  | s00   | s01   |      R x V: up to 8 x 2 where there are 32 registers of 64 bytes,
    any strides | s10   | s11   |      6 x 2 of 32 bytes, 6 x 4 of NEON's 16
                | ...   | ...   |
                +-------+-------+

A is read where it lies: as many row addresses as a tile has rows fit the integer registers, and one
offset is common to all, so that no stride costs more than another. Where few sums would wait for
each other, as a sum takes four cycles, even and odd steps of k have sums of their own. While AVX2
multiplies, the same columns of the next rows of A are asked for, a line of each at a time.

A product is an LLVM function of its own that nothing is inlined into, so that every sum keeps its
register; `multiply` jumps to that of the rows and columns there are.
"""

from __future__ import annotations

from functools import partial
from inspect import Parameter, Signature, signature

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tilewright.backends.host.kernels.conv_product import (
    INT,
    POINTER,
    at,
    private,
)
from tilewright.backends.host.kernels.conv_product import (
    prefetch as fetch,
)
from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.lanes import broadcast, overloaded
from tilewright.backends.host.kernels.popcounts import FLOATS

I1, I32 = ir.IntType(1), ir.IntType(32)
REGISTER = 4 * FLOATS  # bytes
ROWS = 8 if REGISTER == 64 else 6
WIDEST = 2 if REGISTER > 16 else 4  # vectors
# Whether vectors are read and written in part; if not, B and C go through memory of the thread.
MASKS = REGISTER > 16
_WAITING = 8  # sums that keep a core's multipliers busy
# Whether a product fetches the rows of A that are next. 6 x 2 sums of AVX2 take six cycles a step
# of k: from the second cache they reached 91 to 98 GFLOP/s of a core's 116 (Zen 4), 112 so, as from
# the first. 8 x 2 of AVX-512 take sixteen, and wait for nothing.
_FETCHES = REGISTER == 32
LINE = 64  # bytes that the caches fetch at once
PITCH = REGISTER * WIDEST  # bytes of a row of a panel, and of sums
PIECE = 2 * LINE  # bytes that an address of what is asked for stands for
ADDS, CLIPS = 1, 2  # how a product ends: bits of `ends` as `product` has them
# How operands may lie for which the largest product has a function of its own: A's elements follow
# each other, and B is a panel, too. Steps of k of a turn of its loop: four of such a turn take 86
# operations, 82 of eight in a panel, and 96 one by one. A core whose other thread is at work begins
# three in a cycle, 18 while 6 x 2 sums of AVX2 are multiplied. 8 x 2 of AVX-512 take twice as long.
FOLLOWS, PANEL = 1, 2
TURNS = {FOLLOWS: 4, PANEL: 8} if REGISTER == 32 else {}
# Addresses that a product asks for in a line of steps, and groups of rows that it multiplies in a
# call, which costs 90 cycles; NEON's 6 x 4 leave no register for either. Two addresses in the 96
# cycles that a line takes AVX2 cost 1 % more than one: a request is a cycle of its 6 x 2 sums.
ENTRIES, GROUPS = {64: (4, 16), 32: (1, 16)}.get(REGISTER, (0, 1))


class Kind:
    """Elements of one type: as LLVM knows them, and how many a register holds."""

    def __init__(self, name):
        self.name = name
        self.scalar = ir.FloatType() if name == "float32" else ir.DoubleType()
        self.item = 4 if name == "float32" else 8
        self.lanes = REGISTER // self.item
        self.columns = self.lanes * WIDEST
        self.vector = ir.VectorType(self.scalar, self.lanes)
        self.whole = ir.VectorType(ir.IntType(8 * self.item), self.lanes)
        self.word = f"v{self.lanes}f{8 * self.item}"
        self.number = types.float32 if name == "float32" else types.float64

    def zero(self):
        """A vector of zeros."""
        return ir.Constant(self.vector, [0.0] * self.lanes)

    def mask(self, builder, count):
        """The first `count` lanes."""
        numbers = ir.Constant(self.whole, list(range(self.lanes)))
        if self.item == 4:
            count = builder.trunc(count, I32)
        return builder.icmp_signed("<", numbers, broadcast(builder, count, self.whole))

    def fused(self, builder, x, y, z):
        """x * y + z, rounded once."""
        function = overloaded(builder, f"llvm.fma.{self.word}", self.vector, *[self.vector] * 3)
        return builder.call(function, [x, y, z])

    def one(self, builder, pointer):
        """One element in every lane."""
        found = builder.load(builder.bitcast(pointer, self.scalar.as_pointer()), align=self.item)
        return broadcast(builder, found, self.vector)

    def load(self, builder, pointer, mask=None):
        """A vector; lanes beyond the mask are zeros, and not touched."""
        pointer = builder.bitcast(pointer, self.vector.as_pointer())
        if mask is None:
            return builder.load(pointer, align=self.item)
        kinds = (pointer.type, I32, mask.type, self.vector)
        call = overloaded(
            builder, f"llvm.masked.load.{self.word}.p0{self.word}", self.vector, *kinds
        )
        return builder.call(call, [pointer, I32(self.item), mask, self.zero()])

    def store(self, builder, value, pointer, mask=None):
        """The other way."""
        pointer = builder.bitcast(pointer, self.vector.as_pointer())
        if mask is None:
            builder.store(value, pointer, align=self.item)
            return
        kinds = (self.vector, pointer.type, I32, mask.type)
        name = f"llvm.masked.store.{self.word}.p0{self.word}"
        call = overloaded(builder, name, ir.VoidType(), *kinds)
        builder.call(call, [value, pointer, I32(self.item), mask])


SINGLE, DOUBLE = Kind("float32"), Kind("float64")
# By the Numba type of the number that stands for a kind; `halves_tile.py` adds those of 16 bits.
KINDS = {types.float32: SINGLE, types.float64: DOUBLE}


def _step(builder, kind, starts, offset, place, mask, sums):
    """One step of k: A's elements are `offset` behind where rows start, B's vectors at `place`."""
    loaded = []
    vectors = len(sums) // len(starts)
    for vector in range(vectors):
        last = mask if vector == vectors - 1 else None
        loaded.append(kind.load(builder, at(builder, place, REGISTER * vector), last))
    for row, start in enumerate(starts):
        wide = kind.one(builder, at(builder, start, offset))
        for vector in range(vectors):
            index = row * vectors + vector
            sums[index] = kind.fused(builder, wide, loaded[vector], sums[index])


def product(module, kind, rows, vectors, lies=0):
    """C[rows][vectors] = A[rows][k] @ B[k][vectors], of the last vector only `lanes` columns.

    `lanes` less than none: as many, and B may be read beyond them. `ends`: bits of ADDS (to what C
    holds) and CLIPS (0 in the place of what is less); `shift`: the place of a row that is added
    between the two, or 0. `groups` of rows follow each other in A and C. `ahead`: bytes from the
    last of them in A to what is multiplied next; the next rows are fetched meanwhile. `soon`: the
    place of a list of addresses from which on memory is asked for, `ENTRIES` for each line of A's
    rows, PIECE bytes each, so that no request waits for others; `stop`: its end. `lies`: one of
    TURNS, which the largest product finds out by itself.
    """
    name = f"tilewright_grouped_{kind.name}_{rows}x{vectors}_{lies}"
    if name in module.globals:
        return module.globals[name]
    builder, given = private(module, name, [POINTER, INT, INT, POINTER, INT, POINTER] + [INT] * 9)
    a, a_row, a_col, b, b_row, c, c_row, k, lanes, ends, shift, groups, ahead, soon, stop = given
    a_col = INT(kind.item) if lies else a_col
    b_row = INT(PITCH) if lies == PANEL else b_row
    if TURNS and lies != PANEL and (rows, vectors) == (ROWS, WIDEST):
        _left_to(builder, kind, lies + 1, given)

    def group(index, soon, masks, asks):
        first = builder.mul(index, INT(rows))
        to = at(builder, c, builder.mul(first, c_row))
        begun = at(builder, a, builder.mul(first, a_row))
        places = [builder.mul(a_row, INT(row)) for row in range(rows)]
        starts = [kept(builder, at(builder, begun, place)) for place in places]
        more = builder.icmp_signed("<", builder.add(index, INT(1)), groups)
        further = builder.select(more, builder.mul(a_row, INT(rows)), ahead)
        source = b, b_row, masks[0]
        later = further, soon, stop if asks else None
        turn = TURNS.get(lies, 1) if masks[0] is None else 1  # a mask takes a register, too
        sums, soon = _summed(builder, kind, starts, a_col, source, k, vectors, later, turn)
        _put(builder, kind, sums, vectors, (to, c_row, masks[1]), (ends, shift))
        return [soon]

    def every(masks, asks):
        if GROUPS == 1:
            group(INT(0), soon, masks, asks)
            return
        body = lambda index, flat: group(index, *flat, masks, asks)  # noqa: E731
        repeated(builder, INT(0), groups, 1, [soon], body)

    able = ENTRIES > 0 and (rows == ROWS or rows * vectors >= _WAITING)
    waits = builder.icmp_signed("<", soon, stop) if able else None
    _by_edge(builder, kind, lanes, waits, every)
    builder.ret_void()
    return module.globals[name]


def _left_to(builder, kind, lies, given):
    """Leave the largest product to that of operands that lie so, if these do."""
    _, _, a_col, _, b_row, *_ = given
    step, known = (a_col, INT(kind.item)) if lies == FOLLOWS else (b_row, INT(PITCH))
    with builder.if_then(builder.icmp_signed("==", step, known)):
        builder.call(product(builder.module, kind, ROWS, WIDEST, lies), given)
        builder.ret_void()


def _by_edge(builder, kind, lanes, waits, every):
    """`every(masks of B and C, whether it asks)`, as the last vector's columns want it.

    `waits`: whether there is something to ask for; None where a product never does.
    """
    mute = partial(every, (None, None), asks=False)

    def whole():
        if waits is None:
            mute()
        else:
            _either(builder, waits, partial(every, (None, None), asks=True), mute)

    def partly():
        padded = builder.icmp_signed("<", lanes, INT(0))
        mask = kind.mask(builder, builder.select(padded, builder.neg(lanes), lanes))
        within = partial(every, (mask, mask), asks=False)
        if waits is None:
            within()
        else:
            _either(builder, padded, partial(every, (None, mask), asks=True), within)

    if MASKS:
        _either(builder, builder.icmp_signed("==", lanes, INT(kind.lanes)), whole, partly)
    else:
        whole()


def _either(builder, flag, one, other):
    """What `one()` emits where the flag is set, else what `other()` does."""
    with builder.if_else(flag) as (then, otherwise):
        with then:
            one()
        with otherwise:
            other()


def _summed(builder, kind, starts, a_col, source, k, vectors, later, turn):
    """The sums of a product, row by row; even and odd steps of k by themselves where few wait.

    `source`: B, its row, the mask of its last vector or None. `later`: `ahead`, `soon` and `stop`
    as `product` has them, no `stop` where nothing is asked for. `turn`: steps of k of a loop's
    turn, at least. Returns the next `soon`, too.
    """
    b, b_row, mask = source
    ahead, soon, last = later
    each = len(starts) * vectors
    sets = next(one for one in (1, 2, 4) if each * one >= _WAITING or one == 4)
    fetches = (_FETCHES or last is not None) and (sets == 1 or len(starts) == ROWS)
    turn = max(sets, turn)
    done = builder.and_(k, INT(-turn)) if turn > 1 else k

    def body(index, flat, used):
        groups = [list(flat[each * one : each * (one + 1)]) for one in range(sets)]
        place, offset = at(builder, b, builder.mul(index, b_row)), builder.mul(index, a_col)
        for number in range(used):
            if number:
                place = at(builder, place, b_row)
                offset = builder.add(offset, a_col)
                offset = offset if isinstance(a_col, ir.Constant) else kept(builder, offset)
            _step(builder, kind, starts, offset, place, mask, groups[number % sets])
        return [one for group in groups for one in group]

    def fetching(index, flat):
        *sums, soon = flat
        if _FETCHES:
            place = builder.add(builder.mul(index, a_col), ahead)
            for start in starts:
                fetch(builder, at(builder, start, place))
        if last is not None:
            soon = _asked(builder, soon, last)
        stop = builder.add(index, INT(LINE // kind.item))
        stop = builder.select(builder.icmp_signed("<", stop, done), stop, done)
        return [*repeated(builder, index, stop, turn, sums, whole), soon]

    def whole(index, flat):
        return body(index, flat, turn)

    sums = [kind.zero()] * (each * sets)
    if fetches:
        *sums, soon = repeated(builder, INT(0), done, LINE // kind.item, [*sums, soon], fetching)
    else:
        sums = repeated(builder, INT(0), done, turn, sums, whole)
    if turn > 1:
        sums = repeated(builder, done, k, 1, sums, lambda i, flat: body(i, flat, 1))
    for one in range(1, sets):
        for index in range(each):
            sums[index] = builder.fadd(sums[index], sums[each * one + index])
    return sums[:each], soon


def _asked(builder, soon, stop):
    """Ask for what the next addresses of a list stand for; the place of those after them."""
    with builder.if_then(builder.icmp_signed("<", soon, stop)):
        for number in range(ENTRIES):
            place = builder.inttoptr(builder.add(soon, INT(8 * number)), INT.as_pointer())
            entry = builder.inttoptr(builder.load(place), POINTER)
            for offset in (*range(0, PIECE, LINE), PIECE - 1):
                fetch(builder, at(builder, entry, offset), 2)
    soon = builder.add(soon, INT(8 * ENTRIES))
    return builder.select(builder.icmp_signed("<", soon, stop), soon, stop)


def kept(builder, pointer):
    """An address, or an offset, that LLVM takes for unknown, so that it stays in a register of its
    own: it would else work each row's out from the last one's, a chain of additions in every step
    of k, or keep as many for a second step as for the first."""
    one = ir.InlineAsm(ir.FunctionType(pointer.type, (pointer.type,)), "", "=r,0")
    return builder.call(one, [pointer])


def _put(builder, kind, sums, vectors, result, end):
    """All sums to C. `result`: C, from a row to the next, the mask of the last vector; `end`:
    `ends` and `shift` as `product` has them."""
    c, c_row, mask = result
    masks = [None] * (vectors - 1) + [mask]
    places = []
    for index in range(len(sums)):
        row, vector = divmod(index, vectors)
        step = builder.add(builder.mul(c_row, INT(row)), INT(REGISTER * vector))
        places.append(at(builder, c, step))
    change = partial(_ended, builder, kind, places, masks, end)
    changed = builder.icmp_signed("!=", builder.or_(*end), INT(0))
    for index, value in enumerate(where(builder, changed, sums, change)):
        kind.store(builder, value, places[index], masks[index % vectors])


def _ended(builder, kind, places, masks, end, sums):
    """Sums, added to what lies at `places`, shifted and clipped where `end` says so."""
    (ends, shift), vectors = end, len(masks)

    def added(sums):
        held = [kind.load(builder, place, masks[i % vectors]) for i, place in enumerate(places)]
        return [builder.fadd(old, value) for old, value in zip(held, sums, strict=True)]

    def shifted(sums):
        start = builder.inttoptr(shift, POINTER)
        row = [
            kind.load(builder, at(builder, start, REGISTER * i), mask)
            for i, mask in enumerate(masks)
        ]
        return [builder.fadd(value, row[i % vectors]) for i, value in enumerate(sums)]

    def clipped(sums):
        less = [builder.fcmp_ordered("<", value, kind.zero()) for value in sums]
        pairs = zip(less, sums, strict=True)
        return [builder.select(flag, kind.zero(), value) for flag, value in pairs]

    def is_set(bit):
        return builder.icmp_signed("!=", builder.and_(ends, INT(bit)), INT(0))

    sums = where(builder, is_set(ADDS), sums, added)
    sums = where(builder, builder.icmp_signed("!=", shift, INT(0)), sums, shifted)
    return where(builder, is_set(CLIPS), sums, clipped)


def where(builder, flag, values, change):
    """`change(values)` where the flag is set, else the values."""
    before, then = builder.block, builder.append_basic_block("then")
    after = builder.append_basic_block("after")
    builder.cbranch(flag, then, after)
    builder.position_at_end(then)
    changed = change(values)
    last = builder.block
    builder.branch(after)
    builder.position_at_end(after)
    found = []
    for value, other in zip(values, changed, strict=True):
        phi = builder.phi(value.type)
        phi.add_incoming(value, before)
        phi.add_incoming(other, last)
        found.append(phi)
    return found


def repeated(builder, first, stop, step, values, body):
    """Code that runs `body(index, values) -> values` from `first` on, maybe never."""
    before = builder.block
    loop, after = (builder.append_basic_block(name) for name in ("again", "done"))
    builder.cbranch(builder.icmp_signed("<", first, stop), loop, after)
    builder.position_at_end(loop)
    index = builder.phi(INT)
    index.add_incoming(first, before)
    found = []
    for start in values:
        phi = builder.phi(start.type)
        phi.add_incoming(start, before)
        found.append(phi)
    made = body(index, list(found))
    following = builder.add(index, INT(step))
    last = builder.block
    index.add_incoming(following, last)
    for phi, value in zip(found, made, strict=True):
        phi.add_incoming(value, last)
    builder.cbranch(builder.icmp_signed("<", following, stop), loop, after)
    builder.position_at_end(after)
    ends = []
    for start, value in zip(values, made, strict=True):
        phi = builder.phi(start.type)
        phi.add_incoming(start, before)
        phi.add_incoming(value, last)
        ends.append(phi)
    return ends


def typed(result, letters, kinds=KINDS):
    """Compile `emit(builder, kind, *arguments)` for the type of a first argument, a number of it.

    `letters`, one for each of the others: i an intp, r a `number` of its kind, d a float64.
    """

    def compiled(emit):
        def of_type(typing, zero, *_):
            kind = kinds[zero]
            known = {"i": types.intp, "r": kind.number, "d": types.float64}
            takes = [known[one] for one in letters]
            given = kind.number if result == "r" else types.void

            def generate(context, builder, _, arguments):
                made = emit(builder, kind, *arguments[1:])
                return context.get_dummy_value() if result != "r" else made

            return given(zero, *takes), generate

        of_type.__name__, of_type.__doc__ = emit.__name__, emit.__doc__
        names = list(signature(emit).parameters.values())[2:]
        first = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("typing", "zero")]
        of_type.__signature__ = Signature([*first, *names])
        return intrinsic(of_type)

    return compiled


@typed("", "i" * 17)
def multiply(builder, kind, rows, vectors, a, a_row, a_col, b, b_row, c, c_row, k,
             lanes, ends, shift, groups, ahead, soon, stop):  # fmt: skip
    """C = A @ B of so many rows and vectors, up to `ROWS` and `WIDEST`; all in bytes.

    `lanes`: columns of the last vector; `ends` and what follows: as `product` has them.
    """
    a, b, c = (builder.inttoptr(place, POINTER) for place in (a, b, c))
    given = [a, a_row, a_col, b, b_row, c, c_row, k, lanes, ends, shift, groups, ahead, soon, stop]
    by_size(builder, rows, vectors, (ROWS, WIDEST), partial(product, builder.module, kind), given)


def by_size(builder, rows, vectors, most, function, given):
    """Call `function(rows, vectors)` of the sizes at hand, up to `most` of each; else nothing."""
    done = builder.append_basic_block("multiplied")
    jump = builder.switch(builder.add(builder.mul(vectors, INT(16)), rows), done)
    for wide in range(1, most[1] + 1):
        for high in range(1, most[0] + 1):
            block = builder.append_basic_block(f"of{high}x{wide}")
            jump.add_case(INT(16 * wide + high), block)
            builder.position_at_end(block)
            builder.call(function(high, wide), given)
            builder.branch(done)
    builder.position_at_end(done)


@emitted(types.void, types.intp)
def prefetch(builder, address):
    """Ask the second cache for the line there, and wait for nothing."""
    fetch(builder, builder.inttoptr(address, POINTER), 2)


@emitted(types.void, *[types.intp] * 18)
def multiply_at(builder, code, rows, vectors, a, a_row, a_col, b, b_row, c, c_row, k,
                lanes, ends, shift, groups, ahead, soon, stop):  # fmt: skip
    """`multiply`, by the address of its machine code."""
    given = [rows, vectors, a, a_row, a_col, b, b_row, c, c_row, k]
    given += [lanes, ends, shift, groups, ahead, soon, stop]
    kind = ir.FunctionType(ir.VoidType(), (INT,) * len(given))
    builder.call(builder.inttoptr(code, kind.as_pointer()), given)


@typed("r", "i")
def number(builder, kind, address):
    """The element there."""
    return builder.load(builder.inttoptr(address, kind.scalar.as_pointer()), align=kind.item)


@typed("", "ir")
def put(builder, kind, address, value):
    """The other way."""
    pointer = builder.inttoptr(address, kind.scalar.as_pointer())
    builder.store(value, pointer, align=kind.item)


@typed("r", "d")
def narrowed(builder, kind, value):
    """A float64 as an element."""
    return value if kind.item == 8 else builder.fptrunc(value, kind.scalar)
