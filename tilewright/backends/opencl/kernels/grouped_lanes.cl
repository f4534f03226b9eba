// grouped_lanes: the smaller tiles of many problems, on CPUs whose compiler vectorises work-items.
//
//    tiles (one work-group each)            problem p, its own m n k, strides, alpha beta
//    [p i j s] [p i j s] ...                     B   j .. j+2*LANES    lane x owns columns j+x and
//       |                                        |  |  |               j+x+LANES
//       +------------------------->   A i..      v  v  v
//                                     MICRO_M    C micro-tile: MICRO_M rows x 2 vectors of sums
//
// The work-group is one vector: Intel's compiler turns LANES work-items into one thread's vector and
// an `if` on a column into a mask, so partial tiles cost neither padding nor a copy: 17 columns run as
// 16 + 1 masked. Nothing is packed, which pays while few rows share a strip of B; grouped_panel takes
// the larger tiles.
//
// Columns are written row[j], not (row + j0)[lane]: only so does Intel's compiler see neighbours in
// neighbouring lanes and mask a load; else it gathers, at half the speed.
//
// The fourth number of a tile is its shape, rows << 16 | columns, so that one launch takes them all.

#include "common.clh"
#include "grouped.clh"

#ifndef MICRO_M
#define MICRO_M 12
#endif
#ifndef LANES
#define LANES 16
#endif

#define ROWS_4(DO) DO(0) DO(1) DO(2) DO(3)
#define ROWS_8(DO) ROWS_4(DO) DO(4) DO(5) DO(6) DO(7)
#define ROWS_12(DO) ROWS_8(DO) DO(8) DO(9) DO(10) DO(11)
#define EVERY_ROW JOIN(ROWS_, MICRO_M)

// Rows past the problem's last read the last one again: cheaper than a test, and never stored.
#define BEGIN(r)                                                                              \
    sum left##r = 0, right##r = 0;                                                            \
    __global const real *a##r = a + min(i + r, p.m - 1) * p.a_row;
#define STEP(r)                                                                               \
    {                                                                                         \
        const sum x = (sum)a##r[at];                                                          \
        left##r = MADD(x, y0, left##r);                                                       \
        right##r = MADD(x, y1, right##r);                                                     \
    }
// All of k past EVERY_ROW; `row` walks down B.
#define WALK(y0_value, y1_value)                                                              \
    {                                                                                         \
        __global const real *row = b;                                                         \
        for (int l = 0; l < p.k; l++) {                                                       \
            const sum y0 = y0_value, y1 = y1_value;                                           \
            EVERY_ROW(STEP)                                                                   \
            row += p.b_row;                                                                   \
            at += p.a_col;                                                                    \
        }                                                                                     \
    }
// The common store: C is written, not read, its columns side by side. finish() stands in the program
// once, behind local memory: unrolled over every sum it made small problems six times slower.
#define PLAIN(r)                                                                              \
    if (i + r < i_end) {                                                                      \
        __global real *out = c + (i + r) * p.c_row;                                           \
        if (j < p.n) out[j] = (real)(p.alpha * left##r);                                      \
        if (j + LANES < p.n) out[j + LANES] = (real)(p.alpha * right##r);                     \
    }
#define SPILL(r)                                                                              \
    spilled[r * 2 * LANES + lane] = left##r;                                                  \
    spilled[r * 2 * LANES + LANES + lane] = right##r;

// The problem comes in pieces: a pointer to it would force the structure into memory, once a lane.
inline void finish_rows(__local const sum *spilled, __global real *c, long c_row, long c_col, int n,
                        int rows, int j, int lane, sum alpha, sum beta,
                        __global const real *bias, int epilogue)
{
#pragma unroll 1
    for (int v = 0; v < 2; v++)
#pragma unroll 1
        for (int r = 0; r < rows; r++) {
            const int column = j + v * LANES;
            if (column < n)
                finish(spilled[(r * 2 + v) * LANES + lane], c + r * c_row + column * c_col, alpha,
                       beta, bias, column, epilogue);
        }
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1)))
#ifdef cl_intel_required_subgroup_size
__attribute__((intel_reqd_sub_group_size(LANES)))
#endif
void grouped_lanes(__global const long *problems, __global const sum *scalars,
                   __global const int *tiles, int first_tile,
                   __global const real *a_base, __global const real *b_base,
                   __global real *c_base, __global const real *bias_base)
{
    __local sum spilled[MICRO_M * 2 * LANES];
    const int lane = get_local_id(0);
    const int index = first_tile + get_group_id(0);
    const Tile tile = read_tile(tiles, index);
    const int shape = tiles[index * 4 + 3];
    const Problem p = read_problem(problems, scalars, tile.problem);
    __global const real *a = A_OF(p), *b = B_OF(p), *bias = BIAS_OF(p);
    __global real *c = C_OF(p);
    const bool plain = p.c_col == 1 && p.epilogue == 0 && p.beta == (sum)0;
    const int i_end = min(p.m, tile.row + (shape >> 16));
    const int j_end = min(p.n, tile.col + (shape & 0xffff));

    for (int j0 = tile.col; j0 < j_end; j0 += 2 * LANES) {
        const int j = j0 + lane;
        const bool whole = j0 + 2 * LANES <= p.n;
        for (int i = tile.row; i < i_end; i += MICRO_M) {
            EVERY_ROW(BEGIN)
            long at = 0;
            if (whole && p.b_col == 1) {
                WALK(row[j], row[j + LANES])
            } else if (p.b_col == 1) {
                WALK(j < p.n ? (sum)row[j] : (sum)0, j + LANES < p.n ? (sum)row[j + LANES] : (sum)0)
            } else {
                WALK(j < p.n ? (sum)row[j * p.b_col] : (sum)0,
                     j + LANES < p.n ? (sum)row[(j + LANES) * p.b_col] : (sum)0)
            }
            if (plain) {
                EVERY_ROW(PLAIN)
            } else {
                EVERY_ROW(SPILL)
                finish_rows(spilled, c + i * p.c_row, p.c_row, p.c_col, p.n,
                            min(MICRO_M, i_end - i), j, lane, p.alpha, p.beta, bias, p.epilogue);
            }
        }
    }
}
