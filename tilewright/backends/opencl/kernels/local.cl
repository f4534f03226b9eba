// local: blocks of A and B in __local memory, a micro-tile of C in each work-item's registers.
//
//                      B  [ TILE_K x TILE_N ]    1. put the blocks from registers in local memory;
//                           |   |   |            2. ask for the work-item's share of the next two
//    A                      v   v   v               blocks, coalesced, into registers; barrier;
//    [        ]           +---+---+---+---+      3. multiply: per step of k one column of A's block
//    [ TILE_M ]  ------>  | x |   | x |   |         and one row of B's meet in MICRO_M * MICRO_N
//    [   x    ]  ------>  +---+---+---+---+         multiply-adds; barrier, and again.
//    [ TILE_K ]  ------>  | x |   | x |   |
//                         +---+---+---+---+      One work-group makes this tile of C. Cells x are
//                                                one work-item's micro-tile, WIDTH x WIDTH each.
//
// Cells lie apart so that neighbours read neighbouring vectors of local memory: no bank conflicts.
// Work-group (TILE_N / MICRO_N, TILE_M / MICRO_M); global size: C rounded up to tiles; k >= 1. Rows
// and columns past C's end repeat the last one and are never stored. What k leaves over comes
// first, filled up with zeros, so that loads in the loop test nothing.
//
// fp32 on an H200, TFLOP/s at 1024, 2048, 4096 cubed; cuBLAS reaches 33, 49, 51:
//    128 x 256 x 16, micro  8 x 16, VECTOR 4             12, 48, 49
//    128 x 256 x  8, micro 16 x  8, VECTOR 1             11, 45, 46
//     64 x 128 x 16, micro  8 x  8, VECTOR 4, BUFFERS 2  37, 29, 40

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
// Of the micro-tile both sides must be even.
#ifndef MICRO_M
#define MICRO_M 8
#endif
#ifndef MICRO_N
#define MICRO_N 8
#endif
// Two buffers save a barrier and cost twice the local memory.
#ifndef BUFFERS
#define BUFFERS 1
#endif
// Neighbours in memory lie along: A 0 k, 1 m; B 0 n, 1 k. A wrong hint is slow, not wrong.
#ifndef A_ALONG
#define A_ALONG 0
#endif
#ifndef B_ALONG
#define B_ALONG 0
#endif
// Elements a load. Above 1 the host promises, of A and of B: step 1 along the hinted dimension;
// that dimension, the other step and the offset multiples of VECTOR; a buffer aligned to it.
#ifndef VECTOR
#define VECTOR 1
#endif
// int where no element of a block lies 2^31 elements from its first: with VECTOR 1 that saves
// registers, and brought the default tile from 37 to 44 TFLOP/s on the H200.
#ifndef OFFSET
#define OFFSET long
#endif
#ifndef REQUIRE_GROUP
#define REQUIRE_GROUP 0
#endif

#define UNROLL _Pragma("unroll")

// Local memory is read in vectors, of 16 bytes where the micro-tile allows it.
#if ACCUMULATE != 64 && MICRO_M % 4 == 0 && MICRO_N % 4 == 0
#define WIDTH 4
#else
#define WIDTH 2
#endif
typedef JOIN(SUM, WIDTH) sums;
typedef JOIN(REAL, WIDTH) reals;
#define TO_SUMS(x) JOIN(JOIN(convert_, SUM), WIDTH)(x)
#define TO_REALS(x) JOIN(JOIN(convert_, REAL), WIDTH)(x)
#define SPREAD(x, to) JOIN(vstore, WIDTH)(x, 0, to)
#define GATHER(from) JOIN(vload, WIDTH)(0, from)
#if VECTOR > 1
#define LOAD(from, to) \
    JOIN(vstore, VECTOR)(*(__global const JOIN(REAL, VECTOR) *)(from), 0, to)
#else
#define LOAD(from, to) (*(to) = *(from))
#endif

