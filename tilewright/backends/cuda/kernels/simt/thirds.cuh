// thirds: fp32 tiles on tensor cores, as exact as fp32's own. A block makes SIDE x SIDE sums.
//
//    x = x0 + x1 + x2     bf16 each: x rounded, and of what is left all 16 bits
//    a b = a0 b0  +  a0 b1 + a1 b0 + a0 b2 + a1 b1 + a2 b0       what is left out is below 2^-25
//          |         |
//          |         low: one sum, which tensor cores keep
//          16 of k a time, added up in fp32 registers: their own sums are cut, not rounded
//
//          columns   0 .. 31   32 .. 63
//               +---------+---------+
//    rows 0 ..  | warp 0  | warp 1  |     32 x 32 sums a warp, 2 x 4 tiles of mma's 16 x 8; a lane
//        32 ..  | warp 2  | warp 3  |     has 4 rows of them by 8 columns
//               +---------+---------+
//
// bf16 has fp32's exponents, so there is no scale to choose and no size of number that does not
// suit, as there is with halves of fp16 (hopper_split.cu). Infinities, NaN and overflow come out as
// such or as NaN; blocks that have any compute their tile again by fp32 multiplications and take
// those sums from there. Blocks of operands come into shared memory as they lie and are split once,
// into three blocks of bf16 beside them, of which ldmatrix makes mma's operands.
#pragma once
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;

constexpr int THREADS = SIDE * SIDE / 32, DEPTH = 32, PAD = 4, C_STEP = SIDE + 1;
constexpr bool CLEAN = true;  // what does not exist must not look like an infinity
constexpr int SPLIT_CHAIN = 512, CHAIN = 128;  // of k: 32 sums of 16 each, and 128 products
constexpr int PITCH = DEPTH / 2 + 4, PLANE = SIDE * PITCH;  // words of a third of a block
#include "tiles.cuh"

// k along the rows of an operand, which stay rows. 16 bytes at a time where EACH is 4.
template <int EACH> struct Along {
    static constexpr int BESIDE = DEPTH / EACH, APART = THREADS / BESIDE, STEP = DEPTH + 8;
    static constexpr int WORDS = SIDE * STEP;
    static constexpr bool K_FIRST = true;
    static __device__ __forceinline__ Source of(const float *at, i64 step, int left) {
        const int row = threadIdx.x / BESIDE;
        return {at, at + row * step + threadIdx.x % BESIDE * EACH, step, left - row};
    }
    template <bool INSIDE>
    static __device__ __forceinline__ void load(const Source &s, i64 k, int depth, u32 to) {
        const int mine = threadIdx.x % BESIDE * EACH, row = threadIdx.x / BESIDE;
        const float *from = s.first + k;
        to += (row * STEP + mine) * 4;
#pragma unroll
        for (int i = 0; i < SIDE / APART; i++) {
            const bool inside = INSIDE || (mine < depth && i * APART < s.left);
            copy<4 * EACH>(to + i * APART * STEP * 4, inside ? from : s.matrix, inside);
            from += APART * s.step;
        }
    }
    static __device__ __forceinline__ float2 pair(const float *block, int place, int k) {
        return *(const float2 *)(block + place * STEP + k);
    }
};

// Two numbers of neighbouring k as three pairs of bf16.
struct Thirds {
    u32 part[3];
};

// The first is rounded, half away from zero, so that what is left is small; the others are cut.
__device__ __forceinline__ Thirds thirds(float2 x) {
    Thirds t;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        u32 low = __float_as_uint(x.x), high = __float_as_uint(x.y);
        if (i == 0) low += 0x8000, high += 0x8000;
        t.part[i] = __byte_perm(low, high, 0x7632);
        x.x -= __uint_as_float(low & 0xffff0000u);
        x.y -= __uint_as_float(high & 0xffff0000u);
    }
    return t;
}

// Splits a block of an operand as it came, [place][k] or [k][place], into three of bf16 pairs,
// [place][k]. A thread takes four of k at a time.
template <class O> __device__ __forceinline__ void split(u32 *planes, const float *block) {
#pragma unroll
    for (int i = 0; i < SIDE * DEPTH / 4 / THREADS; i++) {
        const int at = threadIdx.x + i * THREADS;
        const int place = O::K_FIRST ? at / (DEPTH / 4) : at % SIDE;
        const int k = (O::K_FIRST ? at % (DEPTH / 4) : at / SIDE) * 4;
        const Thirds t = thirds(O::pair(block, place, k)), u = thirds(O::pair(block, place, k + 2));
#pragma unroll
        for (int p = 0; p < 3; p++)
            *(uint2 *)(planes + p * PLANE + place * PITCH + k / 2) = {t.part[p], u.part[p]};
    }
}

// Four 8 x 8 blocks of bf16, a row of one from each lane's address.
__device__ __forceinline__ void load_blocks(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// d = a b + c: rows by 16 of k, by columns.
__device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], const u32 *b,
                                    const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
          "f"(c[2]), "f"(c[3]));
}

// Where a lane's sums are: `row` and 8 below it in each of two times 16, `column` and the next in
// each of four times 8. Sum 16 i + 4 j + 2 half + next.
struct Place {
    int row, column;
    __device__ __forceinline__ Place() {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, across = SIDE / 32;
        row = warp / across * 32 + lane / 4, column = warp % across * 32 + lane % 4 * 2;
    }
};

