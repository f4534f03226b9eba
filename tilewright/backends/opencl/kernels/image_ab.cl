// image_ab: 4 x 4 elements of C a work-item; A and B both through the texture cache.
//
//                  B image, texel = 4 columns     per 4 steps of k: 4 texels of A, 4 of B,
//                  rows l..l+3: [j..j+3]          64 multiply-adds.
//    A image           |
//    texel = 4 of k    v
//      [l..l+3] --> 4 x 4 of C                    IMAGE_C=1 stores texels of C to an image laid
//                                                 on scratch; a relayout carries them to C.
//
// Written for Adreno 650, where only textures pass through L1: about 3x over `coalesced`.

#include "common.clh"

TEXEL_SAMPLER;

#ifndef IMAGE_C
#define IMAGE_C 0
#endif

#define ROW(x, total)                                                                         \
    total = MADD((sum4)x.s0, y0, total);                                                      \
    total = MADD((sum4)x.s1, y1, total);                                                      \
    total = MADD((sum4)x.s2, y2, total);                                                      \
    total = MADD((sum4)x.s3, y3, total);

#if IMAGE_C
inline float4 finished4(sum4 total, __global const real *c, long c_col, int columns, sum alpha,
                        sum beta, __global const real *bias, long column, int epilogue)
{
    sum4 value = alpha * total;
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
#define STORE(row, total)                                                                     \
    if (i + row < m)                                                                          \
        write_imagef(c_image, (int2)(j / 4, i + row),                                         \
                     finished4(total, c + row * c_row, c_col, n - j, alpha, beta, bias, j,    \
                               epilogue));
#else
#define STORE(row, total)                                                                     \
    if (i + row < m)                                                                          \
        finish_row4(total, c + row * c_row, c_col, n - j, alpha, beta, bias, j, epilogue);
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
    const int j = get_global_id(0) * 4;
    const int i = get_global_id(1) * 4;
    if (i >= m || j >= n) return;

    sum4 total0 = 0, total1 = 0, total2 = 0, total3 = 0;
    for (int l = 0; l < k4; l++) {
        const sum4 x0 = TEXEL(a, l, i);
        const sum4 x1 = TEXEL(a, l, i + 1);
        const sum4 x2 = TEXEL(a, l, i + 2);
        const sum4 x3 = TEXEL(a, l, i + 3);
        const sum4 y0 = TEXEL(b, j / 4, 4 * l);
        const sum4 y1 = TEXEL(b, j / 4, 4 * l + 1);
        const sum4 y2 = TEXEL(b, j / 4, 4 * l + 2);
        const sum4 y3 = TEXEL(b, j / 4, 4 * l + 3);
        ROW(x0, total0)
        ROW(x1, total1)
        ROW(x2, total2)
        ROW(x3, total3)
    }
    c += c_offset + i * c_row + j * c_col;
    bias += bias_offset;
    STORE(0, total0)
    STORE(1, total1)
    STORE(2, total2)
    STORE(3, total3)
}