#define GROUP_M (TILE_M / MICRO_M)
#define GROUP_N (TILE_N / MICRO_N)
#define ITEMS (GROUP_M * GROUP_N)
#define LOADS(tile) ((tile) * TILE_K / (ITEMS * VECTOR))
#if TILE_M % MICRO_M || TILE_N % MICRO_N || MICRO_M % 2 || MICRO_N % 2 \
    || TILE_M % VECTOR || TILE_N % VECTOR || TILE_K % VECTOR \
    || TILE_M * TILE_K % (ITEMS * VECTOR) || TILE_N * TILE_K % (ITEMS * VECTOR)
#error "local: micro-tiles, vectors and work-items must divide the blocks evenly"
#endif

// Padding spreads the transposing stores of loads along k over the banks.
#define A_LINE (TILE_M + (A_ALONG ? 0 : WIDTH))
#define B_LINE (TILE_N + (B_ALONG ? WIDTH : 0))
#define A_SIZE (TILE_K * A_LINE / WIDTH)
#define B_SIZE (TILE_K * B_LINE / WIDTH)
#define BLOCKS_SIZE (BUFFERS * (A_SIZE + B_SIZE))
#define SLICE_SIZE (GROUP_M * TILE_N / WIDTH)

// Where in the block the work-item's load e begins: which step of k, which row or column. `down`:
// neighbours in memory lie along k.
#define STEP_OF(e) (down ? ((e) * ITEMS + item) % (TILE_K / VECTOR) * VECTOR \
                         : ((e) * ITEMS + item) / (tile / VECTOR))
#define PLACE_OF(e) (down ? ((e) * ITEMS + item) / (TILE_K / VECTOR) \
                          : ((e) * ITEMS + item) % (tile / VECTOR) * VECTOR)

static inline void locate(OFFSET *offsets, int item, int tile, bool down, int extent,
                          long k_step, long step)
{
    UNROLL for (int e = 0; e < LOADS(tile); e++)
        offsets[e] = STEP_OF(e) * k_step + min(PLACE_OF(e), extent - (down ? 1 : VECTOR)) * step;
}

static inline void fetch(real *staged, __global const real *from, const OFFSET *offsets,
                         int item, int tile, bool down, int steps)
{
    UNROLL for (int e = 0; e < LOADS(tile) * VECTOR; e += VECTOR) {
        if (STEP_OF(e / VECTOR) < steps) {
            LOAD(from + offsets[e / VECTOR], staged + e);
        } else {
            UNROLL for (int v = 0; v < VECTOR; v++) staged[e + v] = 0;
        }
    }
}

