// grouped_single: fp32 tiles of many problems of unlike sizes. A block a tile, drawn in single.cuh.
//
//    tiles (int32 x 4)                  problem: its own m n k, strides, alpha beta (record.py)
//    [p i j _] [p i j _] ...            A   rows i .. i + 64, k along them
//       |          |                    B   columns j .. j + 64, k across its rows
//    block 0    block 1                 C   rows i .. by columns j ..
//
// WIDE: B is copied 16 bytes at a time. Sums go out through shared memory, so that every warp
// writes rows. GENERAL: C = activation(alpha sum + beta C + bias), numbered as ACTIVATIONS of
// backends/cuda/tiled/simt.py are. Steps of A, B and C along their rows are 1.
#include "single.cuh"
#ifndef PARTS
#define PARTS 0
#endif
#include "joined.cuh"

#if ENDS
struct Scalars {
    float alpha, beta;
    const float *bias;
};

__device__ __forceinline__ float read(const float *from) {
    float x;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(__cvta_generic_to_global(from)) : "memory");
    return x;
}

__device__ __forceinline__ void write(float *to, float x, bool inside) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; @p st.global.f32 [%0], %1;}" ::"l"(
                     __cvta_generic_to_global(to)),
                 "f"(x), "r"((int)inside)
                 : "memory");
}

__device__ __forceinline__ float finished(float sum, float old, float bias, const Scalars &s) {
#if GENERAL
    float value = s.alpha * sum;
    if (s.beta != 0.0f) value += s.beta * old;
    if (s.bias) value += bias;
    if (ACTIVATION == 1) value = value < 0.0f ? 0.0f : value;  // a NaN stays one
    if (ACTIVATION == 2) value = 0.5f * value * (1.0f + erff(value * 0.70710678f));
    return value;
#else
    return sum;
#endif
}
#else
struct Scalars {
    float alpha, beta;
    const float *bias;
};

__device__ __forceinline__ float finished(float sum, float old, const Scalars &s, int column) {
#if GENERAL
    float value = s.alpha * sum;
    if (s.beta != 0.0f) value += s.beta * old;
    if (s.bias) value += s.bias[column];
    if (ACTIVATION == 1) value = value < 0.0f ? 0.0f : value;  // a NaN stays one
    if (ACTIVATION == 2) value = 0.5f * value * (1.0f + erff(value * 0.70710678f));
    return value;
#else
    return sum;
#endif
}
#endif

#if ENDS
// Sums go out through shared memory, so that every warp writes rows: EACH of them at a time, and what
// C held is on its way together. Pointers are known to be global, and go from row to row.
__device__ __forceinline__ void finish(const float *memory, const int4 &tile, const i64 *p, int m,
                                       int n) {
    constexpr int WARPS = THREADS / 32, EACH = 8, WIDTH = SIDE / 32;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Scalars s = {};
    float added[WIDTH] = {};
#if GENERAL
    s = {(float)__longlong_as_double(p[13]), (float)__longlong_as_double(p[14]),
         (const float *)p[3]};
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
        if (s.bias && lane + 32 * j < n) added[j] = s.bias[tile.z + lane + 32 * j];
#endif
    const i64 step = p[11] * WARPS;
    float *to = (float *)p[2] + (tile.y + warp) * p[11] + tile.z + lane;
    const float *from = memory + warp * C_STEP + lane;
#pragma unroll 1
    for (int row = warp; row < min(m, SIDE); row += EACH * WARPS) {
        float sum[EACH][WIDTH], old[EACH][WIDTH];
        const float *at = to;
#pragma unroll
        for (int i = 0; i < EACH; i++, at += step)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                sum[i][j] = from[i * WARPS * C_STEP + 32 * j], old[i][j] = 0.0f;
                if (GENERAL && s.beta != 0.0f && row + i * WARPS < m && lane + 32 * j < n)
                    old[i][j] = read(at + 32 * j);
            }
#if SKIP == 2
        const bool low = m <= HALF, narrow = n <= HALF;
        if (low)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < WIDTH; j++)
                    sum[i][j] += from[(i * WARPS + HALF) * C_STEP + 32 * j];
        if (narrow)
