// naive: one element of C a work-item, operands read where they lie through any strides.
//
//        B   . j .            work-item (j, i) walks row i of A and column j of B;
//            . | .            neighbours in x share the row and, where B is row-major,
//    A       . v .            read neighbouring elements.
//    i ----> C_ij
//
// The ladder's first rung, and the only kernel that accepts k == 0.

#include "common.clh"
#include "micro_tile.clh"

__kernel void naive(int m, int n, int k,
                    __global const real *a, long a_offset, long a_row, long a_col,
                    __global const real *b, long b_offset, long b_row, long b_col,
                    __global real *c, long c_offset, long c_row, long c_col,
                    sum alpha, sum beta,
                    __global const real *bias, long bias_offset, int epilogue)
{
    const int j = get_global_id(0);
    const int i = get_global_id(1);
    if (i >= m || j >= n) return;

    a += a_offset + i * a_row;
    b += b_offset + j * b_col;
    sum total = 0, lost = 0, part = 0;
    // One loop, a chain's end within it: an H200 has 5.6 TFLOP/s of 4096 cubed so, in a loop a chain
    // 4.5, and without chains 6.0.
    UNROLLED
    for (int l = 0; l < k; l++) {
        part = MADD((sum)a[l * a_col], (sum)b[l * b_row], part);
#if CHAIN
        if (l % CHAIN == CHAIN - 1) {
            JOIN_CHAIN(sum, total, lost, part)
            part = 0;
        }
#endif
    }
    JOIN_CHAIN(sum, total, lost, part)
    finish(WHOLE(total, lost), c + c_offset + i * c_row + j * c_col, alpha, beta,
           bias + bias_offset, j, epilogue);
}
