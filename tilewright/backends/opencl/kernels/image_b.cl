// image_b: MICRO_M x MICRO_N elements of C a work-item; B through the texture cache, A and C buffers.
//
//                  B image, texel = 4 columns     drawn with 4 x 8. Per 4 steps of k: 4 vectors of A
//                  row l: [j..j+3][j+4..j+7]      (one a row), 8 texels of B, 128 multiply-adds;
//    A rows i..i+3            |                   two load paths at once: texture and buffer.
//      [l..l+3] ------->  4 x 8 of C
//
// Written for Adreno 4xx and 5xx (Qualcomm's SGEMM article), whose texture cache is the only L1.
// A is row-major, k padded with zeros to a multiple of 4; B's rows have the image's pitch.

#include "common.clh"
#ifndef MICRO_N
#define MICRO_N 8
#endif
#include "micro_tile.clh"

TEXEL_SAMPLER;

// Rows past the last read the last one again: cheaper than a test, and never stored.
#define POINT(r, none) __global const real *a##r = a + a_offset + min(i + r, m - 1) * a_leading;
#define LOAD_X(r, none) const sum4 x##r = LOAD4(l, a##r);
#define LOAD_Y(r, v, row) const sum4 y##v = TEXEL(b, texel + v, 4 * l + row);
#define MULTIPLY(r, component) EVERY_VECTOR(GAIN, r, x##r.component)
#define STEP(component, row)                                                                  \
    {                                                                                         \
        EVERY_VECTOR(LOAD_Y, , row)                                                           \
        EVERY_ROW(MULTIPLY, component)                                                        \
    }

__kernel void image_b(int m, int n, int k4,
                      __global const real *a, long a_offset, long a_leading,
                      __read_only image2d_t b,
                      __global real *c, long c_offset, long c_row, long c_col,
                      sum alpha, sum beta,
                      __global const real *bias, long bias_offset, int epilogue)
{
    const int texel = get_global_id(0) * (MICRO_N / 4);
    const int j = texel * 4;
    const int i = get_global_id(1) * MICRO_M;
    if (i >= m || j >= n) return;

    EVERY_ROW(POINT, )
    DECLARE_TOTALS
    EVERY_CHAIN(CHAIN / 4, k4) {
        EVERY_ROW(BEGIN_CHAIN, )
        UNROLLED
        for (int l = begin; l < end; l++) {
            EVERY_ROW(LOAD_X, )
            STEP(s0, 0)
            STEP(s1, 1)
            STEP(s2, 2)
            STEP(s3, 3)
        }
        EVERY_ROW(END_CHAIN, )
    }
    c += c_offset + i * c_row + j * c_col;
    bias += bias_offset;
    EVERY_ROW(STORE, )
}
