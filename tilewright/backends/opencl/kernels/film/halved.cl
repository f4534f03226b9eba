// halved: means of 2 x 2 samples of both pictures, with a border of their own.
//
//     +--+--+
//     |  |  |      +--+     a work-item a place of the smaller picture; beyond an edge it makes
//     +--+--+  ->  |  |     the edge's sample again
//     |  |  |      +--+
//     +--+--+

#include "film.clh"

__kernel void halved(int tall, int wide, int rows, int columns, __global const float *larger,
                     __global float *out)
{
    const int i = get_global_id(0), j = get_global_id(1);
    const int pitch = pitch_of(columns), all = rows + 2 * BORDER;
    if (i >= pitch) return;
    const int y = clamp(j % all - BORDER, 0, rows - 1), x = clamp(i - BORDER, 0, columns - 1);
    __global const float *above =
        larger + inside(j / all, tall, wide) + 2 * y * pitch_of(wide) + 2 * x;
    __global const float *below = above + pitch_of(wide);
    out[j * pitch + i] = 0.25f * (above[0] + above[1] + below[0] + below[1]);
}
