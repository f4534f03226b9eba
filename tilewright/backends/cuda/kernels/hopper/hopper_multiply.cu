// Half-precision products on Hopper's tensor cores, a whole batch in one launch.
//
//        k (64 a step)          width <= 256
//      +--------------+       +--------------+       one tile of C: 64 x WARPGROUPS rows, `width`
//  64  | consumer 0   |   x   |              |       columns (a multiple of 16, as the edge needs);
//      +--------------+       |              | k     half a tile where 64 rows suffice
//  64  | consumer 1   |       |              |
//      +--------------+       +--------------+
//
//  warpgroup 0            warp 0 asks the copy engine for boxes of 64 x 64, STAGES steps ahead;
//                         the others store finished pieces of C
//  WARPGROUPS consumers   multiply 64 rows each out of shared memory; a finished 64 x 64 piece goes
//                         into one of SLOTS places, so that the next tile starts at once
//
// CLUSTER = 2: two blocks take tiles of one problem that share an operand, in step. Each asks for
// every other box of it, and the copy engine delivers that to both:
//
//                    +-------------------+
//                    |  0    1    0    1 |      who asks for which box: with the left ones 4 a step
//      +---+         +-------------------+      and block, where 6 arrive
//      | 0 |         | block 0           |
//      | 0 |         |                   |      Where rows lie across lines of L2, a box takes twice
//      +---+         +-------------------+      the lines, and asking for them takes longest: 200
//      | 1 |         | block 1           |      of 256..2048 took 1.02 ms so, 1.24 each block alone
//      | 1 |         |                   |      (one run, H200). Of few rows the blocks lie side by
//      +---+         +-------------------+      side and share the left operand.
//
// So a box may land in a stage that the other block's loader asked for: a stage is free once the
// consumers of both blocks have handed it back, to both loaders.
//
// Where k is contiguous, the right operand's rows come in boxes of half as many as the problem's
// widest tile has, so that no more are loaded than are multiplied. Turned, they are C's rows, of
// which what is left of 64 leaves in boxes of 16: tiles begin at every 16th, and a problem's are
// about as wide. A group of RAGGED_ROWS ends anywhere: what is left of 16 leaves row by row.
//
// STRIPS = 2: a consumer has two strips of 64 rows and multiplies both by what it reads of the
// right operand, width <= 160. Of experts' rows, as columns, more are of use so: 8 experts of 3 to
// 540 rows multiplied 16 % of rows for nothing as the rows of tiles 128 x 256.
//
//                  width
//               +---------+
//    consumer 0 | strip 0 |
//               | strip 1 |
//               +---------+
//    consumer 1 | strip 2 |
//               | strip 3 |
//               +---------+
//
// Persistent: block b takes tiles b, b + gridDim.x, ... as records.py dealt them, or TAKEN, as of
// RAGGED_ROWS, what comes next when it is done (ask_tile); what is in a tile depends on nobody.
// TRANSPOSED: the left operand gives C's columns. GENERAL: C = activation(alpha acc + beta C +
// bias), from `scalars`. RAGGED: records are made here, of sizes that only the device knows.
// CHOSEN: rows of one operand are found by index (hopper_gather.cuh).
#include "hopper_wgmma.cuh"
#include "hopper_tiles.cuh"
#include "hopper_store.cuh"
#include "hopper_block.cuh"
#include "hopper_epilogue.cuh"
#include "hopper_gather.cuh"

// Where a row of pieces has no places of its own, a warpgroup keeps its tile's halves (of several
// strips the last one's) in registers, and writes them, a piece a step, while it multiplies the
// next tile: of 64 experts 0.2861 ms on an H200, written at once 0.2903. gelu needs the registers.
constexpr bool KEEPS = !CONSUMERS_STORE && ACTIVATION != 2;

#include "hopper_sum.cuh"

typedef ScalarsOf<u16> Scalars;

