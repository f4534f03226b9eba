// grouped_small: small fp32 tiles of many problems. A warp a tile, WARPS of them a block, each alone.
//
//    tiles (int32 x 4)             problem: its own m n k, strides, alpha beta (record.py)
//    [p i j s] [p i j s] ...       A   rows i .. i + M, k along them
//       |         |                B   columns j .. j + N, k across them
//     warp 0    warp 1             C   rows i .. by columns j ..; s says M x N (`Shape`)
//
//             tx 0 .. 3            operands come DEPTH of k at a time, STAGES - 1 steps ahead, past the
//          +--+--+--+--+           registers; rows and columns past an edge are not copied, and what
//    ty 0  |  |  |  |  |           lies there is multiplied and dropped
//       :  |  |  |  |  |
//       7  +--+--+--+--+           a lane: rows ty, 8 + ty, ... by columns 4 tx .. 4 tx + 3, 16 + ...
//
// The first `shared` blocks have one tile each, whose k is so long that it might outlast the others
// (LONG of tiled/small.py): its warps take the steps of k in turns, their sums are added in the
// order of the warps. GENERAL: C = activation(alpha sum + beta C + bias), numbered as ACTIVATIONS of
// facts/problem.py are. Steps of A, B and C along their rows are 1; NEAR: 256 rows lie
// within 2^31 elements.
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;

#ifndef WARPS
#define WARPS 4
#endif
#ifndef RESIDENT
#define RESIDENT 20
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef NEAR
#define NEAR 1
#endif
constexpr int DEPTH = 16, CHAIN = 128;
#include "chains.cuh"

#if NEAR
typedef int Stride;  // of rows, in elements
#else
typedef i64 Stride;
#endif
#include "small_copies.cuh"
#include "activated.cuh"

enum Shape { SQUARE, TALL, WIDE, LARGE };  // 16 x 16, 32 x 16, 16 x 32, 32 x 32

struct Problem {
    const float *a, *b;  // the tile's first row, the tile's first column
    Stride a_row, b_row;
    int m, n, k;  // rows and columns from the tile's first on
};

// What only the end of a tile needs waits in shared memory.
struct __align__(16) End {
    float *c;
    const i64 *record;
    Stride c_row;
    int m, n, column;
};
constexpr int END = sizeof(End);

