// Scales of a tile's rows and columns, as a thread of the consumers needs them.
//
//   a_scales   [rows, k / 128] or a row's own     now[h][i]: of row 16 w + r + 8 i of block h
//   b_scales   of columns 8 j + 2 q and the next, applied to whole sums
#pragma once
#include "hopper_fp8.cuh"

// Scales of A at a step for the two rows that a thread has in each of its blocks; of rows past the
// last those of the last.
template <int BLOCKS> struct RowScales {
    const float* place;
    int beside[2 * BLOCKS];  // elements from `place` to each
    float now[BLOCKS][2];

    __device__ __forceinline__ void start(const Call& call, const Tile& tile, int first) {
        int row = 64 * first + 16 * ((threadIdx.x >> 5) & 3) + ((threadIdx.x & 31) >> 2);
        int from = row < tile.rows ? row : tile.rows - 1;
        place = call.a_scales + (tile.a_row + from) * call.a_scale_row;
        place += (long long)(tile.begin / 128) * call.a_scale_k;
#pragma unroll
        for (int i = 1; i < 2 * BLOCKS; ++i) {
            int r = row + 8 * (i & 1) + 128 * (i >> 1);
            beside[i] = ((r < tile.rows ? r : tile.rows - 1) - from) * call.a_scale_row;
            asm volatile("" : "+r"(beside[i]));  // not worked out again at each step
        }
    }
    __device__ __forceinline__ void load() {
        now[0][0] = __ldg(place);
#pragma unroll
        for (int i = 1; i < 2 * BLOCKS; ++i) now[i >> 1][i & 1] = __ldg(place + beside[i]);
    }
};

// What is summed is multiplied by the scales of its rows and columns.
template <int BLOCKS, int W>
__device__ __forceinline__ void scale(float (&sums)[BLOCKS][W / 2], const Call& call,
                                      const Tile& tile, const RowScales<BLOCKS>& rows, int left) {
    const float* scales = call.b_scales + (long long)tile.group * call.b_scale_group;
    int q = left + 2 * (threadIdx.x & 3);
#pragma unroll
    for (int j = 0; j < W / 8; ++j) {
        int c = 8 * j + q;
        float one = c < tile.columns ? __ldg(scales + (tile.column + c) * call.b_scale_column) : 0;
        float next =
            c + 1 < tile.columns ? __ldg(scales + (tile.column + c + 1) * call.b_scale_column) : 0;
#pragma unroll
        for (int h = 0; h < BLOCKS; ++h) {
            float* s = sums[h] + 4 * j;
            s[0] *= rows.now[h][0] * one, s[1] *= rows.now[h][0] * next;
            s[2] *= rows.now[h][1] * one, s[3] *= rows.now[h][1] * next;
        }
    }
}

// The second warpgroup may begin, if it has not.
__device__ __forceinline__ void pass_the_turn(bool& lead) {
    if (lead) asm volatile("bar.arrive 1, 256;" ::: "memory");
    lead = false;
}
