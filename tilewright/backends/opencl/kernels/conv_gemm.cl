// conv_gemm: a convolution as a product that is never laid out: weights x windows of the picture.
//
//                      windows: a column a pixel, a row an input channel and tap; each number is
//                      gathered from the picture when its block is loaded, through a table of rows
//                           |   |   |
//    weights [depth]        v   v   v             1. each work-item brings its share of both blocks
//    [        ]           +---+---+---+---+          into local memory; barrier;
//    [ TILE_M ]  ------>  | x |   |   |   |       2. 4 outputs x 4 pixels a work-item gain TILE_K
//    [        ]           +---+---+---+---+          multiply-adds each; barrier, and again.
//    [ TILE_K ]  ------>  |   |   |   |   |
//                         +---+---+---+---+       One work-group makes this tile of outputs.
//
// Neighbours in a work-group load neighbouring pixels. A group of channels, or a position of
// Winograd's tiles, is a product of its own: groups lie one after another along get_group_id(1).
// Weights are [group][depth][outputs], with zeros up to whole tiles, so that only pixels are tested;
// past the last pixel the last one is computed again, and not stored.

#include "conv.clh"
#include "conv_store_one.clh"

#ifndef TILE_M
#define TILE_M 64
#endif
#ifndef TILE_N
#define TILE_N 64
#endif
#ifndef TILE_K
#define TILE_K 16
#endif
#define GROUP_M (TILE_M / 4)
#define GROUP_N (TILE_N / 4)
#define ITEMS (GROUP_M * GROUP_N)
#if ITEMS % TILE_N || TILE_K * TILE_M % ITEMS || TILE_K * TILE_N % ITEMS
#error "work-items must divide the blocks evenly"
#endif

// `table` has (offset in x, row, column, 0) of every row of windows, beside a window's first number.
__kernel void conv_gemm(int columns, int pixels, int outputs, int depth, int groups,
                        int height, int width, int stride, int stride_x, int top, int left,
                        long group_step, __global const int4 *table,
                        __global const stored *weights,
                        __global const stored *x, long x_offset,
                        long x_image, long x_channel, long x_row, long x_column,
                        FINISH_ARGUMENTS, OUT_ARGUMENTS)
{
    __local float4 a[TILE_K][GROUP_M], b[TILE_K][GROUP_N];
    // Each made an int by itself: of their 64-bit sum, cut to 32 bits, PoCL 5.0 gives every work-item
    // the first one's.
    const int x_item = get_local_id(0), y_item = get_local_id(1), item = y_item * GROUP_N + x_item;
    const int tiles = (outputs + TILE_M - 1) / TILE_M, padded = tiles * TILE_M;
    const int m0 = get_group_id(1) % tiles * TILE_M, n0 = get_group_id(0) * TILE_N;
    const int group = get_group_id(1) / tiles % groups, image = get_group_id(1) / tiles / groups;

    // The pixel whose windows this work-item loads.
    const int loaded = item % TILE_N, pixel = min(n0 + loaded, pixels - 1);
    const int y0 = pixel / columns * stride - top, x0 = pixel % columns * stride_x - left;
    x += x_offset + image * x_image + group * group_step + y0 * x_row + x0 * x_column;
    weights += (long)group * depth * padded + m0;

    float4 total[4];
    UNROLL for (int i = 0; i < 4; i++) total[i] = 0;
    for (int k0 = 0; k0 < depth; k0 += TILE_K) {
        UNROLL for (int e = item; e < TILE_K * TILE_M; e += ITEMS)
            ((__local float *)a)[e] =
                LOAD_ONE(weights + (long)(k0 + e / TILE_M) * padded + e % TILE_M);
        UNROLL for (int k = item / TILE_N; k < TILE_K; k += ITEMS / TILE_N) {
            const int4 at = table[k0 + k];
            const int y = y0 + at.s1, column = x0 + at.s2;
            const bool inside = y >= 0 && y < height && column >= 0 && column < width;
            ((__local float *)b)[k * TILE_N + loaded] = inside ? LOAD_ONE(x + at.s0) : 0.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        __attribute__((opencl_unroll_hint(4))) for (int k = 0; k < TILE_K; k++) {
            const float4 u = a[k][y_item], w = b[k][x_item];
            total[0] = MADD((float4)u.s0, w, total[0]);
            total[1] = MADD((float4)u.s1, w, total[1]);
            total[2] = MADD((float4)u.s2, w, total[2]);
            total[3] = MADD((float4)u.s3, w, total[3]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float sums[16];
    UNROLL for (int i = 0; i < 4; i++) vstore4(total[i], i, sums);
    __attribute__((opencl_unroll_hint(1))) for (int i = 0; i < 16; i++) {
        const int m = m0 + y_item * 4 + i / 4, n = n0 + x_item * 4 + i % 4;
        if (m < outputs && n < pixels)
            store_one(sums[i], image, group * outputs + m, n / columns, n % columns, FINISH_NAMES,
                      OUT_NAMES);
    }
}
