// How a sum ends: made anew where it is not finite, bias, residual, activation, shuffle, its place.
#pragma once
#include "winograd_layout.cuh"

enum Activation {
    NONE, RELU, LEAKY, PRELU, CLIP, SIGMOID, HARD_SIGMOID, HARD_SWISH, SILU, TANH, GELU
};

__device__ __forceinline__ float between(float v, float low, float high) {
    return v < low ? low : v > high ? high : v;  // a NaN stays one
}

__device__ __forceinline__ float activated(const Winograd& p, float v, float slope) {
    if (HOW == RELU) return v < 0 ? 0.0f : v;
    if (HOW == LEAKY || HOW == PRELU) return v < 0 ? slope * v : v;
    if (HOW == CLIP) return between(v, p.low, p.high);
    if (HOW == SIGMOID) return 1 / (1 + expf(-v));
    if (HOW == HARD_SIGMOID) return between(p.low * v + p.high, 0, 1);
    if (HOW == HARD_SWISH) return v * between(v / 6 + 0.5f, 0, 1);
    if (HOW == SILU) return v / (1 + expf(-v));
    if (HOW == TANH) return tanhf(v);
    if (HOW == GELU) return 0.5f * v * (1 + erff(v * 0.7071067811865476f));
    return v;
}

// The sum of a window as it is defined.
__device__ __noinline__ float plain_sum(const Winograd& p, const float* x, int output, int y, int left) {
    const float* weights = p.plain + (long long)output * p.channels * 9;
    float sum = 0;
    for (int c = 0; c < p.channels; ++c)
        for (int tap = 0; tap < 9; ++tap) {
            int row = y + tap / 3, column = left + tap % 3;
            if (row >= 0 && row < p.height && column >= 0 && column < p.width)
                sum = fmaf(weights[9 * c + tap],
                           x[c * p.at_x.channel + row * p.at_x.row + column * p.at_x.column], sum);
        }
    return sum;
}

// Of a tile and an output.
struct Ending {
    const float* x;
    float* out;
    const float* added;
    float bias, slope;
    int output, row, column;

    __device__ __forceinline__ Ending(const Winograd& p, const Place& block, int tile, int within)
        : output(block.block * OUTPUTS + within),
          row(block.row + tile / ACROSS * TILE), column(block.column + tile % ACROSS * TILE) {
        constexpr int r = SHUFFLE;
        x = p.x + block.image * p.at_x.image;
        out = p.out + block.image * p.at_out.image + output / (r * r) * p.at_out.channel +
              (row * (long long)r + output / r % r) * p.at_out.row +
              (column * (long long)r + output % r) * p.at_out.column;
        added = p.added + block.image * p.at_added.image + output * p.at_added.channel +
                row * p.at_added.row + column * p.at_added.column;
        bool real = output < p.outputs;
        bias = real ? p.bias[output] : 0.0f;
        slope = HOW == PRELU && real ? p.slopes[output] : p.low;
    }
    __device__ __forceinline__ void put_row(const Winograd& p, int dy, const float (&sums)[TILE]) {
        if (output >= p.outputs || row + dy >= p.rows) return;
#pragma unroll
        for (int dx = 0; dx < TILE; ++dx) {
            if (column + dx >= p.columns) break;
            float v = sums[dx];
            if (!(fabsf(v) <= 3.402823466e38f))
                v = plain_sum(p, x, output, row + dy - p.top, column + dx - p.left);
            v += bias;
            if (ADDS) v += added[dy * p.at_added.row + dx * p.at_added.column];
            out[dy * SHUFFLE * p.at_out.row + dx * SHUFFLE * p.at_out.column] = activated(p, v, slope);
        }
    }
};
