// coalesced: MICRO_M x MICRO_N elements of C a work-item from A transposed, all loads 128 bits wide.
//
//                B  row l  [ j..j+3 ]             per step of k: one 4-vector of At (4 rows of A),
//                               |                 one of B (4 columns), 16 multiply-adds; drawn with
//    At row l  [ i..i+3 ] --> 4x4 of C            4 x 4, more vectors where the micro-tile is larger.
//                                                 Neighbouring work-items read neighbouring vectors.
//
// At is k x m, B is k x n, both row-major, columns padded with zeros to whole micro-tiles.

#include "common.clh"
#include "micro_tile.clh"

#define A_0 x0.s0
#define A_1 x0.s1
#define A_2 x0.s2
#define A_3 x0.s3
#define A_4 x1.s0
#define A_5 x1.s1
#define A_6 x1.s2
#define A_7 x1.s3
#define LOAD_Y(r, v, none) const sum4 y##v = LOAD4(v, b);
#define MULTIPLY(r, none) EVERY_VECTOR(GAIN, r, A_##r)

__kernel void coalesced(int m, int n, int k,
                        __global const real *at, long at_offset, long at_leading,
                        __global const real *b, long b_offset, long b_leading,
                        __global real *c, long c_offset, long c_row, long c_col,
                        sum alpha, sum beta,
                        __global const real *bias, long bias_offset, int epilogue)
{
    const int j = get_global_id(0) * MICRO_N;
    const int i = get_global_id(1) * MICRO_M;
    if (i >= m || j >= n) return;

    at += at_offset + i;
    b += b_offset + j;
    DECLARE_TOTALS
    EVERY_CHAIN(CHAIN, k) {
        EVERY_ROW(BEGIN_CHAIN, )
        UNROLLED
        for (int l = begin; l < end; l++) {
            const sum4 x0 = LOAD4(0, at);
#if MICRO_M > 4
            const sum4 x1 = LOAD4(1, at);
#endif
            EVERY_VECTOR(LOAD_Y, , )
            EVERY_ROW(MULTIPLY, )
            at += at_leading;
            b += b_leading;
        }
        EVERY_ROW(END_CHAIN, )
    }
    c += c_offset + i * c_row + j * c_col;
    bias += bias_offset;
    EVERY_ROW(STORE, )
}
