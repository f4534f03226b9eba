// deep: the shares of products with a long k, copies, and where sums go; for deep_half.cu.
//
//    all steps of k of all 64 x 64 tiles, one tile behind another, cut into shares of one length
//    | tile 0      | tile 1          | tile 2  | ...
//    | block 0  | block 1  | block 2  | ...                starts[b] .. starts[b + 1]: its entries
//       entry 0   1    2     3    4     5                  an entry: some k of one tile
//
// A tile that one block has whole becomes C at once. The parts of a cut one go to scratch, dense,
// and are added in a second launch, in the order of k (sum_parts.py), so bits never differ.
#pragma once
#include "activated.cuh"
typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

// How many bytes of what follows whole copies bring into L2.
#if AHEAD == 256
#define BRINGS ".L2::256B"
#elif AHEAD == 128
#define BRINGS ".L2::128B"
#else
#define BRINGS ""
#endif

constexpr int SIDE = 64;

// As ENTRY of backends/cuda/deep/shares.py. `to`: where in scratch, in sums; -1 for C itself.
struct Entry {
    int problem, row, column, begin, end, unused;
    i64 to;
};

// Copies of 16 bytes, of which the last ones may become zeros, past the registers.
__device__ __forceinline__ void copy_sixteen(u32 to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void copy_sixteen(u32 to, const void *from) {
    asm volatile("cp.async.cg.shared.global" BRINGS " [%0], [%1], 16;" ::"r"(to), "l"(from)
                 : "memory");
}
__device__ __forceinline__ void copies_end() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ float widened(u16 bits) {
#if BF16
    return __uint_as_float((u32)bits << 16);
#else
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
#endif
}
__device__ __forceinline__ void narrow(float x, u16 *to) {
#if BF16
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*to) : "f"(x));
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(*to) : "f"(x));
#endif
}

// Where sums of an entry go: activation(alpha sum + beta C + bias), or as they are into scratch.
struct Ending {
    u16 *c;
    const u16 *bias;
    float *parts;
    i64 row_step, column_step;
    float alpha, beta;
    int rows, columns;  // of the tile that exist

    __device__ __forceinline__ Ending(const i64 *p, const Entry &e, float *scratch) {
        rows = min((int)p[4] - e.row, SIDE), columns = min((int)p[5] - e.column, SIDE);
        parts = e.to < 0 ? nullptr : scratch + e.to;
        row_step = p[11], column_step = p[12];
        c = (u16 *)p[2] + e.row * row_step + e.column * column_step;
        bias = p[3] ? (const u16 *)p[3] + e.column : nullptr;
        alpha = (float)__longlong_as_double(p[13]);
        beta = (float)__longlong_as_double(p[14]);
    }
    __device__ __forceinline__ void put(int row, int column, float sum) const {
        if (row >= rows || column >= columns) return;
        if (parts) {
            parts[row * columns + column] = sum;
            return;
        }
        u16 *to = c + row * row_step + column * column_step;
        float value = alpha * sum;
        if (beta != 0.0f) value += beta * widened(*to);
        if (bias) value += widened(bias[column]);
        narrow(activated(value), to);
    }
};
