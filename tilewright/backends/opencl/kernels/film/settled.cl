// settled: motion through every place, from sums; where these are small, from half the size.
//
//     sums             motion of half the size
//     +---+---+        +-------+
//     | 9 | 0 |        |       |    9: its own motion
//     +---+---+   +    |   m   |    0: m, which lies over it
//     | 0 | 4 |        |       |    a work-item a place
//     +---+---+        +-------+

#include "film.clh"

#define FEW 1e-3f

__kernel void settled(int rows, int columns, int coarser, __global const float *sums,
                      __global const float *coarse, __global float *field)
{
    const int x = get_global_id(0), y = get_global_id(1), size = rows * columns;
    if (x >= columns) return;
    const int tall = (rows + 1) / 2, wide = (columns + 1) / 2, i = y * columns + x;
    const float share = 1 / (sums[2 * size + i] + FEW);
    for (int n = 0; n < 2; n++) {
        const float below = coarser ? coarse[(n * tall + y / 2) * wide + x / 2] : 0.0f;
        field[n * size + i] = (sums[n * size + i] + FEW * below) * share;
    }
}
