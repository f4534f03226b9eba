// Rows found by index times their group's matrix, and what a gate makes of that, in half precision on
// Hopper: the first product of a layer of experts, and the first of its gradients.
//
//        k (64 a step)             WIDTH columns of w[g] [k, n], 64 a box (or its rows, where k is
//      +--------------+       +--------------+--------------+     dense). FORM 2: the first half of
//  64  | consumer 0   |   x   |     gate     |      up      |     them gate, the second half what
//      +--------------+       |              |              |  k  belongs to them, n / 2 columns on
//  64  | consumer 1   |       |              |              |
//      +--------------+       +--------------+--------------+
//   rows of x, by index       d: a thread has an element of gate and that of up it is multiplied by,
//                             so f(gate) * up needs nobody else
//
//   pieces, in turn, where KEEP       of h: all columns, as they are      -> h [rows, n]
//   and always                        of c: FORM 0 those, 1 f of them,    -> c [rows, n, or n / 2]
//                                     2 f(gate) * up
//
// Entries of the table have at most 128 rows; roles of warps and rings of places are those of
// hopper_multiply.cu. There x gives the columns: of those twice as many would be gathered a step,
// which takes longest here, and a row of h would be spread over two warpgroups.
// KIND (facts/gates.py): 0 silu, 1 gelu, 2 relu, 3 relu squared. Numbers of h are rounded before f,
// as they are where gradients read them. n is a multiple of 8, FORM 2: n / 2 of 64.
#include "hopper_wgmma.cuh"
#include "hopper_tiles.cuh"
#include "hopper_store.cuh"
#include "hopper_block.cuh"
#include "hopper_epilogue.cuh"
#include "hopper_gather.cuh"

constexpr bool KEEPS = false;  // numbers of C are made of several sums

#include "hopper_sum.cuh"

static_assert(RAGGED_ROWS && CHOSEN == 1 && WARPGROUPS == 2 && !TRANSPOSED, "");
constexpr bool PAIR = FORM == 2;
constexpr int FEATURES = PAIR ? WIDTH / 2 : WIDTH;  // columns of c that a tile has
constexpr int PIECES_OF_C = FEATURES / 64, PIECES_OF_H = FORM && KEEP ? WIDTH / 64 : 0;

// An entry of the table, and where the tile's columns of c begin.
struct Place {
    int4 entry;
    int column;
    // Where the tile's 64 columns number h of w and of h begin.
    __device__ __forceinline__ int of_h(int h, int n) const {
        return column + (PAIR ? 64 * (h % PIECES_OF_C) + (h >= PIECES_OF_C ? n / 2 : 0) : 64 * h);
    }
};

__device__ __forceinline__ Place place_of(const Table& tiles, int tile) {
    const Ragged& r = tiles.ragged;
    int entries = __ldg(&tiles.tiles->x), band = tile / (r.band * r.across) * r.band;
    int height = entries - band < r.band ? entries - band : r.band, rest = tile - band * r.across;
    int column = rest / height;
    return {__ldg(tiles.tiles + 1 + band + rest - column * height), FEATURES * column};
}

__device__ __forceinline__ Shape shape_of_chosen(const Table& tiles, const Place& place) {
    int k = tiles.ragged.k, steps = (k + 63) / 64, rows = place.entry.z - place.entry.y;
    return {steps, WIDTH, (k - 64 * (steps - 1) + 15) / 16, COPY_ENGINE_STORES, rows, WIDTH};
}

