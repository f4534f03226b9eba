// grouped: tiles of many problems of unlike sizes, on GPUs: the blocks of local.cl over a tile list.
//
//    tiles (one work-group each)          problem p, its own m n k, strides, alpha beta
//    [p i j] [p i j] [p i j] [p i j] ...          B   j .. j + TILE_N
//       |                                             |   |   |
//       +------------------------------->   A i ..    v   v   v        TILE_M x TILE_N of C as
//                                         TILE_M      C tile           blocks.clh draws it
//
// Group index: the place in the list, counted from first_tile. Work-group (ITEMS), global size
// tiles * ITEMS, ITEMS = TILE_M / MICRO_M * TILE_N / MICRO_N. k = 0 gives epilogue(beta * C).
// A_ALONG, B_ALONG, VECTOR and OFFSET speak of all problems of a launch.

#include "common.clh"
#include "grouped.clh"
#include "blocks.clh"

#ifndef REREAD
#define REREAD 1
#endif

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
#if REREAD
    // Once more, so that what only the end needs holds no registers before.
    p = read_problem(problems, scalars, tile.problem);
#endif
    store_tile(total, blocks, item, x, y, p.m - tile.row, p.n - tile.col,
               (__global stored *)C_OF(p) + tile.row * p.c_row + tile.col * p.c_col,
               p.c_row, p.c_col, p.alpha, p.beta, BIAS_OF(p) + tile.col, p.epilogue);
}
