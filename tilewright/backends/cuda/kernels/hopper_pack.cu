// Copies a whole batch of matrices, any address and any strides, into panels that the copy engine
// can read: 64 elements wide, every row 128 aligned bytes.
//
//        source                              panels
//     +----------------+            +--------+ +--------+
//     | row 0 .. cols  |            | 0..63  | | 64..   |   each [rows_padded][64]
//     | row 1          |    ->      |        | |        |
//     +----------------+            +--------+ +--------+
//
// A block takes one item (packing.py): some rows of one matrix, cut into 16-byte blocks, one a
// thread at a time. Nothing is transposed: wgmma reads either order. A block of the destination
// straddles two aligned blocks of the source; both are read whole and shifted together, but for
// what would be read past the last row, where the allocation may end: element by element there.
// What lies past the row, and rows past the last, become zeros: k must be filled up to 16 (planes:
// 64).
// PLANES: fp32 numbers become as many bfloat16 parts, x = x0 + x1 + x2, each in its own panels.
#include "hopper_ptx.cuh"
#include "hopper_store.cuh"

struct Item {
    const char* source;
    char* target;
    long long row_bytes, panel_bytes;
    int rows, rows_filled, blocks, columns;
    int column_bytes, unused;
    long long plane_bytes;
};

constexpr int THREADS = 256, UNROLL = 4;

__device__ __forceinline__ uint4 fetch(const uint4* address) {
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
    return v;
}

#if !PLANES
// `count` (1 to 8) elements that follow one another, as they lie or one by one; nothing is read
// from `end` on.
__device__ __forceinline__ uint4 gather(const char* from, int count, int column_bytes,
                                        const char* end) {
    uint4 v = {0, 0, 0, 0};
    int shift = (int)((u64)from & 15);
    if (column_bytes == 2 && from - shift + (shift + 2 * count > 16 ? 32 : 16) <= end) {
        const uint4* start = (const uint4*)(from - shift);
        v = fetch(start);
        if (shift) {
            uint4 more = {0, 0, 0, 0};
            if (shift + 2 * count > 16) more = fetch(start + 1);
            v = shifted(v, more, shift);
        }
        // Elements past the row: zero.
        u32* words = (u32*)&v;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            words[i] = count >= 2 * i + 2 ? words[i] : count == 2 * i + 1 ? words[i] & 0xffff : 0;
        return v;
    }
    u32 words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        u32 low = 2 * i < count ? *(const u16*)(from + (long long)column_bytes * (2 * i)) : 0;
        u32 high =
            2 * i + 1 < count ? *(const u16*)(from + (long long)column_bytes * (2 * i + 1)) : 0;
        words[i] = low | high << 16;
    }
    return {words[0], words[1], words[2], words[3]};
}
#endif

#if PLANES
__device__ __forceinline__ u32 rounded(float x) {
    u32 bits = __float_as_uint(x);
    // To the nearest, ties to even; what would round to infinity is cut instead, and NaN kept.
    u32 up = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    return (up & 0x7fffffff) >= 0x7f800000
               ? bits & 0xffff0000 | ((bits & 0x7fffffff) > 0x7f800000 ? 0x400000 : 0)
               : up;
}

// `count` floats that follow one another: aligned blocks of four, shifted; zeros past the count.
// Nothing is read from `end` on.
__device__ __forceinline__ void gather(float (&x)[8], const char* from, int count, int column_bytes,
                                       const char* end) {
    int skip = (int)((u64)from & 15) >> 2;
    if (column_bytes != 4 || from - 4 * skip + (skip + count + 3) / 4 * 16 > end) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
            x[i] = i < count ? *(const float*)(from + (long long)column_bytes * i) : 0.0f;
        return;
    }
    const uint4* start = (const uint4*)(from - 4 * skip);
    u32 w[12];
#pragma unroll
    for (int v = 0; v < 3; ++v) {
        uint4 part = {0, 0, 0, 0};
        if (4 * v < skip + count) part = fetch(start + v);
        w[4 * v] = part.x, w[4 * v + 1] = part.y, w[4 * v + 2] = part.z, w[4 * v + 3] = part.w;
    }
#pragma unroll
    for (int i = 0; i < 11; ++i) w[i] = skip & 1 ? w[i + 1] : w[i];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        u32 bits = skip & 2 ? w[i + 2] : w[i];
        x[i] = i < count ? __uint_as_float(bits) : 0.0f;
    }
}

__device__ __forceinline__ void put(char* target, long long plane_bytes, float (&x)[8]) {
#pragma unroll
    for (int p = 0; p < PLANES; ++p) {
        u32 words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            u32 low = rounded(x[2 * i]), high = rounded(x[2 * i + 1]);
            words[i] = low >> 16 | high;
            x[2 * i] -= __uint_as_float(low);
            x[2 * i + 1] -= __uint_as_float(high);
        }
        *(uint4*)(target + plane_bytes * p) = {words[0], words[1], words[2], words[3]};
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS) hopper_pack(const Item* __restrict__ items) {
    Item item = items[blockIdx.x];
    int total = item.rows_filled * item.blocks;
    float inverse = 1.0f / item.blocks;
    for (int start = threadIdx.x; start < total; start += THREADS * UNROLL) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            int i = start + u * THREADS;
            if (i >= total) continue;
            int row = (int)((i + 0.5f) * inverse), block = i - row * item.blocks;
            int count = row < item.rows ? item.columns - 8 * block : 0;
            const char* line = item.source + item.row_bytes * row;
            const char* from = line + (long long)item.column_bytes * (8 * block);
            // Only after the last row, or where rows overlap, may what follows be another's.
            bool last = row == item.rows - 1 || item.row_bytes < 16;
            const char* end = last ? line + (long long)item.column_bytes * item.columns : (char*)~0ull;
            char* to =
                item.target + item.panel_bytes * (block >> 3) + 128ll * row + 16 * (block & 7);
            count = count < 8 ? count : 8;
#if PLANES
            float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            if (count > 0) gather(x, from, count, item.column_bytes, end);
            put(to, item.plane_bytes, x);
#else
            uint4 v = {0, 0, 0, 0};
            if (count > 0) v = gather(from, count, item.column_bytes, end);
            *(uint4*)to = v;
#endif
        }
    }
}
