// dot4: one element of C a work-item, a 4-wide dot product along k.
//
//                 Bt row j  [....][....][....]     A and Bt are row-major with k padded by zeros
//                              |     |     |       to a multiple of 4, so that every load is one
//    A row i  [....][....][....] --> C_ij          aligned 4-vector and no edge is tested.
//
// Written for Midgard (Mali-T604), whose registers are 128 bits wide and whose local memory lies
// in the same DRAM as the rest; it wants at least 4096 work-items, 128 a core.

#include "common.clh"

__kernel void dot4(int m, int n, int k4,
                   __global const real *a, long a_offset, long a_leading,
                   __global const real *bt, long bt_offset, long bt_leading,
                   __global real *c, long c_offset, long c_row, long c_col,
                   sum alpha, sum beta,
                   __global const real *bias, long bias_offset, int epilogue)
{
    const int j = get_global_id(0);
    const int i = get_global_id(1);
    if (i >= m || j >= n) return;

    a += a_offset + i * a_leading;
    bt += bt_offset + j * bt_leading;
    sum total = 0;
    for (int l = 0; l < k4; l++)
        total += dot(TO_SUM4(vload4(l, a)), TO_SUM4(vload4(l, bt)));
    finish(total, c + c_offset + i * c_row + j * c_col, alpha, beta,
           bias + bias_offset, j, epilogue);
}