template <int M, int N> struct Tile {
    // Bytes. Conflict-free: 16 of k of rows four apart on their way in; eight rows that are read, four
    // of k each; sums on their way out and back.
    static constexpr int A_STEP = (DEPTH + 4) * 4, B_STEP = N * 4;
    static constexpr int C_STEP = (N == 16 ? 16 : N + 16) * 4;
    static constexpr int B_AT = M * A_STEP, STAGE = B_AT + DEPTH * B_STEP;
    static constexpr int BYTES = STAGES * STAGE > M * C_STEP ? STAGES * STAGE : M * C_STEP;
    static constexpr int DOWN = M / 8, ACROSS = N / 4, COUNT = DOWN * ACROSS;  // sums of a lane
    static constexpr int APART = 32 / N;  // rows of B that all lanes copy at once

    // What a lane copies of both operands, a step after another.
    struct Feed {
        const float *a, *b;
        Stride a_row, b_row;
        u32 a_to, b_to;
        int mine, rows;  // the lane's k of a step of A; rows of A from its first on
        int deep;        // its first k of B; past any where it has no column

        template <bool INSIDE>
        __device__ __forceinline__ void load(int there, u32 place, int m) const {
            const int left = mine < there ? rows : 0, below = there - deep;
            const Stride a_step = opaque(a_row), b_step = opaque(b_row);
#pragma unroll
            for (int i = 0; i < M / 2; i++) {
                const int row = i % 4 + i / 4 * 8;  // the other lanes' are four further on
                if (!INSIDE && i % 4 == 0 && i && row >= m) break;
                copy(a_to + place + row * A_STEP, a + (i64)row * a_step, INSIDE || row < left);
            }
#pragma unroll
            for (int i = 0; i < DEPTH; i += APART) {
                if (!INSIDE && i % 8 == 0 && i && i >= there) break;
                copy(b_to + place + i * B_STEP, b + (i64)i * b_step, INSIDE || i < below);
            }
        }
    };

    static __device__ __forceinline__ void add(float (&sum)[COUNT], const float (&x)[DOWN],
                                               u32 right) {
        float y[ACROSS];
#pragma unroll
        for (int j = 0; j < ACROSS / 4; j++) {
            const float4 v = four(right + 64 * j);
            y[4 * j] = v.x, y[4 * j + 1] = v.y, y[4 * j + 2] = v.z, y[4 * j + 3] = v.w;
        }
#pragma unroll
        for (int i = 0; i < DOWN; i++)
#pragma unroll
            for (int j = 0; j < ACROSS; j++)
                sum[i * ACROSS + j] = fmaf(x[i], y[j], sum[i * ACROSS + j]);
    }

    // The products of so many of k: four at a time, then one at a time.
    static __device__ __forceinline__ void multiply(float (&sum)[COUNT], u32 left, u32 right,
                                                    int depth) {
#pragma unroll 1
        for (; depth >= 4; depth -= 4, left += 16, right += 4 * B_STEP) {
            float x[4][DOWN];
#pragma unroll
            for (int i = 0; i < DOWN; i++) {
                const float4 v = four(left + 8 * i * A_STEP);
                x[0][i] = v.x, x[1][i] = v.y, x[2][i] = v.z, x[3][i] = v.w;
            }
#pragma unroll
            for (int l = 0; l < 4; l++) add(sum, x[l], right + l * B_STEP);
        }
#pragma unroll 1
        for (; depth > 0; depth--, left += 4, right += B_STEP) {
            float x[DOWN];
#pragma unroll
            for (int i = 0; i < DOWN; i++) x[i] = one(left + 8 * i * A_STEP);
            add(sum, x, right);
        }
    }

    // The sums of the steps first, first + every, ... of k, left in `memory`.
    static __device__ __forceinline__ void sums(const Problem &p, u32 memory, int first,
                                                int every) {
        const int lane = threadIdx.x % 32, tx = lane / 2 % 4, ty = lane % 2 + lane / 8 * 2;
        const int step = every * DEPTH;
        Feed feed;
        feed.mine = lane % DEPTH, feed.rows = p.m - lane / DEPTH * 4;
        feed.deep = lane % N < p.n ? lane / N : 1 << 30;
        feed.a_row = p.a_row, feed.b_row = p.b_row;
        feed.a = p.a + (i64)(lane / DEPTH * 4) * p.a_row + (lane % DEPTH + first * DEPTH);
        feed.b = p.b + (i64)(lane / N + first * DEPTH) * p.b_row + lane % N;
        feed.a_to = memory + lane / DEPTH * 4 * A_STEP + lane % DEPTH * 4;
        feed.b_to = memory + B_AT + lane * 4;
        const u32 x_from = memory + ty * A_STEP, y_from = memory + B_AT + tx * 16;
        const int most = M <= p.m && N <= p.n ? DEPTH : 1 << 30;  // so many of k are all inside
        int left = p.k - first * DEPTH;  // of k, what is not yet multiplied
        int ahead = STAGES - 1;          // steps to be asked for before the first is
        u32 place = 0;
        float sum[COUNT] = {};
        Chains<COUNT> chains;
        int done = 0;
#pragma unroll 1
        while (left > 0) {
            if (ahead == 0) wait<(STAGES > 1 ? STAGES - 2 : 0)>();
            const int there = left - (STAGES - 1 - ahead) * step;
            if (there >= most)
                feed.template load<true>(DEPTH, place, M);
            else if (there > 0)
                feed.template load<false>(there, place, p.m);
            asked();
            feed.a += step, feed.b += (i64)step * feed.b_row;
            place = place == (STAGES - 1) * STAGE ? 0 : place + STAGE;
            if (ahead > 0) {
                ahead--;
                continue;
            }
            if (done == CHAIN / DEPTH) chains.turn(sum), done = 0;
            multiply(sum, x_from + place, y_from + place, left < DEPTH ? left : DEPTH);
            left -= step, done++;
        }
        chains.add_to(sum);
        wait<0>();
        const u32 to = memory + ty * C_STEP + tx * 16;
#pragma unroll
        for (int i = 0; i < DOWN; i++)
#pragma unroll
            for (int j = 0; j < ACROSS / 4; j++)
                put(to + 8 * i * C_STEP + 64 * j, sum + i * ACROSS + 4 * j);
    }

    static __device__ __forceinline__ void store(const End *end, u32 memory, int first, int every);
};

// Bytes of shared memory that a warp has: of the largest shape.
constexpr int EACH = Tile<32, 32>::BYTES;

