// pack: cut a strided matrix into strips of WIDTH, each strip's k running down contiguous memory.
//
//    source, k across strips             target, one block of `depth` after another
//    +----+----+----+                    [block 0: strip 0 | strip 1 | ...][block 1: ...]
//    | s0 | s1 | s2 |  k    ------->     a strip of a block: depth rows of WIDTH sums,
//    +----+----+----+                    zeros where the matrix has ended
//
// `panel` packs A (strips of MICRO_M rows) and B (strips of MICRO_N columns) with it. What is packed
// is already of the accumulator's type, so fp16 is widened once, not once a multiplication.

#include "common.clh"

#ifndef WIDTH
#define WIDTH 32
#endif
#ifndef VECTOR
#define VECTOR 16
#endif
#define LOAD JOIN(vload, VECTOR)
#define STORE JOIN(vstore, VECTOR)
#define TO_SUMS(x) JOIN(JOIN(convert_, SUM), VECTOR)(x)

#define TURNED (WIDTH / 4 * 4)
// Four rows of the source by four steps of k, turned: a quarter less of the time of packing A than
// one by one, where k runs along its rows.
inline void turn_four(__global const real *from, long stride, __global sum *to)
{
    const real4 r0 = vload4(0, from), r1 = vload4(0, from + stride);
    const real4 r2 = vload4(0, from + 2 * stride), r3 = vload4(0, from + 3 * stride);
    vstore4(TO_SUM4((real4)(r0.x, r1.x, r2.x, r3.x)), 0, to);
    vstore4(TO_SUM4((real4)(r0.y, r1.y, r2.y, r3.y)), 0, to + WIDTH);
    vstore4(TO_SUM4((real4)(r0.z, r1.z, r2.z, r3.z)), 0, to + 2 * WIDTH);
    vstore4(TO_SUM4((real4)(r0.w, r1.w, r2.w, r3.w)), 0, to + 3 * WIDTH);
}

// Work-item (x, y) packs strip x of block y.
__kernel IN_VECTORS_OF(JOIN(SUM, VECTOR))
void pack(int extent, int k, int depth,
                   __global const real *source, long offset, long stride, long k_stride,
                   __global sum *target)
{
    const int start = get_global_id(0) * WIDTH;
    const int first = get_global_id(1) * depth;
    if (start >= extent || first >= k) return;
    const int strips = (extent + WIDTH - 1) / WIDTH;
    const int steps = min(depth, k - first);
    // Blocks are padded to a multiple of 4 steps: panel unrolls k by 4 without a remainder.
    const int padded = (steps + 3) / 4 * 4;
    const int present = min(WIDTH, extent - start);
    source += offset + start * stride + first * k_stride;
    target += (long)first * strips * WIDTH + (long)start * padded;

    // A row's number times WIDTH need not fit into 32 bits: hence longs.
    if (stride == 1 && present == WIDTH && WIDTH % VECTOR == 0) {
        for (long l = 0; l < steps; l++)
            for (int v = 0; v < WIDTH / VECTOR; v++)
                STORE(TO_SUMS(LOAD(v, source + l * k_stride)), v, target + l * WIDTH);
    } else if (present == WIDTH && k_stride == 1) {
        const int fours = steps / 4 * 4;
        for (long l = 0; l < fours; l += 4)
            for (int w = 0; w < TURNED; w += 4)
                turn_four(source + w * stride + l, stride, target + l * WIDTH + w);
        for (long l = 0; l < fours; l++)
            for (int w = TURNED; w < WIDTH; w++)
                target[l * WIDTH + w] = (sum)source[w * stride + l];
        for (long l = fours; l < steps; l++)
            for (int w = 0; w < WIDTH; w++)
                target[l * WIDTH + w] = (sum)source[w * stride + l];
    } else if (present == WIDTH) {
        for (long l = 0; l < steps; l++)
            for (int w = 0; w < WIDTH; w++)
                target[l * WIDTH + w] = (sum)source[w * stride + l * k_stride];
    } else {
        for (long l = 0; l < steps; l++)
            for (int w = 0; w < WIDTH; w++)
                target[l * WIDTH + w] =
                    w < present ? (sum)source[w * stride + l * k_stride] : (sum)0;
    }
    for (long l = (long)steps * WIDTH; l < (long)padded * WIDTH; l++)
        target[l] = 0;
}
