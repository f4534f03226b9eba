// What a GPU's registers, tensor cores and memories give at most: the kernels of peak.py.
//
//   multiply_add   a thread     chain 0    c0 <- c0 x + y    eight steps unrolled, `rounds` times
//                               chain 1    c1 <- c1 x + y    CHAINS of them, waiting for themselves
//   tensor_warp    a warp       the same with mma.sync 16 x 8 x 16, sums in fp32
//   tensor_group   four warps   64 x 64 by 64 x 256 out of shared memory by wgmma, again and again
//   read_sum       memory       | part of block 0 | part of block 1 | ...   16 bytes a thread; each
//                               round a block moves on by `far` parts: to none that a cache near it
//                               has just seen
//   copy           memory       the same parts, read and written
//   shared_sum     a block      its shared memory, 16 bytes a thread
//
// Operands of tensor cores are numbers without pattern: with zeros the chip draws less power and
// clocks higher than any product of use.
#ifndef CHAINS
#define CHAINS 1
#endif
#ifndef DOUBLE
#define DOUBLE 0
#endif
#ifndef HOPPER
#define HOPPER 0
#endif
#ifndef BF16
#define BF16 1
#endif
#define LEFT_MN 0
#define RIGHT_MN 1
#if HOPPER
#include "hopper_wgmma.cuh"
#else
typedef unsigned int u32;
#if BF16
#define ELEMENT "bf16"
#else
#define ELEMENT "f16"
#endif
#endif

constexpr int STEPS = 8, BLOCK = 256;
#if DOUBLE
typedef double number;
#else
typedef float number;
#endif

// Two halves between 1/2 and 1, of either sign, that look like noise.
__device__ __forceinline__ u32 noise(u32 seed) {
    u32 x = seed * 2654435761u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
#if BF16
    return (x & 0x807f807fu) | 0x3f003f00u;
#else
    return (x & 0x83ff83ffu) | 0x38003800u;
#endif
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    multiply_add(number* out, number x, number y, int rounds) {
    number chain[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) chain[c] = (number)((threadIdx.x & 7) + c);
    for (int i = 0; i < rounds; ++i) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int c = 0; c < CHAINS; ++c) chain[c] = chain[c] * x + y;
    }
    number total = 0;
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) total += chain[c];
    out[blockIdx.x * BLOCK + threadIdx.x] = total;
}

#if __CUDA_ARCH__ >= 800
extern "C" __global__ void __launch_bounds__(BLOCK) tensor_warp(float* out, int rounds) {
    float d[CHAINS][4];
    u32 a[4], b[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = noise(threadIdx.x * 8 + i);
#pragma unroll
    for (int i = 0; i < 2; ++i) b[i] = noise(threadIdx.x * 8 + 4 + i);
#pragma unroll
    for (int c = 0; c < CHAINS; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) d[c][i] = 0.0f;
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int c = 0; c < CHAINS; ++c)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." ELEMENT "." ELEMENT
                             ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(d[c][0]), "+f"(d[c][1]), "+f"(d[c][2]), "+f"(d[c][3])
                             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    float total = 0.0f;
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) total += d[c][0] + d[c][1] + d[c][2] + d[c][3];
    out[blockIdx.x * BLOCK + threadIdx.x] = total;
}
#endif

#if HOPPER
// Two groups of four warps, each a left operand of its own, one right operand for both.
extern "C" __global__ void __launch_bounds__(BLOCK) tensor_group(float* out, int rounds) {
    constexpr int LEFT = 64 * 64 * 2, RIGHT = 64 * 256 * 2;
    extern __shared__ __align__(1024) char memory[];
    u32 base = (shared_address(memory) + 1023) & ~1023u, *words;
    words = (u32*)(memory + (base - shared_address(memory)));
    for (int i = threadIdx.x; i < (2 * LEFT + RIGHT) / 4; i += BLOCK) words[i] = noise(i);
    fence_async();
    __syncthreads();
    float d[128];
#pragma unroll
    for (int i = 0; i < 128; ++i) d[i] = 0.0f;
    u64 left = matrix_descriptor(base + LEFT * (threadIdx.x / 128)),
        right = matrix_descriptor(base + 2 * LEFT);
    for (int r = 0; r < rounds; ++r) {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
            Multiply<256>::go(d, left + i * (32 >> 4), right + i * (2048 >> 4), 1);
        wgmma_commit();
        wgmma_wait<1>();
    }
    wgmma_wait<0>();
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < 128; ++i) total += d[i];
    out[blockIdx.x * BLOCK + threadIdx.x] = total;
}
#endif

extern "C" __global__ void __launch_bounds__(BLOCK)
    read_sum(const float4* __restrict__ in, float* out, int parts, int count, int far,
             int rounds) {
    float4 sum[4] = {};
    for (int r = 0; r < rounds; ++r) {
        const float4* part = in + (blockIdx.x + (long long)r * far) % parts * count;
        for (int i = threadIdx.x; i < count; i += 4 * BLOCK) {
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                float4 v = part[i + u * BLOCK];
                sum[u].x += v.x, sum[u].y += v.y, sum[u].z += v.z, sum[u].w += v.w;
            }
        }
    }
    float total = 0.0f;
#pragma unroll
    for (int u = 0; u < 4; ++u) total += (sum[u].x + sum[u].y) + (sum[u].z + sum[u].w);
    out[blockIdx.x * BLOCK + threadIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    copy(const float4* __restrict__ in, float4* __restrict__ to, long long count) {
    long long step = (long long)gridDim.x * BLOCK;
    for (long long i = (long long)blockIdx.x * BLOCK + threadIdx.x; i < count; i += step)
        to[i] = in[i];
}

extern "C" __global__ void __launch_bounds__(BLOCK) shared_sum(float* out, int rounds) {
    constexpr int VECTORS = 8 * BLOCK;  // 32 KiB
    __shared__ float4 held[VECTORS];
    for (int i = threadIdx.x; i < VECTORS; i += BLOCK) held[i] = {1.0f, 0.5f, 0.25f, 0.125f};
    __syncthreads();
    float4 sum[8] = {};
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
        for (int u = 0; u < 8; ++u) {
            float4 v = held[(threadIdx.x + r + u * BLOCK) & (VECTORS - 1)];
            sum[u].x += v.x, sum[u].y += v.y, sum[u].z += v.z, sum[u].w += v.w;
        }
    }
    float total = 0.0f;
#pragma unroll
    for (int u = 0; u < 8; ++u) total += (sum[u].x + sum[u].y) + (sum[u].z + sum[u].w);
    out[blockIdx.x * BLOCK + threadIdx.x] = total;
}

extern "C" __global__ void empty() {}
