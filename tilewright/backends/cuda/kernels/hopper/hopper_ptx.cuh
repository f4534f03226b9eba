// The instructions of Hopper that C++ has no words for, one small function each.
//
//   mbarrier     a counter in shared memory that threads and the copy engine arrive at
//   TMA          one thread asks the copy engine for a box of 64 x 64 elements (128-byte rows,
//                swizzled) into or out of shared memory
//   cluster      blocks that see each other's shared memory; a box may go to all of them
//   wgmma        four warps multiply 64 x 16 by 16 x W out of shared memory into registers
//
// Names and meanings are those of NVIDIA's PTX ISA 8.x. What one-bit kernels use too is in
// hopper_machine.cuh; but not shared_address, as their way of it makes other machine code here.
// BF16 (0: f16), LEFT_MN and RIGHT_MN (1: k is not contiguous) come from outside.
#pragma once
#include "hopper_machine.cuh"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#if BF16
#define ELEMENT "bf16"
#else
#define ELEMENT "f16"
#endif

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    u64 address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(pointer));
    return (u32)address;
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void write_one(u32 address, u32 value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void write_zeros(u32 address) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0) : "memory");
}

__device__ __forceinline__ void load_box(u32 into, const void* map, int x, int y, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(into),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// The same box to the same place in every block of the cluster, and the bytes told to the barrier
// at the same place there.
template <int MEMBERS>
__device__ __forceinline__ void load_box_to_all(u32 into, const void* map, int x, int y,
                                                u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(into),
        "l"(map), "r"(x), "r"(y), "r"(barrier), "h"((u16)((1 << MEMBERS) - 1))
        : "memory");
}

// Where `address` of this block's shared memory lies in that of the cluster's block `rank`.
__device__ __forceinline__ u32 address_in(u32 address, u32 rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// Says that reads are over, which the reader has waited for; hands no written data on. Release at
// cluster scope, which that would need, is a fence of the whole GPU in machine code.
__device__ __forceinline__ void barrier_arrive_in_cluster(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Until all threads of all blocks of the cluster are here, or gone.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void prefetch_map(const void* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Maps in global memory were copied there, perhaps over others: their readers must not have those
// cached. Of the whole system, as the host's copies are; of launches' own arguments none is needed.
__device__ __forceinline__ void acquire_map(const void* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

__device__ __forceinline__ void store_box(const void* map, int x, int y, u32 from) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
            map),
        "r"(x), "r"(y), "r"(from)
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Where an operand of wgmma lies: 128-byte swizzle; with k contiguous, 8 rows of 128 bytes make a
// group and the next group follows 1024 bytes on; otherwise boxes of 64 columns follow one another
// 8192 bytes apart (the "leading" offset), groups of 8 k within one 1024 apart.
__device__ __forceinline__ u64 matrix_descriptor(u32 address) {
    return ((u64)((address & 0x3ffff) >> 4)) | ((u64)(8192 >> 4) << 16) | ((u64)(1024 >> 4) << 32) |
           ((u64)1 << 62);
}

#define V4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define V16(i) V4(i), V4(i + 4), V4(i + 8), V4(i + 12)
#define V32(i) V16(i), V16(i + 16)
#define V64(i) V32(i), V32(i + 32)

// d (+)= left x right. `keep` zero: d is overwritten. The last two immediates say which operands
// have k not contiguous.
#define WGMMA(W, LIST, L, R, K, ...)                                                           \
    template <> struct Multiply<W> {                                                           \
        static __device__ __forceinline__ void go(float (&d)[W / 2], u64 left, u64 right,      \
                                                  int keep) {                                  \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " K                                 \
                         ", 0;\n"                                                              \
                         "wgmma.mma_async.sync.aligned.m64n" #W "k16.f32." ELEMENT "." ELEMENT \
                         " {" LIST "}, " L ", " R                                              \
                         ", p, 1, 1, " TEXT(LEFT_MN) ", " TEXT(RIGHT_MN) ";\n}\n"              \
                         : __VA_ARGS__                                                         \
                         : "l"(left), "l"(right), "r"(keep));                                  \
        }                                                                                      \
    };

template <int W> struct Multiply;
WGMMA(32, P0, "%16", "%17", "%18", V16(0))
WGMMA(64, P0 "," P1, "%32", "%33", "%34", V32(0))
WGMMA(96, P0 "," P1 "," P2, "%48", "%49", "%50", V32(0), V16(32))
WGMMA(128, P0 "," P1 "," P2 "," P3, "%64", "%65", "%66", V64(0))
WGMMA(160, P0 "," P1 "," P2 "," P3 "," P4, "%80", "%81", "%82", V64(0), V16(64))
WGMMA(192, P0 "," P1 "," P2 "," P3 "," P4 "," P5, "%96", "%97", "%98", V64(0), V32(64))
WGMMA(224, P0 "," P1 "," P2 "," P3 "," P4 "," P5 "," P6, "%112", "%113", "%114", V64(0), V32(64),
      V16(96))
WGMMA(256, P0 "," P1 "," P2 "," P3 "," P4 "," P5 "," P6 "," P7, "%128", "%129", "%130", V64(0),
      V64(64))
