// What hopper_fp8.cu multiplies (Call, Tile), its wgmma, and how a block of sums becomes C.
//
//     left   64 x 32 bytes, k contiguous      right  128 x 32 bytes, k contiguous
//                    +-----------+------------+      (bytes have no other order on Hopper)
//                                v
//     sums   64 x 128, fp32 or int32, in registers of four warps; thread (q = lane mod 4, r = lane / 4) of
//            warp w has rows 16 w + r and 8 below, columns 8 j + 2 q and the next, j = 0 .. 15
#pragma once
#include "hopper_ring.cuh"
#include "ptx.cuh"

constexpr int STAGES = SCALES == 2 ? 3 : 4;
constexpr int A_BYTES = 256 * 128, B_BYTES = 128 * 128, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int STAGED = STAGES * STAGE_BYTES;  // 16 x 128 of C, bf16, a warp of the consumers
constexpr int COLUMN_SCALES = STAGED + 8 * 4096;
constexpr int BARRIERS = COLUMN_SCALES + (SCALES == 2 ? STAGES * 512 : 0);
constexpr int TURNS = 4;  // tiles that the loader may be ahead
constexpr int FETCHED = SCALES == 1 && !DEPTHS;  // warps that bring scales nearer

// fp8/launch.py writes it.
struct alignas(64) Call {
    char a[128], b[128];  // maps: [rows or m, k] in boxes of 64 rows, [groups n or n, k] of 128
    int4* table;          // entries as hopper_tiles.cuh draws them
    const float *a_scales, *b_scales;
    char* out;
    int* fault;
    long long out_row, out_group;  // elements from one row of C, or group, to the next
    int m, n, k;                   // m of DEPTHS only
    int across;                    // tiles across n
    int band, tiles;               // of DEPTHS only: tiles down that take turns; how many tiles
    int a_scale_row, a_scale_k;    // elements from one scale to the next
    int b_scale_group, b_scale_column, b_scale_k;
    int vectors;  // whether rows of C begin at multiples of 16 bytes
};

struct Stages {
    u32 memory;
    __device__ u32 a(int i) const { return memory + i * STAGE_BYTES; }
    __device__ u32 b(int i) const { return a(i) + A_BYTES; }
    __device__ u32 scales(int i) const { return memory + COLUMN_SCALES + i * 512; }
    __device__ u32 staged(int warp) const { return memory + STAGED + warp * 4096; }
    __device__ u32 full(int i) const { return memory + BARRIERS + 8 * i; }
    __device__ u32 empty(int i) const { return full(STAGES + i); }
    __device__ u32 announced(int i) const { return full(2 * STAGES + i); }
    __device__ u32 read(int i) const { return announced(TURNS + i); }
    __device__ u32 turn(int i) const { return announced(2 * TURNS) + 32 * i; }
};

struct Tile {
    int group, a_row, rows, b_row, column, columns, begin, steps;
};

// Which tile is the t-th. Entries of a group that take turns (`turn` of the table), of DEPTHS tiles
// down, have a column of tiles each before any has its next: they find the same B in cache.
__device__ __forceinline__ Tile tile_of(const Call& call, int t) {
#if DEPTHS
    int down = (call.m + 255) / 256, each = down * call.across, local = t % each;
    int4 e = __ldg(call.table + 1 + t / each);
    int band = local / (call.band * call.across) * call.band;
    int height = down - band < call.band ? down - band : call.band;
    int rest = local - band * call.across, column = rest / height * 128;
    int row = 256 * (band + rest % height);
    int rows = call.m - row < 256 ? call.m - row : 256;
    int columns = call.n - column < 128 ? call.n - column : 128;
    int steps = (e.z - e.y) / 128;
    if ((e.y | e.z) & 127) {
        *call.fault = e.x + 1;
        steps = 0;
    }
    return {e.x, row, rows, column, column, columns, e.y, steps};
#else
    int entry = t / call.across, column = t % call.across;
    int4 e = __ldg(call.table + 1 + entry);
    int height = e.w >> 16;
    if (height > 1) {
        int top = entry - (e.w & 0xffff), rest = t - top * call.across;
        column = rest / height;
        e = __ldg(call.table + 1 + top + rest % height);
    }
    column *= 128;
    int columns = call.n - column < 128 ? call.n - column : 128;
    return {e.x, e.y, e.z - e.y, e.x * call.n + column, column, columns, 0, (call.k + 127) / 128};
#endif
}

