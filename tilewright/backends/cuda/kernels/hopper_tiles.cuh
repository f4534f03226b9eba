// What a block reads to know its work: records of 20 integers, one a tile, written by tiles.py.
//
//   0 left map   1 right map   2 steps of k    3 width | slices << 16 | flags << 24
//   4 left x     5 left y      6 left stride   7 rows that count
//   8 right x    9 right y    10 right stride 11 columns that count
//  12 row       13 column     14 problem      15 elements between two rows of C
//  16, 17 address of the tile's first element of C   18 map of C   19 nothing
//
// A step takes 64 of k; the last one only `slices` times 16. A box of 64 x 64 elements, the h-th of
// an operand at step s, starts, where k is contiguous,   at (x + 64 s, y + stride s + 64 h),
// and where it is not,                                   at (x + 64 h, y + 64 s + stride h),
// with x's steps left out where the operand was packed into panels 64 elements wide.
#pragma once

enum { LEFT_PACKED = 1, RIGHT_PACKED = 2, COPY_ENGINE_STORES = 4 };

struct Shape {
    int steps, width, slices, flags, rows, columns;
};

// Where only the device knows the sizes (RAGGED), a table of 4 integers an entry stands instead:
//
//   entry 0   how many entries follow, 0, 0, 0
//   entry e   group, first row of x, one past its last, 0          (at most WIDTH rows)
//
// and a record is made of an entry and of what all groups share: weights [groups, n, k] or, where
// LEFT_MN, [groups, k, n] on the left, x on the right, maps of weights, x and C in this order.
struct Ragged {
    char* c;
    int n, k, stride, across, flags, unused;  // stride of C; tiles across n; flags as above
};

#if RAGGED
__device__ __forceinline__ int4 made(const int4* table, int tile, int which, const Ragged& r) {
    int entry = tile / r.across, first = (tile - entry * r.across) * 64 * WARPGROUPS;
    int4 e = __ldg(table + 1 + entry);
    int columns = e.z - e.y, steps = (r.k + 63) / 64,
        rows = r.n - first < 64 * WARPGROUPS ? r.n - first : 64 * WARPGROUPS;
    int slices = r.k ? (r.k - 64 * (steps - 1) + 15) / 16 : 4;
    if (which == 0) return {0, 1, steps, (columns + 31) / 32 * 32 | slices << 16 | r.flags << 24};
    if (which == 1)
        return LEFT_MN ? int4{first, e.x * r.k, 0, rows} : int4{0, e.x * r.n + first, 0, rows};
    if (which == 2) return {0, e.y, 0, columns};
    if (which == 3) return {first, e.y, e.x, r.stride};
    u64 c = (u64)(r.c + 2 * ((long long)e.y * r.stride + first));
    return {(int)(u32)c, (int)(u32)(c >> 32), 2, 0};
}
#endif

struct Table {
    const int4* tiles;
    int count;
    Ragged ragged;
};

__device__ __forceinline__ int4 quad(const Table& table, int tile, int which) {
#if RAGGED
    return made(table.tiles, tile, which, table.ragged);
#else
    return __ldg(table.tiles + 5 * (long long)tile + which);
#endif
}

__device__ __forceinline__ Shape shape_of(int4 head, int rows, int columns) {
    return {head.z, head.w & 0xffff, (head.w >> 16) & 0xff, head.w >> 24, rows, columns};
}

// The same, known to ptxas to be equal in all lanes: it makes wgmma wait for wgmma otherwise.
__device__ __forceinline__ Shape uniform(Shape s) {
    return {__shfl_sync(~0u, s.steps, 0),  __shfl_sync(~0u, s.width, 0),
            __shfl_sync(~0u, s.slices, 0), __shfl_sync(~0u, s.flags, 0),
            __shfl_sync(~0u, s.rows, 0),   s.columns};
}

// The operand's start and how it moves.
struct Walk {
    const char* map;
    int x, y, stride, packed;
};

template <int MN>
__device__ __forceinline__ void load_operand(u32 into, const Walk& w, int step, int box,
                                             u32 barrier) {
    int along = w.packed ? 0 : 64;
    int x = w.x + (MN ? box : step) * along;
    int y = w.y + (MN ? 64 * step + w.stride * box : w.stride * step + 64 * box);
    load_box(into, w.map, x, y, barrier);
}
