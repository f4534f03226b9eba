// local: blocks of A and B in __local memory, a block of C in each work-item's registers.

#include "common.clh"

#ifndef TILE_M
#define TILE_M 128
#endif
#ifndef TILE_N
#define TILE_N 128
#endif
#ifndef TILE_K
#define TILE_K 16
#endif
#ifndef MICRO_M
#define MICRO_M 8
#endif
#ifndef MICRO_N
#define MICRO_N 8
#endif
#ifndef A_ALONG
#define A_ALONG 0
#endif
#ifndef B_ALONG
#define B_ALONG 0
#endif
#ifndef VECTOR
#define VECTOR 1
#endif
#ifndef NEAR
#define NEAR 0
#endif
#ifndef BUFFERS
#define BUFFERS 2
#endif
#ifndef REQUIRE_GROUP
#define REQUIRE_GROUP 0
#endif
#ifndef SWIZZLE
#define SWIZZLE 1
#endif
#ifndef PEEL
#define PEEL 1
#endif
#ifndef WIDE_STORE
#define WIDE_STORE 1
#endif
#ifndef WIDTH
#if ACCUMULATE != 64 && MICRO_M % 4 == 0 && MICRO_N % 4 == 0
#define WIDTH 4
#elif MICRO_M % 2 == 0 && MICRO_N % 2 == 0
#define WIDTH 2
#else
#define WIDTH 1
#endif
#endif

#define GROUP_M (TILE_M / MICRO_M)
#define GROUP_N (TILE_N / MICRO_N)
#define ITEMS (GROUP_M * GROUP_N)
#ifndef LANES_N
#if GROUP_M % 4 == 0 && GROUP_N % 8 == 0
#define LANES_N 8
#define LANES_M 4
#else
#define LANES_N GROUP_N
#define LANES_M 1
#endif
#endif
#ifndef PAD
#define PAD (WIDTH > 1 ? WIDTH : 1)
#endif

#define A_K (A_ALONG == 0)
#define B_K (B_ALONG == 1)
#define A_LINE (TILE_M + (A_K ? PAD : 0))
#define B_LINE (TILE_N + (B_K ? PAD : 0))
#define A_LOADS (TILE_M * TILE_K / (ITEMS * VECTOR))
#define B_LOADS (TILE_N * TILE_K / (ITEMS * VECTOR))

#if A_LOADS * ITEMS * VECTOR != TILE_M * TILE_K || B_LOADS * ITEMS * VECTOR != TILE_N * TILE_K
#error "local: each work-item must load the same number of vectors of A, and of B"
#endif

#if WIDTH > 1
typedef JOIN(SUM, WIDTH) sums;
typedef JOIN(REAL, WIDTH) reals;
#define SPREAD(v, to) JOIN(vstore, WIDTH)(v, 0, to)
#else
typedef sum sums;
#define SPREAD(v, to) (*(to) = (v))
#endif

#if VECTOR > 1
#define LOAD(from, to) \
    JOIN(vstore, VECTOR)(*(__global const JOIN(REAL, VECTOR) *)(from), 0, to)
#else
#define LOAD(from, to) (*(to) = *(from))
#endif

#if NEAR
typedef int gap;
#else
typedef long gap;
#endif

inline int along(int at, int tile, int k_first)
{
    return k_first ? at % (TILE_K / VECTOR) * VECTOR : at / (tile / VECTOR);
}

inline int across(int at, int tile, int k_first)
{
    return k_first ? at / (TILE_K / VECTOR) : at % (tile / VECTOR) * VECTOR;
}

inline void locate(gap *gaps, int item, int tile, int k_first, int extent, long k_step, long step)
{
#pragma unroll
    for (int e = 0; e < tile * TILE_K / (ITEMS * VECTOR); e++) {
        const int at = item + e * ITEMS;
        const int last = extent - (k_first ? 1 : VECTOR);
        gaps[e] = along(at, tile, k_first) * (gap)k_step
                + min(across(at, tile, k_first), last) * (gap)step;
    }
}

inline void fetch(real *staged, __global const real *from, const gap *gaps, int item, int tile,
                  int k_first, int left)
{
#pragma unroll
    for (int e = 0; e < tile * TILE_K / (ITEMS * VECTOR); e++) {
        if (along(item + e * ITEMS, tile, k_first) < left) {
            LOAD(from + gaps[e], staged + e * VECTOR);
        } else {
#pragma unroll
            for (int v = 0; v < VECTOR; v++) staged[e * VECTOR + v] = 0;
        }
    }
}

inline void put(__local sum *block, const real *staged, int item, int tile, int line, int k_first)
{
#pragma unroll
    for (int e = 0; e < tile * TILE_K / (ITEMS * VECTOR); e++) {
        const int at = item + e * ITEMS;
        __local sum *to = block + along(at, tile, k_first) * line + across(at, tile, k_first);
#pragma unroll
        for (int v = 0; v < VECTOR; v++)
            to[k_first ? v * line : v] = (sum)staged[e * VECTOR + v];
    }
}

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
    __local sums a_blocks[BUFFERS * TILE_K * A_LINE / WIDTH];
    __local sums b_blocks[BUFFERS * TILE_K * B_LINE / WIDTH];

    const int item = get_local_id(1) * GROUP_N + get_local_id(0);
    const int patch = item / (LANES_N * LANES_M), lane = item % (LANES_N * LANES_M);
    const int x = patch % (GROUP_N / LANES_N) * LANES_N + lane % LANES_N;
    const int y = patch / (GROUP_N / LANES_N) * LANES_M + lane / LANES_N;

    int tile_i = get_group_id(1), tile_j = get_group_id(0);
