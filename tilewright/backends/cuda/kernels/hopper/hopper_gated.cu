// The first product of a layer of experts, and f(gate) * up of it, in half precision on Hopper.
//
//        k (64 a step)         gate: 128 columns   up: the 128 that belong to them
//      +--------------+       +--------------+    +--------------+
//  64  | consumer 0   |   x   |              |    |              |     two boxes of 64 columns each,
//      +--------------+       |              |    |              |  k  of one w[g] [k, 2 HALF] (or
//  64  | consumer 1   |       |              |    |              |     its rows, where k is dense)
//      +--------------+       +--------------+    +--------------+
//   rows of x, by index       d: gate in the first half of a thread's registers, up in the second,
//                             element by element; so f(gate) * up needs nobody else
//
//   pieces, in turn, where KEEP       gate 0   gate 1   up 0   up 1   ->   h [rows, 2 HALF]
//   and always                        a 0      a 1                    ->   c [rows, HALF]
//
// Entries of the table have at most 128 rows; roles of warps and rings of places are those of
// hopper_multiply.cu, whose tiles are turned: there a row of h is spread over two warpgroups.
// KIND (facts/gates.py): 0 silu, 1 gelu, 2 relu, 3 relu squared. Halves are rounded before f, as
// they are where gradients read them. HALF is a multiple of 128.
#define GATED 1
#include "hopper_wgmma.cuh"
#include "hopper_tiles.cuh"
#include "hopper_store.cuh"
#include "hopper_block.cuh"
#include "hopper_epilogue.cuh"
#include "hopper_gather.cuh"
#include "hopper_sum.cuh"

static_assert(RAGGED_ROWS && CHOSEN == 1 && WIDTH == 256 && WARPGROUPS == 2 && !TRANSPOSED, "");
constexpr int FEATURES = WIDTH / 2;  // columns of c that a tile has
constexpr int TALL = 64 * WARPGROUPS;
constexpr int PIECES_OF_H = KEEP ? 4 : 0;

// An entry of the table, and where the tile's columns of c begin.
struct Place {
    int4 entry;
    int column;
};

__device__ __forceinline__ Place place_of(const Table& tiles, int tile) {
    const Ragged& r = tiles.ragged;
    int entries = __ldg(&tiles.tiles->x), band = tile / (r.band * r.across) * r.band;
    int height = entries - band < r.band ? entries - band : r.band, rest = tile - band * r.across;
    int column = rest / height;
    return {__ldg(tiles.tiles + 1 + band + rest - column * height), FEATURES * column};
}

__device__ __forceinline__ Shape shape_of_gated(const Table& tiles, const Place& place) {
    int k = tiles.ragged.k, steps = (k + 63) / 64, rows = place.entry.z - place.entry.y;
    return {steps, WIDTH, (k - 64 * (steps - 1) + 15) / 16, COPY_ENGINE_STORES, rows, WIDTH};
}

// Map 0 is that of the weights, 1 of c, 2 of h.
__device__ void load_gated_tiles(const Block& block, const Table& tiles, const char* maps,
                                 int warp) {
    Ring<STAGES> ring;
    Ring<TURNS> turns;
    const Ragged& r = tiles.ragged;
    bool asks = warp == 0 && (threadIdx.x & 31) == 0;
    for (int t = blockIdx.x; t < tiles.count;) {
        Place place = place_of(tiles, t);
        Shape s = shape_of_gated(tiles, place);
        if (warp == 0) {
            if (asks) t = ask_tile(block, tiles, turns, t);
            t = __shfl_sync(~0u, t, 0);
        } else {
            t = next_dealt_tile(block, turns, t);
        }
        Chosen chosen(r, place.entry, s.rows, warp);
        for (int step = 0; step < s.steps; ++step) {
            u32 full = block.full(ring.place), into = block.stage(ring.place);
            barrier_wait(block.empty(ring.place), ring.phase ^ 1);
            if (asks) {
                barrier_expect(full, WIDTH / 64 * BOX);
                for (int h = 0; h < WIDTH / 64; ++h) {
                    int column = place.column + (h < 2 ? 64 * h : r.n / 2 + 64 * (h - 2));
                    int x = RIGHT_MN ? column : 64 * step;
                    int y = RIGHT_MN ? place.entry.x * r.k + 64 * step : place.entry.x * r.n + column;
                    load_box(into + LEFT_BYTES + h * BOX, maps, x, y, full);
                }
            }
            __syncwarp();
            chosen.load(r, into, step, warp);
            arrive_when_loaded(full);
            ring.next();
        }
    }
}

