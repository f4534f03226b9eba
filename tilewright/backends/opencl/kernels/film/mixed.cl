// mixed: the two moved pictures as whole samples of the picture between.
//
//     cells        +---+---+     a work-item a sample: how unsure it is there, between the cells
//                  | 0 | 1 |     round it, draws it from a mix of both to the nearer alone; what
//     samples ->   +-x-+---+     stands still is mixed of both where it is
//                  | 0 | 0 |
//                  +---+---+

#include "film.clh"

__kernel void mixed(int rows, int columns, float share, int high, int wide, float down,
                    float across, float scale, float most, int begin,
                    __global const float *image, __global const float *moved,
                    __global const float *cells, __global sample *out)
{
    const int x = get_global_id(0), y = get_global_id(1), size = rows * columns;
    if (x >= columns) return;
    const int i = y * columns + x;
    float part = moved[2 * size + i], found;
    if (part > 1) {
        const int at = y * pitch_of(columns) + x;
        const float here = image[inside(0, rows, columns) + at];
        found = here + share * (image[inside(1, rows, columns) + at] - here);
    } else {
        if (0 < part && part < 1) {
            const float place = clamp((y + 0.5f) * down - 0.5f, 0.0f, high - 1.0f);
            const float at = clamp((x + 0.5f) * across - 0.5f, 0.0f, wide - 1.0f);
            const int top = (int)place, left = (int)at, next = min(left + 1, wide - 1);
            __global const float *above = cells + top * wide;
            __global const float *below = cells + min(top + 1, high - 1) * wide;
            const float a = above[left] + (at - left) * (above[next] - above[left]);
            const float b = below[left] + (at - left) * (below[next] - below[left]);
            part += (a + (place - top) * (b - a)) * ((share > 0.5f ? 1.0f : 0.0f) - part);
        }
        found = moved[i] + part * (moved[size + i] - moved[i]);
    }
    out[begin + i] = (sample)clamp(found * scale + 0.5f, 0.0f, most);
}
