// grouped_warps: small fp32 tiles of many problems. A warp a tile, WARPS of them a block, each alone.
//
//    tiles (int32 x 4)             problem: its own m n k, strides, alpha beta (record.py)
//    [p i j s] [p i j s] ...       A   rows i .. i + M, k along them      M x N: that of
//       |         |                B   columns j .. j + N, k across them  ROWS x COLUMNS, or shape s
//     warp 0    warp 1             C   rows i .. by columns j ..          of several (MIXED)
//
//             tx 0 .. 3                  a lane: rows 2 ty, 2 ty + 1, 16 + 2 ty, ...
//          +--+--+--+--+                         columns 4 tx .. 4 tx + 3, 16 + 4 tx, ...
//    ty 0  |  |  |  |  |
//       :  |  |  |  |  |             operands come DEPTH of k at a time, STAGES - 1 steps ahead, past
//       7  +--+--+--+--+             the registers; A is transposed on its way into shared memory
//
// Rows and columns past an edge are not copied, and what lies there is multiplied and dropped; of k
// past its end nothing is multiplied. The first `shared` blocks have one tile each, of a long k,
// which their warps share, a step in turns; their sums are added in the order of the warps.
// GENERAL: C = activation(alpha sum + beta C + bias), numbered as ACTIVATIONS of
// backends/cuda/tiled/simt.py are. Steps of A, B and C along their rows are 1.
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;

#ifndef WARPS
#define WARPS 4
#endif
#ifndef RESIDENT
#define RESIDENT 48
#endif
#ifndef DEPTH
#define DEPTH 16
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef ROWS
#define ROWS 16
#endif
#ifndef COLUMNS
#define COLUMNS 16
#endif
#ifndef TILES
#define TILES 1
#endif
#ifndef MIXED
#define MIXED 0
#endif
#ifndef NEAR
#define NEAR 1
#endif
#ifndef CHAIN
#define CHAIN 256
#endif
#ifndef AHEAD
#define AHEAD 2
#endif

#if NEAR
typedef int Stride;  // of rows: 256 of them lie within 2^31 elements
#else
typedef i64 Stride;
#endif

struct Problem {
    const float *a, *b;
    Stride a_row, b_row;
    int m, n, k;  // rows and columns from the tile on
};

// What only the end of a tile needs waits in shared memory.
struct __align__(16) End {
    float *c;
    const i64 *record;
    Stride c_row;
    int m, n, column;
};
constexpr int END = sizeof(End) / 4;

// One number on its way, or nothing.
__device__ __forceinline__ void copy(u32 to, const float *from, bool is_there) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0;\n"
                 "@p cp.async.ca.shared.global [%0], [%1], 4; }" ::"r"(to),
                 "l"(from), "r"((int)is_there)
                 : "memory");
}

__device__ __forceinline__ void copy(u32 to, const float *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

template <int LEFT> __device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
    __syncwarp();
}

__device__ __forceinline__ float2 pair(u32 from) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from));
    return v;
}

__device__ __forceinline__ float4 four(u32 from) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(from));
    return v;
}

__device__ __forceinline__ void put(u32 to, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void put(u32 to, float x, float y, float z, float w) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x), "f"(y), "f"(z),
                 "f"(w)
                 : "memory");
}

__device__ __forceinline__ float one(u32 from) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from));
    return v;
}

// Multiples of a stride are made anew each time: they would take all registers.
__device__ __forceinline__ Stride opaque(Stride step) {
#if NEAR
    asm volatile("" : "+r"(step));
#else
    asm volatile("" : "+l"(step));
#endif
    return step;
}

__device__ __forceinline__ float finished(float sum, float old, float alpha, float beta,
                                          float added) {
#if GENERAL
    float value = alpha * sum;
    if (beta != 0.0f) value += beta * old;
    value += added;
    if (ACTIVATION == 1) value = value < 0.0f ? 0.0f : value;  // a NaN stays one
    if (ACTIVATION == 2) value = 0.5f * value * (1.0f + erff(value * 0.70710678f));
    return value;
#else
    return sum;
#endif
}

