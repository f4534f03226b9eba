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
// Copies go straight into shared memory, STAGES - 1 steps of k ahead, and hold no registers. An
// operand with k along its rows (`Along`) goes 4 bytes at a time, as rows of odd length demand, and
// is transposed at no cost; one with k across them (`Across`) 16 at a time where EACH is 4, for
// which its rows, columns and addresses must be multiples of that. What lies outside becomes zero.
// A step of k is 64 multiplications a thread for 4 loads of 16 bytes.
//
// CHAIN steps of k are summed in a chain, then added to what the chains before gave: one chain of
// all k would round each addend away from an ever larger sum.
#pragma once
typedef long long i64;
typedef unsigned int u32;

#ifndef CHAIN
#define CHAIN 256
#endif
#ifndef RESIDENT
#define RESIDENT 6
#endif
constexpr int THREADS = 64, SIDE = 64, DEPTH = 16, HALF = SIDE / 2, C_STEP = SIDE + 1;

template <int BYTES>
__device__ __forceinline__ void copy(u32 to, const float *from, bool inside) {
    const int size = inside ? BYTES : 0;  // the rest is zeros
    if (BYTES == 4)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(size)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size)
                     : "memory");
}

// What one thread copies of an operand: its first element, and every so many rows from there on.
struct Source {
    const float *matrix, *first;
    i64 step;  // from a row to the next
    int left;  // rows (k along them) or columns (k across them) from there to the matrix's end
};

// Which rows and columns are a thread's, of an operand with k along its rows, or across them.
template <int EACH> struct Along {
    static constexpr int APART = THREADS / DEPTH, STEP = SIDE + 4;
    static __device__ __forceinline__ Source of(const float *at, i64 step, int left) {
        const int row = threadIdx.x / DEPTH;
        return {at, at + row * step + threadIdx.x % DEPTH, step, left - row};
    }
    // 16 of k from `k` on; `depth` of them exist. INSIDE: all of the block does.
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

template <int EACH> struct Across {
    static constexpr int BESIDE = SIDE / EACH, APART = THREADS / BESIDE, STEP = SIDE;
    static __device__ __forceinline__ Source of(const float *at, i64 step, int left) {
        const int row = threadIdx.x / BESIDE, column = threadIdx.x % BESIDE * EACH;
        return {at, at + row * step + column, step, left - column};
    }
    template <bool INSIDE>
    static __device__ __forceinline__ void load(const Source &s, i64 k, int depth, u32 to) {
        const int row = threadIdx.x / BESIDE;
        const float *from = s.first + k * s.step;
        to += (row * STEP + threadIdx.x % BESIDE * EACH) * 4;
#pragma unroll
        for (int i = 0; i < DEPTH / APART; i++) {
            const bool inside = INSIDE || (row + i * APART < depth && s.left > 0);
            copy<4 * EACH>(to + i * APART * STEP * 4, inside ? from : s.matrix, inside);
            from += APART * s.step;
        }
    }
};

// Sums of the chains before, in memory of the thread's own: registers are all taken by this chain.
struct Totals {
    __align__(16) float held[64];
    __device__ __forceinline__ float4 get(int i) {
        float4 v;
        asm volatile("ld.local.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "l"(__cvta_generic_to_local(held + 4 * i)));
        return v;
    }
    __device__ __forceinline__ void set(int i, float4 v) {
        asm volatile("st.local.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                         __cvta_generic_to_local(held + 4 * i)),
                     "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                     : "memory");
    }
};

__device__ __forceinline__ void add_totals(float (&sum)[8][8], Totals &totals) {
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const float4 v = totals.get(i);
        float *s = &sum[i / 2][i % 2 * 4];
        s[0] += v.x, s[1] += v.y, s[2] += v.z, s[3] += v.w;
    }
}

__device__ __forceinline__ void begin_anew(float (&sum)[8][8], Totals &totals) {
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float *s = &sum[i / 2][i % 2 * 4];
        totals.set(i, {s[0], s[1], s[2], s[3]});
        s[0] = s[1] = s[2] = s[3] = 0.0f;
    }
}

// Numbers of shared memory that a block needs: for blocks of operands, then for its sums.
template <class A, class B> struct Words {
    static constexpr int blocks = STAGES * DEPTH * (A::STEP + B::STEP), sums = SIDE * C_STEP;
    static constexpr int value = blocks > sums ? blocks : sums;
};

// The block's tile of sums, which is left in `memory`, a row every C_STEP numbers. `k` may be 0.
template <class A, class B>
__device__ __forceinline__ void multiply(float *memory, const Source &a, const Source &b, int k,
                                         bool inside) {
    constexpr int STAGE = DEPTH * (A::STEP + B::STEP);
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8;
    const u32 shared = (u32)__cvta_generic_to_shared(memory);
    const int steps = k / DEPTH + (k % DEPTH > 0);
    auto fetch = [&](int step, int stage) {
        const i64 at = (i64)step * DEPTH;
        const u32 to = shared + stage * STAGE * 4;
        if (inside && at + DEPTH <= k) {
            A::template load<true>(a, at, DEPTH, to);
            B::template load<true>(b, at, DEPTH, to + DEPTH * A::STEP * 4);
        } else if (step < steps) {
            A::template load<false>(a, at, k - (int)at, to);
            B::template load<false>(b, at, k - (int)at, to + DEPTH * A::STEP * 4);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) fetch(i, i);
    float sum[8][8] = {};
    Totals totals;
    int stage = 0, next = STAGES - 1;
    constexpr int TOGETHER = CHAIN ? CHAIN / DEPTH : 1 << 30;
    for (int begin = 0; begin < steps; begin += TOGETHER) {
        if (begin) {
            if (begin > TOGETHER) add_totals(sum, totals);
            begin_anew(sum, totals);
        }
        const int end = steps - begin < TOGETHER ? steps : begin + TOGETHER;
        for (int step = begin; step < end; step++) {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
            __syncthreads();
            fetch(step + STAGES - 1, next);
            const float *left = memory + stage * STAGE, *right = left + DEPTH * A::STEP;
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
                    for (int j = 0; j < 8; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
            next = next + 1 == STAGES ? 0 : next + 1;
        }
    }
    if (steps > TOGETHER) add_totals(sum, totals);
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float *to = memory + (i / 4 * HALF + ty * 4 + i % 4) * C_STEP + tx * 4;
#pragma unroll
        for (int j = 0; j < 8; j++) to[j / 4 * HALF + j % 4] = sum[i][j];
    }
    __syncthreads();
}
