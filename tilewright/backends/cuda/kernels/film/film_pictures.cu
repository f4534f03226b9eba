// Samples -> float pictures with a border, their halves, and whether two are the same.
//
//     taken      a thread a place of the bordered picture:  | BORDER | columns | BORDER |
//                beyond an edge each reads the edge's sample, so borders need no second pass
//     halved     the same, of 2 x 2 samples of the larger size
//     repeated   a warp a cell of 8 x 8; the largest sum of differences, as bits of a float
//
// blockIdx.y is the picture, first or second.

#include "film.cuh"

extern "C" __global__ void taken(const Sample *source, long long apart, int rows, int columns,
                                 float scale, float *out, unsigned *cleared) {
    const int pitch = pitch_of(columns), i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0 && blockIdx.y == 0) *cleared = 0;
    if (i >= pitch * (rows + 2 * BORDER)) return;
    const int y = within(i / pitch - BORDER, 0, rows - 1);
    const int x = within(i % pitch - BORDER, 0, columns - 1);
    out += blockIdx.y * (long long)pitch * (rows + 2 * BORDER);
    out[i] = scale * float(source[blockIdx.y * apart + (long long)y * columns + x]);
}

extern "C" __global__ void halved(const float *larger, int tall, int wide, float *out, int rows,
                                  int columns) {
    const int pitch = pitch_of(columns), i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pitch * (rows + 2 * BORDER)) return;
    const int y = within(i / pitch - BORDER, 0, rows - 1);
    const int x = within(i % pitch - BORDER, 0, columns - 1);
    const float *above = inside(larger, blockIdx.y, tall, wide) + 2LL * y * pitch_of(wide) + 2 * x;
    const float *below = above + pitch_of(wide);
    out += blockIdx.y * (long long)pitch * (rows + 2 * BORDER);
    out[i] = 0.25f * (above[0] + above[1] + below[0] + below[1]);
}

extern "C" __global__ void repeated(const float *image, int rows, int columns, unsigned *most) {
    const int tall = min(CELL, rows), wide = min(CELL, columns);
    const int across = columns / wide, cells = rows / tall * across;
    const int cell = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (cell >= cells) return;
    const long long at = (long long)(cell / across * tall) * pitch_of(columns) + cell % across * wide;
    const float *one = inside(image, 0, rows, columns) + at;
    const float *other = inside(image, 1, rows, columns) + at;
    float sum = 0;
    for (int n = lane; n < tall * wide; n += 32) {
        const int place = n / wide * pitch_of(columns) + n % wide;
        sum += fabsf(one[place] - other[place]);
    }
    for (int n = 16; n; n /= 2) sum += __shfl_xor_sync(~0u, sum, n);
    if (lane == 0) atomicMax(most, __float_as_uint(sum));
}
