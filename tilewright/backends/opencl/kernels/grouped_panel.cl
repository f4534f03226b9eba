// grouped_panel: the larger tiles of many problems, on CPUs: panel's micro-kernel over a tile list.
//
//    tiles (one work-item each)             B strip of the tile, DEPTH x MICRO_N, packed into L1
//    [p i j s] [p i j s] ...                +---------+
//       |                                   | y0 | y1 |  step l
//       +---> A strip, packed:              +---------+
//             [l / VECTOR][row][VECTOR]          |
//             vectors as they lie, zeros         v
//             past the edges            MICRO_M x 2 vectors of sums, in named registers
//
// A work-item packs for itself, so nothing is padded in the problems' own memory and no work-item
// waits for another. Broadcasts from the packed A need one pointer with constant offsets; the twelve
// row pointers that A in place needs do not fit x86's registers (205 against MKL's 281 GFLOP/s).
//
// The fourth number of a tile is its shape, rows << 16 | columns, so that one launch takes them all.

#include "common.clh"
#include "grouped.clh"
#include "panel.clh"

#ifndef DEPTH
#define DEPTH 256
#endif
// Rows of the largest tile: its part of A, DEPTH steps deep, is packed once for all strips of B.
#ifndef TILE_ROWS
#define TILE_ROWS 192
#endif

#define A_AT(r) x[(r) * VECTOR + u]
// `steps` rows of MICRO_N columns, of which `columns` exist, padded with zeros to whole vectors of k.
inline void pack_b(__local sum *packed, __global const real *b, long row, long col, int steps,
                   int columns)
{
    for (int l = 0; l < steps; l++, b += row, packed += MICRO_N) {
        if (col == 1 && columns >= MICRO_N) {
            STORE(TO_SUMS(LOAD(0, b)), 0, packed);
            STORE(TO_SUMS(LOAD(1, b)), 1, packed);
        } else {
            for (int w = 0; w < MICRO_N; w++) packed[w] = w < columns ? (sum)b[w * col] : (sum)0;
        }
    }
    for (int l = steps; l % VECTOR != 0; l++, packed += MICRO_N) {
        STORE((vec)0, 0, packed);
        STORE((vec)0, 1, packed);
    }
}

inline void pack_a(__local sum *laid, __global const real *a, long row, long col, int steps,
                   int rows)
{
    for (int l = 0; l < steps; l += VECTOR)
        for (int r = 0; r < MICRO_M; r++, laid += VECTOR) {
            // Rows past the last repeat it: they are computed and never stored.
            __global const real *from = a + min(r, rows - 1) * row + l * col;
            if (col == 1 && l + VECTOR <= steps) {
                STORE(TO_SUMS(LOAD(0, from)), 0, laid);
            } else {
                for (int v = 0; v < VECTOR; v++)
                    laid[v] = l + v < steps ? (sum)from[v * col] : (sum)0;
            }
        }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void grouped_panel(__global const long *problems, __global const sum *scalars,
                   __global const int *tiles, int first_tile,
                   __global const real *a_base, __global const real *b_base,
                   __global real *c_base, __global const real *bias_base)
{
    __local sum packed[DEPTH * MICRO_N];
    __local sum laid[DEPTH * TILE_ROWS];
    const int index = first_tile + get_group_id(0);
    const Tile tile = read_tile(tiles, index);
    const int shape = tiles[index * 4 + 3];
    const Problem p = read_problem(problems, scalars, tile.problem);
    __global const real *a = A_OF(p), *b = B_OF(p), *bias = BIAS_OF(p);
    __global real *c = C_OF(p);
    const long c_row = p.c_row, c_col = p.c_col;
    const sum alpha = p.alpha;
    const int i_end = min(p.m, tile.row + (shape >> 16));
    const int j_end = min(p.n, tile.col + (shape & 0xffff));

    // k == 0 passes once, as C has still to become beta * C.
    for (int first = 0; first == 0 || first < p.k; first += DEPTH) {
        const int steps = min(DEPTH, p.k - first);
        const int padded = (steps + VECTOR - 1) / VECTOR * VECTOR;
        const sum beta = first == 0 ? p.beta : (sum)1;
        const int epilogue = first + DEPTH >= p.k ? p.epilogue : 0;
        for (int i = tile.row; i < i_end; i += MICRO_M)
            pack_a(laid + (i - tile.row) * padded, a + i * p.a_row + first * p.a_col, p.a_row,
                   p.a_col, steps, i_end - i);
        for (int j = tile.col; j < j_end; j += MICRO_N) {
            pack_b(packed, b + first * p.b_row + j * p.b_col, p.b_row, p.b_col, steps, j_end - j);
            for (int i = tile.row; i < i_end; i += MICRO_M) {
                EVERY_ROW(DECLARE)
                __local const sum *x = laid + (i - tile.row) * padded, *y = packed;
                for (int l = 0; l < steps; l += VECTOR, x += MICRO_M * VECTOR)
#pragma unroll 4
                    for (int u = 0; u < VECTOR; u++, y += MICRO_N) {
                        const vec y0 = LOAD(0, y), y1 = LOAD(1, y);
                        EVERY_ROW(STEP)
                    }
                FINISH_TILE(j_end - j)
            }
        }
    }
}
