// Half-precision products on Hopper's tensor cores, a whole batch in one launch.
//
//        k (64 a step)          width <= 256
//      +--------------+       +--------------+       one tile of C: 64 x WARPGROUPS rows, `width`
//  64  | consumer 0   |   x   |              |       columns (a multiple of 32, as the edge needs);
//      +--------------+       |              | k     half a tile where 64 rows suffice
//  64  | consumer 1   |       |              |
//      +--------------+       +--------------+
//
//  warpgroup 0            warp 0 asks the copy engine for boxes of 64 x 64, STAGES steps ahead;
//                         the others store finished pieces of C
//  WARPGROUPS consumers   multiply 64 rows each out of shared memory; a finished 64 x 64 piece goes
//                         into one of SLOTS places, so that the next tile starts at once
//
// Persistent: block b takes tiles b, b + gridDim.x, ...; who takes which tile was decided when the
// records were written (tiles.py), so results depend on nothing else. TRANSPOSED: the left operand
// gives C's columns. GENERAL: C = activation(alpha acc + beta C + bias), from `scalars`.
#include "hopper_ptx.cuh"
#include "hopper_tiles.cuh"
#include "hopper_store.cuh"
#include "hopper_epilogue.cuh"

constexpr int BOX = 64 * 64 * 2;
constexpr int LEFT_BYTES = WARPGROUPS * BOX, STAGE_BYTES = LEFT_BYTES + (WIDTH / 64) * BOX;
constexpr int PIECES = STAGES * STAGE_BYTES;  // where the pieces of C begin
constexpr int BARRIERS = PIECES + WARPGROUPS * SLOTS * BOX;
// Where a whole row of pieces has places, consumers store unaligned rows themselves: four warps,
// not one. On an H200 one warp took 9 us for a tile of 128 x 256.
constexpr bool CONSUMERS_STORE = SLOTS * 64 >= WIDTH;
constexpr int STORERS = 3 / WARPGROUPS;  // warps a warpgroup of consumers

typedef ScalarsOf<u16> Scalars;

struct Block {
    u32 memory;
    __device__ u32 stage(int i) const { return memory + i * STAGE_BYTES; }
    __device__ u32 piece(int group, int slot) const {
        return memory + PIECES + (group * SLOTS + slot) * BOX;
    }
    __device__ u32 full(int i) const { return memory + BARRIERS + 8 * i; }
    __device__ u32 empty(int i) const { return full(STAGES + i); }
    __device__ u32 ready(int group, int slot) const {
        return full(2 * STAGES + group * SLOTS + slot);
    }
    __device__ u32 taken(int group, int slot) const {
        return full(2 * STAGES + (WARPGROUPS + group) * SLOTS + slot);
    }
};

template <int COUNT> struct Ring {
    int place = 0, phase = 0;
    __device__ __forceinline__ void next() {
        if (++place == COUNT) {
            place = 0;
            phase ^= 1;
        }
    }
};

__device__ void load_tiles(const Block& block, const Table& tiles, const char* maps) {
    Ring<STAGES> ring;
    int t = blockIdx.x;
    if (t >= tiles.count) return;
    int4 head = quad(tiles, t, 0), left = quad(tiles, t, 1), right = quad(tiles, t, 2);
    for (;;) {
        Shape s = shape_of(head, left.w, right.w);
        Walk a = {maps + 128ll * head.x, left.x, left.y, left.z, s.flags & LEFT_PACKED};
        Walk b = {maps + 128ll * head.y, right.x, right.y, right.z, s.flags & RIGHT_PACKED};
        t += gridDim.x;
        bool more = t < tiles.count;
        if (more) {
            head = quad(tiles, t, 0), left = quad(tiles, t, 1), right = quad(tiles, t, 2);
            prefetch_map(maps + 128ll * head.x);
            prefetch_map(maps + 128ll * head.y);
        }
        int lefts = s.rows > 64 ? WARPGROUPS : 1, rights = (s.width + 63) / 64;
        for (int step = 0; step < s.steps; ++step) {
            u32 full = block.full(ring.place), into = block.stage(ring.place);
            barrier_wait(block.empty(ring.place), ring.phase ^ 1);
            barrier_expect(full, (lefts + rights) * BOX);
            for (int h = 0; h < lefts; ++h) load_operand<LEFT_MN>(into + h * BOX, a, step, h, full);
            for (int h = 0; h < rights; ++h)
                load_operand<RIGHT_MN>(into + LEFT_BYTES + h * BOX, b, step, h, full);
            ring.next();
        }
        if (!more) break;
    }
}

