// single: what kernels of fp32 tiles share. A block makes 64 x 64 sums, 8 x 8 of them a thread.
//
//                                B   its columns j .. j + 64
//                     16 of k      |      as they lie, or rows that become columns
//                                  v      on the way in, as A's do
//        A  i .. i + 64      +-----+-----+
//                  tx ->  0 .. 7  0 .. 7   four columns each, twice
//               ty           +-----+-----+
//               0            |  x  |  x  |     a warp has 32 rows: 4 ty .. and 16 + 4 ty .. of them
//               :            +     +-----+
//               0            |  x  |  x  |
//                            +-----+-----+
//
// Where at most 32 rows (columns) exist, the sums of the others are made of the same rows (columns)
// and of the second half of a step's k, where both are few, of a quarter of it each: in the same
// registers, by the same instructions, half (a quarter) of them. Who stores sums adds those up.
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
constexpr int THREADS = 64, SIDE = 64, DEPTH = 16, PAD = 0, HALF = SIDE / 2, C_STEP = SIDE + 4;
constexpr bool CLEAN = false;
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
        const bool inside = INSIDE || mine < depth;
        const float *from = s.first + k - (inside ? 0 : mine);
        to += (mine * STEP + row) * 4;
#pragma unroll
        for (int i = 0; i < SIDE / APART; i++) {
            copy_if(to + i * APART * 4, from, inside, INSIDE || i * APART < s.left);
            from += APART * s.step;
        }
    }
};

// k across its rows, 16 bytes at a time of those matrices alone that allow it.
struct Either : Across<1> {
    static __device__ __forceinline__ Source of(const float *at, i64 step, int left, int columns) {
        const bool wide = (((u64)at | (u64)step * 4 | (u64)columns * 4) & 15) == 0;
        Source s = wide ? Across<4>::of(at, step, left) : Across<1>::of(at, step, left);
        s.wide = wide;
        return s;
    }
    template <bool INSIDE>
    static __device__ __forceinline__ void load(const Source &s, i64 k, int depth, u32 to) {
        if (s.wide) Across<4>::load<INSIDE>(s, k, depth, to);
        else Across<1>::load<INSIDE>(s, k, depth, to);
    }
};

// Which sums a thread makes: four rows from `row` on and four `down` of them, by four columns from
// `column` on and four `across`. `span` of a step's k from the slice's first on.
struct Mine {
    int row, column, down = HALF / 2, across = HALF, span = DEPTH, slice = threadIdx.x / 32;
    bool low, narrow;  // rows, columns beyond HALF are slices of k
    __device__ __forceinline__ Mine(int rows, int columns)
        : low(rows <= HALF), narrow(columns <= HALF) {
        // Of two neighbouring lanes one reads what the other does, of either operand: half the
        // reads.
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
    // Where in a block of operand `O` the first number lies that this thread multiplies.
    template <class O> __device__ __forceinline__ int first(int place, bool halves) const {
        return (span < DEPTH ? slice * span * O::STEP : 0) + (halves ? place % HALF : place);
    }
};

// Adds products of COUNT of k.
template <class A, class B, int COUNT>
__device__ __forceinline__ void add_products(float (&sum)[SUMS], const float *left,
                                             const float *right, const Mine &mine) {
    const float *left1 = left + mine.down, *right1 = right + mine.across;
#pragma unroll
    for (int l = 0; l < COUNT; l++) {
        const float4 a0 = *(const float4 *)(left + l * A::STEP);
        const float4 a1 = *(const float4 *)(left1 + l * A::STEP);
        const float4 b0 = *(const float4 *)(right + l * B::STEP);
        const float4 b1 = *(const float4 *)(right1 + l * B::STEP);
        const float x[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
        const float y[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) sum[8 * i + j] = fmaf(x[i], y[j], sum[8 * i + j]);
    }
}

// A thread's sums of the block's tile, all of whose rows and columns exist if `inside`. `k` may be
// 0. `memory` is free again when it is done.
template <class A, class B>
__device__ __forceinline__ void multiply(float (&sum)[SUMS], float *memory, const Source &a,
                                         const Source &b, int k, bool inside, const Mine &mine) {
    constexpr int FEW = DEPTH / 4;
    const int left_at = mine.first<A>(mine.row, mine.low);
    const int right_at = mine.first<B>(mine.column, mine.narrow);
    Feed<A, B> feed(a, b, k, inside, memory);
    Chains<SUMS> chains;
#pragma unroll
    for (int i = 0; i < SUMS; i++) sum[i] = 0.0f;
    for (int begin = 0; begin < feed.steps; begin += CHAIN / DEPTH) {
        if (begin) chains.turn(sum);
        while (feed.within(begin + CHAIN / DEPTH)) {
            const float *block = memory + feed.next();
            const float *left = block + left_at, *right = block + A::WORDS + right_at;
            if (mine.span == DEPTH) {
                add_products<A, B, DEPTH>(sum, left, right, mine);
                continue;
            }
#pragma unroll 1
            for (int l = 0; l < mine.span; l += FEW) {
                add_products<A, B, FEW>(sum, left, right, mine);
                left += FEW * A::STEP, right += FEW * B::STEP;
            }
        }
    }
    chains.add_to(sum);
    feed.end();
}

// All sums of the tile into `memory`, a row every C_STEP numbers.
__device__ __forceinline__ void gather(float *memory, const float (&sum)[SUMS], const Mine &mine) {
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
            const int row = mine.row + i / 4 * mine.down + i % 4;
            const float *s = sum + 8 * i + j;
            *(float4 *)(memory + row * C_STEP + mine.column + j / 4 * mine.across) =
                make_float4(s[0], s[1], s[2], s[3]);
        }
    __syncthreads();
}

// To sums of a warp's rows, which begin at `from` there, what slices of k made of the same.
template <int ROWS>
__device__ __forceinline__ void add_slices(float (&sum)[ROWS][2], const float *from, bool low,
                                           bool narrow) {
    constexpr int WARPS = THREADS / 32;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const float *at = from + i * WARPS * C_STEP;
        if (low) sum[i][0] += at[HALF * C_STEP], sum[i][1] += at[HALF * C_STEP + HALF];
        if (narrow) sum[i][0] += at[HALF];
        if (low && narrow) sum[i][0] += at[HALF * C_STEP + HALF];
    }
}

__device__ __forceinline__ float read(const float *from) {
    float x;
    asm volatile("ld.global.f32 %0, [%1];"
                 : "=f"(x)
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
    return x;
}

__device__ __forceinline__ void write_if(float *to, float x, bool there) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; @p st.global.f32 [%0], %1;}" ::"l"(
                     __cvta_generic_to_global(to)),
                 "f"(x), "r"((int)there)
                 : "memory");
}