__device__ __forceinline__ void write_four(u32 address, int4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

__device__ __forceinline__ int4 read_four(u32 address) {
    int4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

// As read by whole warps, known to ptxas to be equal in all lanes: it makes wgmma wait for wgmma
// otherwise.
__device__ __forceinline__ Tile announced_tile(u32 from) {
    int4 a = read_four(from), b = read_four(from + 16);
    return {__shfl_sync(~0u, a.x, 0), __shfl_sync(~0u, a.y, 0), __shfl_sync(~0u, a.z, 0),
            __shfl_sync(~0u, a.w, 0), __shfl_sync(~0u, b.x, 0), __shfl_sync(~0u, b.y, 0),
            __shfl_sync(~0u, b.z, 0), __shfl_sync(~0u, b.w, 0)};
}

// 128-byte swizzle, 8 rows of 128 bytes a group, the next group 1024 bytes on.
__device__ __forceinline__ u64 matrix_descriptor(u32 address) {
    return ((u64)((address & 0x3ffff) >> 4)) | ((u64)1 << 16) | ((u64)(1024 >> 4) << 32) |
           ((u64)1 << 62);
}

#if INT8
typedef int Sum;
#define TYPES ".s32.s8.s8"
#define SIGNS ""
#define IN_REGISTERS "+r"
#else
typedef float Sum;
#if A_E5M2
#define LEFT_TYPE ".e5m2"
#else
#define LEFT_TYPE ".e4m3"
#endif
#if B_E5M2
#define RIGHT_TYPE ".e5m2"
#else
#define RIGHT_TYPE ".e4m3"
#endif
#define TYPES ".f32" LEFT_TYPE RIGHT_TYPE
#define SIGNS ", 1, 1"
#define IN_REGISTERS "+f"
#endif

#define V1(i) IN_REGISTERS(d[i])
#define V4(i) V1(i), V1(i + 1), V1(i + 2), V1(i + 3)
#define V16(i) V4(i), V4(i + 4), V4(i + 8), V4(i + 12)
#define V32(i) V16(i), V16(i + 16)

// d (+)= left x right, 64 x W x 32. `keep` zero: d is overwritten. And hold(d): what wgmma writes
// without the compiler's knowledge is used neither before nor after it.
#define WGMMA(W, LIST, L, R, K, ...)                                                              \
    __device__ __forceinline__ void multiply(Sum (&d)[W / 2], u64 left, u64 right, int keep) {    \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " K                                        \
                     ", 0;\n"                                                                     \
                     "wgmma.mma_async.sync.aligned.m64n" #W "k32" TYPES " {" LIST "}, " L ", " R   \
                     ", p" SIGNS ";\n}\n"                                                         \
                     : __VA_ARGS__                                                                \
                     : "l"(left), "l"(right), "r"(keep));                                         \
    }                                                                                             \
    __device__ __forceinline__ void hold(Sum (&d)[W / 2]) {                                       \
        asm volatile("" : __VA_ARGS__::"memory");                                                 \
    }

WGMMA(64, P0 "," P1, "%32", "%33", "%34", V32(0))
WGMMA(128, P0 "," P1 "," P2 "," P3, "%64", "%65", "%66", V32(0), V32(32))

__device__ __forceinline__ void fetch(const float* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

__device__ __forceinline__ u32 packed(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// A block of 64 x W of C, its first row and column counted in the tile.
#if OUT_FLOAT  // or the bits of int32
// Four threads have 32 bytes of a row.
template <int W>
__device__ __forceinline__ void store_block(u32, const Call& call, const Tile& tile, int first,
                                            int left, const float (&d)[W / 2]) {
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread));  // addresses are not kept in registers while sums grow
    int row = first + 16 * ((thread >> 5) & 3) + ((thread & 31) >> 2), q = left + 2 * (thread & 3);
    float* c = (float*)call.out + call.out_group * tile.group * DEPTHS + tile.column +
               call.out_row * (tile.a_row + row);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (row + 8 * i >= tile.rows) continue;
        float* here = c + 8 * i * call.out_row;
#pragma unroll
        for (int j = 0; j < W / 8; ++j) {
            int column = 8 * j + q;
            float one = d[4 * j + 2 * i], next = d[4 * j + 2 * i + 1];
            if (call.vectors && column + 1 < tile.columns) {
                __stcs((float2*)(here + column), float2{one, next});
            } else {
                if (column < tile.columns) here[column] = one;
                if (column + 1 < tile.columns) here[column + 1] = next;
            }
        }
    }
}
#else
// A warp's 16 rows go through shared memory, 16 bytes c of row r lying at c xor (r mod 8), so that
// whole rows of 2 W bytes are written, and none of another group.
template <int W>
__device__ __forceinline__ void store_block(u32 staged, const Call& call, const Tile& tile,
                                            int first, int left, const float (&d)[W / 2]) {
    constexpr int CHUNKS = W / 8, ROWS = 32 / CHUNKS;  // of a row; that are written together
    int lane = threadIdx.x & 31, top = first + 16 * ((threadIdx.x >> 5) & 3);
    int row = 8 * ((lane >> 3) & 1) + (lane & 7), half = lane >> 4;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < CHUNKS; j += 2) {
        u32 at = staged + 2 * W * row + (((j + half) ^ (row & 7)) << 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                     "r"(packed(d[4 * j], d[4 * j + 1])),
                     "r"(packed(d[4 * j + 2], d[4 * j + 3])),
                     "r"(packed(d[4 * j + 4], d[4 * j + 5])),
                     "r"(packed(d[4 * j + 6], d[4 * j + 7]))
                     : "memory");
    }
    __syncwarp();
    int chunk = lane % CHUNKS, column = left + 8 * chunk;
    u16* c = (u16*)call.out + call.out_group * tile.group * DEPTHS + tile.column + column;
#pragma unroll
    for (int i = 0; i < 16; i += ROWS) {
        int r = i + lane / CHUNKS;
        if (top + r >= tile.rows) continue;
        u32 at = staged + 2 * W * r + ((chunk ^ (r & 7)) << 4);
        u16* here = c + call.out_row * (tile.a_row + top + r);
        u32 v[4];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(at));
        if (call.vectors && column + 8 <= tile.columns) {
            __stcs((uint4*)here, uint4{v[0], v[1], v[2], v[3]});
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e)
                if (column + e < tile.columns) here[e] = (u16)(v[e / 2] >> (16 * (e & 1)));
        }
    }
}
#endif
