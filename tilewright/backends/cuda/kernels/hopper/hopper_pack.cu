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
// 32).
// PLANES = 2: fp32 numbers become two halves, each in panels of its own, and what the scale does
// not suit is counted (hopper_scale.cuh).
#include "hopper_wgmma.cuh"
#include "hopper_store.cuh"
#if PLANES
#include "hopper_scale.cuh"
#endif

struct Item {
    const char* source;
    char* target;
    long long row_bytes, panel_bytes;
    int rows, rows_filled, blocks, columns;
    int column_bytes, matrix;  // 2 x problem + (1 for the right operand)
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

// Two numbers as fp16, rounded to nearest.
__device__ __forceinline__ u32 halves(float low, float high) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float half_of(u32 both, int upper) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((u16)(upper ? both >> 16 : both)));
    return x;
}

// What a thread has seen of elements that the scale does not suit: how much small ones count, and
// whether anything alone is too much.
struct Seen {
    u32 count;
    bool beyond;
};

// Eight numbers (`whole`, else zeros behind a row's last), scaled, as two halves each:
// x = h0 + h1 2^-SHIFT.
__device__ __forceinline__ void put(char* target, long long plane_bytes, float (&x)[8], float scale,
                                    const Matrix& matrix, bool whole, Seen& seen) {
    u32 words[PLANES][4];
    int small = 0;
    bool larger = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float low = x[2 * i] * scale, high = x[2 * i + 1] * scale;
        bool low_small = fabsf(low) < SMALL, high_small = fabsf(high) < SMALL;
        small += (low_small && x[2 * i] != 0.0f) + (high_small && x[2 * i + 1] != 0.0f);
        larger |= !low_small || !high_small;
        seen.beyond |= !(fabsf(low) < LIMIT) || !(fabsf(high) < LIMIT);
        u32 both = halves(low, high);
        words[0][i] = both;
        words[1][i] = halves((low - half_of(both, 0)) * power_of_two(SHIFT),
                             (high - half_of(both, 1)) * power_of_two(SHIFT));
    }
    if (small) {
        seen.count += (u32)small * (larger ? matrix.beside : matrix.alone >> !whole);
        seen.beyond |= seen.count > matrix.allowed;
    }
#pragma unroll
    for (int p = 0; p < PLANES; ++p)
        *(uint4*)(target + plane_bytes * p) = {words[p][0], words[p][1], words[p][2], words[p][3]};
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    hopper_pack(const Item* __restrict__ items
#if PLANES
                ,
                const Matrix* __restrict__ matrices, State* __restrict__ states,
                State* __restrict__ launch
#endif
    ) {
    Item item = items[blockIdx.x];
#if PLANES
    Matrix matrix = matrices[item.matrix];
    int exponent = scale_of<THREADS>(matrix), side = item.matrix & 1;
    float scale = power_of_two(exponent);
    State* state = states + (item.matrix >> 1);
    if (threadIdx.x == 0) state->exponent[side] = exponent;
    static_assert(THREADS == SAMPLES, "a thread a sample");
    Seen seen = {0, side == 0 && few_products(matrix, matrices[item.matrix + 1])};
#endif
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
            put(to, item.plane_bytes, x, scale, matrix, count == 8, seen);
#else
            uint4 v = {0, 0, 0, 0};
            if (count > 0) v = gather(from, count, item.column_bytes, end);
            *(uint4*)to = v;
#endif
        }
    }
#if PLANES
    note(state, side, matrix.allowed, seen.count, seen.beyond, launch);
#endif
}
