// grouped_single: fp32 tiles of many problems of unlike sizes. A block a tile, 8 x 8 sums a thread.
//
//    tiles (int32 x 4)                  problem: its own m n k, strides, alpha beta (record.py)
//    [p i j _] [p i j _] ...                          B   j .. j + 64
//       |          |                                   |
//    block 0    block 1                   16 of k      v      64 numbers a row, as they lie
//                       A i .. i + 64               +-----+-----+
//                          rows become        tx ->  0 .. 7  0 .. 7   four columns each, twice
//                          columns on      ty +-----+-----+-----+
//                          the way in      0  |     |  x  |  x  |     rows 4 ty ..
//                                          :  +     +-----+-----+
//                                          0  |     |  x  |  x  |     rows 32 + 4 ty ..
//                                             +-----+-----+-----+
//
// Copies go straight into shared memory, STAGES - 1 steps of k ahead, and hold no registers: 4
// bytes each, as rows of odd length demand, which transposes A at no cost; B by 16 where WIDE says
// that its rows, columns and addresses are multiples of that. What lies outside becomes zero. A
// step of k is 64 multiplications a thread for 4 loads of 16 bytes; sums go out through shared
// memory, so that every warp writes rows. GENERAL: C = activation(alpha sum + beta C + bias),
// numbered as ACTIVATIONS of backends/cuda/tiled/simt.py are. Steps of A, B and C along their rows are 1.
//
// CHAIN steps of k are summed in a chain, then added to what the chains before gave: one chain of
// all k would round each addend away from an ever larger sum.
typedef long long i64;
typedef unsigned int u32;

#ifndef CHAIN
#define CHAIN 256
#endif
#ifndef RESIDENT
#define RESIDENT 6
#endif
#ifndef TOTALS
#define TOTALS 1
#endif
constexpr int THREADS = 64, ROWS = 64, COLUMNS = 64, DEPTH = 16, HALF = ROWS / 2;
constexpr int A_STEP = ROWS + 4, STAGE = DEPTH * (A_STEP + COLUMNS), C_STEP = COLUMNS + 1;

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

// What one thread copies: every APART-th row of a block of A or B, from its first on.
struct Source {
    const float *matrix, *first;
    i64 step;  // from a row to the next
    int left;  // rows (A) or columns (B) from there to the matrix's end
};

// 16 of k from `k` on; `depth` of them exist. INSIDE: all of the block does.
template <bool INSIDE> __device__ __forceinline__ void load_a(Source a, i64 k, int depth, u32 to) {
    constexpr int APART = THREADS / DEPTH;
    const int mine = threadIdx.x % DEPTH, row = threadIdx.x / DEPTH;
    const float *from = a.first + k;
    to += (mine * A_STEP + row) * 4;
#pragma unroll
    for (int i = 0; i < ROWS / APART; i++) {
        const bool inside = INSIDE || (mine < depth && i * APART < a.left);
        copy<4>(to + i * APART * 4, inside ? from : a.matrix, inside);
        from += APART * a.step;
    }
}

template <bool INSIDE> __device__ __forceinline__ void load_b(Source b, i64 k, int depth, u32 to) {
    constexpr int EACH = WIDE ? 4 : 1, ACROSS = COLUMNS / EACH, APART = THREADS / ACROSS;
    const int row = threadIdx.x / ACROSS;
    const float *from = b.first + k * b.step;
    to += (row * COLUMNS + threadIdx.x % ACROSS * EACH) * 4;
#pragma unroll
    for (int i = 0; i < DEPTH / APART; i++) {
        const bool inside = INSIDE || (row + i * APART < depth && b.left > 0);
        copy<4 * EACH>(to + i * APART * COLUMNS * 4, inside ? from : b.matrix, inside);
        from += APART * b.step;
    }
}

// Sums of the chains before, in memory of the thread's own: registers are all taken by this chain.
struct Totals {
#if TOTALS == 1
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
#elif TOTALS == 2
    float4 *held;
    __device__ __forceinline__ float4 get(int i) { return held[i * THREADS + threadIdx.x]; }
    __device__ __forceinline__ void set(int i, float4 v) { held[i * THREADS + threadIdx.x] = v; }
#else
    float4 held[16];
    __device__ __forceinline__ float4 get(int i) { return held[i]; }
    __device__ __forceinline__ void set(int i, float4 v) { held[i] = v; }
#endif
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
    __shared__ __align__(16) float memory[STAGES * STAGE];
    static_assert(STAGES * STAGE >= ROWS * C_STEP, "the sums are staged there");
    const int thread = threadIdx.x, tx = thread % 8, ty = thread / 8;
    const int4 tile = tiles[blockIdx.x];
    const i64 *p = problems + 16 * (i64)tile.x;
    const int m = (int)p[4] - tile.y, n = (int)p[5] - tile.z, k = (int)p[6];
    const bool inside = ROWS <= m && COLUMNS <= n;
    const int a_row = thread / DEPTH, b_row = thread / (WIDE ? 16 : 64);
    const int b_column = WIDE ? thread % 16 * 4 : thread % 64;
    const float *A = (const float *)p[0], *B = (const float *)p[1];
    const Source a = {A, A + (tile.y + a_row) * p[7] + thread % DEPTH, p[7], m - a_row};
    const Source b = {B, B + b_row * p[9] + tile.z + b_column, p[9], n - b_column};
    const u32 shared = (u32)__cvta_generic_to_shared(memory);
    const int steps = k / DEPTH + (k % DEPTH > 0);
    auto fetch = [&](int step, int stage) {
        const i64 at = (i64)step * DEPTH;
        const u32 to = shared + stage * STAGE * 4;
        if (inside && at + DEPTH <= k) {
            load_a<true>(a, at, DEPTH, to);
            load_b<true>(b, at, DEPTH, to + DEPTH * A_STEP * 4);
        } else if (step < steps) {
            load_a<false>(a, at, k - (int)at, to);
            load_b<false>(b, at, k - (int)at, to + DEPTH * A_STEP * 4);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) fetch(i, i);
    float sum[8][8] = {};
    Totals totals;
#if TOTALS == 2
    __shared__ float4 held[16 * THREADS];
    totals.held = held;
#endif
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
            const float *left = memory + stage * STAGE, *right = left + DEPTH * A_STEP;
#pragma unroll
            for (int l = 0; l < DEPTH; l++) {
                const float4 a0 = *(const float4 *)(left + l * A_STEP + ty * 4);
                const float4 a1 = *(const float4 *)(left + l * A_STEP + HALF + ty * 4);
                const float4 b0 = *(const float4 *)(right + l * COLUMNS + tx * 4);
                const float4 b1 = *(const float4 *)(right + l * COLUMNS + COLUMNS / 2 + tx * 4);
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
        for (int j = 0; j < 8; j++) to[j / 4 * (COLUMNS / 2) + j % 4] = sum[i][j];
    }
    __syncthreads();
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
    for (int first = thread / 32; first < ROWS; first += EACH * WARPS)
#pragma unroll
        for (int column = thread % 32; column < COLUMNS; column += 32) {
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
