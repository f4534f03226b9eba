// relayout: copy any strided matrix into padded row-major scratch, zeros in the padding.
//
//    source (rows x cols, any strides)        target (target_rows x target_cols, leading dim)
//    +-----------+                            +-----------+--+
//    |           |   --------------->         |           |00|   one element a work-item
//    +-----------+                            +-----------+00|
//                                             |000000000000000|
//
// The vector kernels read whole 4-vectors: zeros in the padding let them ignore the edges, and
// zero times zero adds nothing even where the other operand holds NaN (its padding is zero too).
// Swapped strides transpose. An image laid on the target gets its row pitch as leading dimension.

#include "common.clh"

__kernel void relayout(int rows, int cols,
                       __global const real *source, long offset, long row, long col,
                       int target_rows, int target_cols,
                       __global real *target, long leading)
{
    const int j = get_global_id(0);
    const int i = get_global_id(1);
    if (i >= target_rows || j >= target_cols) return;
    const bool inside = i < rows && j < cols;
    target[i * leading + j] = inside ? source[offset + i * row + j * col] : (real)0;
}
