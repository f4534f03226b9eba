// dot4: MICRO_M x MICRO_N elements of C a work-item, each a 4-wide dot product along k.
//
//                 Bt row j  [....][....][....]     A and Bt are row-major with k padded by zeros
//                              |     |     |       to a multiple of 4, so that every load is one
//    A row i  [....][....][....] --> C_ij          aligned 4-vector and no edge is tested. Drawn
//                                                  with 1 x 1: the default.
//
// Written for Midgard (Mali-T604), whose registers are 128 bits wide and whose local memory lies
// in the same DRAM as the rest; it wants at least 4096 work-items, 128 a core.
//
// WIDE_SUM 0: a sum is a number, each step adds dot() to it. 1: a sum is a vector, added up at the
// end: no horizontal additions in the loop, four times the registers. Either way a chain is of
// CHAIN additions, of four steps of k each.

#include "common.clh"

#ifndef MICRO_M
#define MICRO_M 1
#endif
#ifndef MICRO_N
#define MICRO_N 1
#endif
#ifndef WIDE_SUM
#define WIDE_SUM 0
#endif
#include "micro_tile.clh"

#if WIDE_SUM
#define TOTAL sum4
#define GAIN_DOT(x, y, part) part = MADD(x, y, part)
#define ADDED_UP(total) (total.s0 + total.s1 + (total.s2 + total.s3))
#else
#define TOTAL sum
#define GAIN_DOT(x, y, part) part += dot(x, y)
#define ADDED_UP(total) total
#endif

#define COLUMNS_1(DO, r, x) DO(r, 0, x)
#define COLUMNS_2(DO, r, x) COLUMNS_1(DO, r, x) DO(r, 1, x)
#define COLUMNS_4(DO, r, x) COLUMNS_2(DO, r, x) DO(r, 2, x) DO(r, 3, x)
#define EVERY_COLUMN JOIN(COLUMNS_, MICRO_N)

// Rows and columns past the last read the last one again, and are never stored.
#define POINT_A(r, none) __global const real *a##r = a + a_offset + min(i + r, m - 1) * a_leading;
#define POINT_B(r, v, none) \
    __global const real *b##v = bt + bt_offset + min(j + v, n - 1) * bt_leading;
#define DECLARE_ONE(r, v, none) TOTAL total##r##_##v = 0, lost##r##_##v = 0;
#define DECLARE_ROW(r, none) EVERY_COLUMN(DECLARE_ONE, r, none)
#define BEGIN_ONE(r, v, none) TOTAL part##r##_##v = 0;
#define BEGIN_ROW(r, none) EVERY_COLUMN(BEGIN_ONE, r, none)
#define END_ONE(r, v, none) JOIN_CHAIN(TOTAL, total##r##_##v, lost##r##_##v, part##r##_##v)
#define END_ROW(r, none) EVERY_COLUMN(END_ONE, r, none)
#define LOAD_X(r, none) const sum4 x##r = LOAD4(l, a##r);
#define LOAD_Y(r, v, none) const sum4 y##v = LOAD4(l, b##v);
#define GAIN_ONE(r, v, none) GAIN_DOT(x##r, y##v, part##r##_##v);
#define GAIN_ROW(r, none) EVERY_COLUMN(GAIN_ONE, r, none)
#define PASS_A(r, none) a##r += 4 * steps;
#define PASS_B(r, v, none) b##v += 4 * steps;
#define STORE_ONE(r, v, none)                                                                 \
    if (j + v < n) {                                                                          \
        const TOTAL whole = WHOLE(total##r##_##v, lost##r##_##v);                             \
        finish(ADDED_UP(whole), c + r * c_row + v * c_col, alpha, beta, bias, j + v,          \
               epilogue);                                                                     \
    }
#define STORE_ROW(r, none)                                                                       \
    if (i + r < m) {                                                                          \
        EVERY_COLUMN(STORE_ONE, r, none)                                                         \
    }

__kernel void dot4(int m, int n, int k4,
                   __global const real *a, long a_offset, long a_leading,
                   __global const real *bt, long bt_offset, long bt_leading,
                   __global real *c, long c_offset, long c_row, long c_col,
                   sum alpha, sum beta,
                   __global const real *bias, long bias_offset, int epilogue)
{
    const int j = get_global_id(0) * MICRO_N;
    const int i = get_global_id(1) * MICRO_M;
    if (i >= m || j >= n) return;

    EVERY_ROW(POINT_A, )
    EVERY_COLUMN(POINT_B, , )
    EVERY_ROW(DECLARE_ROW, )
    EVERY_CHAIN(CHAIN, k4) {
        EVERY_ROW(BEGIN_ROW, )
        const int steps = end - begin;
        UNROLLED
        for (int l = 0; l < steps; l++) {
            EVERY_ROW(LOAD_X, )
            EVERY_COLUMN(LOAD_Y, , )
            EVERY_ROW(GAIN_ROW, )
        }
        EVERY_ROW(PASS_A, )
        EVERY_COLUMN(PASS_B, , )
        EVERY_ROW(END_ROW, )
    }
    c += c_offset + i * c_row + j * c_col;
    bias += bias_offset;
    EVERY_ROW(STORE_ROW, )
}