// Whether a record says of how many of the right operand's rows a box is: `slab`.
constexpr bool IN_SLABS = !RAGGED_DEPTHS && !RIGHT_MN;
// Which widths there are.
__host__ __device__ constexpr bool is_width(int w) {
    return w <= WIDTH && (w % 32 == 0 || (w > COARSE && !RAGGED_DEPTHS));
}

static_assert(CLUSTER == 1 || !TAKES_NEXT, "blocks that take what comes next are not in step");
static_assert(STRIPS == 1 || !RAGGED_DEPTHS, "zeros past a group's end are one strip's");
static_assert(!CHOSEN || (RAGGED && WARPGROUPS == 2 && CLUSTER == 1), "a warp loads that stores");

// A step's boxes of one operand: all of them, or this block's part of those that all blocks share.
template <int MN>
__device__ __forceinline__ void load_boxes(u32 into, const Walk& w, int step, int count,
                                           bool shared, u32 full) {
    if (CLUSTER == 1 || !shared) {
        for (int h = 0; h < count; ++h) load_operand<MN>(into + h * BOX, w, step, h, full);
    } else {
        for (int h = blockIdx.x % CLUSTER; h < count; h += CLUSTER)
            load_operand<MN, CLUSTER>(into + h * BOX, w, step, h, full);
    }
}

// The right operand's rows of a step, in boxes of `slab` rows, or this block's part of those.
__device__ __forceinline__ void load_slabs(u32 into, const Walk& w, int step, int width, int slab,
                                           bool shared, u32 full) {
    int x = w.packed ? 0 : 64 * step, y = w.y + w.stride * step;
    if (CLUSTER == 1 || !shared) {
#pragma unroll 1
        for (int row = 0; row < width; row += slab)
            load_box(into + 128 * row, w.map, x, y + row, full);
    } else {
#pragma unroll 1
        for (int row = slab * (blockIdx.x % CLUSTER); row < width; row += slab * CLUSTER)
            load_box_to_all<CLUSTER>(into + 128 * row, w.map, x, y + row, full);
    }
}

// The maps of all tiles of this block, before any is used: later each fence would wait for the copy
// engine, which took a tenth of the time of 1000 small products (H200). Maps that move from launch
// to launch are its arguments and need none.
__device__ __forceinline__ void take_maps(const Table& tiles, const char* maps) {
#if TAKES_NEXT
    int count = tiles.taken()[1];
    for (int i = threadIdx.x; i < count; i += 128) acquire_map(maps + 128ll * i);
#else
    for (int t = blockIdx.x + threadIdx.x * gridDim.x; t < tiles.count; t += 128 * gridDim.x) {
        int4 head = quad(tiles, t, 0);
        int4 last = quad(tiles, t, 4);
        int out = (head.w >> 24) & COPY_ENGINE_STORES ? last.z : -1, close = last.w >> 8;
        bool first = t < (int)gridDim.x;
        int4 before = first ? int4{-1, -1, 0, 0} : quad(tiles, t - gridDim.x, 0);
        if (head.x != before.x) acquire_map(maps + 128ll * head.x);
        if (head.y != before.y) acquire_map(maps + 128ll * head.y);
        if (out >= 0 && (first || quad(tiles, t - gridDim.x, 4).z != out))
            acquire_map(maps + 128ll * out);
        if (close && (first || quad(tiles, t - gridDim.x, 4).w >> 8 != close))
            acquire_map(maps + 128ll * close);
    }
#endif
}

