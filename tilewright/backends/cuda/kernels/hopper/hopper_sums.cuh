// How fp32 sums leave the registers of a warpgroup: 64 rows of W columns, laid out as wgmma has
// them (hopper_epilogue.cuh), 64 columns at a time through one of SLOTS pieces of shared memory.
//
//   row of a piece   |. . x x|x x x x| ... |x x x x|x . . .|     16 bytes each; begins as far into
//   row of C            |x x|x x x x| ... |x x x x|x|            them as C's row does in memory
//
// So 16 bytes of a piece go to 16 bytes of C whatever its strides, and nothing has to be shifted.
// (A bulk copy a row, by the copy engine, was no faster: 1000 of 1..512 in 0.380 ms on an H200, not
// 0.376.) Shared by the kernels whose C is fp32, as is the way to their operands where these are
// not packed.
#pragma once

constexpr int PITCH = (64 + 4) * 4;  // bytes of a row: 64 numbers, and room to begin at any of four
constexpr int PIECE = 64 * PITCH;

__device__ __forceinline__ float read_number(const char* at) { return __ldg((const float*)at); }

// How far into 16 bytes an address is.
__device__ __forceinline__ int offset(const float* address) { return (int)((u64)address & 15); }

__device__ __forceinline__ void write_number(u32 at, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(value) : "memory");
}

__device__ __forceinline__ float4 read_four(u32 at) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

// The 16 bytes of C that hold its row's numbers `first` to `first` + 3, where they are of the row.
__device__ __forceinline__ void store_four(float* row, int first, int columns, float4 v) {
    if (first >= 0 && first + 4 <= columns) {
        *(float4*)(row + first) = v;
        return;
    }
    float each[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + i >= 0 && first + i < columns) row[first + i] = each[i];
}

// A warp's 16 rows of a piece, two at a time; what lies past 16 times 16 bytes for all rows last.
__device__ __forceinline__ void store_piece(u32 piece, float* c, long long stride, int rows,
                                            int columns) {
    int lane = threadIdx.x & 31, top = 16 * ((threadIdx.x >> 5) & 3);
    float4 v[9];
#pragma unroll
    for (int i = 0; i < 9; ++i) {
        int row = top + (i < 8 ? 2 * i + (lane >> 4) : lane & 15), block = i < 8 ? lane & 15 : 16;
        v[i] = read_four(piece + PITCH * row + 16 * block);
    }
#pragma unroll
    for (int i = 0; i < 9; ++i) {
        int row = top + (i < 8 ? 2 * i + (lane >> 4) : lane & 15), block = i < 8 ? lane & 15 : 16;
        float* to = c + stride * row;
        if (row < rows && (i < 8 || lane < 16))
            store_four(to, 4 * block - offset(to) / 4, columns, v[i]);
    }
}

template <int W>
__device__ __forceinline__ void store_tile(u32 pieces, float (&d)[W / 2], Shape s, int4 place,
                                           int4 address, int group) {
    int lane = threadIdx.x & 31, row = 16 * ((threadIdx.x >> 5) & 3) + (lane >> 2);
    long long stride = place.w;
    float* c = (float*)(((u64)(u32)address.y << 32) | (u32)address.x) + stride * (64 * group);
    int rows = s.rows - 64 * group < 64 ? s.rows - 64 * group : 64;
    u32 at[2];
#pragma unroll
    for (int h = 0; h < 2; ++h)
        at[h] = pieces + PITCH * (row + 8 * h) + offset(c + stride * (row + 8 * h)) +
                8 * (lane & 3);
#pragma unroll
    for (int first = 0; first < W; first += 64) {
        u32 piece = first / 64 % SLOTS * PIECE;
        asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
#pragma unroll
        for (int i = first / 2; i < W / 2 && i < first / 2 + 32; ++i)
            write_number(at[i / 2 % 2] + piece + 32 * (i / 4 - first / 8) + 4 * (i % 2), d[i]);
        asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
        int columns = s.columns - first < 64 ? s.columns - first : 64;
        if (columns > 0) store_piece(pieces + piece, c + first, stride, rows, columns);
    }
}

// Part of an fp32 operand as it lies: `free_left` rows (columns, of the right one) by k. MN: the
// runs are along the free dimension, else along k.
template <int MN> struct Source {
    const char* corner;
    long long free_bytes, k_bytes;
    int free_left, k;
    __device__ Source(const Matrix& m, int first, int count) {
        k_bytes = MN ? m.row_bytes : m.column_bytes;
        free_bytes = MN ? m.column_bytes : m.row_bytes;
        corner = m.source + free_bytes * first;
        free_left = count, k = MN ? m.rows : m.columns;
    }
    __device__ __forceinline__ float at(int free, int depth) const {
        const char* place = corner + free_bytes * free + k_bytes * depth;
        return free < free_left ? read_number(place) : 0.0f;
    }
};
