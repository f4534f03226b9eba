// conv_direct_image: 4 outputs of 4 neighbouring pixels a work-item; pictures and weights by texture.
//
//   image of x: texel = 4 channels of a pixel       image of weights: texel = 4 outputs
//        columns of block 0 | of block 1 | ...          x: input channel
//      +--------------------+------------+              y: (block of outputs, ky, kx)
//      |   . . . . .        |            |  row y          |
//      +--------------------+------------+                 v
//          4 texels a tap  ---->  4 x 4 sums  ->  bias, residual, activation  ->  image, or strides
//
// MODE 0  groups of whole blocks, or one     1  depthwise: weights' x is the tap, y the block
// TO_IMAGE 1: stores texels for the next layer, 0: by strides
//
// On Adreno only textures pass through L1 (image_ab.cl). Texels outside the image are zero; a column
// outside the picture lies in a neighbouring block, so that it is moved to row -1.

#include "conv.clh"

#ifndef MODE
#define MODE 0
#endif
#ifndef TO_IMAGE
#define TO_IMAGE 0
#endif
#define LANES 4
#define PIXELS 4
#define PACKED 0
typedef float4 lanes;
#include "conv_store.clh"

__constant sampler_t texel_sampler =
    CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
#define TEXEL(image, x, y) read_imagef(image, texel_sampler, (int2)((x), (y)))
#define EACH_PIXEL UNROLL for (int p = 0; p < PIXELS; p++)

__kernel void conv_direct_image(int images, int rows, int columns, int height, int width, int outputs,
                                int kernel_rows, int kernel_columns, int stride, int stride_x,
                                int down, int across, int top, int left, int each_in, int each_out,
                                __read_only image2d_t x, __read_only image2d_t weights,
#if TO_IMAGE
                                __write_only image2d_t packed,
#endif
                                STORE_ARGUMENTS)
{
    const int blocks = (outputs + 3) / 4, across_blocks = (columns + PIXELS - 1) / PIXELS;
    const int block = get_global_id(0) / across_blocks;
    const int column = get_global_id(0) % across_blocks * PIXELS;
    const int image = get_global_id(1) / rows, row = get_global_id(1) % rows;
    if (block >= blocks || image >= images) return;

    const int first_column = column * stride_x - left, first_row = row * stride - top;
#if MODE == 1
    const int first_block = block, last_block = block + 1;
#else
    const int first_block = block * 4 / each_out * each_in / 4;
    const int last_block = first_block + (each_in + 3) / 4;
#endif
    const int taps = kernel_rows * kernel_columns;
    float4 total[PIXELS];
    EACH_PIXEL total[p] = 0;
    for (int b = first_block; b < last_block; b++)
        for (int tap = 0; tap < taps; tap++) {
            const int y = first_row + tap / kernel_columns * down;
            const int at = first_column + tap % kernel_columns * across;
            if (y < 0 || y >= height) continue;
            float4 value[PIXELS];
            EACH_PIXEL {
                const int here = at + p * stride_x;
                value[p] = TEXEL(x, b * width + here,
                                 here >= 0 && here < width ? image * height + y : -1);
            }
#if MODE == 1
            const float4 weight = TEXEL(weights, tap, block);
            EACH_PIXEL total[p] = MADD(value[p], weight, total[p]);
#else
            const int line = block * taps + tap, c = (b - first_block) * 4;
            const float4 w0 = TEXEL(weights, c, line), w1 = TEXEL(weights, c + 1, line);
            const float4 w2 = TEXEL(weights, c + 2, line), w3 = TEXEL(weights, c + 3, line);
            EACH_PIXEL total[p] = MADD((float4)value[p].s0, w0, total[p]);
            EACH_PIXEL total[p] = MADD((float4)value[p].s1, w1, total[p]);
            EACH_PIXEL total[p] = MADD((float4)value[p].s2, w2, total[p]);
            EACH_PIXEL total[p] = MADD((float4)value[p].s3, w3, total[p]);
#endif
        }
    EACH_PIXEL {
        if (column + p >= columns) continue;
#if TO_IMAGE
        write_imagef(packed, (int2)(block * columns + column + p, image * rows + row),
                     finished(total[p], image, block, row, column + p, outputs, FINISH_NAMES));
#else
        store_lanes(total[p], image, block, row, column + p, rows, columns, outputs, STORE_NAMES);
#endif
    }
}
