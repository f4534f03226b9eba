// deep_half: products of halves with a long k, whose rows of A may begin anywhere: read at the rate
// of memory. Shares of blocks are drawn in deep.cuh; fp32 sums, mma of 16 x 8 x 16.
//
//    a row of A, as it lies in memory                 shared memory: the same whole sixteens
//    .. 16 bytes | 16 bytes | ...                     r = 0 .. 7 numbers lie before the row's first
//         r ^ first of k                              k; 8 rows on r is the same
//
//    k of a step       0 .. 31   32 .. 63   64 .. 95   96 .. 127
//    lane % 4             0         1          2          3      a lane's own of rows g and g + 8
//
// A copy of odd rows to where they are aligned would be a pass of its own, loads of 2 bytes took
// 0.60 ms of 500 products of 64 x 64 by 1,000 to 20,000 (Triton, H200) where bytes alone take 0.33.
// So rows are copied 16 bytes at a time, a lane reads 32 numbers and up to 7 on either side of them
// and moves them into place in registers. Tensor cores do not mind in which order k comes: product
// j of a step takes of each lane its numbers 4 j .. 4 j + 3, and ldmatrix fetches just those rows
// of B. B's chunks of 8 columns are stored by `place`, so that those rows never share banks.
#include "deep.cuh"

static_assert(WARPS == 4, "16 rows of 64 a warp");
constexpr int THREADS = 32 * WARPS, DEPTH = 128, CHUNK = 8;
constexpr int A_CHUNKS = DEPTH / CHUNK + 1, A_STEP = 16 * (A_CHUNKS + 1), B_STEP = 2 * SIDE;
constexpr int A_BYTES = SIDE * A_STEP, STAGE = A_BYTES + DEPTH * B_STEP;

// Where a row's chunk lies: after the eighth one is left out, for the last one. Reads of 4 lanes 32
// numbers apart, in rows that follow one another, are in banks of their own.
__device__ __forceinline__ int slot(int chunk) {
    return chunk < 8 ? chunk : chunk == A_CHUNKS - 1 ? 8 : chunk + 1;
}
// Rows of B that one product takes differ in this, 0 to 7.
__device__ __forceinline__ int place(int k) { return (k >> 5) * 2 + (k & 1); }

// What comes of one entry: k from `begin` to `end`, of rows and columns that exist.
struct Feed {
    const u16 *a, *b;
    i64 a_step, b_step;
    int rows, columns, depth, steps;
    bool whole, wide;

    __device__ __forceinline__ Feed(const i64 *p, const Entry &e) {
        a_step = p[7], b_step = p[9];
        a = (const u16 *)p[0] + e.row * a_step + e.begin;
        b = (const u16 *)p[1] + e.begin * b_step + e.column;
        rows = (int)p[4] - e.row, columns = (int)p[5] - e.column, depth = e.end - e.begin;
        steps = (depth + DEPTH - 1) / DEPTH;
        wide = ((b_step * 2 | p[1]) & 15) == 0;
        whole = rows >= SIDE && columns >= SIDE && wide;
    }
    // How many numbers the row lies behind a multiple of 16 bytes.
    __device__ __forceinline__ int before(int row) const {
        return (int)((u64)(a + row * a_step) >> 1) & 7;
    }
    __device__ __forceinline__ void load(int step, u32 to, u16 *memory) const {
        if (step < steps) {
            const int left = depth - step * DEPTH;
            // The last chunk of a row may reach up to 8 numbers beyond the step.
            if (whole && left >= DEPTH + CHUNK) load_whole(step, to);
            else load_some(step, left, to, memory);
        }
        copies_end();
    }
    __device__ __forceinline__ void load_whole(int step, u32 to) const {
        const int thread = threadIdx.x, row = thread / 16, chunk = thread % 16;
        const i64 past = 2ll * step * DEPTH;
        const char *from = (const char *)((u64)(a + row * a_step) & ~15ull) + past;
        const u32 at = to + row * A_STEP + 16 * slot(chunk);
#pragma unroll
        for (int i = 0; i < SIDE / 8; i++)
            copy_sixteen(at + 8 * i * A_STEP, from + 16 * chunk + 16 * i * a_step);
        if (thread < SIDE) {
            from = (const char *)((u64)(a + thread * a_step) & ~15ull) + past;
            copy_sixteen(to + thread * A_STEP + 16 * 8, from + 16 * (A_CHUNKS - 1));
        }
        const int k = thread / 8;
        const u16 *source = b + (i64)(step * DEPTH + k) * b_step + thread % 8 * CHUNK;
        const u32 there = to + A_BYTES + k * B_STEP;
        const int chunk_b = thread % 8 ^ (k & 1);
#pragma unroll
        for (int i = 0; i < DEPTH / 16; i++) {
            copy_sixteen(there + 16 * i * B_STEP + ((chunk_b ^ i / 2 * 2) << 4), source);
            source += 16 * b_step;
        }
    }
    // At the edges: of each chunk only what exists, zeros for the rest.
    __device__ __forceinline__ void load_some(int step, int left, u32 to, u16 *memory) const {
        const int thread = threadIdx.x;
        const char *start = (const char *)((u64)a & ~15ull);
#pragma unroll 1
        for (int i = thread; i < SIDE * A_CHUNKS; i += THREADS) {
            const int row = i / A_CHUNKS, chunk = i % A_CHUNKS;
            const char *first = (const char *)(a + row * a_step + (i64)step * DEPTH);
            const char *from = (const char *)((u64)first & ~15ull) + 16 * chunk;
            const i64 rest = first + 2 * min(left, DEPTH + CHUNK) - from;
            const int bytes = row < rows ? (int)max(0ll, min(16ll, rest)) : 0;
            copy_sixteen(to + row * A_STEP + 16 * slot(chunk), bytes ? from : start, bytes);
        }
#pragma unroll 1
        for (int i = thread; i < DEPTH * (SIDE / CHUNK); i += THREADS) {
            const int k = i / 8, chunk = i % 8;
            const u16 *from = b + (i64)(step * DEPTH + k) * b_step + chunk * CHUNK;
            const int some = k < left ? max(0, min(CHUNK, columns - chunk * CHUNK)) : 0;
            const u32 at = A_BYTES + k * B_STEP + ((chunk ^ place(k)) << 4);
            if (wide) {
                copy_sixteen(to + at, some ? from : b, 2 * some);
            } else {
#pragma unroll
                for (int j = 0; j < CHUNK; j++) memory[at / 2 + j] = j < some ? from[j] : (u16)0;
            }
        }
    }
};

