// image_read: bytes a second out of an RGBA image, through the texture units where there are any.
//
//        x ->                      an item walks down its column of a strip of `rows` texel rows,
//      +---------------+           `rounds` times over; neighbours read neighbouring columns
//    y | | | | | | | | |  strip 0
//      +---------------+
//      | | | | | | | | |  strip 1         with more strips than the image has, around again

#include "common.clh"

TEXEL_SAMPLER;

__kernel void image_read(read_only image2d_t image, __global float *out, int height, int rows,
                         int rounds)
{
    const int x = get_global_id(0), begin = get_global_id(1) * rows % height;
    float4 total = (float4)0;
    for (int r = 0; r < rounds; r++)
        for (int y = begin; y < begin + rows; y++)
            total += read_imagef(image, texel_sampler, (int2)(x, y));
    out[get_global_id(1) * get_global_size(0) + x] = total.x + total.y + total.z + total.w;
}