struct Scalars {
    float alpha, beta, added;  // `added`: of the bias
};

__device__ __forceinline__ float finished(float sum, float old, const Scalars &s) {
#if GENERAL
    float value = s.alpha * sum;
    if (s.beta != 0.0f) value += s.beta * old;
    value += s.added;
    return activated(value);
#else
    return sum;
#endif
}

// Rows of C, of which a block's warps take turns where they share the tile.
template <int M, int N>
__device__ __forceinline__ void Tile<M, N>::store(const End *end, u32 memory, int first,
                                                  int every) {
    const int lane = threadIdx.x % 32, column = lane % N, row = lane / N;
    Scalars scalars = {};
#if GENERAL
    scalars.alpha = (float)__longlong_as_double(end->record[13]);
    scalars.beta = (float)__longlong_as_double(end->record[14]);
    const float *bias = (const float *)end->record[3];
    if (bias && column < end->n) scalars.added = bias[end->column + column];
#endif
    const Stride c_row = opaque(end->c_row);
    float *c = end->c + (i64)row * c_row + column;
    const int m = end->m < M ? end->m : M, below = column < end->n ? m - row : 0;
    const u32 from = memory + row * C_STEP + column * 4;
    if (every == 1) {
#pragma unroll
        for (int i = 0; i < M; i += APART) {
            if (i % 8 == 0 && i && i >= m) break;
            float *to = c + (i64)i * c_row;
            if (i < below) {
                const float old = GENERAL && scalars.beta != 0.0f ? *to : 0.0f;
                *to = finished(one(from + i * C_STEP), old, scalars);
            }
        }
        return;
    }
#pragma unroll 1
    for (int i = first * APART; i < below; i += every * APART) {
        float value = one(from + i * C_STEP);
#pragma unroll 1
        for (int part = 1; part < every; part++) value += one(from + i * C_STEP + part * EACH);
        float *to = c + (i64)i * c_row;
        const float old = GENERAL && scalars.beta != 0.0f ? *to : 0.0f;
        *to = finished(value, old, scalars);
    }
}

template <int M, int N>
__device__ __forceinline__ void run(const Problem &p, const End *end, u32 memory, bool shared) {
    const int warp = threadIdx.x / 32, first = shared ? warp : 0, every = shared ? WARPS : 1;
    Tile<M, N>::sums(p, memory + warp * EACH, first, every);
    if (shared)
        __syncthreads();
    else
        __syncwarp();
    Tile<M, N>::store(end, memory + (shared ? 0 : warp * EACH), first, every);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT / WARPS)
grouped_small(const i64 *problems, const int4 *tiles, int count, int shared) {
    extern __shared__ __align__(16) char memory[];
    const int block = blockIdx.x, warp = threadIdx.x / 32;
    const bool together = block < shared;
    const int index = together ? block : shared + (block - shared) * WARPS + warp;
    if (index >= count) return;
    const int4 tile = __ldg(tiles + index);
    const i64 *record = problems + 16 * (i64)tile.x;
    const longlong2 *pairs = (const longlong2 *)record;
    const longlong2 ab = __ldg(pairs), cb = __ldg(pairs + 1), mn = __ldg(pairs + 2);
    const longlong2 ka = __ldg(pairs + 3), sb = __ldg(pairs + 4), sc = __ldg(pairs + 5);
    Problem p;
    p.m = (int)mn.x - tile.y, p.n = (int)mn.y - tile.z, p.k = (int)ka.x;
    p.a_row = (Stride)ka.y, p.b_row = (Stride)sb.y;
    p.a = (const float *)ab.x + (i64)tile.y * p.a_row;
    p.b = (const float *)ab.y + tile.z;
    End *end = (End *)memory + warp;
    if (threadIdx.x % 32 == 0) {
        const Stride c_row = (Stride)sc.y;
        float *c = (float *)cb.x + (i64)tile.y * c_row + tile.z;
        *end = {c, record, c_row, p.m, p.n, tile.z};
    }
    const u32 mine = once((u32)__cvta_generic_to_shared(memory + END * WARPS));
    if (tile.w == SQUARE) run<16, 16>(p, end, mine, together);
    if (tile.w == TALL) run<32, 16>(p, end, mine, together);
    if (tile.w == WIDE) run<16, 32>(p, end, mine, together);
    if (tile.w == LARGE) run<32, 32>(p, end, mine, together);
}