// Numbers 32 lane .. 32 lane + 31 of a row that begins `before` numbers in: two a word.
__device__ __forceinline__ void read_row(u32 (&word)[16], u32 row, int lane, int before) {
    u32 w[20];
    const u32 first = row + 16 * slot(4 * lane), last = row + 16 * slot(4 * lane + 4);
#pragma unroll
    for (int i = 0; i < 5; i++)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[4 * i]), "=r"(w[4 * i + 1]), "=r"(w[4 * i + 2]), "=r"(w[4 * i + 3])
                     : "r"(i < 4 ? first + 16 * i : last));
#pragma unroll
    for (int i = 0; i < 18; i++) w[i] = before & 4 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 17; i++) w[i] = before & 2 ? w[i + 1] : w[i];
    const u32 choice = before & 1 ? 0x5432 : 0x3210;
#pragma unroll
    for (int i = 0; i < 16; i++) word[i] = __byte_perm(w[i], w[i + 1], choice);
}

__device__ __forceinline__ void read_columns(u32 (&b)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(at));
}

#if BF16
#define MMA_TYPES ".f32.bf16.bf16.f32"
#else
#define MMA_TYPES ".f32.f16.f16.f32"
#endif

__device__ __forceinline__ void multiply(float (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0,
                                         u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col" MMA_TYPES
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// One step: 16 rows of this warp by 64 columns.
__device__ __forceinline__ void add_step(float (&sum)[8][4], u32 stage, int before) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 upper[16], lower[16];
    const u32 row = stage + (16 * warp + lane / 4) * A_STEP;
    read_row(upper, row, lane % 4, before);
    read_row(lower, row + 8 * A_STEP, lane % 4, before);
    // Of ldmatrix lane l names row l % 8 of matrix l / 8: k by two, for either half of k, then of
    // the next 8 columns.
    const int which = lane % 8, half = lane / 8 % 2, next = lane / 16;
    const int k = which / 2 * 32 + half * 2 + which % 2;
    const u32 from = stage + A_BYTES + k * B_STEP, turn = (next ^ place(k)) << 4;
#pragma unroll
    for (int j = 0; j < DEPTH / 16; j++)
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            u32 b[4];
            read_columns(b, from + 4 * j * B_STEP + (turn ^ n << 4));
            multiply(sum[n], upper[2 * j], lower[2 * j], upper[2 * j + 1], lower[2 * j + 1], b[0],
                     b[1]);
            multiply(sum[n + 1], upper[2 * j], lower[2 * j], upper[2 * j + 1], lower[2 * j + 1],
                     b[2], b[3]);
        }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
deep_half(const i64 *problems, const Entry *entries, const int *starts, float *scratch) {
    extern __shared__ __align__(128) u16 memory[];
    const u32 shared = (u32)__cvta_generic_to_shared(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
    for (int which = starts[blockIdx.x]; which < starts[blockIdx.x + 1]; which++) {
        const Entry e = entries[which];
        const i64 *p = problems + 16 * (i64)e.problem;
        const Feed feed(p, e);
        const int before = feed.before(lane / 4);
#pragma unroll 1
        for (int i = 0; i < STAGES - 1; i++) feed.load(i, shared + i * STAGE, memory + i * STAGE / 2);
        float sum[8][4] = {};
        int now = 0, later = STAGES - 1;
#pragma unroll 1
        for (int step = 0; step < feed.steps; step++) {
            copies_wait<STAGES - 2>();
            __syncthreads();  // what came is there, and all are done with the stage before
            feed.load(step + STAGES - 1, shared + later * STAGE, memory + later * STAGE / 2);
            add_step(sum, shared + now * STAGE, before);
            now = now + 1 == STAGES ? 0 : now + 1, later = later + 1 == STAGES ? 0 : later + 1;
        }
        copies_wait<0>();
        __syncthreads();
        const Ending ending(p, e, scratch);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                ending.put(16 * warp + lane / 4 + i / 2 * 8, 8 * n + lane % 4 * 2 + i % 2,
                           sum[n][i]);
    }
}
