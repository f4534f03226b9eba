// grouped_lanes: tiles of many problems of unlike sizes, on CPUs whose compiler vectorises work-items.
//
//    tiles, `chunk` a work-group            problem p, its own m n k, strides, alpha beta
//    [p i j s] [p i j s] ...                   B  j        j+LANES   j+2*LANES   of columns j, these
//       |                                         |           |          |       three are lane x's
//       +------------------------->   A i ..      v           v          v
//                                       8 rows    C micro-tile: 8 or 4 rows x 3 vectors of sums
//
// A work-group is one vector: Intel's compiler turns LANES work-items into one thread's vector, an
// `if` on a column into a mask and a load that no lane decides into a broadcast. So neither A nor
// partial tiles are copied: 17 columns run as 16 + 1 masked, in 2 vectors. Above PACK_ROWS rows a
// strip of B, DEPTH steps of k deep, is copied into L1 first; sums of one depth wait in `carried`
// for the next. No lane reads what another wrote, hence no barrier, which would break the vector up.
//
// `lane` is a size_t: with an int the compiler sees no neighbours in j, j + LANES, ... and gathers.
// 8 rows and k's place fit x86's registers; the 12 rows of `panel` do only when A is packed.
//
// The fourth number of a tile is its shape, rows << 16 | columns, so that one launch takes them all;
// rows are at most TILE_ROWS. 1000 products of 1..256, fp32, two AVX-512 cores: 184 GFLOP/s without
// prefetching, 227 with the next tile's A and B, 240 with C as well.

#include "common.clh"
#include "grouped.clh"

#ifndef LANES
#define LANES 16
#endif
#ifndef DEPTH
#define DEPTH 192
#endif
#ifndef TILE_ROWS
#define TILE_ROWS 384
#endif
#ifndef PACK_ROWS
#define PACK_ROWS 32
#endif
#define STRIP (3 * LANES)

// OpenCL's own prefetch() is a call for every lane here.
#ifdef cl_intel_required_subgroup_size
#define PREFETCH(from) __builtin_prefetch((__global const void *)(from), 0, 2);
#define PREFETCH_TO_WRITE(to) __builtin_prefetch((__global const void *)(to), 1, 3);
#else
#define PREFETCH(from)
#define PREFETCH_TO_WRITE(to)
#endif
// A quarter of a line a step: a tile's steps so bring in about what the next tile of its size reads.
#define AHEAD (LANES / 4)

// DO(row, V), and with it V(DO, row) as DO(row, vector, whether this lane's column exists).
#define ROWS_4(DO, V) DO(0, V) DO(1, V) DO(2, V) DO(3, V)
#define ROWS_8(DO, V) ROWS_4(DO, V) DO(4, V) DO(5, V) DO(6, V) DO(7, V)
#define VECTORS_1(DO, r) DO(r, 0, inside)
#define VECTORS_2(DO, r) DO(r, 0, true) DO(r, 1, inside)
#define VECTORS_3(DO, r) DO(r, 0, true) DO(r, 1, true) DO(r, 2, inside)

// Rows past the tile's last read the last one again: cheaper than a test, and never stored.
#define ZERO(r, v, in) sum s##r##_##v = 0;
#define BEGIN(r, V)                                                                           \
    V(ZERO, r)                                                                                \
    __global const real *a##r = a + min(i + r, i_end - 1) * p.a_row + first * p.a_col;
#define MULTIPLY(r, v, in) s##r##_##v = MADD(x, y##v, s##r##_##v);
#define STEP(r, V)                                                                            \
    {                                                                                         \
        const sum x = (sum)a##r[at];                                                          \
        V(MULTIPLY, r)                                                                        \
    }

#define FROM_ROW(r, v, in) const sum y##v = in ? (sum)row[j + v * LANES] : (sum)0;
#define FROM_COLUMN(r, v, in)                                                                 \
    const sum y##v = in ? (sum)row[(long)(j + v * LANES) * p.b_col] : (sum)0;
#define FROM_PACKED(r, v, in) const sum y##v = packed[place + lane + v * LANES];
#define PACK(r, v, in) packed[place + lane + v * LANES] = y##v;

