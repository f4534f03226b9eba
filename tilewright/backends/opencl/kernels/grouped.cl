// grouped: tiles of many problems of unlike sizes, on GPUs: local.cl's blocks over a tile list.
//
//    tiles (one work-group each)          problem p, its own m n k, strides, alpha beta
//    [p i j] [p i j] [p i j] [p i j] ...          B   j .. j + TILE_N
//       |                                             |   |   |
//       +------------------------------->   A i ..    v   v   v        TILE_M x TILE_N of C as
//                                         TILE_M      C tile           blocks.clh draws it
//
// Group index: the place in the list, counted from first_tile. Work-group (ITEMS), global size
// tiles * ITEMS, ITEMS = TILE_M / MICRO_M * TILE_N / MICRO_N. k = 0 gives epilogue(beta * C).
// A_ALONG, B_ALONG, VECTOR, OFFSET and PARTS speak of all problems of a launch.
//
// 1000 products, m, n, k of 1..256 and of 1..512, fp32 on an H200, ms (cuBLAS grouped: 0.31, 1.39):
//    64 x 64 x 8, micro 16 x 4, TRIM 4    0.195 1.152   in the given order 0.213 1.199
//      with TRIM 1                        0.206 1.199
//      with OFFSET long                   0.225 1.293
//      without REQUIRE_GROUP              0.201 1.187
//    32 x 64 x 8, micro  8 x 4, TRIM 4    0.198 1.226
//    largest of four tiles that fits      0.252 1.350   each tile a launch, on queues of their own

#include "common.clh"
#include "grouped.clh"
#include "blocks.clh"
#include "blocks_store.clh"

#if REQUIRE_GROUP
__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
#endif
__kernel void grouped_tiles(__global const long *problems, __global const sum *scalars,
                            __global const int *tiles, int first_tile,
                            __global const real *a_base, __global const real *b_base,
                            __global stored *c_base, __global const real *bias_base)
{
    __local sums blocks[LOCAL_SIZE];
    const int item = get_local_id(0), x = item % GROUP_N, y = item / GROUP_N;
    const Tile tile = read_tile(tiles, first_tile + get_group_id(0));
    Problem p = read_problem(problems, scalars, tile.problem);
    sum total[MICRO_M][MICRO_N];
    multiply_tile(total, blocks, item, x, y, p.m - tile.row, p.n - tile.col, p.k,
                  A_OF(p) + tile.row * p.a_row, p.a_row, p.a_col,
                  B_OF(p) + tile.col * p.b_col, p.b_row, p.b_col);
    // Once more, so that what only the end needs holds no registers before: 5 % of a small batch.
    p = read_problem(problems, scalars, tile.problem);
    store_tile(total, blocks, item, x, y, p.m - tile.row, p.n - tile.col,
               (__global stored *)C_OF(p) + tile.row * p.c_row + tile.col * p.c_col,
               p.c_row, p.c_col, p.alpha, p.beta, BIAS_OF(p) + tile.col, p.epilogue);
}
