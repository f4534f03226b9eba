// image_ab: MICRO_M x MICRO_N elements of C a work-item; A and B both through the texture cache.
//
//                  B image, texel = 4 columns     drawn with 4 x 4. Per 4 steps of k: 4 texels of A,
//                  rows l..l+3: [j..j+3]          4 of B, 64 multiply-adds.
//    A image           |
//    texel = 4 of k    v
//      [l..l+3] --> 4 x 4 of C                    IMAGE_C=1 stores texels of C to an image laid
//                                                 on scratch; a relayout carries them to C.
//
// Written for Adreno 650, where only textures pass through L1: about 3x over `coalesced`.

#include "common.clh"
#include "micro_tile.clh"

TEXEL_SAMPLER;

#ifndef IMAGE_C
#define IMAGE_C 0
#endif

#define LOAD_X(r, none) const sum4 x##r = TEXEL(a, l, i + r);
#define LOAD_Y(r, v, row) const sum4 y##v = TEXEL(b, j / 4 + v, 4 * l + row);
#define MULTIPLY(r, component) EVERY_VECTOR(GAIN, r, x##r.component)
#define STEP(component, row)                                                                  \
    {                                                                                         \
        EVERY_VECTOR(LOAD_Y, , row)                                                           \
        EVERY_ROW(MULTIPLY, component)                                                        \
    }

#if IMAGE_C
inline float4 finished4(sum4 total, __global const real *c, long c_col, int columns, sum alpha,
                        sum beta, __global const real *bias, long column, int epilogue)
{
    sum4 value = alpha == (sum)0 ? (sum4)0 : alpha * total;
    sum4 old = 0, shift = 0;
    if (beta != (sum)0) {
        old.s0 = c[0];
        if (columns > 1) old.s1 = c[c_col];
        if (columns > 2) old.s2 = c[2 * c_col];
        if (columns > 3) old.s3 = c[3 * c_col];
        value += beta * old;
    }
    if (epilogue & EPILOGUE_BIAS) {
        shift.s0 = bias[column];
        if (columns > 1) shift.s1 = bias[column + 1];
        if (columns > 2) shift.s2 = bias[column + 2];
        if (columns > 3) shift.s3 = bias[column + 3];
        value += shift;
    }
    return (float4)(activate(value.s0, epilogue), activate(value.s1, epilogue),
                    activate(value.s2, epilogue), activate(value.s3, epilogue));
}
#define STORE_TEXEL(r, v, none)                                                                  \
    if (j + 4 * v < n)                                                                        \
        write_imagef(c_image, (int2)(j / 4 + v, i + r),                                       \
                     finished4(WHOLE(TOTAL(r, v), LOST(r, v)), c + r * c_row + 4 * v * c_col, \
                               c_col, n - j - 4 * v, alpha, beta, bias, j + 4 * v, epilogue));
#define STORE_ROW(r, none)                                                                       \
    if (i + r < m) {                                                                          \
        FIND_TOTALS(m + r)                                                                    \
        EVERY_VECTOR(STORE_TEXEL, r, none)                                                       \
    }
#else
#define STORE_ROW STORE
#endif

__kernel void image_ab(int m, int n, int k4,
                       __read_only image2d_t a,
                       __read_only image2d_t b,
#if IMAGE_C
                       __write_only image2d_t c_image,
#endif
                       __global real *c, long c_offset, long c_row, long c_col,
                       sum alpha, sum beta,
                       __global const real *bias, long bias_offset, int epilogue)
{
    const int j = get_global_id(0) * MICRO_N;
    const int i = get_global_id(1) * MICRO_M;
    if (i >= m || j >= n) return;

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
    EVERY_ROW(STORE_ROW, )
}
