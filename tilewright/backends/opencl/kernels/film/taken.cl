// taken: samples of both pictures as light, 0 to 255, with a border.
//
//     | BORDER | columns | BORDER |   a work-item a place; beyond an edge it reads the edge's
//     +--------+---------+--------+   sample, so that borders need no second pass
//
// The first one also sets to 0 what `repeated` counts in.

#include "film.clh"

__kernel void taken(int rows, int columns, int begin, int apart, float scale,
                    __global const sample *source, __global float *out, __global uint *most)
{
    const int i = get_global_id(0), j = get_global_id(1);
    const int pitch = pitch_of(columns), tall = rows + 2 * BORDER;
    if (i == 0 && j == 0) *most = 0;
    if (i >= pitch) return;
    const int picture = j / tall;
    const int y = clamp(j % tall - BORDER, 0, rows - 1), x = clamp(i - BORDER, 0, columns - 1);
    out[j * pitch + i] = scale * (float)source[picture * apart + begin + y * columns + x];
}
