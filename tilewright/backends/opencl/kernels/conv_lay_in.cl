// conv_lay_in: pictures of any strides into blocks of LANES channels, for conv_direct.
//
//     x [N, C, H, W], any strides        packed [N][ceil(C / LANES)][H][W][LANES]
//
//     c0 +-------+ one channel           +----------------------+  A work-item a pixel of a block.
//     c1 +-------+                ->     | c0 c1 c2 c3 | c0 c1 .|  Channels past the last are 0.
//     c2 +-------+                       +----------------------+
//
// IMAGE 1: into an image of RGBA texels (LANES 4), block b's columns from b * W on, a picture's rows
// under those of the one before.

#include "conv.clh"

#ifndef LANES
#define LANES 4
#endif
#ifndef IMAGE
#define IMAGE 0
#endif

__kernel void conv_lay_in(int channels, int height, int width, int rows,
                          __global const stored *x, long x_offset,
                          long x_image, long x_channel, long x_row, long x_column,
#if IMAGE
                          __write_only image2d_t packed
#else
                          __global stored *packed
#endif
)
{
    const int blocks = (channels + LANES - 1) / LANES;
    const int column = get_global_id(0) % (width * blocks);
    const int row = get_global_id(1);
    if (get_global_id(0) >= width * blocks || row >= rows) return;

    const int block = column / width, at = column % width, image = row / height, y = row % height;
    float found[LANES];
    x += x_offset + image * x_image + y * x_row + at * x_column;
    UNROLL for (int lane = 0; lane < LANES; lane++) {
        const int c = block * LANES + lane;
        found[lane] = c < channels ? LOAD_ONE(x + c * x_channel) : 0.0f;
    }
#if IMAGE
    write_imagef(packed, (int2)(column, row),
                 (float4)(found[0], found[1], found[2], found[3]));
#else
    packed += (((long)image * blocks + block) * height + y) * width * LANES + at * LANES;
    STORE(LANES, JOIN(vload, LANES)(0, found), packed);
#endif
}
