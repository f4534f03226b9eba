// conv_winograd_in: tiles of the picture, transformed, for the products of conv_winograd.
//
//     x [N, C, H, W], any strides        V [N][position][C][tile], float
//     +---+---+---+
//     |SIDE x SIDE|  a work-item          one number to each of SIDE x SIDE positions; neighbours in
//     |   +---+---+  a tile of a          a work-group write neighbouring tiles
//     +---+ next     channel
//
// Tiles begin TILE pixels apart, a pad before the picture; outside it there are zeros.

#include "conv.clh"

#ifndef TILE
#define TILE 4
#endif
#define SIDE (TILE + 2)
typedef float v;
#include "conv_transforms.clh"

__kernel void conv_winograd_in(int channels, int height, int width, int down, int across, int top,
                               int left, int lines,
                               __global const stored *x, long x_offset,
                               long x_image, long x_channel, long x_row, long x_column,
                               __global float *values)
{
    const int tile = get_global_id(0), tiles = down * across;
    const int line = get_global_id(1), channel = line % channels, image = line / channels;
    if (tile >= tiles || line >= lines) return;

    const int y0 = tile / across * TILE - top, x0 = tile % across * TILE - left;
    x += x_offset + image * x_image + channel * x_channel;
    v half_way[SIDE][SIDE];
    UNROLL for (int k = 0; k < SIDE; k++) {
        v d[SIDE];
        UNROLL for (int i = 0; i < SIDE; i++) {
            const int y = y0 + i, column = x0 + k;
            const bool inside = y >= 0 && y < height && column >= 0 && column < width;
            d[i] = inside ? LOAD_ONE(x + y * x_row + column * x_column) : 0.0f;
        }
        transform_in(d, half_way[k]);
    }
    values += ((long)image * SIDE * SIDE * channels + channel) * tiles + tile;
    UNROLL for (int i = 0; i < SIDE; i++) {
        v e[SIDE], f[SIDE];
        UNROLL for (int k = 0; k < SIDE; k++) e[k] = half_way[k][i];
        transform_in(e, f);
        UNROLL for (int k = 0; k < SIDE; k++)
            values[(long)(i * SIDE + k) * channels * tiles] = f[k];
    }
}