static inline void put(__local sum *block, const real *staged, int item, int tile, bool down,
                       int line)
{
    UNROLL for (int e = 0; e < LOADS(tile); e++)
        UNROLL for (int v = 0; v < VECTOR; v++)
            block[STEP_OF(e) * line + PLACE_OF(e) + v * (down ? line : 1)] =
                (sum)staged[e * VECTOR + v];
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
    __local sums blocks[BLOCKS_SIZE > SLICE_SIZE ? BLOCKS_SIZE : SLICE_SIZE];
    __local sums *a_block = blocks, *b_block = blocks + A_SIZE;
    const int x = get_local_id(0), y = get_local_id(1), item = y * GROUP_N + x;
    const int i0 = get_group_id(1) * TILE_M, j0 = get_group_id(0) * TILE_N;

    OFFSET a_offsets[LOADS(TILE_M)], b_offsets[LOADS(TILE_N)];
    locate(a_offsets, item, TILE_M, !A_ALONG, m - i0, a_col, a_row);
    locate(b_offsets, item, TILE_N, B_ALONG, n - j0, b_row, b_col);
    a += a_offset + i0 * a_row;
    b += b_offset + j0 * b_col;

    real a_staged[LOADS(TILE_M) * VECTOR], b_staged[LOADS(TILE_N) * VECTOR];
    sum total[MICRO_M][MICRO_N];
    UNROLL for (int r = 0; r < MICRO_M; r++)
        UNROLL for (int s = 0; s < MICRO_N; s++) total[r][s] = 0;

    int turn = 0, steps = (k - 1) % TILE_K + 1;
    fetch(a_staged, a, a_offsets, item, TILE_M, !A_ALONG, steps);
    fetch(b_staged, b, b_offsets, item, TILE_N, B_ALONG, steps);
    a += steps * a_col;
    b += steps * b_row;
    for (int left = k - steps;; left -= TILE_K) {
        put((__local sum *)a_block, a_staged, item, TILE_M, !A_ALONG, A_LINE);
        put((__local sum *)b_block, b_staged, item, TILE_N, B_ALONG, B_LINE);
        // Behind the barrier, NVIDIA's compiler moves the loads below the multiplications, and
        // nothing hides their latency: 41 TFLOP/s instead of 49 on the H200.
        if (left > 0) {
            fetch(a_staged, a, a_offsets, item, TILE_M, !A_ALONG, TILE_K);
            fetch(b_staged, b, b_offsets, item, TILE_N, B_ALONG, TILE_K);
            a += TILE_K * a_col;
            b += TILE_K * b_row;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL for (int l = 0; l < TILE_K; l++) {
            sum u[MICRO_M], v[MICRO_N];
            UNROLL for (int r = 0; r < MICRO_M; r += WIDTH)
                SPREAD(a_block[l * (A_LINE / WIDTH) + r / WIDTH * GROUP_M + y], u + r);
            UNROLL for (int s = 0; s < MICRO_N; s += WIDTH)
                SPREAD(b_block[l * (B_LINE / WIDTH) + s / WIDTH * GROUP_N + x], v + s);
            UNROLL for (int r = 0; r < MICRO_M; r++)
                UNROLL for (int s = 0; s < MICRO_N; s++)
                    total[r][s] = MADD(u[r], v[s], total[r][s]);
        }
        if (left <= 0) break;
#if BUFFERS == 1
        barrier(CLK_LOCAL_MEM_FENCE);
#else
        turn ^= A_SIZE + B_SIZE;
        a_block = blocks + turn;
        b_block = a_block + A_SIZE;
#endif
    }

    c += c_offset + i0 * c_row + j0 * c_col;
    bias += bias_offset + j0;
    m -= i0;
    n -= j0;
    if (c_col == 1 && n % WIDTH == 0 && c_row % WIDTH == 0 && (size_t)c % sizeof(reals) == 0
        && !(epilogue & EPILOGUE_GELU)) {
        // finish() by the vector, straight from registers: 2 % of 4096^3, 15 % of 1024^3.
        UNROLL for (int r = 0; r < MICRO_M; r++) {
            const int i = (r / WIDTH * GROUP_M + y) * WIDTH + r % WIDTH;
            UNROLL for (int s = 0; s < MICRO_N; s += WIDTH) {
                const int j = (s / WIDTH * GROUP_N + x) * WIDTH;
                if (i >= m || j >= n) continue;
                __global reals *out = (__global reals *)(c + i * c_row + j);
                sums value = alpha * GATHER(total[r] + s);
                if (beta != (sum)0) value += beta * TO_SUMS(*out);
                if (epilogue & EPILOGUE_BIAS) value += TO_SUMS(GATHER(bias + j));
                if (epilogue & EPILOGUE_RELU) value = value < (sum)0 ? (sums)0 : value;
                *out = TO_REALS(value);
            }
        }
        return;
    }
    // Else a row of every micro-tile at a time through local memory: stores are coalesced, and
    // finish() with its erf() stands in the program once, not MICRO_M * MICRO_N times. A bit picks
    // the row, since compilers turn r == t into an index, which registers do not have.
    __local sum *slice = (__local sum *)blocks;
#pragma unroll 1
    for (int r = 0; r < MICRO_M; r++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLL for (int t = 0; t < MICRO_M; t++)
            if ((1 << r) & (1 << t)) {
                UNROLL for (int s = 0; s < MICRO_N; s += WIDTH)
                    blocks[y * (TILE_N / WIDTH) + s / WIDTH * GROUP_N + x] = GATHER(total[t] + s);
            }
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 1
        for (int e = item; e < GROUP_M * TILE_N; e += ITEMS) {
            const int i = (r / WIDTH * GROUP_M + e / TILE_N) * WIDTH + r % WIDTH, j = e % TILE_N;
            if (i < m && j < n)
                finish(slice[e], c + i * c_row + j * c_col, alpha, beta, bias, j, epilogue);
        }
    }
}
