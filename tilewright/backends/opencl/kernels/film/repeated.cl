// repeated: the largest sum of differences between the two pictures in a cell of 8 x 8.
//
//     first          second
//     +---+---+     +---+---+
//     | a |   |     | b |   |    a work-item a cell: sum |a - b|; the largest of all, as bits of a
//     +---+---+     +---+---+    float, which have the order of floats where none is below 0

#include "film.clh"

__kernel void repeated(int rows, int columns, __global const float *image, __global uint *most)
{
    const int tall = min(CELL, rows), wide = min(CELL, columns), pitch = pitch_of(columns);
    const int x = get_global_id(0), y = get_global_id(1);
    if (x >= columns / wide) return;
    __global const float *one = image + inside(0, rows, columns) + y * tall * pitch + x * wide;
    __global const float *other = one + inside(1, rows, columns) - inside(0, rows, columns);
    float sum = 0.0f;
    for (int i = 0; i < tall; i++)
        for (int j = 0; j < wide; j++) sum += fabs(one[i * pitch + j] - other[i * pitch + j]);
    atomic_max(most, as_uint(sum));
}
