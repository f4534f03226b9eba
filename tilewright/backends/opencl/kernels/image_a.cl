// image_a: MICRO_M x MICRO_N elements of C a work-item; A through the texture cache, B a buffer.
//
//                  B buffer, rows l..l+3          drawn with 4 x 4. Per 4 steps of k: 4 texels of A
//                  [j..j+3]                       (one a row), 4 vectors of B, 64 multiply-adds.
//    A image           |
//    rows i..i+3       v
//      [l..l+3] --> 4 x 4 of C
//
// Written for Mali-G77 (Valhall): about +10 % from the image over `coalesced`, +36 % from fma().
// B is row-major, columns padded with zeros to whole micro-tiles, rows to 4.

#include "common.clh"
#include "micro_tile.clh"

TEXEL_SAMPLER;

#define LOAD_X(r, none) const sum4 x##r = TEXEL(a, l, i + r);
#define LOAD_Y(r, v, row) const sum4 y##v = LOAD4(v, b + row * b_leading);
#define MULTIPLY(r, component) EVERY_VECTOR(GAIN, r, x##r.component)
#define STEP(component, row)                                                                  \
    {                                                                                         \
        EVERY_VECTOR(LOAD_Y, , row)                                                           \
        EVERY_ROW(MULTIPLY, component)                                                        \
    }

__kernel void image_a(int m, int n, int k4,
                      __read_only image2d_t a,
                      __global const real *b, long b_offset, long b_leading,
                      __global real *c, long c_offset, long c_row, long c_col,
                      sum alpha, sum beta,
                      __global const real *bias, long bias_offset, int epilogue)
{
    const int j = get_global_id(0) * MICRO_N;
    const int i = get_global_id(1) * MICRO_M;
    if (i >= m || j >= n) return;

    b += b_offset + j;
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
            b += 4 * b_leading;
        }
        EVERY_ROW(END_CHAIN, )
    }
    c += c_offset + i * c_row + j * c_col;
    bias += bias_offset;
    EVERY_ROW(STORE, )
}
