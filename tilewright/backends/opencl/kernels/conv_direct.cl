// conv_direct: LANES outputs of PIXELS neighbouring pixels a work-item, channels in blocks of LANES.
//
//   packed x, one block of channels          weights of LANES outputs
//      +--+--+--+--+--+--+                   per tap and input channel: LANES numbers
//      |  |==|==|==|==|  |  tap (ky, kx)         |
//      +--+--+--+--+--+--+                       v
//          |  |  |  |     each pixel's channel times the vector of weights
//          v  v  v  v
//        PIXELS sums of LANES outputs  ->  bias, residual, activation  ->  packed, or any strides
//
// MODE 0  groups of whole blocks, or one: blocks of inputs one after another
//      1  depthwise: a lane is a channel
//      2  groups of any size: every output picks its own inputs
// LANES   4 on GPUs (NC4HW4), 16 on CPUs with wide vectors
// PACKED  1: stores blocks of channels for the next layer, 0: by strides; both shuffle pixels
// WHOLE   1: whole numbers of eight bits; sums of floats are exact up to 2^24 (conv_whole.clh)
// FOLD    taps of so many numbers that their sums stay exact; then they join sums of int. 0: all do
// STRIDE  columns between the windows of neighbours; what is known to the compiler costs no address
//
// What lies outside the picture is read from LANES zeros behind the weights, so that a product with
// a zero stands where none should be: weights must be finite, and NaN stays in its receptive field.

#include "conv.clh"

#ifndef LANES
#define LANES 4
#endif
#ifndef PIXELS
#define PIXELS 4
#endif
#ifndef MODE
#define MODE 0
#endif
#ifndef PACKED
#define PACKED 0
#endif
#ifndef STRIDE
#define STRIDE 1
#endif
#ifndef WHOLE
#define WHOLE 0
#endif
#ifndef FOLD
#define FOLD 0
#endif
typedef JOIN(float, LANES) lanes;
#include "conv_whole.clh"
#include "conv_store.clh"

#define EACH_PIXEL UNROLL for (int p = 0; p < PIXELS; p++)

// The sums gain `count` input channels of one tap; from[p] is where pixel p's channels lie.
#define GAIN_LANES(ADDRESS, count)                                                            \
    for (int lane = 0; lane < count; lane++, w += LANES) {                                    \
        const lanes weight = LOAD(LANES, w);                                                  \
        EACH_PIXEL total[p] = MADD((lanes)LOAD_ONE(ADDRESS + lane), weight, total[p]);        \
    }
#define GAIN_FOUR(ADDRESS)                                                                    \
    {                                                                                         \
        float4 value[PIXELS];                                                                 \
        EACH_PIXEL value[p] = LOAD(4, ADDRESS);                                               \
        const lanes w0 = LOAD(LANES, w), w1 = LOAD(LANES, w + LANES);                         \
        const lanes w2 = LOAD(LANES, w + 2 * LANES), w3 = LOAD(LANES, w + 3 * LANES);         \
        EACH_PIXEL total[p] = MADD((lanes)value[p].s0, w0, total[p]);                         \
        EACH_PIXEL total[p] = MADD((lanes)value[p].s1, w1, total[p]);                         \
        EACH_PIXEL total[p] = MADD((lanes)value[p].s2, w2, total[p]);                         \
        EACH_PIXEL total[p] = MADD((lanes)value[p].s3, w3, total[p]);                         \
        w += 4 * LANES;                                                                       \
    }
#if MODE == 1
#define GAIN(ADDRESS, count)                                                                  \
    {                                                                                         \
        const lanes weight = LOAD(LANES, w);                                                  \
        EACH_PIXEL total[p] = MADD(LOAD(LANES, ADDRESS), weight, total[p]);                   \
        w += LANES;                                                                           \
    }
#elif LANES == 4
#define GAIN(ADDRESS, count) GAIN_FOUR(ADDRESS)
#else
#define GAIN(ADDRESS, count) GAIN_LANES(ADDRESS, count)
#endif