#if SWIZZLE > 1
    const int wide = get_num_groups(0), high = get_num_groups(1);
    const int strip = tile_i / SWIZZLE * SWIZZLE;
    const int rows = min(SWIZZLE, high - strip);
    const int within = (tile_i - strip) * wide + tile_j;
    tile_i = strip + within % rows;
    tile_j = within / rows;
#endif
    const int i0 = tile_i * TILE_M, j0 = tile_j * TILE_N;

    gap a_gaps[A_LOADS], b_gaps[B_LOADS];
    locate(a_gaps, item, TILE_M, A_K, m - i0, a_col, a_row);
    locate(b_gaps, item, TILE_N, B_K, n - j0, b_row, b_col);
    a += a_offset + i0 * a_row;
    b += b_offset + j0 * b_col;

    real a_staged[A_LOADS * VECTOR], b_staged[B_LOADS * VECTOR];
    sum total[MICRO_M][MICRO_N];
#pragma unroll
    for (int r = 0; r < MICRO_M; r++)
#pragma unroll
        for (int s = 0; s < MICRO_N; s++) total[r][s] = 0;

    int turn = 0;
    fetch(a_staged, a, a_gaps, item, TILE_M, A_K, k);
    fetch(b_staged, b, b_gaps, item, TILE_N, B_K, k);
    put((__local sum *)a_blocks, a_staged, item, TILE_M, A_LINE, A_K);
    put((__local sum *)b_blocks, b_staged, item, TILE_N, B_LINE, B_K);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int left = k; left > 0; left -= TILE_K) {
        a += TILE_K * a_col;
        b += TILE_K * b_row;
#if PEEL
        if (left >= 2 * TILE_K) {
            fetch(a_staged, a, a_gaps, item, TILE_M, A_K, TILE_K);
            fetch(b_staged, b, b_gaps, item, TILE_N, B_K, TILE_K);
        } else if (left > TILE_K)
#endif
        {
            fetch(a_staged, a, a_gaps, item, TILE_M, A_K, left - TILE_K);
            fetch(b_staged, b, b_gaps, item, TILE_N, B_K, left - TILE_K);
        }

        __local const sums *p = a_blocks + turn * (TILE_K * A_LINE / WIDTH) + y;
        __local const sums *q = b_blocks + turn * (TILE_K * B_LINE / WIDTH) + x;
#pragma unroll
        for (int l = 0; l < TILE_K; l++) {
            sum u[MICRO_M], v[MICRO_N];
#pragma unroll
            for (int r = 0; r < MICRO_M / WIDTH; r++)
                SPREAD(p[l * (A_LINE / WIDTH) + r * GROUP_M], u + r * WIDTH);
#pragma unroll
            for (int s = 0; s < MICRO_N / WIDTH; s++)
                SPREAD(q[l * (B_LINE / WIDTH) + s * GROUP_N], v + s * WIDTH);
#pragma unroll
            for (int r = 0; r < MICRO_M; r++)
#pragma unroll
                for (int s = 0; s < MICRO_N; s++) total[r][s] = MADD(u[r], v[s], total[r][s]);
        }

        if (left > TILE_K) {
#if BUFFERS == 1
            barrier(CLK_LOCAL_MEM_FENCE);
#else
            turn ^= 1;
#endif
            put((__local sum *)(a_blocks + turn * (TILE_K * A_LINE / WIDTH)), a_staged, item,
                TILE_M, A_LINE, A_K);
            put((__local sum *)(b_blocks + turn * (TILE_K * B_LINE / WIDTH)), b_staged, item,
                TILE_N, B_LINE, B_K);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }

    c += c_offset + i0 * c_row + j0 * c_col;
    bias += bias_offset;
#if WIDTH > 1 && WIDE_STORE
    const bool wide_store = epilogue == 0 && c_col == 1 && n % WIDTH == 0 && c_row % WIDTH == 0
                         && (size_t)c % sizeof(reals) == 0;
#else
    const bool wide_store = false;
#endif
#pragma unroll
    for (int r = 0; r < MICRO_M; r++) {
        const int i = (r / WIDTH * GROUP_M + y) * WIDTH + r % WIDTH;
        if (i0 + i >= m) continue;
#pragma unroll
        for (int s = 0; s < MICRO_N; s += WIDTH) {
            const int j = (s / WIDTH * GROUP_N + x) * WIDTH;
            __global real *out = c + i * c_row + j * c_col;
#if WIDTH > 1
            if (wide_store) {
                if (j0 + j < n) {
                    sums value = alpha * JOIN(vload, WIDTH)(0, total[r] + s);
                    if (beta != (sum)0)
                        value += beta * JOIN(JOIN(convert_, SUM), WIDTH)(*(__global reals *)out);
                    *(__global reals *)out = JOIN(JOIN(convert_, REAL), WIDTH)(value);
                }
                continue;
            }
#endif
#pragma unroll
            for (int w = 0; w < WIDTH; w++)
                if (j0 + j + w < n)
                    finish(total[r][s + w], out + w * c_col, alpha, beta, bias, j0 + j + w,
                           epilogue);
        }
    }
}