__device__ void load_tiles(const Block& block, const Table& tiles, const char* maps) {
    Ring<STAGES> ring;
    Ring<TURNS> turns;
    int t = in_turn(tiles, blockIdx.x);
    if (!is_tile(tiles, t)) return;
    int4 head = quad(tiles, t, 0), left = quad(tiles, t, 1), right = quad(tiles, t, 2);
    int slab = IN_SLABS ? quad(tiles, t, 4).w & 255 : 64;
    for (;;) {
        Shape s = shape_of(head, left.w, right.w);
        Walk a = {maps + 128ll * head.x, left.x, left.y, left.z, s.flags & LEFT_PACKED};
        Walk b = {maps + 128ll * head.y, right.x, right.y, right.z, s.flags & RIGHT_PACKED};
        int high = slab, right_bytes = (s.width + high - 1) / high * high * 128;
        t = ask_tile(block, tiles, turns, t);
        bool more = is_tile(tiles, t);
        if (more) {
            head = quad(tiles, t, 0), left = quad(tiles, t, 1), right = quad(tiles, t, 2);
            if (IN_SLABS) slab = quad(tiles, t, 4).w & 255;
            prefetch_map(maps + 128ll * head.x);
            prefetch_map(maps + 128ll * head.y);
        }
        int lefts = (s.rows + 63) / 64, rights = (s.width + 63) / 64;
        for (int step = 0; step < s.steps; ++step) {
            u32 full = block.full(ring.place), into = block.stage(ring.place);
            barrier_wait(block.empty(ring.place), ring.phase ^ 1);
            barrier_expect(full, lefts * BOX + right_bytes);
            load_boxes<LEFT_MN>(into, a, step, lefts, s.flags & LEFT_SHARED, full);
            if (IN_SLABS)
                load_slabs(into + LEFT_BYTES, b, step, s.width, high, s.flags & RIGHT_SHARED, full);
            else
                load_boxes<RIGHT_MN>(into + LEFT_BYTES, b, step, rights, s.flags & RIGHT_SHARED,
                                     full);
            ring.next();
        }
        if (!more) break;
    }
}

// A warp's share of some pieces side by side, the first of them the tile's `p`-th.
__device__ __forceinline__ void store_unaligned(const Block& block, Shape s, u16* c,
                                                long long stride, int group, int strip,
                                                Ring<SLOTS> from, int p, int side_by_side, int warp,
                                                int warps) {
    int top = TRANSPOSED ? 64 * p : 64 * strip, first = TRANSPOSED ? 64 * strip : 64 * p,
        limit = 64 * side_by_side;
    int rows = (TRANSPOSED ? s.columns : s.rows) - top,
        columns = (TRANSPOSED ? s.rows : s.columns) - first;
    store_rows<u16>(block.piece(group, 0), SLOTS, from.place, side_by_side,
                    c + stride * top + first, stride, rows < 64 ? rows : 64,
                    columns < limit ? columns : limit, warp, warps);
}

