// What a block reads to know its work: records of 20 integers, one a tile, written by records.py.
//
//   0 left map   1 right map   2 steps of k    3 width | slices << 16 | flags << 24
//   4 left x     5 left y      6 left stride   7 rows that count
//   8 right x    9 right y    10 right stride 11 columns that count
//  12 row       13 column     14 problem      15 elements between two rows of C
//  16, 17 address of the tile's first element of C   18 map of C
//  19 rows of a box of the right operand, where k is contiguous | map of C in boxes of 16 rows << 8
//
// A step takes 64 of k; the last one only `slices` times 16. A box of 64 x 64 elements, the h-th of
// an operand at step s, starts, where k is contiguous,   at (x + 64 s, y + stride s + 64 h),
// and where it is not,                                   at (x + 64 h, y + 64 s + stride h),
// with x's steps left out where the operand was packed into panels 64 elements wide.
//
// Of a cluster of two blocks the records b and b + 1, b even, are of one problem. Blocks that share
// an operand load every other box of it each, for both. A record without rows only keeps step.
#pragma once

enum {
    LEFT_PACKED = 1,
    RIGHT_PACKED = 2,
    COPY_ENGINE_STORES = 4,
    LEFT_SHARED = 8,
    RIGHT_SHARED = 16
};

struct Shape {
    int steps, width, slices, flags, rows, columns;
};

// Where only the device knows the sizes (RAGGED), a table of 4 integers an entry stands instead:
//
//   entry 0   how many entries follow, 0 (counts tiles during a launch), 0, 0
//   entry e   group, first row of x, one past its last, turn
//
// and a record is made of an entry and of what all groups share. RAGGED_ROWS: C's rows of a group
// are x's times its weights, [groups, n, k] or, where LEFT_MN, [groups, k, n], plus its bias; an
// entry has at most WIDTH rows. Weights are on the left, x on the right; maps of weights, x, C and,
// where its rows are aligned, C in boxes of 16 rows. `turn`: of entries of a group that follow one
// another and take turns which one it is, and how many they are << 16 (see in_turn).
// RAGGED_DEPTHS: C [groups, k, n] is x' y, of x [rows, k] and y [rows, n], rows of the group; an
// entry is a group; maps of x, y and C. `slices` are then single rows of the last step.
#define RAGGED_ROWS (RAGGED == 1)
#define RAGGED_DEPTHS (RAGGED == 2)

// Whether a block that is done takes the next tile. Beside RAGGED_ROWS a count, and how many maps
// there are, then follow the records.
#define TAKES_NEXT (RAGGED_ROWS || TAKEN)

struct Ragged {
    char* c;
    const u16* bias;                  // where GENERAL, of rows: [groups, n]
    char* other;                      // of hopper_chosen.cu: h, or none
    const char* source;               // where CHOSEN: that operand,
    const int* index;                 // and for each row which row of it that is
    int n, k, stride, across, flags;  // stride of C's rows; tiles across n; flags as above
    int bias_group, bias_step;        // elements from a group's bias to the next, and within one
    int band;                         // of hopper_chosen.cu: entries that take turns
    int source_stride;                // bytes from a row of the source to the next
    int slab;                         // of RAGGED_ROWS: rows of a box of x
};

// The maps of such a launch.
struct alignas(64) Maps {
    char of[4 * 128];
};

// What a whole step counts as in `slices`.
constexpr int STEP_SLICES = RAGGED_DEPTHS ? 64 : 4;

#if RAGGED_DEPTHS
__device__ __forceinline__ int4 entry_of(const int4* table, int tile, const Ragged& r) {
    constexpr int TALL = 64 * WARPGROUPS;
    return __ldg(table + 1 + tile / ((r.k + TALL - 1) / TALL * r.across));
}

