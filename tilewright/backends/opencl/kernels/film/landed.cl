// landed: what landed, of all copies, as floats.
//
//     | copy 0 |   | copy 1 |        a work-item a place
//     |   x    | + |   x    | + ..   -> x * 2^-32

#include "sums.clh"

__kernel void landed(int columns, int count, __global const long *sums, __global float *out)
{
    const int x = get_global_id(0), row = get_global_id(1);
    if (x >= columns) return;
    const int i = row * columns + x;
    long total = 0;
    for (int n = 0; n < COPIES; n++) total += sums[n * count + i];
    out[i] = (float)total * (1 / ONE);
}
