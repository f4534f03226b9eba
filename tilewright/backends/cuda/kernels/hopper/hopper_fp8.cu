// Products of 8-bit floats, and of int8, on Hopper's tensor cores, groups of rows or of k as the
// device says.
//
//        k (128 a step)           n 128
//      +--------------+       +----------+      one tile of C: 256 x 128. Block b of 64 rows belongs
//  64  | consumer 0   |   x   |          |      to consumer b mod 2, so that few rows keep both at
//  64  | consumer 1   |       |          | k    work; blocks past the last row are left out, and of
//  64  | consumer 0   |       |          |      a single one each takes half of the columns.
//  64  | consumer 1   |       +----------+
//      +--------------+
//
//  warp 0                 asks the copy engine for boxes of 64 or 128 rows, STAGES steps ahead
//  warp 1                 of SCALES 1: fetches scales into L2 a tile ahead
//  two warpgroups         multiply 64 x 128 x 128 into fresh registers, and add that, scaled, to fp32
//                         sums in others: a tensor core keeps about 14 bits of what it adds up in
//                         8-bit products, so it never adds more than 128 of k. While one warpgroup
//                         adds, the other multiplies. Of INT8 sums are int32, exact, and stay
//                         where they are.
//
// SCALES 0: one a row of A and one a column of B, applied to the whole sum; 1: A one for 1 x 128, B
// for 128 x 128; 2: both for 1 x 128, those of B contiguous along n and loaded by the copy engine.
// DEPTHS: k is cut into the groups instead, C is [groups, m, n], and groups begin at multiples of
// 128 (else their product is zero and `fault` says which).
// A_E5M2, B_E5M2 (0: e4m3). OUT_FLOAT (0: bf16); OUT_INT beside it: C is int8's sums. SKEW: steps
// between both warpgroups' beginnings.
#if INT8
#include "hopper_int8_sums.cuh"
#else
#include "hopper_fp8_sums.cuh"
#endif

// The loader says which tiles are this block's; one without rows comes after the last. It reads the
// table once for all, while boxes of the tile before are on their way.
__device__ __forceinline__ void announce(const Stages& at, const Tile& t, Ring<TURNS>& turns) {
    barrier_wait(at.read(turns.place), turns.phase ^ 1);
    u32 to = at.turn(turns.place);
    write_four(to, int4{t.group, t.a_row, t.rows, t.b_row});
    write_four(to + 16, int4{t.column, t.columns, t.begin, t.steps});
    barrier_arrive(at.announced(turns.place));
    turns.next();
}

// The tile after `t` of this block. Of rows only the device knows which are long, so who is done
// takes the next: as many ask as there are tiles, and the last sets the count back.
__device__ __forceinline__ int next_tile(const Call& call, int count, int t) {
#if DEPTHS
    return t + gridDim.x;
#else
    return gridDim.x + atomicInc((u32*)&call.table[0].y, count - 1);
#endif
}

__device__ __forceinline__ Tile tile_or_end(const Call& call, int t, int count) {
    if (t < count) return tile_of(call, t);
    return {0, 0, 0, 0, 0, 0, 0, 0};
}

__device__ void load_tiles(const Stages& at, const Call& call, int count) {
    Ring<STAGES> ring;
    Ring<TURNS> turns;
    int t = blockIdx.x;
    Tile tile = tile_or_end(call, t, count);
    announce(at, tile, turns);
    while (tile.rows) {
        Tile following;
        int boxes = (tile.rows + 63) / 64, last = tile.steps - 1;
        u32 columns = tile.columns < 128 ? (tile.columns + 3) / 4 * 16 : 512;
        for (int step = 0; step < tile.steps; ++step) {
            u32 full = at.full(ring.place);
            int k = tile.begin + 128 * step;
            barrier_wait(at.empty(ring.place), ring.phase ^ 1);
            barrier_expect(full, boxes * 8192 + B_BYTES + (SCALES == 2 ? columns : 0));
            load_box(at.b(ring.place), call.b, k, tile.b_row, full);
            for (int i = 0; i < boxes; ++i)
                load_box(at.a(ring.place) + 8192 * i, call.a, k, tile.a_row + 64 * i, full);
            if (SCALES == 2)
                load_bytes(at.scales(ring.place),
                           call.b_scales + (long long)(k / 128) * call.b_scale_k + tile.column,
                           columns, full);
            ring.next();
            if (step == (last < STAGES - 1 ? last : STAGES - 1)) {
                t = next_tile(call, count, t);
                following = tile_or_end(call, t, count);
                announce(at, following, turns);
            }
        }
        if (last < 0) {
            t = next_tile(call, count, t);
            following = tile_or_end(call, t, count);
            announce(at, following, turns);
        }
        tile = following;
    }
}