// Map 0 is that of the weights, 1 of c, 2 of h.
__device__ void load_rows_by_index(const Block& block, const Table& tiles, const char* maps,
                                 int warp) {
    Ring<STAGES> ring;
    Ring<TURNS> turns;
    const Ragged& r = tiles.ragged;
    bool asks = warp == 0 && (threadIdx.x & 31) == 0;
    for (int t = blockIdx.x; t < tiles.count;) {
        Place place = place_of(tiles, t);
        Shape s = shape_of_chosen(tiles, place);
        if (warp == 0) {
            if (asks) t = ask_tile(block, tiles, turns, t);
            t = __shfl_sync(~0u, t, 0);
        } else {
            t = next_dealt_tile(block, turns, t);
        }
        Chosen chosen(r, place.entry, warp);
        for (int step = 0; step < s.steps; ++step) {
            u32 full = block.full(ring.place), into = block.stage(ring.place);
            barrier_wait(block.empty(ring.place), ring.phase ^ 1);
            if (asks) {
                barrier_expect(full, WIDTH / 64 * BOX);
                for (int h = 0; h < WIDTH / 64; ++h) {
                    int column = place.of_h(h, r.n);
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
__device__ void store_results(const Block& block, const Table& tiles, const char* maps,
                                  int group) {
    Ring<SLOTS> ring;
    Ring<TURNS> turns;
    const Ragged& r = tiles.ragged;
    int lane = threadIdx.x & 31, columns_of_c = PAIR ? r.n / 2 : r.n;
    for (int t = blockIdx.x; t < tiles.count; t = next_dealt_tile(block, turns, t)) {
        Place place = place_of(tiles, t);
        int row = place.entry.y + 64 * group, rows = place.entry.z - row;
        if (rows <= 0) continue;
        for (int p = 0; p < PIECES_OF_H + PIECES_OF_C; ++p) {
            bool kept = p < PIECES_OF_H;
            int c_column = place.column + 64 * ((kept ? p : p - PIECES_OF_H) % PIECES_OF_C);
            int column = kept ? place.of_h(p, r.n) : c_column, left = columns_of_c - c_column;
            u32 piece = block.piece(group, ring.place);
            barrier_wait(block.ready(group, ring.place), ring.phase);
            if (left > 0 && rows >= 64) {  // else a box would hold rows of the next group
                if (lane == 0) {
                    store_box(maps + 128 * (kept ? 2 : 1), column, row, piece);
                    store_wait_read<0>();
                }
            } else if (left > 0) {
                long long stride = kept ? r.n : columns_of_c;
                u16* corner = (u16*)(kept ? r.other : r.c) + stride * row + column;
                store_rows<u16>(block.piece(group, 0), SLOTS, ring.place, 1, corner, stride, rows,
                                left < 64 ? left : 64, 0, 1);
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(block.taken(group, ring.place));
            ring.next();
        }
    }
    if (lane == 0) store_wait();
}

__device__ __forceinline__ float activated_by_kind(float x) {
#if KIND == 0
    return __fdividef(x, 1.0f + __expf(-x));
#elif KIND == 1
    // erfc by Abramowitz and Stegun, 7.1.26, 1.5e-7 off at most; erfcf needs more registers.
    float z = fabsf(x) * 0.70710678118654752f, t = __fdividef(1.0f, 1.0f + 0.3275911f * z);
    float sum = t * (-1.453152027f + t * 1.061405429f);
    sum = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + sum)));
    float tail = sum * __expf(-z * z);
    return 0.5f * x * (x < 0.0f ? tail : 2.0f - tail);
#elif KIND == 2
    return x < 0.0f ? 0.0f : x;
#else
    return x < 0.0f ? 0.0f : x * x;
#endif
}

// 64 columns of c, number `p`. (All at once would need more registers than there are.)
__device__ __forceinline__ void write_results(const Block& block, const float (&d)[WIDTH / 2],
                                              int p, Ring<SLOTS>& pieces, int group) {
    constexpr int FAR = PAIR ? FEATURES / 2 : 0;  // from an element of gate to that of up
    float c[32];
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        float one = d[32 * p + i], two = d[32 * p + i + 1];
        if (FORM) {
            u32 left = packed(one, two);
            one = activated_by_kind(widened((u16)left));
            two = activated_by_kind(widened((u16)(left >> 16)));
        }
        if (PAIR) {
            u32 right = packed(d[FAR + 32 * p + i], d[FAR + 32 * p + i + 1]);
            one *= widened((u16)right);
            two *= widened((u16)(right >> 16));
        }
        c[i] = one, c[i + 1] = two;
    }
    write_pieces<64>(block, c, pieces, group, true);
}

__device__ void multiply_rows(const Block& block, const Table& tiles, int group) {
    Ring<STAGES> ring;
    Ring<SLOTS> pieces;
    Ring<TURNS> turns;
    if (blockIdx.x >= tiles.count) return;
    bool lead = SKEW && group == 0;
    if (SKEW && group == 1) asm volatile("bar.sync 1, 256;" ::: "memory");
    for (int t = blockIdx.x; t < tiles.count;) {
        Shape s = uniform(shape_of_chosen(tiles, place_of(tiles, t)));
        t = next_dealt_tile(block, turns, t);
        if (64 * group >= s.rows) {
            pass_the_turn(lead);
            pass_tile(block, s, ring);
            continue;
        }
        float sums[1][WIDTH / 2], (&d)[WIDTH / 2] = sums[0];
        Kept none;
        sum_tile<WIDTH>(block, s, group, ring, lead, sums, none, pieces, [] {});
        if (PIECES_OF_H) write_pieces<WIDTH>(block, d, pieces, group, true);
#pragma unroll
        for (int p = 0; p < PIECES_OF_C; ++p) write_results(block, d, p, pieces, group);
        pass_the_turn(lead);
    }
    pass_the_turn(lead);
}

extern "C" __global__ void __launch_bounds__(128 * (WARPGROUPS + 1), 1)
    hopper_chosen(const int4* __restrict__ table, int, const char*, const void*, Ragged ragged,
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
            load_rows_by_index(block, tiles, own.of, warp / 3);
        else
            store_results(block, tiles, own.of, warp - 1);
    } else {
        registers_up<CONSUMER_REGISTERS>();
        multiply_rows(block, tiles, warp / 4 - 1);
    }
}
