// carry: bring a padded row-major scratch matrix to C's own strides: relayout.cl, the other way.
//
//    source (leading dimension)               target (rows x cols, any strides)
//    +-----------+--+                         +-----------+
//    |           |  |   --------------->      |           |     one element a work-item;
//    |           |  |                         +-----------+     the padding stays behind
//    +-----------+--+

#include "common.clh"

__kernel void carry(int rows, int cols,
                    __global const real *source, long leading,
                    __global real *target, long offset, long row, long col)
{
    const int j = get_global_id(0);
    const int i = get_global_id(1);
    if (i < rows && j < cols) target[offset + i * row + j * col] = source[i * leading + j];
}