#define CARRIED(r, v) carried[(i - tile.row + r) * STRIP + lane + v * LANES]
#define ADD_CARRIED(r, v, in) s##r##_##v += CARRIED(r, v);
#define ADD_CARRIED_ROW(r, V) V(ADD_CARRIED, r)
#define CARRY(r, v, in) CARRIED(r, v) = s##r##_##v;
#define CARRY_ROW(r, V) V(CARRY, r)
#define FETCH(r, v, in) PREFETCH_TO_WRITE(c + (i + r) * p.c_row + j0 + v * LANES)
#define FETCH_ROW(r, V) V(FETCH, r)
// Columns of C that lie next to each other are stored from registers, whatever the epilogue but
// gelu: PLAIN alone, ADD with beta, SHIFT with bias and relu, BLEND with all. 1000 products of 1..64
// with beta take 1.12 times the plain time by ADD and 1.21 by BLEND.
#define SHIFT_OF(r, v, in)                                                                    \
    const sum shift##v = in && bias != 0 ? (sum)bias[j + v * LANES] : (sum)0;
#define CLIPPED(x) (real)((x) < floor ? floor : (x))
#define PLAIN(r, v, in) if (in) out[j + v * LANES] = (real)(p.alpha * s##r##_##v);
#define SHIFT(r, v, in)                                                                       \
    if (in) {                                                                                 \
        const sum x = p.alpha * s##r##_##v + shift##v;                                        \
        out[j + v * LANES] = CLIPPED(x);                                                      \
    }
#define BLEND(r, v, in)                                                                       \
    if (in) {                                                                                 \
        const sum x = p.alpha * s##r##_##v + p.beta * (sum)out[j + v * LANES] + shift##v;     \
        out[j + v * LANES] = CLIPPED(x);                                                      \
    }