// One of the STORERS warps that empty the places of one warpgroup, piece after piece of its tile.
//
//    tile of C, 64 rows of the warpgroup      where C's rows are aligned: one thread sends the piece
//    +--------+--------+--------+------+      by the copy engine, and the few columns past a
//    | piece  | piece  | piece  | rest |      multiple of 8 go one by one
//    |   0    |   1    |   2    |      |      any other rows: as many pieces side by side as there
//    +--------+--------+--------+------+      are places, a row of the tile at a time
//      place 0  place 1  place 0 ...          a place is handed back as soon as it has been read
__device__ void store_tiles(const Block& block, const Table& tiles, const char* maps, int group,
                            int share) {
    Ring<SLOTS> ring;
    Ring<TURNS> turns;
    int lane = threadIdx.x & 31;
    bool asks = share == 0 && lane == 0;
    for (int t = in_turn(tiles, blockIdx.x); is_tile(tiles, t);
         t = next_dealt_tile(block, turns, t)) {
        int4 head = quad(tiles, t, 0), place = quad(tiles, t, 3), address = quad(tiles, t, 4);
        Shape s = shape_of(head, quad(tiles, t, 1).w, quad(tiles, t, 2).w);
        u16* c = (u16*)(((u64)(u32)address.y << 32) | (u32)address.x);
        long long stride = place.w;
        bool aligned = s.flags & COPY_ENGINE_STORES;
        const char *map = maps + 128ll * address.z, *close = maps + 128ll * (address.w >> 8);
        bool closely = TRANSPOSED && (STRIPS > 1 || !RAGGED) && aligned && address.w >> 8;
        int pieces = (s.width + 63) / 64, strips = (s.rows + 63) / 64 - group * STRIPS;
#pragma unroll 1
        for (int h = 0; h < strips && h < STRIPS; ++h) {
            int strip = group * STRIPS + h;
            for (int p = 0; p < pieces;) {
                int top = TRANSPOSED ? 64 * p : 64 * strip, first = TRANSPOSED ? 64 * strip : 64 * p;
                int rows = (TRANSPOSED ? s.columns : s.rows) - top;
                int columns = (TRANSPOSED ? s.rows : s.columns) - first;
                // Where C is ragged, rows past the end, which a box would hold, are another group's.
                bool engine = aligned && (!RAGGED || rows >= 64 || (closely && rows >= 16));
                int side_by_side =
                    TRANSPOSED || aligned ? 1 : pieces - p < SLOTS ? pieces - p : SLOTS;
                Ring<SLOTS> from = ring;
                for (int i = 0; i < side_by_side; ++i) {
                    barrier_wait(block.ready(group, ring.place), ring.phase);
                    ring.next();
                }
                p += side_by_side;
                u16* corner = c + stride * top + first;
                if (engine) {
                    // The map of C ends at a multiple of 8 columns, for the copy engine clips in
                    // units of 16 bytes; the few beyond go one by one.
                    if (asks) {
                        int row = TRANSPOSED ? place.y : place.x,
                            column = TRANSPOSED ? place.x : place.y;
                        u32 piece = block.piece(group, from.place);
                        if (closely && rows < 64) {
                            for (int r = 0; r < (RAGGED ? rows - 15 : rows); r += 16)
                                add_box(close, column + first, row + top + r, piece + 128 * r);
                            stores_commit();
                        } else {
                            store_box(map, column + first, row + top, piece);
                        }
                    }
                    if (columns < 64 && (columns & 7))
                        store_rest<u16>(block.piece(group, from.place), corner, stride,
                                        rows < 64 ? rows : 64, columns, share, STORERS);
                    if (RAGGED && closely && rows < 64 && rows & 15) {
                        int done = rows & ~15;
                        store_rows<u16>(block.piece(group, 0) + 128 * done, SLOTS, from.place, 1,
                                        corner + stride * done, stride, rows & 15,
                                        columns < 64 ? columns : 64, share, STORERS);
                    }
                    __syncwarp();
                    // The place before this one is free once the copy engine has read it; before a
                    // group's last rows it was handed back at once.
                    if (SLOTS > 1 && asks && p > 1 && !(RAGGED_ROWS && rows < 64)) {
                        store_wait_read<1>();
                        barrier_arrive(block.taken(group, from.place ? from.place - 1 : SLOTS - 1));
                    }
                    bool last = SLOTS == 1 || p == pieces || (RAGGED_ROWS && rows < 128);
                    if (asks && last) store_wait_read<0>();
                    if (asks ? last : lane == 0) barrier_arrive(block.taken(group, from.place));
                } else {
                    if (STRIPS > 1 && !RAGGED)  // C's rows lie aligned, but have less than 16 bytes
                        store_rest<u16>(block.piece(group, from.place), corner, stride,
                                        rows < 64 ? rows : 64, columns, share, STORERS);
                    else if (!CONSUMERS_STORE || aligned)
                        store_unaligned(block, s, c, stride, group, strip, from, p - side_by_side,
                                        side_by_side, share, STORERS);
                    __syncwarp();
                    if (lane == 0)
                        for (int i = 0; i < side_by_side; ++i, from.next())
                            barrier_arrive(block.taken(group, from.place));
                }
            }
        }
    }
    if (asks) store_wait();
}

