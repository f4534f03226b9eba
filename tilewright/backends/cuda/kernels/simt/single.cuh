// single: what kernels of fp32 tiles share. A block makes 64 x 64 sums, 8 x 8 of them a thread.
//
//                                B   its columns j .. j + 64
//                     16 of k      |      as they lie, or rows that become columns
//                                  v      on the way in, as A's do
//        A  i .. i + 64      +-----+-----+
//                  tx ->  0 .. 7  0 .. 7   four columns each, twice
//               ty           +-----+-----+
//               0            |  x  |  x  |     rows 4 ty ..
//               :            +     +-----+
//               0            |  x  |  x  |     rows 32 + 4 ty ..
//                            +-----+-----+
//
// An operand with k along its rows (`Along`) is copied 4 bytes at a time, as rows of odd length
// demand, and is transposed at no cost; one with k across them (`Across`) 16 at a time where EACH
// is 4, for which its rows, columns and addresses must be multiples of that. A step of k is 64
// multiplications a thread for 4 loads of 16 bytes.
#pragma once
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;

#ifndef CHAIN
#define CHAIN 256
#endif
#ifndef RESIDENT
#define RESIDENT 6
#endif
constexpr int THREADS = 64, SIDE = 64, DEPTH = 16, PAD = 0, HALF = SIDE / 2, C_STEP = SIDE + 1;
#include "tiles.cuh"

template <int EACH> struct Along {
    static constexpr int APART = THREADS / DEPTH, STEP = SIDE + 4, WORDS = DEPTH * STEP;
    static __device__ __forceinline__ Source of(const float *at, i64 step, int left) {
        const int row = threadIdx.x / DEPTH;
        return {at, at + row * step + threadIdx.x % DEPTH, step, left - row};
    }
    template <bool INSIDE>
    static __device__ __forceinline__ void load(const Source &s, i64 k, int depth, u32 to) {
        const int mine = threadIdx.x % DEPTH, row = threadIdx.x / DEPTH;
        const float *from = s.first + k;
        to += (mine * STEP + row) * 4;
#pragma unroll
        for (int i = 0; i < SIDE / APART; i++) {
            const bool inside = INSIDE || (mine < depth && i * APART < s.left);
            copy<4>(to + i * APART * 4, inside ? from : s.matrix, inside);
            from += APART * s.step;
        }
    }
};

// The block's tile of sums, which is left in `memory`, a row every C_STEP numbers. `k` may be 0.
template <class A, class B>
__device__ __forceinline__ void multiply(float *memory, const Source &a, const Source &b, int k,
                                         bool inside) {
    // Of two neighbouring lanes one reads what the other does, of either operand: half the reads.
    const int tx = threadIdx.x / 2 % 8, ty = threadIdx.x % 2 + threadIdx.x / 16 * 2;
    Feed<A, B> feed(a, b, k, inside, memory);
    float sum[SUMS] = {};
    Chains<SUMS> chains;
    for (int begin = 0; begin < feed.steps; begin += CHAIN / DEPTH) {
        if (begin) chains.turn(sum);
        while (feed.within(begin + CHAIN / DEPTH)) {
            const float *left = memory + feed.next(), *right = left + A::WORDS;
#pragma unroll
            for (int l = 0; l < DEPTH; l++) {
                const float4 a0 = *(const float4 *)(left + l * A::STEP + ty * 4);
                const float4 a1 = *(const float4 *)(left + l * A::STEP + HALF + ty * 4);
                const float4 b0 = *(const float4 *)(right + l * B::STEP + tx * 4);
                const float4 b1 = *(const float4 *)(right + l * B::STEP + HALF + tx * 4);
                const float x[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
                const float y[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
                for (int i = 0; i < 8; i++)
#pragma unroll
                    for (int j = 0; j < 8; j++) sum[8 * i + j] = fmaf(x[i], y[j], sum[8 * i + j]);
            }
        }
    }
    chains.add_to(sum);
    feed.end();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float *to = memory + (i / 4 * HALF + ty * 4 + i % 4) * C_STEP + tx * 4;
#pragma unroll
        for (int j = 0; j < 8; j++) to[j / 4 * HALF + j % 4] = sum[8 * i + j];
    }
    __syncthreads();
}