#define ADD(r, v, in)                                                                         \
    if (in) out[j + v * LANES] = (real)(p.alpha * s##r##_##v + p.beta * (sum)out[j + v * LANES]);
#define STORE_ROW(r, V, STORE)                                                                \
    if (i + r < i_end) {                                                                      \
        __global real *out = c + (i + r) * p.c_row;                                           \
        V(STORE, r)                                                                           \
    }
#define PLAIN_ROW(r, V) STORE_ROW(r, V, PLAIN)
#define SHIFT_ROW(r, V) STORE_ROW(r, V, SHIFT)
#define BLEND_ROW(r, V) STORE_ROW(r, V, BLEND)
#define ADD_ROW(r, V) STORE_ROW(r, V, ADD)

#define MICRO_TILE(ROWS, V, LOAD)                                                             \
    {                                                                                         \
        ROWS(BEGIN, V)                                                                        \
        if (direct) { ROWS(FETCH_ROW, V) }                                                    \
        __global const real *row = b + first * p.b_row;                                       \
        size_t place = 0;                                                                     \
        long at = 0;                                                                          \
        for (int l = 0; l < steps; l++) {                                                     \
            PREFETCH(ahead.at + l * AHEAD)                                                    \
            V(LOAD, 0)                                                                        \
            ROWS(STEP, V)                                                                     \
            row += p.b_row;                                                                   \
            place += STRIP;                                                                   \
            at += p.a_col;                                                                    \
        }                                                                                     \
        ahead = past(ahead, steps * AHEAD);                                                   \
        if (first > 0) { ROWS(ADD_CARRIED_ROW, V) }                                           \
        if (!direct) {                                                                        \
            ROWS(CARRY_ROW, V)                                                                \
        } else if (plain) {                                                                   \
            ROWS(PLAIN_ROW, V)                                                                \
        } else if (p.epilogue == 0) {                                                         \
            ROWS(ADD_ROW, V)                                                                  \
        } else {                                                                              \
            V(SHIFT_OF, 0)                                                                    \
            if (p.beta == (sum)0) {                                                           \
                ROWS(SHIFT_ROW, V)                                                            \
            } else {                                                                          \
                ROWS(BLEND_ROW, V)                                                            \
            }                                                                                 \
        }                                                                                     \
    }
#define MICRO_TILES(V, LOAD)                                                                  \
    {                                                                                         \
        int i = tile.row;                                                                     \
        for (; i + 4 < i_end; i += 8) MICRO_TILE(ROWS_8, V, LOAD)                             \
        if (i < i_end) MICRO_TILE(ROWS_4, V, LOAD)                                            \
    }
#define PACK_STRIP(V, LOAD)                                                                   \
    {                                                                                         \
        __global const real *row = b + first * p.b_row;                                       \
        size_t place = 0;                                                                     \
        for (int l = 0; l < steps; l++, row += p.b_row, place += STRIP) {                     \
            V(LOAD, 0)                                                                        \
            V(PACK, 0)                                                                        \
        }                                                                                     \
    }
// All rows of the tile, V vectors wide, `steps` of k.
#define BLOCK(V)                                                                              \
    if (in_place) {                                                                           \
        MICRO_TILES(V, FROM_ROW)                                                              \
    } else {                                                                                  \
        if (p.b_col == 1) {                                                                   \
            PACK_STRIP(V, FROM_ROW)                                                           \
        } else {                                                                              \
            PACK_STRIP(V, FROM_COLUMN)                                                        \
        }                                                                                     \
        MICRO_TILES(V, FROM_PACKED)                                                           \
    }

// Two stretches of memory to prefetch: what is left of the first, then the second.
typedef struct {
    __global const real *at, *end, *next, *next_end;
} Ahead;

inline Ahead past(Ahead ahead, long elements)
{
    ahead.at += elements;
    if (ahead.at >= ahead.end) {
        ahead.at = ahead.next;
        ahead.end = ahead.next_end;
        ahead.next = ahead.next_end;
    }
    return ahead;
}

// finish() stands in the program once, behind a loop: unrolled over every sum it made small problems
// six times slower. The problem comes in pieces: a pointer to it would force the structure into
// memory, once a lane.
inline void finish_strip(__local const sum *carried, __global real *c, long c_row, long c_col,
                         int rows, size_t j, size_t j_end, size_t lane, sum alpha, sum beta,
                         __global const real *bias, int epilogue)
{
#pragma unroll 1
    for (int r = 0; r < rows; r++)
#pragma unroll 1
        for (size_t v = 0; v < 3 * LANES; v += LANES)
            if (j + v < j_end)
                finish(carried[r * STRIP + v + lane], c + r * c_row + (long)(j + v) * c_col, alpha,
                       beta, bias, j + v, epilogue);
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1)))
#ifdef cl_intel_required_subgroup_size
__attribute__((intel_reqd_sub_group_size(LANES)))
#endif
void grouped_lanes(__global const long *problems, __global const sum *scalars,
                   __global const int *tiles, int tile_count, int chunk,
                   __global const real *a_base, __global const real *b_base,
                   __global real *c_base, __global const real *bias_base)
{
    __local sum packed[DEPTH * STRIP];
    __local sum carried[TILE_ROWS * STRIP];
    const size_t lane = get_local_id(0);
    const int begin = get_group_id(0) * chunk, end = min(tile_count, begin + chunk);
    for (int index = begin; index < end; index++) {
        const Tile tile = read_tile(tiles, index);
        const int shape = tiles[index * 4 + 3];
        const Problem p = read_problem(problems, scalars, tile.problem);
        __global const real *a = A_OF(p), *b = B_OF(p);
        __global const real *bias = p.epilogue & EPILOGUE_BIAS ? BIAS_OF(p) : 0;
        __global real *c = C_OF(p);
        const int i_end = min(p.m, tile.row + (shape >> 16));
        const size_t j_end = min(p.n, tile.col + (shape & 0xffff));
        const bool in_place = p.b_col == 1 && i_end - tile.row <= PACK_ROWS;
        const bool in_row = p.c_col == 1 && !(p.epilogue & EPILOGUE_GELU);
        const bool plain = p.epilogue == 0 && p.beta == (sum)0;
        const sum floor = p.epilogue & EPILOGUE_RELU ? (sum)0 : (sum)-INFINITY;

        // Where tiles are dealt out in order, as they mostly are, this core's next one.
        const Tile then = read_tile(tiles, min(index + 1, tile_count - 1));
        const Problem q = read_problem(problems, scalars, then.problem);
        Ahead ahead = {A_OF(q) + then.row * q.a_row, 0, B_OF(q) + then.col * q.b_col, 0};
        ahead.end = ahead.at + max(min(q.m - then.row, shape >> 16) * q.a_row, q.k * q.a_col);
        ahead.next_end = ahead.next + max(q.k * q.b_row, (q.n - then.col) * q.b_col);

        for (size_t j0 = tile.col; j0 < j_end; j0 += STRIP) {
            const size_t j = j0 + lane, wide = j_end - j0;
            int first = 0;
            // k == 0 passes once, as C has still to become beta * C.
            do {
                const int steps = min(DEPTH, p.k - first);
                const bool direct = in_row && first + steps == p.k;
                if (wide > 2 * LANES) {
                    const bool inside = j + 2 * LANES < j_end;
                    BLOCK(VECTORS_3)
                } else if (wide > LANES) {
                    const bool inside = j + LANES < j_end;
                    BLOCK(VECTORS_2)
                } else {
                    const bool inside = j < j_end;
                    BLOCK(VECTORS_1)
                }
                first += steps;
            } while (first < p.k);
            if (!in_row)
                finish_strip(carried, c + tile.row * p.c_row, p.c_row, p.c_col, i_end - tile.row, j,
                             j_end, lane, p.alpha, p.beta, bias, p.epilogue);
        }
    }
}