template <int W>
__device__ __forceinline__ void multiply_tile(const Block& block, Shape s, int4 place,
                                              const Scalars* scalars, const Ragged& ragged,
                                              int group, Ring<STAGES>& ring, Ring<SLOTS>& pieces,
                                              bool& lead, Kept& kept) {
    float d[STRIPS][W / 2];
    RowBias bias[STRIPS];
#pragma unroll
    for (int h = 0; h < STRIPS; ++h) bias[h] = row_bias(ragged, place, s, group * STRIPS + h);
    // Where sums are numbers of C, the first strip's begin to leave while others are multiplied.
    constexpr int EARLY = STRIPS > 1 && !GENERAL ? (W < 64 ? W : 64) / 8 : 0;
    bool whole = STRIPS > 1 && s.slices == STEP_SLICES;
    auto begin = [&]() {
        if constexpr (EARLY > 0) write_pieces<W, 0, EARLY>(block, d[0], pieces, group, true);
    };
    sum_tile<W>(block, s, group, ring, lead, d, kept, pieces, begin);
#pragma unroll
    for (int h = 0; h < STRIPS; ++h) {
        int strip = group * STRIPS + h;
        if (h && 64 * strip >= s.rows) continue;
#if GENERAL && RAGGED
        finish<W>(d[h], bias[h]);
#else
        finish<W>(d[h], scalars, place, s, strip);
#endif
        bool signal = !CONSUMERS_STORE || (s.flags & COPY_ENGINE_STORES);
        if constexpr (KEEPS) {
            if (h == STRIPS - 1) {
                keep<W>(kept, d[h]);
                continue;
            }
        }
        if (EARLY && h == 0) {
            if (!whole) write_pieces<W, 0, EARLY>(block, d[0], pieces, group, true);
            write_pieces<W, EARLY>(block, d[0], pieces, group, true);
        } else {
            write_pieces<W>(block, d[h], pieces, group, signal);
        }
    }
}

// The warpgroup that wrote a tile's pieces stores them, then hands their places on.
__device__ __forceinline__ void store_own(const Block& block, Shape s, int4 place, int4 address,
                                          int group, Ring<SLOTS> from) {
    int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3, pieces = (s.width + 63) / 64;
    u16* c = (u16*)(((u64)(u32)address.y << 32) | (u32)address.x);
    asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
    for (int p = 0; p < pieces; p += TRANSPOSED ? 1 : pieces) {
        int side_by_side = TRANSPOSED ? 1 : pieces;
        store_unaligned(block, s, c, place.w, group, group, from, p, side_by_side, warp, 4);
        __syncwarp();
        for (int i = 0; i < side_by_side; ++i, from.next())
            if (lane == 0) barrier_arrive(block.ready(group, from.place));
    }
}