// The chains before the one under way, in memory of the lane's own: most tiles have one only.
template <int COUNT> struct Totals {
    __align__(16) float held[COUNT];
    __device__ __forceinline__ u64 at(int i) { return __cvta_generic_to_local(held + 4 * i); }
    __device__ __forceinline__ void add_to(float (&sum)[COUNT]) {
#pragma unroll
        for (int i = 0; i < COUNT / 4; i++) {
            float x, y, z, w, *s = sum + 4 * i;
            asm volatile("ld.local.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                         : "l"(at(i)));
            s[0] += x, s[1] += y, s[2] += z, s[3] += w;
        }
    }
    // `sum` is put aside and begins anew.
    __device__ __forceinline__ void take(float (&sum)[COUNT]) {
#pragma unroll
        for (int i = 0; i < COUNT / 4; i++) {
            float *s = sum + 4 * i;
            asm volatile("st.local.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at(i)), "f"(s[0]),
                         "f"(s[1]), "f"(s[2]), "f"(s[3])
                         : "memory");
            s[0] = s[1] = s[2] = s[3] = 0.0f;
        }
    }
};

template <int M, int N> struct Tile {
    // Conflict-free: 16 of k by two rows of A on their way in; sums on their way out and back.
    static constexpr int A_STEP = (M + 2) * 4, B_STEP = N * 4;  // bytes
    static constexpr int C_STEP = (N == 8 ? 20 : N + 8) * 4;
    static constexpr int B_AT = DEPTH * A_STEP, STAGE = B_AT + DEPTH * B_STEP;
    static constexpr int BYTES = STAGES * STAGE > M * C_STEP ? STAGES * STAGE : M * C_STEP;
    static constexpr int DOWN = M / 8, ACROSS = N / 4, COUNT = DOWN * ACROSS;  // sums of a lane
    static constexpr int A_APART = 32 / DEPTH, B_APART = 32 / N;  // rows of a copy by all lanes

    // What a lane copies of both operands, a step after another.
    struct Feed {
        const float *a, *b;
        Stride a_row, b_row;
        u32 a_to, b_to;
        int rows;   // of A, from the lane's first on
        int mine;   // the lane's k of a step of A
        int depth;  // and its first of B; past any k where it has no column

        template <bool INSIDE> __device__ __forceinline__ void load(int there, u32 place) const {
            const float *from = a;
            const int left = mine < there ? rows : 0, below = there - depth;
            const Stride a_step = opaque(a_row), b_step = opaque(b_row);
#pragma unroll
            for (int i = 0; i < M / A_APART; i++) {
                const u32 to = a_to + place + i * A_APART * 4;
                INSIDE ? copy(to, from) : copy(to, from, i * A_APART < left);
                from += (i64)A_APART * a_step;
            }
            from = b;
#pragma unroll
            for (int i = 0; i < DEPTH / B_APART; i++) {
                const u32 to = b_to + place + i * B_APART * B_STEP;
                INSIDE ? copy(to, from) : copy(to, from, i * B_APART < below);
                from += (i64)B_APART * b_step;
            }
        }
    };

    // A lane's numbers of one k.
    struct Numbers {
        float x[DOWN], y[ACROSS];

        __device__ __forceinline__ void read(u32 left, u32 right) {
#pragma unroll
            for (int i = 0; i < DOWN / 2; i++) {
                const float2 v = pair(left + 64 * i);
                x[2 * i] = v.x, x[2 * i + 1] = v.y;
            }
            if (ACROSS == 2) {
                const float2 v = pair(right);
                y[0] = v.x, y[1] = v.y;
            }
#pragma unroll
            for (int j = 0; j < ACROSS / 4; j++) {
                const float4 v = four(right + 64 * j);
                y[4 * j] = v.x, y[4 * j + 1] = v.y, y[4 * j + 2] = v.z, y[4 * j + 3] = v.w;
            }
        }
        __device__ __forceinline__ void multiply(float (&sum)[COUNT]) const {
#pragma unroll
            for (int i = 0; i < DOWN; i++)
#pragma unroll
                for (int j = 0; j < ACROSS; j++)
                    sum[i * ACROSS + j] = fmaf(x[i], y[j], sum[i * ACROSS + j]);
        }
    };

    // The sums of the steps first, first + every, ... of k, left in `memory`.
    static __device__ __forceinline__ void sums(const Problem &p, u32 memory, int first,
                                                int every, const i64 *next) {
        const int lane = threadIdx.x % 32, tx = lane / 2 % 4, ty = lane % 2 + lane / 8 * 2;
        const int step = every * DEPTH;
        int left = p.k - first * DEPTH;  // of k, what is not yet multiplied
        Feed feed;
        feed.mine = lane % DEPTH, feed.rows = p.m - lane / DEPTH;
        feed.depth = lane % N < p.n ? lane / N : 1 << 30;
        feed.a_row = p.a_row, feed.b_row = p.b_row;
        feed.a = p.a + (i64)(lane / DEPTH) * p.a_row + lane % DEPTH + first * DEPTH;
        feed.b = p.b + (i64)(lane / N + first * DEPTH) * p.b_row + lane % N;
        feed.a_to = memory + lane % DEPTH * A_STEP + lane / DEPTH * 4;
        feed.b_to = memory + B_AT + lane * 4;
        const int mine = ACROSS == 2 ? 8 : 16;  // bytes of a lane's columns that follow one another
        const u32 x_from = memory + ty * 8, y_from = memory + B_AT + tx * mine;
        const int most = M <= p.m && N <= p.n ? DEPTH : 1 << 30;  // so many of k are all inside
        u32 place = 0;
        int done = 0;
        Totals<COUNT> totals;
        float sum[COUNT] = {};
        auto advance = [&] {
            asm volatile("cp.async.commit_group;" ::: "memory");
            feed.a += step, feed.b += (i64)step * feed.b_row;
            place = place == (STAGES - 1) * STAGE ? 0 : place + STAGE;
        };
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++) {
            const int there = left - i * step;
            if (there > 0) feed.template load<false>(there, place);
            advance();
        }
#if TILES > 1
        if (next) asm volatile("prefetch.global.L1 [%0];" ::"l"(next));
#endif
#pragma unroll 1
        for (; left > 0; left -= step) {
            if (STAGES > 1) wait<(STAGES > 1 ? STAGES - 2 : 0)>();
            const int next = left - (STAGES - 1) * step;
            if (next >= most)
                feed.template load<true>(DEPTH, place);
            else if (next > 0)
                feed.template load<false>(next, place);
            advance();
            if (STAGES == 1) wait<0>();
            u32 x = x_from + place, y = y_from + place;
            if (left >= DEPTH) {
                Numbers numbers[AHEAD];
#pragma unroll
                for (int l = 0; l < AHEAD - 1; l++) numbers[l].read(x + l * A_STEP, y + l * B_STEP);
#pragma unroll
                for (int l = 0; l < DEPTH; l++) {
                    const int next = l + AHEAD - 1;
                    if (next < DEPTH)
                        numbers[next % AHEAD].read(x + next * A_STEP, y + next * B_STEP);
                    numbers[l % AHEAD].multiply(sum);
                }
            } else {
#pragma unroll 2
                for (int l = 0; l < left; l++) {
                    Numbers numbers;
                    numbers.read(x + l * A_STEP, y + l * B_STEP);
                    numbers.multiply(sum);
                }
            }
            if (STAGES == 1) __syncwarp();
            if (++done % (CHAIN / DEPTH) == 0) {
                if (done > CHAIN / DEPTH) totals.add_to(sum);
                totals.take(sum);
            }
        }
        if (done >= CHAIN / DEPTH) totals.add_to(sum);
        wait<0>();
        const u32 to = memory + ty * 2 * C_STEP + tx * mine;
#pragma unroll
        for (int i = 0; i < DOWN; i++) {
            const u32 row = to + (i / 2 * 16 + i % 2) * C_STEP;
            const float *s = sum + i * ACROSS;
            if (ACROSS == 2) put(row, s[0], s[1]);
#pragma unroll
            for (int j = 0; j < ACROSS / 4; j++)
                put(row + 64 * j, s[4 * j], s[4 * j + 1], s[4 * j + 2], s[4 * j + 3]);
        }
    }

    // Rows first, first + every, ... of what each lane writes: `every` sums, which lie WORDS apart.
    static __device__ __forceinline__ void store(const End *end, u32 memory, int first, int every);
    static __device__ __forceinline__ void run(const Problem &p, const End *end, u32 memory,
                                               bool shared, const i64 *next);
};