// Adds 16 of k from `k` on, by six products.
__device__ __forceinline__ void add_split(float (&sum)[SUMS], float (&low)[2][4][4], u32 planes,
                                          int k) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, across = SIDE / 32;
    const u32 left = planes + 4 * ((warp / across * 32 + lane % 16) * PITCH + lane / 16 * 4 + k / 2);
    const u32 right = planes + 4 * (3 * PLANE + k / 2 + lane / 8 % 2 * 4 +
                                    (warp % across * 32 + lane / 16 * 8 + lane % 8) * PITCH);
    u32 b[3][2][4];  // of two tiles of 8 columns each
#pragma unroll
    for (int p = 0; p < 3; p++)
#pragma unroll
        for (int j = 0; j < 2; j++) load_blocks(b[p][j], right + 4 * (p * PLANE + 16 * j * PITCH));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 a[3][4];
#pragma unroll
        for (int p = 0; p < 3; p++) load_blocks(a[p], left + 4 * (p * PLANE + 16 * i * PITCH));
        float high[4][4];
        const float zero[4] = {};
#pragma unroll
        for (int j = 0; j < 4; j++) mma(high[j], a[0], b[0][j / 2] + j % 2 * 2, zero);
#pragma unroll
        for (int p = 2; p >= 0; p--)  // the smallest first
#pragma unroll
            for (int q = 2 - p; q >= (p == 0); q--)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    mma(low[i][j], a[p], b[q][j / 2] + j % 2 * 2, low[i][j]);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) sum[16 * i + 4 * j + c] += high[j][c];
    }
}

// Adds as much by fp32 multiplications.
template <class A, class B>
__device__ __forceinline__ void add_exact(float (&sum)[SUMS], const float *left, const float *right,
                                          int k, const Place &at) {
#pragma unroll 1
    for (int l = k; l < k + 16; l += 2) {
        float2 x[4], y[8];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = A::pair(left, at.row + 8 * i, l);
#pragma unroll
        for (int j = 0; j < 8; j++) y[j] = B::pair(right, at.column + j / 2 * 8 + j % 2, l);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float &s = sum[i / 2 * 16 + j / 2 * 4 + i % 2 * 2 + j % 2];
                s = fmaf(x[i].y, y[j].y, fmaf(x[i].x, y[j].x, s));
            }
    }
}

// The tile's sums over all of k.
template <class A, class B, bool EXACT>
__device__ __forceinline__ void add_up(float (&sum)[SUMS], float *memory, const Source &a,
                                       const Source &b, int k, bool inside, const Place &at) {
    Feed<A, B> feed(a, b, k, inside, memory);
    u32 *planes = (u32 *)(memory + STAGES * (A::WORDS + B::WORDS));
    Chains<SUMS> chains;
    float low[2][4][4] = {};
    constexpr int TOGETHER = (EXACT ? CHAIN : SPLIT_CHAIN) / DEPTH;
    auto end_of_chain = [&] {
        if (EXACT) return;
#pragma unroll
        for (int i = 0; i < SUMS; i++) {
            float &rest = low[i / 16][i / 4 % 4][i % 4];
            sum[i] += rest, rest = 0.0f;
        }
    };
    for (int begin = 0; begin < feed.steps; begin += TOGETHER) {
        if (begin) {
            end_of_chain();
            chains.turn(sum);
        }
        while (feed.within(begin + TOGETHER)) {
            const float *left = memory + feed.next(), *right = left + A::WORDS;
            if (!EXACT) {
                split<A>(planes, left);
                split<B>(planes + 3 * PLANE, right);
                __syncthreads();
            }
#pragma unroll
            for (int l = 0; l < DEPTH; l += 16)
                if (EXACT)
                    add_exact<A, B>(sum, left, right, l, at);
                else
                    add_split(sum, low, (u32)__cvta_generic_to_shared(planes), l);
        }
    }
    end_of_chain();
    chains.add_to(sum);
    feed.end();
}

// The block's tile of sums, which is left in `memory`, a row every C_STEP numbers. `k` may be 0.
template <class A, class B>
__device__ __forceinline__ void multiply(float *memory, const Source &a, const Source &b, int k,
                                         bool inside) {
    const Place at;
    float sum[SUMS] = {};
    add_up<A, B, false>(sum, memory, a, b, k, inside, at);
    u32 strange = 0;  // which are no numbers
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        if (!(fabsf(sum[i]) < __int_as_float(0x7f800000))) strange |= 1u << i;
    if (__syncthreads_or(strange != 0)) {
        Totals<SUMS> kept;
        kept.take(sum);
        add_up<A, B, true>(sum, memory, a, b, k, inside, at);
        // One by one, so that a row's bits do not depend on what lies beside it.
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            if (!(strange >> i & 1)) sum[i] = kept.one(i);
    }
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        const int row = at.row + i / 16 * 16 + i / 2 % 2 * 8, column = at.column + i / 4 % 4 * 8;
        memory[row * C_STEP + column + i % 2] = sum[i];
    }
    __syncthreads();
}