// Scales of a tile come to L2 before they are needed: from memory they would take longer than a
// step. It is what a warp of its own does.
__device__ void fetch_scales(const Stages& at, const Call& call) {
    Ring<TURNS> turns;
    int lane = threadIdx.x & 31;
    for (;;) {
        barrier_wait(at.announced(turns.place), turns.phase);
        Tile tile = announced_tile(at.turn(turns.place));
        if (lane == 0) barrier_arrive(at.read(turns.place));
        turns.next();
        if (!tile.rows) return;
        const float* a = call.a_scales + (tile.a_row + 8 * lane) * call.a_scale_row;
        if (call.a_scale_row == 1 && 8 * lane < tile.rows)
            for (int step = 0; step < tile.steps; ++step)
                fetch(a + (long long)step * call.a_scale_k);
        const float* b = call.b_scales + (long long)tile.group * call.b_scale_group +
                         (tile.column / 128) * call.b_scale_column;
        for (int step = 8 * lane; step < tile.steps; step += 256)
            fetch(b + (long long)step * call.b_scale_k);
    }
}

__device__ void multiply_tiles(const Stages& at, const Call& call, int group) {
    Ring<STAGES> ring;
    Ring<TURNS> turns;
    // The second warpgroup starts SKEW steps late, so that one multiplies while the other stores.
    bool lead = SKEW && group == 0, waits = SKEW && group == 1;
    for (;;) {
        u32 turn = at.turn(turns.place);
        barrier_wait(at.announced(turns.place), turns.phase);
        Tile tile = announced_tile(turn);
        if (!tile.rows) return;
        if (waits) asm volatile("bar.sync 1, 256;" ::: "memory");
        waits = false;
        int blocks = (tile.rows + 63) / 64;
        if (blocks == 1)  // half of the columns each
            multiply_tile<1, 64>(at, call, turn, tile, 0, 64 * group, ring, lead);
        else if (blocks > group + 2)
            multiply_tile<2, 128>(at, call, turn, tile, group, 0, ring, lead);
        else
            multiply_tile<1, 128>(at, call, turn, tile, group, 0, ring, lead);
        pass_the_turn(lead);
        if ((threadIdx.x & 31) == 0) barrier_arrive(at.read(turns.place));
        turns.next();
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    hopper_fp8(const __grid_constant__ Call call) {
    extern __shared__ __align__(1024) char shared[];
    Stages at = {(shared_address(shared) + 1023) & ~1023u};
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(at.full(i), 1);
            barrier_init(at.empty(i), 8);
        }
        for (int i = 0; i < TURNS; ++i) {
            barrier_init(at.announced(i), 1);
            barrier_init(at.read(i), 8 + FETCHED);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        fence_async();
        prefetch_map(call.a);
        prefetch_map(call.b);
    }
    __syncthreads();
    int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp < 4) {
        registers_down<40>();
        if (threadIdx.x == 0)
            load_tiles(at, call, DEPTHS ? call.tiles : call.table[0].x * call.across);
        if (FETCHED && warp == 1) fetch_scales(at, call);
    } else {
        registers_up<232>();
        multiply_tiles(at, call, warp / 4 - 1);
    }
}