// Bytes of shared memory that a warp has: of the largest shape.
__device__ constexpr int larger(int a, int b) { return a > b ? a : b; }
#if MIXED == 0
constexpr int EACH = Tile<ROWS, COLUMNS>::BYTES;
#elif MIXED == 1 || MIXED == 4
constexpr int EACH = larger(Tile<32, 16>::BYTES, Tile<16, 32>::BYTES);
#elif MIXED == 2
constexpr int EACH = Tile<32, 32>::BYTES;
#else
constexpr int EACH = larger(Tile<32, 32>::BYTES, Tile<64, 16>::BYTES);
#endif

template <int M, int N>
__device__ __forceinline__ void Tile<M, N>::store(const End *end, u32 memory, int first,
                                                  int every) {
    const int lane = threadIdx.x % 32, column = lane % N;
    const int row = lane / N * 2;  // of 32 / N rows at a time, two apart
    float alpha = 1.0f, beta = 0.0f, added = 0.0f;
#if GENERAL
    alpha = (float)__longlong_as_double(end->record[13]);
    beta = (float)__longlong_as_double(end->record[14]);
    const float *bias = (const float *)end->record[3];
    if (bias && column < end->n) added = bias[end->column + column];
#endif
    const Stride c_row = opaque(end->c_row);
    float *c = end->c + (i64)row * c_row + column;
    const int below = column < end->n ? end->m - row : 0;
    memory += row * C_STEP + column * 4;
#pragma unroll
    for (int i = 0; i < M / B_APART; i++) {
        // Rows 0 1, 4 5, 8 9 ... and, of the other half of the lanes, 2 3, 6 7, ...
        const int at = i / 2 * 2 * B_APART + i % 2;
        if ((i & (every - 1)) == first && at < below) {
            float value = one(memory + at * C_STEP);
#pragma unroll 1
            for (int part = 1; part < every; part++)
                value += one(memory + at * C_STEP + part * EACH);
            const float old = GENERAL && beta != 0.0f ? *c : 0.0f;
            *c = finished(value, old, alpha, beta, added);
        }
        c += (i64)(i % 2 ? 2 * B_APART - 1 : 1) * c_row;
    }
}

