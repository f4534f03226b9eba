// image_b: 4 x 8 elements of C a work-item; B through the texture cache, A and C through buffers.
//
//                  B image, texel = 4 columns     per 4 steps of k: 4 vectors of A (one a row),
//                  row l: [j..j+3][j+4..j+7]      8 texels of B, 128 multiply-adds.
//    A rows i..i+3            |
//      [l..l+3] ------->  4 x 8 of C              two load paths at once: texture and buffer.
//
// Written for Adreno 4xx and 5xx (Qualcomm's SGEMM article), whose texture cache is the only L1.
// A is row-major, k padded with zeros to a multiple of 4; B's rows have the image's pitch.

#include "common.clh"

TEXEL_SAMPLER;

#define STEP(component, y0, y1)                                      \
    total00 = MADD((sum4)x0.component, y0, total00);                 \
    total01 = MADD((sum4)x0.component, y1, total01);                 \
    total10 = MADD((sum4)x1.component, y0, total10);                 \
    total11 = MADD((sum4)x1.component, y1, total11);                 \
    total20 = MADD((sum4)x2.component, y0, total20);                 \
    total21 = MADD((sum4)x2.component, y1, total21);                 \
    total30 = MADD((sum4)x3.component, y0, total30);                 \
    total31 = MADD((sum4)x3.component, y1, total31);

#define STORE(row, left, right)                                                               \
    if (i + row < m) {                                                                        \
        __global real *out = c + row * c_row;                                                 \
        finish_row4(left, out, c_col, n - j, alpha, beta, bias, j, epilogue);                 \
        if (j + 4 < n)                                                                        \
            finish_row4(right, out + 4 * c_col, c_col, n - j - 4, alpha, beta, bias, j + 4,   \
                        epilogue);                                                            \
    }

__kernel void image_b(int m, int n, int k4,
                      __global const real *a, long a_offset, long a_leading,
                      __read_only image2d_t b,
                      __global real *c, long c_offset, long c_row, long c_col,
                      sum alpha, sum beta,
                      __global const real *bias, long bias_offset, int epilogue)
{
    const int texel = get_global_id(0) * 2;
    const int j = texel * 4;
    const int i = get_global_id(1) * 4;
    if (i >= m || j >= n) return;

    // Rows past the last read the last one again: cheaper than a test, and never stored.
    __global const real *a0 = a + a_offset + i * a_leading;
    __global const real *a1 = a + a_offset + min(i + 1, m - 1) * a_leading;
    __global const real *a2 = a + a_offset + min(i + 2, m - 1) * a_leading;
    __global const real *a3 = a + a_offset + min(i + 3, m - 1) * a_leading;
    sum4 total00 = 0, total01 = 0, total10 = 0, total11 = 0;
    sum4 total20 = 0, total21 = 0, total30 = 0, total31 = 0;
    for (int l = 0; l < k4; l++) {
        const sum4 x0 = TO_SUM4(vload4(l, a0));
        const sum4 x1 = TO_SUM4(vload4(l, a1));
        const sum4 x2 = TO_SUM4(vload4(l, a2));
        const sum4 x3 = TO_SUM4(vload4(l, a3));
        const int row = l * 4;
        STEP(s0, TEXEL(b, texel, row), TEXEL(b, texel + 1, row))
        STEP(s1, TEXEL(b, texel, row + 1), TEXEL(b, texel + 1, row + 1))
        STEP(s2, TEXEL(b, texel, row + 2), TEXEL(b, texel + 1, row + 2))
        STEP(s3, TEXEL(b, texel, row + 3), TEXEL(b, texel + 1, row + 3))
    }
    c += c_offset + i * c_row + j * c_col;
    bias += bias_offset;
    STORE(0, total00, total01)
    STORE(1, total10, total11)
    STORE(2, total20, total21)
    STORE(3, total30, total31)
}
