// coalesced: 4 x 4 elements of C a work-item from A transposed, all loads 128 bits wide.
//
//                B  row l  [ j..j+3 ]             per step of k: one 4-vector of At (4 rows of A),
//                               |                 one of B (4 columns), 16 multiply-adds.
//    At row l  [ i..i+3 ] --> 4x4 of C            Neighbouring work-items read neighbouring vectors.
//
// At is k x m, B is k x n, both row-major and padded with zeros to a multiple of 4 columns.
// Accumulators carry names: old Mali compilers spill register arrays.

#include "common.clh"

__kernel void coalesced(int m, int n, int k,
                        __global const real *at, long at_offset, long at_leading,
                        __global const real *b, long b_offset, long b_leading,
                        __global real *c, long c_offset, long c_row, long c_col,
                        sum alpha, sum beta,
                        __global const real *bias, long bias_offset, int epilogue)
{
    const int j = get_global_id(0) * 4;
    const int i = get_global_id(1) * 4;
    if (i >= m || j >= n) return;

    at += at_offset + i;
    b += b_offset + j;
    sum4 total0 = 0, total1 = 0, total2 = 0, total3 = 0;
    for (int l = 0; l < k; l++) {
        const sum4 x = TO_SUM4(vload4(0, at));
        const sum4 y = TO_SUM4(vload4(0, b));
        total0 = MADD((sum4)x.s0, y, total0);
        total1 = MADD((sum4)x.s1, y, total1);
        total2 = MADD((sum4)x.s2, y, total2);
        total3 = MADD((sum4)x.s3, y, total3);
        at += at_leading;
        b += b_leading;
    }
    c += c_offset + i * c_row + j * c_col;
    bias += bias_offset;
    finish_row4(total0, c, c_col, n - j, alpha, beta, bias, j, epilogue);
    if (i + 1 < m) finish_row4(total1, c + c_row, c_col, n - j, alpha, beta, bias, j, epilogue);
    if (i + 2 < m) finish_row4(total2, c + 2 * c_row, c_col, n - j, alpha, beta, bias, j, epilogue);
    if (i + 3 < m) finish_row4(total3, c + 3 * c_row, c_col, n - j, alpha, beta, bias, j, epilogue);
}
