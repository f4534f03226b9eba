// trusted: how far motion there and back meet, and what lies there is alike: 1 and less.
//
//     first            second
//     +-------+       +-------+    a work-item a sample, both ways:
//     |  x----|-------|->.    |    motion takes x to a place between four samples; what the field
//     |  ? <--|-------|--'    |    back says of these, mixed, should lead to x again
//     +-------+       +-------+

#include "film.clh"

__kernel void trusted(int rows, int columns, __global const float *image,
                      __global const float *fields, __global float *out)
{
    const int x = get_global_id(0), row = get_global_id(1);
    if (x >= columns) return;
    const int way = row / rows, y = row % rows, pitch = pitch_of(columns), size = rows * columns;
    const int i = y * columns + x;
    __global const float *field = fields + 2 * way * size, *back = fields + 2 * (1 - way) * size;
    const float at_y = clamp(y + field[size + i], 0.0f, rows - 1.001f);
    const float at_x = clamp(x + field[i], 0.0f, columns - 1.001f);
    const int top = (int)at_y, left = (int)at_x;
    const float down = at_y - top, right = at_x - left;
    const float a = (1 - down) * (1 - right), b = (1 - down) * right;
    const float c = down * (1 - right), d = down * right;
    float far = 0.0f;
    for (int n = 0; n < 2; n++) {
        __global const float *to = back + n * size + top * columns + left;
        const float meet = a * to[0] + b * to[1] + c * to[columns] + d * to[columns + 1] +
                           field[n * size + i];
        far += meet * meet;
    }
    __global const float *there = image + inside(1 - way, rows, columns) + top * pitch + left;
    const float light = a * there[0] + b * there[1] + c * there[pitch] + d * there[pitch + 1] -
                        image[inside(way, rows, columns) + y * pitch + x];
    out[way * size + i] = exp(-0.5f * far - 0.1f * fabs(light)) + 1e-4f;
}