// A warp's share of some pieces side by side, the first of them the tile's `p`-th.
__device__ __forceinline__ void store_unaligned(const Block& block, Shape s, u16* c,
                                                long long stride, int group, Ring<SLOTS> from,
                                                int p, int side_by_side, int warp, int warps) {
    int top = TRANSPOSED ? 64 * p : 64 * group, first = TRANSPOSED ? 64 * group : 64 * p,
        limit = 64 * side_by_side;
    int rows = (TRANSPOSED ? s.columns : s.rows) - top,
        columns = (TRANSPOSED ? s.rows : s.columns) - first;
    store_rows<u16>(block.piece(group, 0), SLOTS, from.place, side_by_side,
                    c + stride * top + first, stride, rows < 64 ? rows : 64,
                    columns < limit ? columns : limit, warp, warps);
}

// One of the STORERS warps that empty the places of one warpgroup.
__device__ void store_tiles(const Block& block, const Table& tiles, const char* maps, int group,
                            int share) {
    Ring<SLOTS> ring;
    int lane = threadIdx.x & 31;
    bool asks = share == 0 && lane == 0;
    for (int t = blockIdx.x; t < tiles.count; t += gridDim.x) {
        int4 head = quad(tiles, t, 0), place = quad(tiles, t, 3), address = quad(tiles, t, 4);
        Shape s = shape_of(head, quad(tiles, t, 1).w, quad(tiles, t, 2).w);
        if (group * 64 >= s.rows) continue;
        u16* c = (u16*)(((u64)(u32)address.y << 32) | (u32)address.x);
        long long stride = place.w;
        bool aligned = s.flags & COPY_ENGINE_STORES;
        const char* map = maps + 128ll * address.z;
        int pieces = (s.width + 63) / 64;
        for (int p = 0; p < pieces;) {
            int top = TRANSPOSED ? 64 * p : 64 * group, first = TRANSPOSED ? 64 * group : 64 * p;
            int rows = (TRANSPOSED ? s.columns : s.rows) - top;
            int columns = (TRANSPOSED ? s.rows : s.columns) - first;
            // Where C is ragged, rows past the end are another group's; a box would hold them.
            bool engine = aligned && (!RAGGED || rows >= 64);
            int side_by_side = TRANSPOSED || aligned ? 1 : pieces - p < SLOTS ? pieces - p : SLOTS;
            Ring<SLOTS> from = ring;
            for (int i = 0; i < side_by_side; ++i) {
                barrier_wait(block.ready(group, ring.place), ring.phase);
                ring.next();
            }
            p += side_by_side;
            u16* corner = c + stride * top + first;
            if (engine) {
                // The map of C ends at a multiple of 8 columns, for the copy engine clips in units
                // of 16 bytes; the few beyond go one by one.
                if (asks) {
                    int row = TRANSPOSED ? place.y : place.x,
                        column = TRANSPOSED ? place.x : place.y;
                    store_box(map, column + first, row + top, block.piece(group, from.place));
                }
                if (columns < 64 && (columns & 7))
                    store_rest<u16>(block.piece(group, from.place), corner, stride,
                                    rows < 64 ? rows : 64, columns, share, STORERS);
                __syncwarp();
                // The place before this one is free once the copy engine has read it.
                if (asks && p > 1) {
                    store_wait_read<1>();
                    barrier_arrive(block.taken(group, from.place ? from.place - 1 : SLOTS - 1));
                }
                bool last = p == pieces || (RAGGED && rows < 128);
                if (asks && last) store_wait_read<0>();
                if (asks ? last : lane == 0) barrier_arrive(block.taken(group, from.place));
            } else {
                if (!CONSUMERS_STORE || aligned)
                    store_unaligned(block, s, c, stride, group, from, p - side_by_side,
                                    side_by_side, share, STORERS);
                __syncwarp();
                if (lane == 0)
                    for (int i = 0; i < side_by_side; ++i, from.next())
                        barrier_arrive(block.taken(group, from.place));
            }
        }
    }
    if (asks) store_wait();
}

