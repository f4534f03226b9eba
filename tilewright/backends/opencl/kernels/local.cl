// local: blocks of A and B in __local memory, as blocks.clh draws them, over one product.
//
//            j0      TILE_N
//          +-------+-------+-------+--      One work-group a tile of C: group (j0 / TILE_N,
//    i0    |       | tile  |       |        i0 / TILE_M) of (TILE_N / MICRO_N, TILE_M / MICRO_M)
//    TILE_M+-------+-------+-------+--      work-items. Global size: C rounded up to tiles.
//          |       |       |       |
//
// fp32 on an H200, TFLOP/s at 1024, 2048, 4096 cubed; cuBLAS reaches 33, 49, 51. All VECTOR 4, once
// with the sums of chains of k beside those of the whole in registers, once (CHAIN 0) without:
//                                                 chains           one sum
//    128 x 128 x 16, micro 8 x  8, BUFFERS 2     21, 44, 45       19, 41, 42
//     64 x 128 x 16, micro 8 x  8, BUFFERS 2     35, 42, 44       33, 34, 45
//     64 x  64 x 16, micro 8 x  8                33, 41, 43       33, 43, 44
//    128 x 256 x 16, micro 8 x 16                10, 41, 43       11, 46, 48
//    128 x 256 x  8, micro 8 x 16, BUFFERS 2     10, 42, 44

#include "common.clh"
#include "blocks.clh"
#include "blocks_store.clh"

#if REQUIRE_GROUP
__attribute__((reqd_work_group_size(GROUP_N, GROUP_M, 1)))
#endif
__kernel void local_tiles(int m, int n, int k,
                          __global const real *a, long a_offset, long a_row, long a_col,
                          __global const real *b, long b_offset, long b_row, long b_col,
                          __global real *c, long c_offset, long c_row, long c_col,
                          sum alpha, sum beta,
                          __global const real *bias, long bias_offset, int epilogue)
{
    __local sums blocks[LOCAL_SIZE];
    const int x = get_local_id(0), y = get_local_id(1), item = y * GROUP_N + x;
    const int i0 = get_group_id(1) * TILE_M, j0 = get_group_id(0) * TILE_N;
    sum total[MICRO_M][MICRO_N];
    multiply_tile(total, blocks, item, x, y, m - i0, n - j0, k,
                  a + a_offset + i0 * a_row, a_row, a_col,
                  b + b_offset + j0 * b_col, b_row, b_col);
    store_tile(total, blocks, item, x, y, m - i0, n - j0,
               c + c_offset + i0 * c_row + j0 * c_col, c_row, c_col,
               alpha, beta, bias + bias_offset + j0, epilogue);
}