__kernel __attribute__((vec_type_hint(lanes)))
void conv_direct(int images, int rows, int columns, int inputs, int height, int width, int outputs,
                 int kernel_rows, int kernel_columns, int stride, int down, int across,
                 int top, int left, int each_in, int each_out,
                 __global const stored *x, __global const stored *weights, long zeros_at,
                 STORE_ARGUMENTS)
{
    const int blocks_in = (inputs + LANES - 1) / LANES, blocks = (outputs + LANES - 1) / LANES;
    const int across_blocks = (columns + PIXELS - 1) / PIXELS;
    const int block = get_global_id(0) / across_blocks;
    const int column = get_global_id(0) % across_blocks * PIXELS;
    const int image = get_global_id(1) / rows, row = get_global_id(1) % rows;
    if (block >= blocks || image >= images) return;

    const int first_column = column * STRIDE - left, first_row = row * stride - top;
    const bool inside = first_column >= 0
        && first_column + (PIXELS - 1) * STRIDE + (kernel_columns - 1) * across < width;
    const long plane = (long)height * width * LANES;
    __global const stored *zeros = weights + zeros_at;
    x += image * blocks_in * plane;
    lanes total[PIXELS];
    EACH_PIXEL total[p] = 0;
#if FOLD
    sums_t folded[PIXELS];
    EACH_PIXEL folded[p] = 0;
    int since = 0;
#endif

#if MODE == 2
    const int taps = kernel_rows * kernel_columns;
    UNROLL for (int lane = 0; lane < LANES; lane++) {
        const int output = min(block * LANES + lane, outputs - 1);
        const int base = output / each_out * each_in;
        lanes one = 0;
        ((float *)&one)[lane] = 1;
        __global const stored *w = weights + (long)output * each_in * taps;
        for (int c = base; c < base + each_in; c++)
            for (int tap = 0; tap < taps; tap++, w++) {
                const int y = first_row + tap / kernel_columns * down;
                if (y < 0 || y >= height) continue;
                const lanes weight = one * LOAD_ONE(w);
                EACH_PIXEL {
                    const int at = first_column + p * STRIDE + tap % kernel_columns * across;
                    if (at >= 0 && at < width)
                        total[p] += weight * LOAD_ONE(x + c / LANES * plane
                            + ((long)y * width + at) * LANES + c % LANES);
                }
            }
    }
#else
#if MODE == 1
    const int first_block = block, last_block = block + 1, tap_size = LANES;
#else
    // Blocks of inputs that this block of outputs reads; with one group that is all of them.
    const int first_block = block * LANES / each_out * each_in / LANES;
    const int last_block = first_block + (each_in + LANES - 1) / LANES;
    const int tap_size = LANES * LANES;
#endif
    const int taps = kernel_rows * kernel_columns;
    weights += (long)block * (last_block - first_block) * taps * tap_size;
    for (int b = first_block; b < last_block; b++, weights += taps * tap_size) {
        const int count = min(LANES, each_in - (b - first_block) * LANES);
        for (int ky = 0; ky < kernel_rows; ky++) {
            const int y = first_row + ky * down;
            if (y < 0 || y >= height) continue;
            __global const stored *line = x + b * plane + (long)y * width * LANES;
            for (int kx = 0; kx < kernel_columns; kx++) {
                __global const stored *w = weights + (ky * kernel_columns + kx) * tap_size;
                const int at = first_column + kx * across;
                if (inside) {
                    __global const stored *from = line + at * LANES;
                    GAIN(from + p * STRIDE * LANES, count)
                } else {
                    __global const stored *from[PIXELS];
                    EACH_PIXEL {
                        const int here = at + p * STRIDE;
                        from[p] = here >= 0 && here < width ? line + here * LANES : zeros;
                    }
                    GAIN(from[p], count)
                }
#if FOLD
                if (++since == FOLD) {
                    EACH_PIXEL folded[p] += TO_SUMS(total[p]);
                    EACH_PIXEL total[p] = 0;
                    since = 0;
                }
#endif
            }
        }
    }
#endif
    // Through memory, so that a loop that is not written out ends the sums: Intel's compiler took
    // 24 s where 14 pixels of 16 lanes each had an ending of their own.
    sum_t sums[PIXELS * LANES];
#if FOLD
    EACH_PIXEL JOIN(vstore, LANES)(folded[p] + TO_SUMS(total[p]), p, sums);
#elif WHOLE
    EACH_PIXEL JOIN(vstore, LANES)(TO_SUMS(total[p]), p, sums);
#else
    EACH_PIXEL JOIN(vstore, LANES)(total[p], p, sums);
#endif
    const int last = min(PIXELS, columns - column);
    __attribute__((opencl_unroll_hint(1))) for (int p = 0; p < last; p++)
        store_lanes(JOIN(vload, LANES)(p, sums), image, block, row, column + p, rows, columns,
                    outputs, STORE_NAMES);
}
