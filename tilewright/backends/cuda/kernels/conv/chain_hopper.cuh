// A row of 64 pixels times weights, on Hopper's tensor cores, from shared memory without swizzle.
//
//     left: 64 pixels x 16 channels            right: 16 channels x W
//     plane c    |p0|p1|p2|...                 chunk c    |o0|o1|...|oW-1|    16 bytes each
//     plane c+1  |p0|p1|p2|...  PLANE on       chunk c+1  |o0|o1|...          16 W on
//
// Eight neighbours are 128 bytes in a row, so that a window shifted by a pixel only begins 16
// bytes further: what a swizzle would not allow.
#pragma once
#include "chain_rows.cuh"
#define LEFT_MN 0
#define RIGHT_MN 0
#include "hopper_wgmma.cuh"

#define Q0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define Q2 "%8,%9,%10,%11"
#define Q3 "%16,%17,%18,%19,%20,%21,%22,%23"
WGMMA(24, Q0 "," Q2, "%12", "%13", "%14", V4(0), V4(4), V4(8))
WGMMA(48, P0 "," Q3, "%24", "%25", "%26", V16(0), V4(16), V4(20))

// The same with the left in registers.
template <int W> struct MultiplyHeld;
#define WGMMA_HELD(W, LIST, A0, A1, A2, A3, R, ...)                                             \
    template <> struct MultiplyHeld<W> {                                                       \
        static __device__ __forceinline__ void go(float (&d)[W / 2], const u32 (&a)[4],         \
                                                  u64 right) {                                 \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #W "k16.f32." ELEMENT "." ELEMENT \
                         " {" LIST "}, {" A0 "," A1 "," A2 "," A3 "}, " R ", 1, 1, 1, 0;\n"    \
                         : __VA_ARGS__                                                         \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right));            \
        }                                                                                      \
    };
WGMMA_HELD(16, Q0, "%8", "%9", "%10", "%11", "%12", V4(0), V4(4))
WGMMA_HELD(32, P0, "%16", "%17", "%18", "%19", "%20", V16(0))
WGMMA_HELD(48, P0 "," Q3, "%24", "%25", "%26", "%27", "%28", V16(0), V4(16), V4(20))
WGMMA_HELD(64, P0 "," P1, "%32", "%33", "%34", "%35", "%36", V32(0))

// `along`: bytes from eight of k to the next eight.
__device__ __forceinline__ u64 operand(u32 address, int along) {
    return ((u64)((address & 0x3ffff) >> 4)) | ((u64)(along >> 4) << 16) | ((u64)(128 >> 4) << 32);
}

// Sums are what the compiler thinks they are only after the products that write them have ended.
template <int COUNT> __device__ __forceinline__ void settle(float (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// Begins a row's products with the weights of a layer, sums[unit][three rows][OUT].
template <int IN, int OUT>
__device__ __forceinline__ void multiply_row(float (&sums)[UNITS][3 * OUT / 2], u32 row,
                                             u32 weights, const Block&) {
    // An operand further on is its address's sixteenth more.
    u64 left = operand(row, PLANE), right = operand(weights, 48 * OUT);
    wgmma_fence();
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit)
#pragma unroll
        for (int dx = 0; dx < 3; ++dx)
#pragma unroll
            for (int c = 0; c < IN / 8; c += 2)
                Multiply<3 * OUT>::go(sums[unit],
                                      left + (1 + dx + 64 * unit) + c * (PLANE / 16),
                                      right + (dx * (IN / 8) + c) * 3 * OUT, 1);
    wgmma_commit();
}

template <int COUNT> __device__ __forceinline__ void end_products(float (&sums)[UNITS][COUNT]) {
    wgmma_wait<0>();
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit) settle(sums[unit]);
}

#if INPUTS
// The first layer's products, its windows in registers.
__device__ __forceinline__ void multiply_windows(float (&sums)[UNITS][C0 / 2],
                                                 const u32 (&windows)[UNITS][WINDOW16][4],
                                                 u32 weights, const Block&) {
    wgmma_fence();
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit)
#pragma unroll
        for (int i = 0; i < WINDOW16; ++i)
            MultiplyHeld<C0>::go(sums[unit], windows[unit][i],
                                 operand(weights + i * 32 * C0, 16 * C0));
    wgmma_commit();
    end_products(sums);
}
#endif

// 16 pixels of 16 channels from where products leave their sums: pixels 0-7 and 8-15 of the first
// plane, then of the next. `at`: the first pixel in the first plane.
__device__ __forceinline__ void store_pixels(u32 at, u32 a, u32 b, u32 c, u32 d,
                                             const Block& block) {
    u32 own = at + (block.lane >> 4) * PLANE + 16 * (block.lane & 15);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(own),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

__device__ __forceinline__ void await(u32 barrier, u32 phase) { barrier_wait(barrier, phase); }

// A row that this warp has written, or read, is the other side's.
__device__ __forceinline__ void hand_over(u32 barrier, const Block& block) {
    fence_async();
    __syncwarp();
    if (block.lane == 0) barrier_arrive(barrier);
}
__device__ __forceinline__ void hand_back(u32 barrier, const Block& block) {
    if (block.lane == 0) barrier_arrive(barrier);
}

// Weights and biases, on their way while the rings fill.
__device__ __forceinline__ void fetch_weights(const Chain& p, const Block& block) {
    if (threadIdx.x) return;
    barrier_init(block.weights(), 1);
    fence_async();
    barrier_expect(block.weights(), BLOB);
    load_bytes(block.base, p.blob, BLOB, block.weights());
}
__device__ __forceinline__ void await_weights(const Block& block) {
    barrier_wait(block.weights(), 0);
}
