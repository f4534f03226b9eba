// conv_int8_in: pictures of whole numbers into blocks of LANES channels, less what stands for 0.
//
//     x [N, C, H, W], any strides        packed [N][ceil(C / LANES)][H][W][LANES], floats or halves
//     uchar, char, or float to round
//     c0 +-------+ one channel           +----------------------+  A work-item a pixel of a block.
//     c1 +-------+                ->     | c0 c1 c2 c3 | c0 c1 .|  Channels past the last are 0,
//     c2 +-------+                       +----------------------+  and so is what pads hold.
//
// SOURCE   1 uchar, 2 char, 3 float, which is rounded as conv_whole.clh does; NaN is the number 0

#define WHOLE 1
#include "conv.clh"

#ifndef LANES
#define LANES 4
#endif
#ifndef SOURCE
#define SOURCE 1
#endif
typedef JOIN(float, LANES) lanes;
#include "conv_whole.clh"

#if SOURCE == 1
typedef uchar given;
#elif SOURCE == 2
typedef char given;
#else
typedef float given;
#endif

__kernel void conv_int8_in(int channels, int height, int width, int rows,
                           __global const given *x, long x_offset,
                           long x_image, long x_channel, long x_row, long x_column,
                           __global const float *numbers, __global stored *packed)
{
    const int blocks = (channels + LANES - 1) / LANES;
    const int column = get_global_id(0) % (width * blocks);
    const int row = get_global_id(1);
    if (get_global_id(0) >= width * blocks || row >= rows) return;

    const int block = column / width, at = column % width, image = row / height, y = row % height;
    const float zero = numbers[EDGES + 3];
    float found[LANES];
    x += x_offset + image * x_image + y * x_row + at * x_column;
    UNROLL for (int lane = 0; lane < LANES; lane++) {
        const int c = block * LANES + lane;
        found[lane] = c < channels ? (float)x[c * x_channel] : 0.0f;
    }
    lanes taken = JOIN(vload, LANES)(0, found);
#if SOURCE == 3
    const JOIN(int, LANES) known = taken == taken;
    taken = rounded(known ? taken : (lanes)0, numbers);
    taken = known ? taken : (lanes)-zero;
#else
    taken -= zero;
#endif
    JOIN(vstore, LANES)(taken, 0, found);
    UNROLL for (int lane = 0; lane < LANES; lane++)
        if (block * LANES + lane >= channels) found[lane] = 0;
    packed += (((long)image * blocks + block) * height + y) * width * LANES + at * LANES;
    STORE(LANES, JOIN(vload, LANES)(0, found), packed);
}
