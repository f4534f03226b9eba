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

// Six blocks a multiprocessor, 160 registers a thread, two stages: 1000 products of 1..512 in 1.198
// ms on an H200. Three stages: 1.203; and with eight blocks, 128 registers: 1.25; with tiles of
// 128 x 64: 1.31. Steps of 8 of k: 1.22; of 32: 1.54.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
grouped_single(const i64 *problems, const int4 *tiles) {
    using A = Along<1>;
    using B = Across<WIDE ? 4 : 1>;
    __shared__ __align__(16) float memory[Words<A, B>::value];
    const int thread = threadIdx.x;
    const int4 tile = tiles[blockIdx.x];
    const i64 *p = problems + 16 * (i64)tile.x;
    const int m = (int)p[4] - tile.y, n = (int)p[5] - tile.z;
    const Source a = A::of((const float *)p[0] + tile.y * p[7], p[7], m);
    const Source b = B::of((const float *)p[1] + tile.z, p[9], n);
    multiply<A, B>(memory, a, b, (int)p[6], SIDE <= m && SIDE <= n);
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
}
