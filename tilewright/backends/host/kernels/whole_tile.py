"""The inner loop of int8 convolutions: groups of pixels by channels, their sums in registers.

                 16 x VECTORS channels of the result
                +--------------------------+
    group 0     | sum sum                  |   for every four bytes of the window, as they lie:
    COLUMNS px  | sum sum                  |       sum += pixel's four, broadcast, x weights
    group 1     | sum sum                  |
      ...       | sum sum                  |   a window is so many pieces, each contiguous: the taps
                +--------------------------+   of a kernel row, all channels

The pixels of a group lie a constant stride apart; where each group's pieces begin, and its results,
stands in tables, so that a tile takes groups of any rows. 28 sums: 28 pixels of sixteen channels,
or 14 of 32, reach 0.90 and 0.98 of what the registers can; two weights, a broadcast beside them.

Sums end as bytes, rounded as `engines.conv.Whole` says, or as they are (see `whole_ends`). Four
outputs alone (a picture's last layer) take sixteen lanes as four outputs x four parts of the sums.
"""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

from tilewright.backends.host.kernels.conv_product import INT, POINTER, at, counted, private
from tilewright.backends.host.kernels.lanes import apart
from tilewright.backends.host.kernels.popcounts import ARM
from tilewright.backends.host.kernels.whole_dot import (
    INTS,
    LANES,
    WIDE,
    dot,
    four_quads,
    quad,
)
from tilewright.backends.host.kernels.whole_ends import bytes_end, dense_end, few_end, sums_end

COLUMNS = 7 if WIDE else 6
GROUPS = {1: 4, 2: 2} if WIDE else {1: 1}
PIXELS = {vectors: COLUMNS * groups for vectors, groups in GROUPS.items()}
FEW_PIXELS = PIXELS[1]
VECTORS = max(GROUPS)
FEW = 4 if WIDE else 0  # outputs that `few` takes
BYTES = 4 * LANES  # of a vector of sums
# Whether each pixel has an address of its own: Cortex-A55, which goes in order, waits for each of
# a chain of additions.
_APART = ARM


def _places(builder, base, stride):
    """Pointers to a group's pixels."""
    found = [base]
    for pixel in range(1, COLUMNS):
        found.append(builder.gep(base, [builder.mul(stride, INT(pixel))]))
    return found


def _sums(builder, table, pieces, quads, stride, weights, start, vectors, few):
    """The sums of a tile, pixel after pixel."""
    groups, size, read = GROUPS[vectors], 16 if few else 4, four_quads if few else quad
    pointers = builder.bitcast(table, POINTER.as_pointer())
    line = builder.mul(quads, INT(BYTES * vectors))

    def piece(number, sums):
        first = builder.mul(number, INT(groups))
        bases = [
            builder.load(builder.gep(pointers, [builder.add(first, INT(group))]))
            for group in range(groups)
        ]
        row = builder.gep(weights, [builder.mul(number, line)])
        starts = [_places(builder, base, stride) for base in bases] if _APART else []
        starts = [[apart(builder, one) for one in group] for group in starts]

        def four(index, sums):
            sums = list(sums)
            place = builder.gep(row, [builder.mul(index, INT(BYTES * vectors))])
            loaded = [_vector(builder, at(builder, place, BYTES * v)) for v in range(vectors)]
            skipped = builder.mul(index, INT(size))
            for group, base in enumerate(bases):
                if _APART:
                    pixels = [builder.gep(one, [skipped]) for one in starts[group]]
                else:
                    pixels = _places(builder, builder.gep(base, [skipped]), stride)
                for pixel, pointer in enumerate(pixels):
                    x = read(builder, pointer)
                    for vector in range(vectors):
                        index = (group * COLUMNS + pixel) * vectors + vector
                        sums[index] = dot(builder, sums[index], x, loaded[vector])
            return sums

        return counted(builder, quads, sums, four)

    begin = [_vector(builder, at(builder, start, BYTES * v)) for v in range(vectors)]
    return counted(builder, pieces, begin * (groups * COLUMNS), piece)


def _vector(builder, pointer):
    return builder.load(builder.bitcast(pointer, INTS.as_pointer()), align=4)


def _tile(module, vectors, ending):
    """A function of its own, so that every sum keeps its register."""
    name = f"tilewright_whole_{vectors}_{ending}"
    if name in module.globals:
        return module.globals[name]
    kinds = [POINTER, INT, INT, INT, POINTER, POINTER, POINTER, POINTER, INT, INT]
    builder, arguments = private(module, name, kinds)
    table, pieces, quads, stride, weights, start, ends, outs, step, left = arguments
    given = table, pieces, quads, stride, weights, start, vectors, ending == "few"
    sums = _sums(builder, *given)
    if ending == "bytes":
        side = builder.icmp_signed("==", step, INT(0))
        with builder.if_else(side, likely=True) as (then, otherwise):
            with then:
                dense_end(builder, sums, ends, outs, vectors)
            with otherwise:
                pointers = builder.bitcast(outs, POINTER.as_pointer())
                places = []
                for group in range(GROUPS[vectors]):
                    base = builder.load(builder.gep(pointers, [INT(group)]))
                    places += _places(builder, base, step)
                bytes_end(builder, sums, ends, places, left, vectors)
    elif ending == "few":
        few_end(builder, sums, ends, outs, left, step)
    else:
        sums_end(builder, sums, outs)
    builder.ret_void()
    return module.globals[name]


def _tile_of(vectors, ending):
    """tile(table, pieces, quads, stride, weights, start, ends, outs, step, left).

    table    addresses [pieces][GROUPS] of where each group's pieces begin
    quads    fours of bytes of a piece; of "few" sixteens
    stride   bytes from a pixel's window to the next pixel's
    weights  int8 [pieces][quads][vectors][16 channels][4]; of "few" [pieces][quads][4 outputs][16]
    start    int32 [vectors][16], what sums begin with
    ends     what the ending reads, see `whole_ends`
    outs     addresses [GROUPS] of each group's first result; else where sums go, or all results
    step     bytes from a pixel's result to the next pixel's; 0 where results of all pixels follow
             each other, whole vectors, from `outs` on; of "few" from a row, or a plane, to the next
    left     channels that are stored; of "few" whether results are shuffled by 2
    """

    @intrinsic
    def tile(typing, table, pieces, quads, stride, weights, start, ends, outs, step, left):
        def generate(context, builder, signature, arguments):
            function = _tile(builder.module, vectors, ending)
            given = [
                builder.inttoptr(value, kind) if kind == POINTER else value
                for value, kind in zip(arguments, function.function_type.args, strict=True)
            ]
            builder.call(function, given)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 10), generate

    return tile


bytes_single, sums_single = _tile_of(1, "bytes"), _tile_of(1, "sums")
bytes_pair, sums_pair = _tile_of(VECTORS, "bytes"), _tile_of(VECTORS, "sums")
few = _tile_of(1, "few") if FEW else sums_single
