// cleared: sums of all copies set to 0, and how many cells are unsure.
//
//     | copy 0: across, down, weight | copy 1 | ...     a work-item a column; rows of all copies

#include "sums.clh"

__kernel void cleared(int columns, __global long *sums, __global int *unsure)
{
    const int x = get_global_id(0), row = get_global_id(1);
    if (x == 0 && row == 0) *unsure = 0;
    if (x < columns) sums[row * columns + x] = 0;
}