template <int M, int N>
__device__ __forceinline__ void Tile<M, N>::run(const Problem &p, const End *end, u32 memory,
                                                bool shared, const i64 *next) {
    const int warp = threadIdx.x / 32, first = shared ? warp : 0, every = shared ? WARPS : 1;
    sums(p, memory + warp * EACH, first, every, next);
    if (shared)
        __syncthreads();
    else
        __syncwarp();
    store(end, memory + (shared ? 0 : warp * EACH), first, every);
}

__device__ __forceinline__ void one_tile(const i64 *problems, const int4 tile, float *memory,
                                         u32 mine, bool together, const i64 *next) {
    const int warp = threadIdx.x / 32;
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
        *end = {(float *)cb.x + (i64)tile.y * c_row + tile.z, record, c_row, p.m, p.n, tile.z};
    }
#if MIXED
    if (tile.w == 0) Tile<16, 16>::run(p, end, mine, together, next);
    if (tile.w == 1) Tile<32, 16>::run(p, end, mine, together, next);
    if (tile.w == 2) Tile<16, 32>::run(p, end, mine, together, next);
#if MIXED == 2 || MIXED == 3
    if (tile.w == 3) Tile<32, 32>::run(p, end, mine, together, next);
#endif
#if MIXED == 3
    if (tile.w == 4) Tile<64, 16>::run(p, end, mine, together, next);
    if (tile.w == 5) Tile<64, 8>::run(p, end, mine, together, next);
#endif
#if MIXED > 2
    if (tile.w == 6) Tile<32, 8>::run(p, end, mine, together, next);
#endif
#else
    Tile<ROWS, COLUMNS>::run(p, end, mine, together, next);
#endif
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENT / WARPS)
grouped_warps(const i64 *problems, const int4 *tiles, int count, int shared) {
    extern __shared__ __align__(16) float memory[];
    const int block = blockIdx.x, warp = threadIdx.x / 32;
    const bool together = block < shared;
    u32 mine = (u32)__cvta_generic_to_shared(memory + END * WARPS);
    asm volatile("" : "+r"(mine));  // made once
#if TILES == 1
    const int index = together ? block : shared + (block - shared) * WARPS + warp;
    if (index >= count) return;
    one_tile(problems, __ldg(tiles + index), memory, mine, together, nullptr);
#else
    // A long tile and a short one.
    const int number = (block - shared) * WARPS + warp;
    int index = together ? block : shared + number;
    const int last = together ? index : count - 1 - number;
    if (index > last) return;
    int follows = last > index ? __ldg((const int *)(tiles + last)) : -1;
#pragma unroll 1
    while (true) {
        const i64 *next = follows >= 0 ? problems + 16 * (i64)follows : nullptr;
        one_tile(problems, __ldg(tiles + index), memory, mine, together, next);
        if (follows < 0) return;
        __syncwarp();
        index = last, follows = -1;
    }
#endif
}
