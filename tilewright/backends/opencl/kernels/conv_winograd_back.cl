// conv_winograd_back: products of transformed tiles back into pixels, and how a sum ends.
//
//     M [N][position][outputs][tile]  ->  TILE x TILE pixels of an output a work-item
//                                         -> bias, residual, activation, shuffle, any strides
//
// A sum that comes out as NaN or infinite is made anew by the plain sum of its window, so that
// neither leaves its receptive field: `plain` is [output][input][3][3].

#include "conv.clh"
#include "conv_store_one.clh"

#ifndef TILE
#define TILE 4
#endif
#define SIDE (TILE + 2)
typedef float v;
#include "conv_transforms.clh"

__kernel void conv_winograd_back(int outputs, int rows, int columns, int down, int across, int lines,
                                 int channels, int height, int width, int top, int left,
                                 __global const float *products, __global const float *plain,
                                 __global const stored *x, long x_offset,
                                 long x_image, long x_channel, long x_row, long x_column,
                                 FINISH_ARGUMENTS, OUT_ARGUMENTS)
{
    const int tile = get_global_id(0), tiles = down * across;
    const int line = get_global_id(1), output = line % outputs, image = line / outputs;
    if (tile >= tiles || line >= lines) return;

    products += ((long)image * SIDE * SIDE * outputs + output) * tiles + tile;
    v half_way[SIDE][TILE];
    UNROLL for (int k = 0; k < SIDE; k++) {
        v e[SIDE];
        UNROLL for (int i = 0; i < SIDE; i++)
            e[i] = products[(long)(i * SIDE + k) * outputs * tiles];
        transform_back(e, half_way[k]);
    }
    float sums[TILE * TILE];
    UNROLL for (int i = 0; i < TILE; i++) {
        v e[SIDE];
        UNROLL for (int k = 0; k < SIDE; k++) e[k] = half_way[k][i];
        transform_back(e, sums + i * TILE);
    }
    plain += (long)output * channels * 9;
    x += x_offset + image * x_image;
    for (int i = 0; i < TILE * TILE; i++) {
        const int row = tile / across * TILE + i / TILE, column = tile % across * TILE + i % TILE;
        if (row >= rows || column >= columns) continue;
        float total = sums[i];
        if (!isfinite(total)) {
            total = 0;
            for (int c = 0; c < channels; c++)
                for (int tap = 0; tap < 9; tap++) {
                    const int y = row - top + tap / 3, at = column - left + tap % 3;
                    if (y >= 0 && y < height && at >= 0 && at < width)
                        total += plain[c * 9 + tap]
                            * LOAD_ONE(x + c * x_channel + y * x_row + at * x_column);
                }
        }
        store_one(total, image, output, row, column, FINISH_NAMES, OUT_NAMES);
    }
}
