// panel: packed panels and a wide-vector micro-kernel, for CPUs.
//
//                       B packed: strips of MICRO_N = 2 vectors, k running down
//                       +---------+
//                       | b0 | b1 |  row l            one work-item computes a block of
//                       +---------+                   block_m x block_n of C, micro-tile by
//    A packed: strips        |                        micro-tile: the strip of B stays in L1
//    of MICRO_M rows,        v                        while all strips of A in the block pass by.
//    k running down    MICRO_M x MICRO_N sums
//      a0 .. a11  -->  in named vector registers      block_m x depth of A and
//                                                     depth x block_n of B share L2.
//
// Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 34, 2008), is
// where the blocking comes from.
//
// The next strip of A is asked for while one is multiplied: 6 x 2 sums of AVX2 take six cycles a step
// of k, and reached 74 GFLOP/s of a core without that, 91 with it (Zen 4). Copying strips of B in
// here, each block its own, in the place of packing all of B first, won nothing there and lost 8 %
// with AVX-512.

#include "common.clh"

#include "panel.clh"

#define A_AT(r) a[r]
#define LINE 64 // bytes
#define FETCH_FOUR_STEPS(from)                                                                \
    for (int byte = 0; byte < 4 * MICRO_M * (int)sizeof(sum); byte += LINE)                   \
        PREFETCH((__global const char *)(from) + byte);
#define ADVANCE(l)                                                                            \
    {                                                                                         \
        const vec y0 = LOAD(0, b + (l) * MICRO_N), y1 = LOAD(1, b + (l) * MICRO_N);           \
        __global const sum *a = strip + (l) * MICRO_M;                                        \
        EVERY_ROW(STEP)                                                                       \
    }
// The first block of k brings beta, the last one bias and activation; between them C holds the
// running sum, so a storage type narrower than the sum must come with depth >= k.
__kernel IN_VECTORS_OF(vec) __attribute__((reqd_work_group_size(1, 1, 1)))
void panel(int m, int n, int k, int depth, int block_m, int block_n,
           __global const sum *a_packed, __global const sum *b_packed,
           __global real *c, long c_offset, long c_row, long c_col,
           sum alpha, sum beta_given,
           __global const real *bias, long bias_offset, int epilogue_given)
{
    const int n_begin = get_global_id(0) * block_n, m_begin = get_global_id(1) * block_m;
    const int n_end = min(n, n_begin + block_n), i_end = min(m, m_begin + block_m);
    const long a_strips = (m + MICRO_M - 1) / MICRO_M, b_strips = (n + MICRO_N - 1) / MICRO_N;
    c += c_offset;
    bias += bias_offset;

    for (int first = 0; first < k; first += depth) {
        const int padded = (min(depth, k - first) + 3) / 4 * 4;
        __global const sum *a_block = a_packed + first * a_strips * MICRO_M;
        __global const sum *b_block = b_packed + first * b_strips * MICRO_N;
        const sum beta = first == 0 ? beta_given : (sum)1;
        const int epilogue = first + depth >= k ? epilogue_given : 0;
        for (int j = n_begin; j < n_end; j += MICRO_N)
            for (int i = m_begin; i < i_end; i += MICRO_M) {
                __global const sum *strip = a_block + (long)i * padded;
                __global const sum *b = b_block + (long)j * padded;
                EVERY_ROW(DECLARE)
                BEGIN_CHAINS
                EVERY_CHAIN(CHAIN, padded) {
                    for (int l = begin; l < end; l += 4) {
                        FETCH_FOUR_STEPS(strip + padded * MICRO_M)
                        ADVANCE(0) ADVANCE(1) ADVANCE(2) ADVANCE(3)
                        strip += 4 * MICRO_M;
                        b += 4 * MICRO_N;
                    }
                    END_CHAIN
                }
                END_CHAINS
                FINISH_TILE(n - j)
            }
    }
}