#pragma unroll
            for (int i = 0; i < EACH; i++) sum[i][0] += from[i * WARPS * C_STEP + HALF];
        if (low && narrow)
#pragma unroll
            for (int i = 0; i < EACH; i++) sum[i][0] += from[(i * WARPS + HALF) * C_STEP + HALF];
#endif
#pragma unroll
        for (int i = 0; i < EACH; i++, to += step)
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                write(to + 32 * j, finished(sum[i][j], old[i][j], added[j], s),
                      row + i * WARPS < m && lane + 32 * j < n);
        from += EACH * WARPS * C_STEP;
    }
}

#endif
// Six blocks a multiprocessor, 160 registers a thread, two stages: 1000 products of 1..512 in 1.198
// ms on an H200. Three stages: 1.203; and with eight blocks, 128 registers: 1.25; with tiles of
// 128 x 64: 1.31. Steps of 8 of k: 1.22; of 32: 1.54.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
grouped_single(const i64 *problems, const int4 *tiles
#if PARTS
               , const Piece *pieces, int *arrived, float *scratch
#endif
) {
    using A = Along<1>;
    using B = Across<WIDE ? 4 : 1>;
    __shared__ __align__(16) float memory[Words<A, B>::value];
    const int thread = threadIdx.x;
    const int4 tile = tiles[blockIdx.x];
    const i64 *p = problems + 16 * (i64)tile.x;
    const int m = (int)p[4] - tile.y, n = (int)p[5] - tile.z;
#if SKIP
    Piece piece = {0, (int)p[6], 0, 0, 1};
#if PARTS
    if (tile.w) piece = pieces[tile.w - 1], piece.depth = min(piece.depth, (int)p[6]);
#endif
    const Source a = A::of((const float *)p[0] + tile.y * p[7] + piece.begin, p[7], m);
    const Source b = B::of((const float *)p[1] + piece.begin * p[9] + tile.z, p[9], n);
    const auto join = [&](float (&sum)[SUMS]) {
#if PARTS
        if (piece.parts > 1)
            return joined<THREADS>(sum, piece, scratch, arrived, threadIdx.x, false);
#endif
        return true;
    };
    if (!multiply<A, B>(memory, a, b, piece.depth, m, n, join)) return;
#else
    const Source a = A::of((const float *)p[0] + tile.y * p[7], p[7], m);
    const Source b = B::of((const float *)p[1] + tile.z, p[9], n);
    multiply<A, B>(memory, a, b, (int)p[6], SIDE <= m && SIDE <= n);
#endif
#if ENDS
    finish(memory, tile, p, m, n);
#else
    // Eight rows a warp at a time, so that what C held is on its way together.
    constexpr int WARPS = THREADS / 32, EACH = 8;
    float *c = (float *)p[2] + tile.y * p[11] + tile.z;
    const i64 c_row = p[11];
    Scalars scalars = {};
#if GENERAL
    scalars.alpha = (float)__longlong_as_double(p[13]);
    scalars.beta = (float)__longlong_as_double(p[14]);
    scalars.bias = (const float *)p[3];
#endif
#pragma unroll 1
    for (int first = thread / 32; first < SIDE; first += EACH * WARPS)
#pragma unroll
        for (int column = thread % 32; column < SIDE; column += 32) {
            float old[EACH] = {};
            if (GENERAL && scalars.beta != 0.0f)
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    if (first + i * WARPS < m && column < n)
                        old[i] = c[(first + i * WARPS) * c_row + column];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const int row = first + i * WARPS;
                if (row < m && column < n)
                    c[row * c_row + column] =
                        finished(memory[row * C_STEP + column], old[i], scalars, tile.z + column);
            }
        }
#endif
}
