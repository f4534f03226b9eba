// How pieces of C, each 64 rows of 128 bytes in swizzled shared memory, get to memory.
//
//   aligned rows   one thread asks the copy engine, which clips at the matrix's edge
//   any rows       the pieces of a tile side by side, 8 lanes a piece: 16-byte stores at the
//                  destination's alignment, with elements shifted to it, single ones at both ends
//
//   piece 0        piece 1                       head            16 bytes each           tail
//   | 8 chunks     | 8 chunks     |       ->     |..|--------|--------| ... |--------|....|
//
// One row of the tile at a time, not of a piece: fewer ends.
#pragma once

// The 16 bytes that start `shift` bytes (even, under 16) into two neighbouring blocks.
__device__ __forceinline__ uint4 shifted(uint4 a, uint4 b, int shift) {
    bool one = shift & 4, two = shift & 8;
    u32 w0 = two ? a.z : a.x, w1 = two ? a.w : a.y, w2 = two ? b.x : a.z, w3 = two ? b.y : a.w;
    u32 w4 = two ? b.z : b.x, w5 = two ? b.w : b.y;
    u32 v0 = one ? w1 : w0, v1 = one ? w2 : w1, v2 = one ? w3 : w2, v3 = one ? w4 : w3,
        v4 = one ? w5 : w4;
    int bits = (shift & 2) * 8;
    return {__funnelshift_r(v0, v1, bits), __funnelshift_r(v1, v2, bits),
            __funnelshift_r(v2, v3, bits), __funnelshift_r(v3, v4, bits)};
}

__device__ __forceinline__ uint4 read16(u32 address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address));
    return v;
}

template <class T> __device__ __forceinline__ T read_one(u32 address);
template <> __device__ __forceinline__ u16 read_one<u16>(u32 address) {
    u16 v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address));
    return v;
}
template <> __device__ __forceinline__ u32 read_one<u32>(u32 address) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
    return v;
}

// Element `e` of the vector that lane `from`, of the `lanes` that share a row, holds.
template <class T> __device__ __forceinline__ T picked(uint4 v, int from, int e, int lanes) {
    u32 x = __shfl_sync(~0u, v.x, from, lanes), y = __shfl_sync(~0u, v.y, from, lanes);
    u32 z = __shfl_sync(~0u, v.z, from, lanes), w = __shfl_sync(~0u, v.w, from, lanes);
    int word = sizeof(T) == 2 ? e >> 1 : e;
    u32 found = word & 2 ? (word & 1 ? w : z) : (word & 1 ? y : x);
    return (T)(sizeof(T) == 2 && (e & 1) ? found >> 16 : found);
}

// One row: lane `chunk` of `lanes` has the 16 bytes at chunk + head; those past the end wrap to the
// start, so that the last lane's vector is what the row ends with, then what it begins with.
// FULL: all 8 `pieces` chunks count, else `columns` elements do.
template <class T, bool FULL>
__device__ __forceinline__ void store_row(uint4 v, T* row, int head, int columns, int pieces,
                                          int chunk, int lanes, bool inside) {
    constexpr int BLOCK = 16 / sizeof(T);
    int chunks = 8 * pieces, whole = FULL ? chunks - (head != 0) : (columns - head) / BLOCK;
    if (inside && chunk < whole) *(uint4*)(row + head + BLOCK * chunk) = v;
    if (FULL) {
        T edge = picked<T>(v, chunks - 1, chunk & (BLOCK - 1), lanes);
        int place = chunk < BLOCK - head ? head + BLOCK * whole + chunk : chunk - (BLOCK - head);
        if (inside && head && chunk < BLOCK) row[place] = edge;
    } else {
        T last = picked<T>(v, whole, chunk & (BLOCK - 1), lanes);
        T first = picked<T>(v, chunks - 1, (BLOCK - head + chunk) & (BLOCK - 1), lanes);
        if (inside && chunk < columns - head - BLOCK * whole)
            row[head + BLOCK * whole + chunk] = last;
        if (inside && chunk < head && chunk < columns) row[chunk] = first;
    }
}

// Pieces side by side in a ring of `places`, from place `place`; this warp's share of the rows.
// Some loads at once, so that reads of shared memory overlap.
template <class T, bool FULL>
__device__ __forceinline__ void store_part(u32 ring, int places, int place, int pieces, T* c,
                                           long long stride, int rows, int columns, int warp,
                                           int warps) {
    constexpr int AHEAD = sizeof(T) == 2 ? 4 : 2;
    int lanes = pieces > 2 ? 32 : 8 * pieces, at_once = 32 / lanes;
    int lane = threadIdx.x & 31, chunk = lane % lanes, sub = lane / lanes;
    int next = chunk + 1 >= 8 * pieces ? 0 : chunk + 1;
    int mine = place + (chunk >> 3), other = place + (next >> 3);
    u32 from = ring + 8192 * (mine >= places ? mine - places : mine);
    u32 after = ring + 8192 * (other >= places ? other - places : other);
    for (int start = at_once * warp; start < rows; start += at_once * AHEAD * warps) {
        uint4 a[AHEAD], b[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            int r = (start + at_once * u * warps + sub) & 63;
            a[u] = read16(from + 128 * r + (((chunk & 7) ^ (r & 7)) << 4));
            b[u] = read16(after + 128 * r + (((next & 7) ^ (r & 7)) << 4));
        }
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            int r = start + at_once * u * warps + sub;
            T* row = c + stride * r;
            int head = (int)((0 - (u64)row) & 15) / (int)sizeof(T);
            uint4 v = shifted(a[u], b[u], head * (int)sizeof(T));
            store_row<T, FULL>(v, row, head, columns, pieces, chunk, lanes, r < rows);
        }
    }
}

// The columns of one piece past the last whole 16 bytes, where rows are aligned.
template <class T>
__device__ __forceinline__ void store_rest(u32 piece, T* c, long long stride, int rows, int columns,
                                           int warp, int warps) {
    int lane = threadIdx.x & 31, byte = (columns * (int)sizeof(T)) & ~15,
        column = byte / (int)sizeof(T) + (lane & 7);
    for (int start = 4 * warp + (lane >> 3); start - (lane >> 3) < rows; start += 16 * warps) {
        T found[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            int r = (start + 4 * u * warps) & 63;
            found[u] = read_one<T>(piece + 128 * r + (((byte >> 4) ^ (r & 7)) << 4) +
                                   (lane & 7) * sizeof(T));
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            int r = start + 4 * u * warps;
            if (r < rows && column < columns) c[stride * r + column] = found[u];
        }
    }
}

template <class T>
__device__ __forceinline__ void store_rows(u32 ring, int places, int place, int pieces, T* c,
                                           long long stride, int rows, int columns, int warp,
                                           int warps) {
    if (columns >= pieces * (int)(128 / sizeof(T)))
        store_part<T, true>(ring, places, place, pieces, c, stride, rows, columns, warp, warps);
    else
        store_part<T, false>(ring, places, place, pieces, c, stride, rows, columns, warp, warps);
}