__device__ __forceinline__ u32 packed(float low, float high) {
    u32 both;
    asm("cvt.rn." ELEMENT "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

template <int W>
__device__ __forceinline__ void write_pieces(const Block& block, float (&d)[W / 2],
                                             Ring<SLOTS>& ring, int group, bool signal) {
    int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
#pragma unroll
    for (int j = 0; j < W / 8; j += 2) {
        u32 piece = block.piece(group, ring.place);
        if (j % 8 == 0) barrier_wait(block.taken(group, ring.place), ring.phase ^ 1);
        u32 a = packed(d[4 * j], d[4 * j + 1]), b = packed(d[4 * j + 2], d[4 * j + 3]);
        u32 c = packed(d[4 * j + 4], d[4 * j + 5]), e = packed(d[4 * j + 6], d[4 * j + 7]);
        int half = (lane >> 3) & 1, next = lane >> 4;
        int row =
            TRANSPOSED ? (8 * (j + next) & 63) + (lane & 7) : 16 * warp + 8 * half + (lane & 7);
        int chunk = TRANSPOSED ? 2 * warp + half : (j + next) & 7;
        u32 at = piece + 128 * row + ((chunk ^ (row & 7)) << 4);
#if TRANSPOSED
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
            "r"(a), "r"(b), "r"(c), "r"(e)
            : "memory");
#else
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                     "r"(a), "r"(b), "r"(c), "r"(e)
                     : "memory");
#endif
        if (j % 8 == 6 || j + 2 == W / 8) {
            if (signal) {
                fence_async();
                __syncwarp();
                if (lane == 0) barrier_arrive(block.ready(group, ring.place));
            }
            ring.next();
        }
    }
}

template <int W>
__device__ __forceinline__ void multiply_tile(const Block& block, Shape s, int4 place,
                                              const Scalars* scalars, int group, Ring<STAGES>& ring,
                                              Ring<SLOTS>& pieces, bool& lead) {
    constexpr u64 LEFT_SLICE = (LEFT_MN ? 2048 : 32) >> 4,
                  RIGHT_SLICE = (RIGHT_MN ? 2048 : 32) >> 4;
    float d[W / 2];
    bool first = (threadIdx.x & 31) == 0;
    u32 previous = 0;
    if (s.steps == 0) {
#pragma unroll
        for (int i = 0; i < W / 2; ++i) d[i] = 0.0f;
    }
    // The last step apart: a loop in which steps differ would make ptxas wait after each.
    int whole = s.steps - (s.slices < 4);
    for (int step = 0; step < whole; ++step) {
        barrier_wait(block.full(ring.place), ring.phase);
        u64 left = matrix_descriptor(block.stage(ring.place) + group * BOX);
        u64 right = matrix_descriptor(block.stage(ring.place) + LEFT_BYTES);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
            Multiply<W>::go(d, left + i * LEFT_SLICE, right + i * RIGHT_SLICE, step | i);
        wgmma_commit();
        wgmma_wait<1>();
        if (step && first) barrier_arrive(previous);
        previous = block.empty(ring.place);
        ring.next();
        if (lead && step == SKEW - 1) {
            asm volatile("bar.arrive 1, 256;" ::: "memory");
            lead = false;
        }
    }
    wgmma_wait<0>();
    if (whole > 0 && first) barrier_arrive(previous);
    if (whole < s.steps) {
        barrier_wait(block.full(ring.place), ring.phase);
        u64 left = matrix_descriptor(block.stage(ring.place) + group * BOX);
        u64 right = matrix_descriptor(block.stage(ring.place) + LEFT_BYTES);
#pragma unroll 1
        for (int i = 0; i < s.slices; ++i) {
            wgmma_fence();
            Multiply<W>::go(d, left + i * LEFT_SLICE, right + i * RIGHT_SLICE, whole | i);
            wgmma_commit();
        }
        wgmma_wait<0>();
        if (first) barrier_arrive(block.empty(ring.place));
        ring.next();
    }
    finish<W>(d, scalars, place, s, group);
    write_pieces<W>(block, d, pieces, group, !CONSUMERS_STORE || (s.flags & COPY_ENGINE_STORES));
}

