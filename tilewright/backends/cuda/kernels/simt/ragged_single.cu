// ragged_single: fp32 products whose sizes are known on the device alone. Tiles as in single.cuh.
//
//   FORM 1, rows     x [t, k] rows of group g   x   w[g] [k, n]         ->  the same rows of c [t, n]
//   FORM 2, depths   x [m, t] columns of g      x   w [t, n] rows of g  ->  c[g] [m, n]
//
//    table (int32 x 4)                  block p has tiles p, p + blocks, ... of entries x those
//    [how many _ _ _]                   across (and down, of depths); BAND entries of rows share
//    [g first end _] ...                what they read of w
//
// An entry of rows has at most 64 of them, one of depths all of its group's (ragged_plans.py).
// X_ACROSS: k lies across the rows of x as memory has them, as in depths; W_ALONG: along those of w,
// as where it is the transpose of another. X_EACH, W_EACH: numbers copied at a time, 1 or 4.
// THIRDS: by tensor cores, tiles of SIDE x SIDE (thirds.cuh).
#if THIRDS
#include "thirds.cuh"
#else
#include "single.cuh"
#endif

struct Ragged {
    const float *x, *w;
    float *c;
    const float *bias;
    const int4 *table;
    i64 x_step, w_group, w_step, c_group, c_row, bias_group, bias_step;
    int m, n, k, groups;
};

template <bool ACROSS, int EACH> struct Lies { using Way = Along<EACH>; };
template <int EACH> struct Lies<true, EACH> { using Way = Across<EACH>; };
using X = Lies<X_ACROSS, X_EACH>::Way;
using W = Lies<!W_ALONG, W_EACH>::Way;

// One tile, `rows` by `columns` at most: its sums, with a bias if there is one, from `c` on.
__device__ __forceinline__ void tile(float *memory, const Source &x, const Source &w, int k,
                                     int rows, int columns, float *c, i64 c_row,
                                     const float *bias, i64 bias_step) {
#if THIRDS
    multiply<X, W>(memory, x, w, k, SIDE <= rows && SIDE <= columns);
#else
    const Mine mine(SIDE, SIDE);  // in the same order whatever lies beside a row
    float sum[SUMS];
    multiply<X, W>(sum, memory, x, w, k, SIDE <= rows && SIDE <= columns, mine);
    gather(memory, sum, mine);
#endif
    constexpr int WARPS = THREADS / 32;
#pragma unroll
    for (int column = threadIdx.x % 32; column < SIDE; column += 32) {
        if (column >= columns) break;
        const float added = bias ? bias[column * bias_step] : 0.0f;
#pragma unroll 8
        for (int row = threadIdx.x / 32; row < SIDE; row += WARPS)
            if (row < rows) c[row * c_row + column] = memory[row * C_STEP + column] + added;
    }
    __syncthreads();  // before the next tile's copies come there
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) ragged_single(const Ragged p) {
#if THIRDS
    extern __shared__ __align__(16) float memory[];
#else
    __shared__ __align__(16) float memory[Words<X, W>::value];
#endif
    const int across = (p.n + SIDE - 1) / SIDE;
#if FORM == 1
    const int down = p.table[0].x;
    for (i64 at = blockIdx.x; at < (i64)down * across; at += gridDim.x) {
        const int band = (int)(at / (BAND * across)), within = (int)(at - (i64)band * BAND * across);
        const int height = min(down - band * BAND, BAND), column = within / height * SIDE;
        const int4 entry = p.table[1 + band * BAND + within % height];
        const int rows = entry.z - entry.y;
        const i64 group = entry.x, row = entry.y;
        const float *w = p.w + group * p.w_group + (W_ALONG ? column * p.w_step : column);
        const float *bias = p.bias ? p.bias + group * p.bias_group + column * p.bias_step : nullptr;
        tile(memory, X::of(p.x + (X_ACROSS ? row : row * p.x_step), p.x_step, rows),
             W::of(w, p.w_step, p.n - column), p.k, rows, p.n - column,
             p.c + row * p.c_row + column, p.c_row, bias, p.bias_step);
    }
#else
    const int down = (p.m + SIDE - 1) / SIDE, each = down * across;
    for (i64 at = blockIdx.x; at < (i64)p.groups * each; at += gridDim.x) {
        const int4 entry = p.table[1 + at / each];
        const int within = (int)(at % each), row = within % down * SIDE, column = within / down * SIDE;
        const i64 first = entry.y;
        const float *x = p.x + (X_ACROSS ? first * p.x_step + row : row * p.x_step + first);
        const float *w = p.w + (W_ALONG ? column * p.w_step + first : first * p.w_step + column);
        tile(memory, X::of(x, p.x_step, p.m - row), W::of(w, p.w_step, p.n - column),
             entry.z - entry.y, p.m - row, p.n - column,
             p.c + entry.x * p.c_group + row * p.c_row + column, p.c_row, nullptr, 0);
    }
#endif
}
