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
