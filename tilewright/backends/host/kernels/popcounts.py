"""Sums of ones: how many bits of many words differ, counted by what the processor has.

    words --full adders--> planes of ones, twos, fours (LEVELS of them) --carries--> counted, added

A plane holds a bit of 512 sums (or 256) at once; two words of a weight and what stands in its plane
leave a carry of twice the weight, so that only one word of 2^LEVELS has its ones counted (Harley
and Seal's; W. Mula, N. Kurz, D. Lemire, The Computer Journal 61, 2018). How they are counted:

    AVX-512 with vpopcntq  one instruction; LEVELS = 1
    AVX-512BW, AVX2        vpshufb, a table of the ones of four bits; sums of bytes, which hold 31
                           such counts and are added across by vpsadbw at the end
    NEON                   cnt, of bytes; uadalp adds pairs of them to 16 bits, udot fours to 32.
                           Adders take more instructions there than they save
    others                 whatever LLVM makes of a popcount
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import llvmlite.ir as ir
from numba.core import cgutils

from tilewright.backends.host.kernels.features import features
from tilewright.backends.host.kernels.lanes import keep_rolled, overloaded

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


_FOUND = features()
NATIVE = "avx512vpopcntdq" in _FOUND
TABLE = "avx2" in _FOUND and not NATIVE
_TERNARY = NATIVE or {"avx512f", "avx512bw"} <= _FOUND
ARM = "neon" in _FOUND
_DOTS = ARM and "dotprod" in _FOUND
FLOATS = 16 if "avx512f" in _FOUND else 8 if "avx2" in _FOUND else 4  # of the widest register
_REGISTERS = 32
LANES = 8 if _TERNARY else 2 if ARM else 4
LEVELS = 0 if ARM else 3 if TABLE and _TERNARY else 1
PARITY = LEVELS > 0  # whether words 0 and 1 of a pair are laid out as word 0 and both xored
# Rows and vectors of a tile: as many sums as registers hold, beside its operands and a table's.
ROWS, VECTORS = (2, 4) if ARM else (2, 4) if NATIVE else (1, 4) if TABLE else (2, 2)
_WINDOWS = (9, 18, 36, 72)  # words of 3x3 of 64 to 512 channels, in pictures that halve


@dataclass(frozen=True, slots=True)
class Tile:
    """Sums of `rows` by `vectors` vectors side by side, each of so many `levels` of adders."""

    levels: int
    rows: int
    vectors: int

    @property
    def group(self):
        """Words of a step."""
        return max(2, 1 << self.levels)

    @property
    def most(self):
        """Words after which sums have to be taken: bytes of 255 hold 31 counts, of which a rest of
        words that fill no group takes some; sums of NEON's 16 bits hold 4,095 words."""
        return self.group * (31 - self.group // 2) if TABLE else 1 << 10

    @property
    def registers(self):
        """Sums with their planes, words of a step, the table and its mask, what is between."""
        return self.rows * (self.vectors * (self.levels + 1) + self.group) + 7

    def instructions(self, words):
        """Of a sum of so many words counted by table with ternary logic, its share of what a tile
        loads among them: what LLVM makes of `Sum`, counted by hand."""
        pair = 3 + 3 / self.rows + 3 / self.vectors + 2 / (self.rows * self.vectors)
        groups, rest = divmod(words, self.group)
        group = self.group / 2 * pair + 2 * (self.group // 2 - 1) + 7
        return groups * group + -(-rest // 2) * (pair + 2 * self.levels + 5) + 8 * self.levels + 7


def _of_windows():
    """The tile that convolutions take: by table and ternary logic the one of fewest instructions
    whose registers are there, over layers of as many products each; else that of products."""
    if not (TABLE and _TERNARY):
        return Tile(LEVELS, ROWS, VECTORS)
    every = itertools.product((1, 2, 3), (1, 2, 4), (1, 2, 4))
    fitting = [one for one in itertools.starmap(Tile, every) if one.registers <= _REGISTERS]
    return min(fitting, key=lambda one: sum(one.instructions(words) / words for words in _WINDOWS))


PRODUCTS = Tile(LEVELS, ROWS, VECTORS)
WINDOWS = _of_windows()
MOST = PRODUCTS.most
WORDS = ir.VectorType(I64, LANES)
_BYTES = ir.VectorType(I8, 8 * LANES)


def splat(type_, value):
    """A constant whose lanes are all the same."""
    return ir.Constant(type_, [ir.Constant(type_.element, value)] * type_.count)


def scheme():
    """How ones are counted here, in words."""
    if NATIVE:
        return "vpopcntq of AVX-512"
    if TABLE:
        return f"vpshufb of {'AVX-512BW' if _TERNARY else 'AVX2'}"
    if ARM:
        return "cnt of NEON, udot" if _DOTS else "cnt of NEON, uadalp"
    return "what LLVM makes of a popcount"


def by_groups(builder, words, advance, tile=PRODUCTS):
    """`advance(pair, pairs)` for `words` words: of a group, then of two; pairs = 0 for a last."""
    each = tile.group // 2
    pairs = builder.ashr(words, I64(1))
    groups = builder.sdiv(pairs, I64(each))
    with cgutils.for_range(builder, groups) as loop:
        if ARM:
            keep_rolled(builder)
        advance(builder.mul(loop.index, I64(each)), each)
    if each > 1:
        done = builder.mul(groups, I64(each))
        with cgutils.for_range(builder, builder.sub(pairs, done)) as loop:
            advance(builder.add(done, loop.index), 1)
    with builder.if_then(builder.trunc(words, ir.IntType(1))):
        advance(pairs, 0)


def laid(builder, words):
    """Two words, or a last one, as adders want them: word 0, and both xored; else as they are."""
    first, second = words if len(words) == 2 else (*words, splat(WORDS, 0))
    return first, builder.xor(first, second) if PARITY else second


def differing(builder, left, right):
    """What `Sum.add` takes of two pairs that are `laid`: the first words xored, and the second."""
    first = builder.xor(left[0], right[0])
    return first, ((left[1], right[1]) if PARITY else builder.xor(left[1], right[1]))


class Sum:
    """One sum of each lane, in registers: planes, lowest first, and what their carries come to."""

    def __init__(self, builder, tile=PRODUCTS):
        kind = WORDS
        self.levels, self.group = tile.levels, tile.group
        if ARM:
            kind = ir.VectorType(I32, 4) if _DOTS else ir.VectorType(I16, 8)
        self.planes = [cgutils.alloca_once(builder, WORDS) for _ in range(tile.levels)]
        self.counted = cgutils.alloca_once(builder, kind)
        self._zero = splat(kind, 0)

    def clear(self, builder):
        """Begin anew."""
        for plane in self.planes:
            builder.store(splat(WORDS, 0), plane)
        builder.store(self._zero, self.counted)

    def add(self, builder, given):
        """What a step of `by_groups` reads: a group of words or two, by pairs; or one."""
        if len(given) == self.group // 2:
            self._add_group(builder, given)
        else:
            self._add_pair(builder, *given[0])

    def _add_group(self, builder, pairs):
        """A group of words."""
        pending = [None] * (self.levels + 1)
        for pair in pairs:
            carry, level = self._half_sum(builder, *pair), 1
            while level < self.levels and pending[level] is not None:
                plane = self.planes[level]
                total, carry = _full(builder, builder.load(plane), pending[level], carry)
                builder.store(total, plane)
                pending[level], level = None, level + 1
            pending[level] = carry
            if level == self.levels:
                self._count(builder, [carry])

    def _add_pair(self, builder, first, parity):
        """Two words that fill no group."""
        carry = self._half_sum(builder, first, parity)
        for plane in self.planes[1:]:
            held = builder.load(plane)
            builder.store(builder.xor(held, carry), plane)
            carry = builder.and_(held, carry)
        self._count(builder, [carry])

    def _half_sum(self, builder, first, parity):
        """Two words to the plane of ones; their carry. Three instructions, as parities are known.

        Where the sum changed by both words, or neither, ones decides; else the first word.
        """
        plane = self.planes[0]
        ones = builder.load(plane)
        if _TERNARY:
            total = _ternary(builder, ones, *parity, 0x96)
            builder.store(total, plane)
            return _ternary(builder, ones, total, first, 0xB2)
        changed = builder.xor(*parity)
        builder.store(builder.xor(ones, changed), plane)
        return builder.xor(first, builder.and_(changed, builder.xor(ones, first)))

    def _count(self, builder, words):
        """Add the ones of words to the last sum."""
        held = builder.load(self.counted)
        for word in words:
            count = _ones(builder, word)
            if TABLE:
                held, count = (builder.bitcast(value, _BYTES) for value in (held, count))
            held = builder.bitcast(builder.add(held, count), WORDS)
        builder.store(held, self.counted)

    def widen(self, builder, counts):
        """Add ones of bytes that are counted, on ARM."""
        held = builder.load(self.counted)
        builder.store(_arm_sum(builder, held, counts), self.counted)

    def taken(self, builder):
        """The sums, a lane of 64 bits each; not on ARM."""
        counted = builder.load(self.counted)
        if TABLE:
            counted = _bytes_added(builder, counted)
        counted = builder.shl(counted, splat(WORDS, self.levels))
        rest = None
        for plane in reversed(self.planes):
            ones = _ones(builder, builder.load(plane))
            # Bytes of at most 8 (2^levels - 1): doubled they reach no neighbour.
            rest = ones if rest is None else builder.add(builder.add(rest, rest), ones)
        return builder.add(counted, _bytes_added(builder, rest) if TABLE else rest)


def _full(builder, x, y, z):
    """Sum and carry of three words."""
    if _TERNARY:
        return _ternary(builder, x, y, z, 0x96), _ternary(builder, x, y, z, 0xE8)
    either = builder.xor(x, y)
    carry = builder.or_(builder.and_(x, y), builder.and_(either, z))
    return builder.xor(either, z), carry


def _ternary(builder, x, y, z, table):
    name = "llvm.x86.avx512.pternlog.q.512"
    return builder.call(overloaded(builder, name, WORDS, *[WORDS] * 3, I32), [x, y, z, I32(table)])


def _ones(builder, words):
    """Ones of each lane; by table ones of each byte."""
    if not TABLE:
        return builder.call(overloaded(builder, f"llvm.ctpop.v{LANES}i64", WORDS, WORDS), [words])
    wide = LANES == 8
    name = "llvm.x86.avx512.pshuf.b.512" if wide else "llvm.x86.avx2.pshuf.b"
    look = overloaded(builder, name, _BYTES, _BYTES, _BYTES)
    table = ir.Constant(_BYTES, [I8(bin(index % 16).count("1")) for index in range(8 * LANES)])
    low = splat(WORDS, 0x0F0F0F0F0F0F0F0F)
    halves = builder.and_(words, low), builder.and_(builder.lshr(words, splat(WORDS, 4)), low)
    counts = [builder.call(look, [table, builder.bitcast(half, _BYTES)]) for half in halves]
    return builder.bitcast(builder.add(*counts), WORDS)


def _bytes_added(builder, words):
    """The bytes of each lane of 64 bits added up."""
    name = "llvm.x86.avx512.psad.bw.512" if LANES == 8 else "llvm.x86.avx2.psad.bw"
    add = overloaded(builder, name, WORDS, _BYTES, _BYTES)
    return builder.call(add, [builder.bitcast(words, _BYTES), splat(_BYTES, 0)])


def add_each(builder, given, *, lone):
    """`Sum.add` of several, each a sum and what it takes; they may be made one after another.

    On ARM by stages, all exclusive ors, all counts, all additions: a core that starts instructions
    in their order waits for none of them. `lone`: of each pair there is only the first word.
    """
    if not ARM:
        for one, those in given:
            one.add(builder, those)
        return
    ones = overloaded(builder, "llvm.ctpop.v16i8", _BYTES, _BYTES)
    found = [(one, those[0][:1] if lone else those[0]) for one, those in given]
    counts = [
        (one, [builder.call(ones, [builder.bitcast(word, _BYTES)]) for word in words])
        for one, words in found
    ]
    together = 1 if _DOTS else 2
    for first in range(0, 1 if lone else 2, together):
        for one, words in counts:
            one.widen(builder, words[first : first + together])


def _arm_sum(builder, held, counts):
    if _DOTS:
        name, kind = "llvm.aarch64.neon.udot.v4i32.v16i8", held.type
        dot = overloaded(builder, name, kind, kind, _BYTES, _BYTES)
        for count in counts:
            held = builder.call(dot, [held, count, splat(_BYTES, 1)])
        return held
    total = counts[0]
    for count in counts[1:]:
        total = builder.add(total, count)
    return builder.add(held, _wider(builder, total))


def _wider(builder, value):
    """Neighbours added, in lanes of twice the width."""
    bits, count = value.type.element.width, value.type.count
    kind = ir.VectorType(ir.IntType(2 * bits), count // 2)
    name = f"llvm.aarch64.neon.uaddlp.v{count // 2}i{2 * bits}.v{count}i{bits}"
    return builder.call(overloaded(builder, name, kind, value.type), [value])


def as_ints(builder, sums):
    """Sums that lie side by side, as int32: a vector of each, or on ARM one of every two."""
    if not ARM:
        for one in sums:
            yield builder.trunc(one.taken(builder), ir.VectorType(I32, LANES))
        return
    kind = ir.VectorType(I32, 4)
    join = overloaded(builder, "llvm.aarch64.neon.addp.v4i32", kind, kind, kind)
    for pair in zip(sums[::2], sums[1::2], strict=True):
        counted = [builder.load(one.counted) for one in pair]
        if not _DOTS:
            counted = [_wider(builder, value) for value in counted]
        yield builder.call(join, counted)
