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

#ifndef ENDS
#define ENDS 0
#endif
#ifndef SWAP
#define SWAP 0
#endif
#ifndef CHAIN
#define CHAIN 256
#endif
#ifndef RESIDENT
#define RESIDENT 6
#endif
constexpr int THREADS = 64, SIDE = 64, DEPTH = 16, PAD = 0, HALF = SIDE / 2;
#if ENDS
constexpr int C_STEP = SIDE + 4;
#else
constexpr int C_STEP = SIDE + 1;
#endif
#include "tiles.cuh"

template <int EACH> struct Along {
    static constexpr int APART = THREADS / DEPTH, STEP = SIDE + 4, WORDS = DEPTH * STEP;
    static __device__ __forceinline__ Source of(const float *at, i64 step, int left) {
        const int row = threadIdx.x / DEPTH ^ (SWAP ? threadIdx.x % DEPTH / 8 * 2 : 0);
        return {at, at + row * step + threadIdx.x % DEPTH, step, left - row};
    }
    template <bool INSIDE>
    static __device__ __forceinline__ void load(const Source &s, i64 k, int depth, u32 to) {
        const int mine = threadIdx.x % DEPTH;
        const int row = threadIdx.x / DEPTH ^ (SWAP ? mine / 8 * 2 : 0);
        const float *from = s.first + k;
        to += (mine * STEP + row) * 4;
#if EDGES
        if (!INSIDE) {
            if (mine >= depth) from -= mine;
#pragma unroll
            for (int i = 0; i < SIDE / APART; i++) {
                copy_if(to + i * APART * 4, from, mine < depth, i * APART < s.left);
                from += APART * s.step;
            }
            return;
        }
#endif
#pragma unroll
        for (int i = 0; i < SIDE / APART; i++) {
            const bool inside = INSIDE || (mine < depth && i * APART < s.left);
            copy<4>(to + i * APART * 4, inside ? from : s.matrix, inside);
            from += APART * s.step;
        }
    }
};

#ifndef SKIP
#define SKIP 0
#endif
#if SKIP
// Which sums a thread makes: four rows from `row` on and from `down` below, by four columns from
// `column` on and from `across` beside. Where no more than HALF rows or columns exist, what would
// be the others are slices of k of those that do, which whoever stores adds up.
struct Mine {
    int row, column, down = HALF / 2, across = HALF, span = DEPTH, slice = threadIdx.x / 32;
    bool low, narrow;  // rows, columns beyond HALF are slices
    __device__ __forceinline__ Mine(int rows, int columns)
        : low(SKIP == 2 && rows <= HALF), narrow(SKIP == 2 && columns <= HALF) {
        // Of two neighbouring lanes one reads what the other does, of either operand.
        const int lane = threadIdx.x % 32, warp = slice;
        const int eight = lane / 2 % 8 * 4, four = (lane % 2 + lane / 16 * 2) * 4;
        row = warp * HALF + four, column = eight;
        if (low || narrow) span = DEPTH / 2;
        if (narrow) row = eight, down = HALF, column = warp * HALF + four, across = HALF / 2;
        if (low && narrow) {
            span = DEPTH / 4, slice = warp * 2 + lane / 16, down = HALF / 2;
            row = warp * HALF + (lane % 2 + lane / 8 % 2 * 2) * 4;
            column = lane / 16 * HALF + lane / 2 % 4 * 4;
        }
    }
    // Where a step's first numbers are that this thread multiplies.
    template <class O> __device__ __forceinline__ int from(int place, bool halves) const {
        const int first = span < DEPTH ? slice * span : 0;
        return first * O::STEP + (halves ? place % HALF : place);
    }
};

// Some of k: products of four and four numbers by four and four.
template <class A, class B, int COUNT>
__device__ __forceinline__ void add_products(float (&sum)[SUMS], const float *left0,
                                             const float *left1, const float *right0,
                                             const float *right1) {
#pragma unroll
    for (int l = 0; l < COUNT; l++) {
        const float4 a0 = *(const float4 *)(left0 + l * A::STEP);
        const float4 a1 = *(const float4 *)(left1 + l * A::STEP);
        const float4 b0 = *(const float4 *)(right0 + l * B::STEP);
        const float4 b1 = *(const float4 *)(right1 + l * B::STEP);
        const float x[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
        const float y[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) sum[8 * i + j] = fmaf(x[i], y[j], sum[8 * i + j]);
    }
}

// The block's tile of sums, which is left in `memory`, a row every C_STEP numbers. `k` may be 0.
template <class A, class B, class Join>
__device__ __forceinline__ bool multiply(float *memory, const Source &a, const Source &b, int k,
                                         int rows, int columns, const Join &join) {
    const Mine mine(rows, columns);
    const int left_at = mine.from<A>(mine.row, mine.low);
    const int right_at = mine.from<B>(mine.column, mine.narrow);
    Feed<A, B> feed(a, b, k, SIDE <= rows && SIDE <= columns, memory);
    float sum[SUMS] = {};
    Chains chains;
    for (int begin = 0; begin < feed.steps; begin += CHAIN / DEPTH) {
        if (begin) chains.turn(sum);
        while (feed.within(begin + CHAIN / DEPTH)) {
            const float *left = memory + feed.next(), *right = left + A::WORDS;
            const float *left0 = left + left_at, *left1 = left0 + mine.down;
            const float *right0 = right + right_at, *right1 = right0 + mine.across;
            if (mine.span == DEPTH) {
                add_products<A, B, DEPTH>(sum, left0, left1, right0, right1);
                continue;
            }
#pragma unroll 1
            for (int l = 0; l < mine.span; l += DEPTH / 4) {
                add_products<A, B, DEPTH / 4>(sum, left0, left1, right0, right1);
                left0 += DEPTH / 4 * A::STEP, left1 += DEPTH / 4 * A::STEP;
                right0 += DEPTH / 4 * B::STEP, right1 += DEPTH / 4 * B::STEP;
            }
        }
    }
    chains.add_to(sum);
    feed.end();
    if (!join(sum)) return false;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j += 4)
            *(float4 *)(memory + (mine.row + i / 4 * mine.down + i % 4) * C_STEP + mine.column + j / 4 * mine.across) =
                *(float4 *)(sum + 8 * i + j);
    __syncthreads();
    return true;
}
#else
// The block's tile of sums, which is left in `memory`, a row every C_STEP numbers. `k` may be 0.
template <class A, class B>
__device__ __forceinline__ void multiply(float *memory, const Source &a, const Source &b, int k,
                                         bool inside) {
    // Of two neighbouring lanes one reads what the other does, of either operand: half the reads.
    const int tx = threadIdx.x / 2 % 8, ty = threadIdx.x % 2 + threadIdx.x / 16 * 2;
    Feed<A, B> feed(a, b, k, inside, memory);
    float sum[SUMS] = {};
    Chains chains;
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
#endif