// The warpgroup that wrote a tile's pieces stores them, then hands their places on.
__device__ __forceinline__ void store_own(const Block& block, Shape s, int4 place, int4 address,
                                          int group, Ring<SLOTS> from) {
    int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3, pieces = (s.width + 63) / 64;
    u16* c = (u16*)(((u64)(u32)address.y << 32) | (u32)address.x);
    asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
    for (int p = 0; p < pieces; p += TRANSPOSED ? 1 : pieces) {
        int side_by_side = TRANSPOSED ? 1 : pieces;
        store_unaligned(block, s, c, place.w, group, from, p, side_by_side, warp, 4);
        __syncwarp();
        for (int i = 0; i < side_by_side; ++i, from.next())
            if (lane == 0) barrier_arrive(block.ready(group, from.place));
    }
}

// A warpgroup whose rows all lie past the edge only hands the stages back.
__device__ __forceinline__ void pass_tile(const Block& block, Shape s, Ring<STAGES>& ring) {
    for (int step = 0; step < s.steps; ++step) {
        barrier_wait(block.full(ring.place), ring.phase);
        if ((threadIdx.x & 31) == 0) barrier_arrive(block.empty(ring.place));
        ring.next();
    }
}

__device__ void multiply_tiles(const Block& block, const Table& tiles, const Scalars* scalars,
                               int group) {
    Ring<STAGES> ring;
    Ring<SLOTS> pieces;
    int t = blockIdx.x;
    if (t >= tiles.count) return;
    bool lead = SKEW && WARPGROUPS == 2 && group == 0;
    // The second warpgroup starts SKEW steps late, so that one multiplies while the other finishes.
    if (SKEW && WARPGROUPS == 2 && group == 1) asm volatile("bar.sync 1, 256;" ::: "memory");
    int4 head = quad(tiles, t, 0), place = quad(tiles, t, 3), address = quad(tiles, t, 4);
    int rows = quad(tiles, t, 1).w, columns = quad(tiles, t, 2).w;
    for (;;) {
        Shape s = uniform(shape_of(head, rows, columns));
        int4 here = place, there = address;
        t += gridDim.x;
        bool more = t < tiles.count;
        if (more) {
            head = quad(tiles, t, 0), rows = quad(tiles, t, 1).w, columns = quad(tiles, t, 2).w;
            place = quad(tiles, t, 3), address = quad(tiles, t, 4);
        }
        Ring<SLOTS> first = pieces;
        if (s.width == 0) {
        } else if (64 * group >= s.rows) {
            pass_tile(block, s, ring);
        } else {
#define CASE(W)                                                                                \
    case W / 32:                                                                               \
        if (W <= WIDTH)                                                                        \
            multiply_tile<(W <= WIDTH ? W : 32)>(block, s, here, scalars, group, ring, pieces, \
                                                 lead);                                        \
        break;
            switch (s.width / 32) {
                CASE(32) CASE(64) CASE(96) CASE(128) CASE(160) CASE(192) CASE(224) CASE(256)
            }
            if (CONSUMERS_STORE && !(s.flags & COPY_ENGINE_STORES))
                store_own(block, s, here, there, group, first);
        }
        if (lead) {
            asm volatile("bar.arrive 1, 256;" ::: "memory");
            lead = false;
        }
        if (!more) break;
    }
}

extern "C" __global__ void __launch_bounds__(128 * (WARPGROUPS + 1), BLOCKS)
    hopper_multiply(const int4* __restrict__ tiles, int count, const char* __restrict__ maps,
                    const Scalars* __restrict__ scalars, Ragged ragged) {
    extern __shared__ __align__(1024) char shared[];
    Block block = {(shared_address(shared) + 1023) & ~1023u};
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(block.full(i), 1);
            barrier_init(block.empty(i), 4 * WARPGROUPS);
        }
        for (int i = 0; i < WARPGROUPS * SLOTS; ++i) {
            barrier_init(block.ready(0, i), 4);
            barrier_init(block.taken(0, i), STORERS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        fence_async();
    }
    __syncthreads();
    Table table = {tiles, RAGGED ? tiles[0].x * ragged.across : count, ragged};
    int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp < 4) {
        registers_down<LOADER_REGISTERS>();
        int group = (warp - 1) / STORERS;
        if (warp == 0) {
            if ((threadIdx.x & 31) == 0) load_tiles(block, table, maps);
        } else if (group < WARPGROUPS) {
            store_tiles(block, table, maps, group, (warp - 1) % STORERS);
        }
    } else {
        registers_up<CONSUMER_REGISTERS>();
        multiply_tiles(block, table, scalars, warp / 4 - 1);
    }
}