// One warp stores what one warpgroup has written.
__device__ void store_gated_tiles(const Block& block, const Table& tiles, const char* maps,
                                  int group) {
    Ring<SLOTS> ring;
    Ring<TURNS> turns;
    const Ragged& r = tiles.ragged;
    int lane = threadIdx.x & 31, half = r.n / 2;
    for (int t = blockIdx.x; t < tiles.count; t = next_dealt_tile(block, turns, t)) {
        Place place = place_of(tiles, t);
        int row = place.entry.y + 64 * group, rows = place.entry.z - row;
        if (rows <= 0) continue;
        for (int p = 0; p < PIECES_OF_H + 2; ++p) {
            bool kept = p < PIECES_OF_H;
            int column = place.column + 64 * (p & 1) + (kept && p > 1 ? half : 0);
            u32 piece = block.piece(group, ring.place);
            barrier_wait(block.ready(group, ring.place), ring.phase);
            if (rows >= 64) {  // a box would hold rows of the next group
                if (lane == 0) {
                    store_box(maps + 128 * (kept ? 2 : 1), column, row, piece);
                    store_wait_read<0>();
                }
            } else {
                long long stride = kept ? r.n : half;
                u16* corner = (u16*)(kept ? r.other : r.c) + stride * row + column;
                store_rows<u16>(block.piece(group, 0), SLOTS, ring.place, 1, corner, stride, rows,
                                64, 0, 1);
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(block.taken(group, ring.place));
            ring.next();
        }
    }
    if (lane == 0) store_wait();
}

__device__ __forceinline__ float gated(float x) {
#if KIND == 0
    return __fdividef(x, 1.0f + __expf(-x));
#elif KIND == 1
    return 0.5f * x * erfcf(x * -0.70710678118654752f);
#elif KIND == 2
    return x < 0.0f ? 0.0f : x;
#else
    return x < 0.0f ? 0.0f : x * x;
#endif
}

__device__ void multiply_gated_tiles(const Block& block, const Table& tiles, int group) {
    Ring<STAGES> ring;
    Ring<SLOTS> pieces;
    Ring<TURNS> turns;
    if (blockIdx.x >= tiles.count) return;
    bool lead = SKEW && group == 0;
    if (SKEW && group == 1) asm volatile("bar.sync 1, 256;" ::: "memory");
    for (int t = blockIdx.x; t < tiles.count;) {
        Shape s = uniform(shape_of_gated(tiles, place_of(tiles, t)));
        t = next_dealt_tile(block, turns, t);
        if (64 * group >= s.rows) {
            pass_the_turn(lead);
            pass_tile(block, s, ring);
            continue;
        }
        float d[WIDTH / 2];
        sum_tile<WIDTH>(block, s, group, ring, lead, d);
        if (KEEP) write_pieces<WIDTH>(block, d, pieces, group, true);
        float a[FEATURES / 2];
#pragma unroll
        for (int i = 0; i < FEATURES / 2; i += 2) {
            u32 left = packed(d[i], d[i + 1]);
            u32 right = packed(d[FEATURES / 2 + i], d[FEATURES / 2 + i + 1]);
            a[i] = gated(widened((u16)left)) * widened((u16)right);
            a[i + 1] = gated(widened((u16)(left >> 16))) * widened((u16)(right >> 16));
        }
        write_pieces<FEATURES>(block, a, pieces, group, true);
        pass_the_turn(lead);
    }
    pass_the_turn(lead);
}

extern "C" __global__ void __launch_bounds__(128 * (WARPGROUPS + 1), 1)
    hopper_gated(const int4* __restrict__ table, int, const char*, const void*, Ragged ragged,
                 const __grid_constant__ Maps own) {
    extern __shared__ __align__(1024) char shared[];
    Block block = {(shared_address(shared) + 1023) & ~1023u};
    block.free = block.empty(0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(block.full(i), 1 + 32 * GATHERERS);
            barrier_init(block.empty(i), 4 * WARPGROUPS);
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
    __syncthreads();
    Table tiles = {table, table[0].x * ragged.across, ragged};
    int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp < 4) {
        registers_down<LOADER_REGISTERS>();
        if (warp == 0 || warp == 3)
            load_gated_tiles(block, tiles, own.of, warp / 3);
        else
            store_gated_tiles(block, tiles, own.of, warp - 1);
    } else {
        registers_up<CONSUMER_REGISTERS>();
        multiply_gated_tiles(block, tiles, warp / 4 - 1);
    }
}