// Sixteen tiles down share what they read of y. (64 groups of about 256 rows took 0.39 ms on an H200,
// as much in clusters that share loads, and 0.40 with a last step of no more rows than it needs.)
__device__ __forceinline__ int4 made(const int4* table, int tile, int which, const Ragged& r) {
    constexpr int TALL = 64 * WARPGROUPS, DOWN = 16;
    int down = (r.k + TALL - 1) / TALL, each = down * r.across, entry = tile / each;
    int local = tile - entry * each, band = local / (DOWN * r.across) * DOWN;
    int height = down - band < DOWN ? down - band : DOWN, rest = local - band * r.across;
    int across = rest / height, first = (band + rest - across * height) * TALL,
        begin = across * WIDTH;
    int rows = r.k - first < TALL ? r.k - first : TALL,
        columns = r.n - begin < WIDTH ? r.n - begin : WIDTH;
    int4 e = __ldg(table + 1 + entry);
    int steps = (e.z - e.y + 63) / 64, last = steps ? e.z - e.y - 64 * (steps - 1) : STEP_SLICES;
    if (which == 0) return {0, 1, steps, (columns + 31) / 32 * 32 | last << 16 | r.flags << 24};
    if (which == 1) return {first, e.y, 0, rows};
    if (which == 2) return {begin, e.y, 0, columns};
    if (which == 3) return {e.x * r.k + first, begin, e.x, r.stride};
    u64 c = (u64)(r.c + 2 * (((long long)e.x * r.k + first) * r.stride + begin));
    return {(int)(u32)c, (int)(u32)(c >> 32), 2, 0};
}
#elif RAGGED_ROWS
__device__ __forceinline__ int4 made(const int4* table, int tile, int which, const Ragged& r) {
    constexpr int TALL = 64 * WARPGROUPS * STRIPS;
    int entry = tile / r.across, first = (tile - entry * r.across) * TALL;
    int4 e = __ldg(table + 1 + entry);
    int columns = e.z - e.y, steps = (r.k + 63) / 64,
        rows = r.n - first < TALL ? r.n - first : TALL;
    int slices = r.k ? (r.k - 64 * (steps - 1) + 15) / 16 : 4, by = columns > COARSE ? 15 : 31;
    if (which == 0) return {0, 1, steps, (columns + by & ~by) | slices << 16 | r.flags << 24};
    if (which == 1)
        return LEFT_MN ? int4{first, e.x * r.k, 0, rows} : int4{0, e.x * r.n + first, 0, rows};
    if (which == 2) return {0, e.y, 0, columns};
    if (which == 3) return {first, e.y, e.x, r.stride};
    u64 c = (u64)(r.c + 2 * ((long long)e.y * r.stride + first));
    return {(int)(u32)c, (int)(u32)(c >> 32), 2, r.slab | 3 << 8};
}
#endif

struct Table {
    const int4* tiles;
    int count;
    Ragged ragged;
    // Where it is counted how many tiles were asked for.
    __device__ __forceinline__ u32* taken() const {
        return RAGGED_ROWS ? (u32*)&tiles[0].y : (u32*)(tiles + 5ll * count);
    }
};

// Which tile is the t-th to be worked on; -1 after the last. Of entries that take turns each has
// its first column of tiles before any has its second: they find the same weights in cache. Who
// asks for a tile tells the others this number, as they have few registers to work it out.
__device__ __forceinline__ int in_turn(const Table& table, int t) {
#if RAGGED_ROWS && !CHOSEN
    if (t >= table.count) return -1;
    int across = table.ragged.across, entry = t / across, turn = __ldg(&table.tiles[1 + entry].w);
    int height = turn >> 16;
    if (height <= 1) return t;
    int first = (entry - (turn & 0xffff)) * across, column = (t - first) / height;
    return first + (t - first - column * height) * across + column;
#else
    return t;
#endif
}

__device__ __forceinline__ bool is_tile(const Table& table, int t) {
    return RAGGED_ROWS && !CHOSEN ? t >= 0 : t < table.count;
}

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

// The h-th box at a step, into this block or, at the same place, into all MEMBERS of the cluster.
template <int MN, int MEMBERS = 1>
__device__ __forceinline__ void load_operand(u32 into, const Walk& w, int step, int box,
                                             u32 barrier) {
    int along = w.packed ? 0 : 64;
    int x = w.x + (MN ? box : step) * along;
    int y = w.y + (MN ? 64 * step + w.stride * box : w.stride * step + 64 * box);
    if (MEMBERS == 1)
        load_box(into, w.map, x, y, barrier);
    else
        load_box_to_all<MEMBERS>(into, w.map, x, y, barrier);
}
