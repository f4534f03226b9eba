// grouped_single: fp32 tiles of many problems of unlike sizes. A block a tile, drawn in single.cuh.
//
//    tiles (int32 x 4)                  problem: its own m n k, strides, alpha beta (record.py)
//    [p i j 0] [p i j 9] ...            A   rows i .. i + 64, k along them
//       |          |                    B   columns j .. j + 64, k across its rows
//    block 0    block 1                 C   rows i .. by columns j ..
//
// PARTS: tiles may be cut along k: with a number but 0 behind i and j a block has that piece of the
// tile, from one on (joined.cuh). Sums go out through shared memory, so that every warp writes
// rows. GENERAL: C = activation(alpha sum + beta C + bias), numbered as ACTIVATIONS of
// facts/problem.py are. Steps of A, B and C along their rows are 1.
#include "single.cuh"
#include "joined.cuh"
#include "activated.cuh"

struct Scalars {
    float alpha, beta;
    const float *bias;
};

__device__ __forceinline__ float finished(float sum, float old, float bias, const Scalars &s) {
#if GENERAL
    float value = s.alpha * sum;
    if (s.beta != 0.0f) value += s.beta * old;
    if (s.bias) value += bias;
    return activated(value);
#else
    return sum;
#endif
}

// Writes a tile's sums from shared memory on, EACH rows of a warp at a time, so that what C held is
// on its way together. An instruction matters here, as it is run 64 times a thread: 17 of them a
// number, with 64-bit products and stores that ask where an address lies, took as long as 24 of k.
__device__ __forceinline__ void finish(const float *memory, const int4 &tile, const i64 *p, int m,
                                       int n) {
    constexpr int WARPS = THREADS / 32, EACH = 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool low = m <= HALF, narrow = n <= HALF;
    Scalars s = {};
    float bias[2] = {};
#if GENERAL
    s = {(float)__longlong_as_double(p[13]), (float)__longlong_as_double(p[14]),
         (const float *)p[3]};
#pragma unroll
    for (int j = 0; j < 2; j++)
        if (s.bias && lane + HALF * j < n) bias[j] = s.bias[tile.z + lane + HALF * j];
#endif
    const i64 step = p[11] * WARPS;
    float *to = (float *)p[2] + (tile.y + warp) * p[11] + tile.z + lane;
    const float *from = memory + warp * C_STEP + lane;
#pragma unroll 1
    for (int row = warp; row < min(m, SIDE); row += EACH * WARPS) {
        float sum[EACH][2], old[EACH][2];
        const float *at = to;
#pragma unroll
        for (int i = 0; i < EACH; i++, at += step)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                sum[i][j] = from[i * WARPS * C_STEP + HALF * j], old[i][j] = 0.0f;
                if (GENERAL && s.beta != 0.0f && row + i * WARPS < m && lane + HALF * j < n)
                    old[i][j] = read(at + HALF * j);
            }
        add_slices<EACH>(sum, from, low, narrow);
#pragma unroll
        for (int i = 0; i < EACH; i++, to += step)
#pragma unroll
            for (int j = 0; j < 2; j++)
                write_if(to + HALF * j, finished(sum[i][j], old[i][j], bias[j], s),
                         row + i * WARPS < m && lane + HALF * j < n);
        from += EACH * WARPS * C_STEP;
    }
}

// Six blocks a multiprocessor, 168 registers a thread, two stages: 1000 products of 1..512 in 1.091
// ms on an H200, with three stages in 1.103. Of an earlier form, 1.198: with eight blocks, 128
// registers, 1.25; with tiles of 128 x 64 1.31; with steps of 8 of k 1.22, of 32 1.54.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
grouped_single(const i64 *problems, const int4 *tiles, const Piece *pieces, int *arrived,
               float *scratch) {
    using A = Along<1>;
    using B = Either;
    __shared__ __align__(16) float memory[Words<A, B>::value];
    const int4 tile = tiles[blockIdx.x];
    const i64 *p = problems + 16 * (i64)tile.x;
    const Piece piece = PARTS ? piece_of(pieces, tile.w, (int)p[6]) : Piece{0, (int)p[6], 0, 0, 1};
    const int m = (int)p[4] - tile.y, n = (int)p[5] - tile.z;
    const Source a = A::of((const float *)p[0] + tile.y * p[7] + piece.begin, p[7], m);
    const Source b = B::of((const float *)p[1] + piece.begin * p[9] + tile.z, p[9], n, n);
    const Mine mine(m, n);
    float sum[SUMS];
    multiply<A, B>(sum, memory, a, b, piece.depth, SIDE <= m && SIDE <= n, mine);
    if (PARTS && piece.parts > 1 && !joined<THREADS>(sum, piece, scratch, arrived)) return;
    gather(memory, sum, mine);
    finish(memory, tile, p, m, n);
}
