// The scale of fp32 operands that are split into two halves (fp16), and where that method fails.
//
//   x 2^e = h0 + h1 2^-11      h0, h1 rounded to nearest: off by 2^-23 at most, unless x is small
//
//       2^-13                          2^8 .. 2^9                 65520
//   ------|------------------------------|--------------------------|----->   |x 2^e|
//   small: off by up to 2^-36            the sample's largest       infinite in fp16
//
// e is an operand's own: from the largest of SAMPLES elements spread over the matrix, the same ones
// for every block that packs a part of it. What the sample missed may be 128 times larger. A small
// element does no harm beside larger ones of its row (column, of the right operand), as what is
// lost is then below fp32's last bit of their sum. So small elements count: `alone` each where all
// that are not zero of 8 neighbours are small (half that at a row's end, where they may be fewer),
// else `beside`. Where an operand counts more than `allowed`, or has an element that fp16 cannot
// hold, its count is FAILED: hopper_exact.cu takes the problem. So it is where most products are of
// zeros, by both samples, and fewer than FEW of a sum's are not: fp32 rounds them less than twice.
#pragma once

// An operand as it lies: `rows` runs of `columns` numbers (contiguous where column_bytes is 4).
struct Matrix {
    const char* source;
    long long row_bytes;
    int column_bytes, rows, columns;
    u32 allowed, alone, beside;
    int depth, unused;  // depth: k
};

// Of one problem: left operand, right operand. The State after the last problem's is that of the
// launch: counts[0] is not zero where any problem failed, [1] counts blocks that are done.
struct State {
    int exponent[2];
    u32 counts[2];
};

constexpr u32 FAILED = 0x80000000;
constexpr int TOP = 8, SHIFT = 11, SAMPLES = 256;
constexpr float LIMIT = 65520.0f, SMALL = 0x1p-13f;
constexpr float FEW = 6.0f;  // of 95 % zeros and k of 512, 1.3 a sum, errors were 2.4 times fp32's

__device__ __forceinline__ bool failed(const State& s) {
    return (s.counts[0] | s.counts[1]) & FAILED;
}

__device__ __forceinline__ float power_of_two(int e) { return __int_as_float((e + 127) << 23); }

__device__ __forceinline__ bool whole_sample(const Matrix& m) {
    return (long long)m.rows * m.columns <= SAMPLES;
}

// The sizes of a matrix's elements, as bits: the j-th of its sample, 0 past its last.
__device__ __forceinline__ u32 sampled(const Matrix& m, int j) {
    // Steps of both golden ratios of the plane: even cover, and no row or column preferred.
    bool all = whole_sample(m);
    u32 row = all ? j / m.columns : __umulhi(0x80000000u + j * 0xC13FA9A9u, m.rows);
    u32 column = all ? j % m.columns : __umulhi(0x80000000u + j * 0x91E10DA5u, m.columns);
    if (row >= m.rows) return 0;
    return *(const u32*)(m.source + m.row_bytes * row + (long long)m.column_bytes * column) &
           0x7fffffff;
}

// How much of it is not zero, as far as its sample shows. All threads of the block call it, as many
// as there are samples.
__device__ __forceinline__ float filled(const Matrix& m) {
    int found = __syncthreads_count(sampled(m, threadIdx.x) != 0);
    float count = whole_sample(m) ? m.rows * m.columns : SAMPLES;
    return (found ? found : 1) / count;
}

// Whether the sums of two operands have few products that are not zero.
__device__ __forceinline__ bool few_products(const Matrix& left, const Matrix& right) {
    float both = filled(left) * filled(right);
    return 2 * both <= 1 && both * left.depth < FEW;
}

// What x is multiplied by, as an exponent from -119 to 126. All threads of the block call it.
template <int THREADS> __device__ __forceinline__ int scale_of(const Matrix& m) {
    __shared__ u32 tops[THREADS / 32];
    u32 top = 0;
#pragma unroll
    for (int j = threadIdx.x; j < SAMPLES; j += THREADS) {
        u32 bits = sampled(m, j);
        if (bits < 0x7f800000 && bits > top) top = bits;
    }
    top = __reduce_max_sync(~0u, top);
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREADS / 32; ++i) top = tops[i] > top ? tops[i] : top;
    int e = top ? TOP + 127 - (int)(top >> 23) : TOP;
    return e < 126 ? e : 126;
}

// Adds what a warp found; `beyond` where that alone is too much. Counts end at FAILED and `allowed`
// is 2^20 at most, so that they never wrap.
__device__ __forceinline__ void note(State* state, int side, u32 allowed, u32 found, bool beyond,
                                     State* launch) {
    found = __reduce_add_sync(~0u, found);
    beyond = __any_sync(~0u, beyond);
    if (threadIdx.x % 32 || !(found || beyond)) return;
    u32* count = &state->counts[side];
    if (*(volatile u32*)count & FAILED) return;
    beyond = beyond || found > allowed || atomicAdd(count, found) + found > allowed;
    if (beyond) {
        atomicOr(count, FAILED);
        *(volatile u32*)&launch->counts[0] = 1;
    }
}

// sum 2^-scale, of both operands: two factors, since one alone may be no fp32 number.
__device__ __forceinline__ float unscaled(float sum, int scale) {
    int e = -scale, half = e >> 1;
    return sum * power_of_two(half) * power_of_two(e - half);
}