__device__ void multiply_tiles(const Block& block, const Table& tiles, const Scalars* scalars,
                               int group) {
    Ring<STAGES> ring;
    Ring<SLOTS> pieces;
    Ring<TURNS> turns;
    Kept kept;
    int t = in_turn(tiles, blockIdx.x);
    if (!is_tile(tiles, t)) return;
    bool lead = SKEW && WARPGROUPS == 2 && group == 0;
    // The second warpgroup starts SKEW steps late, so that one multiplies while the other finishes.
    if (SKEW && WARPGROUPS == 2 && group == 1) asm volatile("bar.sync 1, 256;" ::: "memory");
    int4 head = quad(tiles, t, 0), place = quad(tiles, t, 3), address = quad(tiles, t, 4);
    int rows = quad(tiles, t, 1).w, columns = quad(tiles, t, 2).w;
    for (;;) {
        Shape s = uniform(shape_of(head, rows, columns));
        int4 here = place, there = address;
        t = next_dealt_tile(block, turns, t);
        bool more = is_tile(tiles, t);
        if (more) {
            head = quad(tiles, t, 0), rows = quad(tiles, t, 1).w, columns = quad(tiles, t, 2).w;
            place = quad(tiles, t, 3), address = quad(tiles, t, 4);
        }
        Ring<SLOTS> first = pieces;
        if (64 * STRIPS * group >= s.rows || s.width < KEPT_WIDTH || s.steps <= kept.pieces)
            write_all_kept(block, kept, pieces, group);
        if (64 * STRIPS * group >= s.rows) {
            pass_the_turn(lead);  // who waits to begin would not hand back what is passed here
            pass_tile(block, s, ring);
        } else {
#define CASE(W)                                                                                \
    case W / 16:                                                                               \
        if (is_width(W))                                                                       \
            multiply_tile<(is_width(W) ? W : 32)>(block, s, here, scalars, tiles.ragged,       \
                                                  group, ring, pieces, lead, kept);            \
        break;
            switch (s.width / 16) {
                CASE(32) CASE(64) CASE(96) CASE(112) CASE(128) CASE(144) CASE(160) CASE(176)
                CASE(192) CASE(208) CASE(224) CASE(240) CASE(256)
            }
            if (CONSUMERS_STORE && !(s.flags & COPY_ENGINE_STORES))
                store_own(block, s, here, there, group, first);
        }
        pass_the_turn(lead);
        if (!more) break;
    }
    write_all_kept(block, kept, pieces, group);
}

#if CLUSTER > 1
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#else
#define IN_CLUSTERS
#endif

extern "C" __global__ void __launch_bounds__(128 * (WARPGROUPS + 1), BLOCKS) IN_CLUSTERS
    hopper_multiply(const int4* __restrict__ tiles, int count, const char* __restrict__ maps,
                    const Scalars* __restrict__ scalars, Ragged ragged
#if RAGGED
                    , const __grid_constant__ Maps own)  // operands move from launch to launch
{
    maps = own.of;
#else
                    ) {
#endif
    extern __shared__ __align__(1024) char shared[];
    Block block = {(shared_address(shared) + 1023) & ~1023u};
    block.free = block.empty(0);
    if (CLUSTER > 1) block.free = address_in(block.free, threadIdx.x % CLUSTER);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(block.full(i), 1 + 32 * GATHERERS);
            barrier_init(block.empty(i), 4 * WARPGROUPS * CLUSTER);
        }
        for (int i = 0; i < WARPGROUPS * SLOTS; ++i) {
            barrier_init(block.ready(0, i), 4);
            barrier_init(block.taken(0, i), STORERS);
        }
        for (int i = 0; i < TURNS; ++i) {
            barrier_init(block.announced(i), 1);
            barrier_init(block.read(i), WARPGROUPS * (4 + STORERS) + GATHERERS / 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        fence_async();
    }
    if (!RAGGED && threadIdx.x < 128) take_maps({tiles, count}, maps);
    if (CLUSTER == 1)
        __syncthreads();
    else
        cluster_sync();
    Table table = {tiles, RAGGED_ROWS ? tiles[0].x * ragged.across : count, ragged};
    int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp < 4) {
        registers_down<LOADER_REGISTERS>();
        int group = (warp - 1) / STORERS;
        if (warp == 0 || (CHOSEN && warp == 3)) {
#if CHOSEN
            load_chosen_tiles(block, table, maps, warp / 3);
#else
            if ((threadIdx.x & 31) == 0) load_tiles(block, table, maps);
#endif
        } else if (group < WARPGROUPS) {
            store_tiles(block, table, maps, group, (warp - 1) % STORERS);
        }
    } else {
        registers_up<CONSUMER_REGISTERS>();
        multiply_tiles(block, table, scalars, warp / 4 - 1);
    }
    if (CLUSTER > 1) cluster_sync();  // what the other block signals here, here it must find
}
