// A row of 64 pixels times weights by mma.sync: what chain_hopper.cuh does, for tensor cores since
// Ampere's. Each warp has 16 of the pixels.
//
//     ldmatrix reads eight runs of 16 bytes, which here are neighbours: of a plane eight pixels, of
//     weights eight outputs. Both operands lie as wgmma wants them.
//
//     left   pixels 0-7 | 8-15, planes c | c+1        right   outputs 0-7 | 8-15, chunks c | c+1
#pragma once
#include "chain_rows.cuh"

__device__ __forceinline__ void read_four(u32 (&v)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ void multiply(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALF "." HALF
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// sums[unit][W outputs] += left x 16 of k, whose weights are two chunks of W outputs.
template <int W>
__device__ __forceinline__ void multiply_chunks(float (&sums)[UNITS][W / 2],
                                                const u32 (&left)[UNITS][4], u32 weights,
                                                const Block& block) {
    u32 own = weights + ((block.lane >> 3 & 1) * W + (block.lane >> 4) * 8 + (block.lane & 7)) * 16;
#pragma unroll
    for (int n = 0; n < W; n += 16) {
        u32 right[4];
        // Of 24 outputs the last eight have no neighbours: both halves read the same.
        read_four(right, n + 8 < W ? own + 16 * n : own + 16 * n - (block.lane >> 4) * 128);
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) {
            multiply(sums[unit] + n / 2, left[unit], right[0], right[1]);
            if (n + 8 < W) multiply(sums[unit] + n / 2 + 4, left[unit], right[2], right[3]);
        }
    }
}

template <int IN, int OUT>
__device__ __forceinline__ void multiply_row(float (&sums)[UNITS][3 * OUT / 2], u32 row,
                                             u32 weights, const Block& block) {
    u32 own = row + (block.lane >> 4) * PLANE + 16 * (1 + 16 * block.warp + (block.lane & 15));
#pragma unroll
    for (int dx = 0; dx < 3; ++dx)
#pragma unroll
        for (int c = 0; c < IN / 8; c += 2) {
            u32 left[UNITS][4];
#pragma unroll
            for (int unit = 0; unit < UNITS; ++unit)
                read_four(left[unit], own + 16 * (dx + 64 * unit) + c * PLANE);
            multiply_chunks<3 * OUT>(sums, left, weights + (dx * (IN / 8) + c) * 48 * OUT, block);
        }
}

template <int COUNT> __device__ __forceinline__ void end_products(float (&)[UNITS][COUNT]) {}

#if INPUTS
__device__ __forceinline__ void multiply_windows(float (&sums)[UNITS][C0 / 2],
                                                 const u32 (&windows)[UNITS][WINDOW16][4],
                                                 u32 weights, const Block& block) {
#pragma unroll
    for (int i = 0; i < WINDOW16; ++i) {
        u32 left[UNITS][4];
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit)
#pragma unroll
            for (int part = 0; part < 4; ++part) left[unit][part] = windows[unit][i][part];
        multiply_chunks<C0>(sums, left, weights + i * 32 * C0, block);
    }
}
#endif

__device__ __forceinline__ void write_word(u32 at, u32 value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
}

__device__ __forceinline__ void store_pixels(u32 at, u32 a, u32 b, u32 c, u32 d,
                                             const Block& block) {
    u32 own = at + 16 * (block.lane >> 2) + 4 * (block.lane & 3);
    write_word(own, a), write_word(own + 128, b);
    write_word(own + PLANE, c), write_word(own + PLANE + 128, d);
}

// Asking does not wait before Hopper; there it does, and leaves the issue slots to others.
#if __CUDA_ARCH__ >= 900
#define ASK "try_wait"
#else
#define ASK "test_wait"
#endif
__device__ __forceinline__ void await(u32 barrier, u32 phase) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier." ASK ".parity.shared.b64 done, [%0], %1;\n"
        "@!done bra again;\n}\n" ::"r"(barrier),
        "r"(phase)
        : "memory");
}

__device__ __forceinline__ void hand_over(u32 barrier, const Block& block) {
    __syncwarp();
    if (block.lane == 0)
        asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}\n" ::"r"(
                         barrier)
                     : "memory");
}
__device__ __forceinline__ void hand_back(u32 barrier, const Block& block) {
    hand_over(barrier, block);  // the warp's own reads are over, as no product runs on
}

__device__ __forceinline__ void fetch_weights(const Chain& p, const Block& block) {
    const uint4* from = (const uint4*)p.blob;
    for (int i = threadIdx.x; i < BLOB / 16; i += THREADS) {
        uint4 v = __ldg(from + i);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(block.base + 16 * i),
                     "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                     : "memory");
    }
}
__device__ __forceinline__ void await_weights(const Block&) {}  // they were there before the rows
