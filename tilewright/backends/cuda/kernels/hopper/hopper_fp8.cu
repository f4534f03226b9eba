// Products of 8-bit floats on Hopper's tensor cores, groups of rows or of k as the device says.
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
//                         adds, the other multiplies.
//
// SCALES 0: one a row of A and one a column of B, applied to the whole sum; 1: A one for 1 x 128, B
// for 128 x 128; 2: both for 1 x 128, those of B contiguous along n and loaded by the copy engine.
// DEPTHS: k is cut into the groups instead, C is [groups, m, n], and groups begin at multiples of
// 128 (else their product is zero and `fault` says which).
// A_E5M2, B_E5M2 (0: e4m3). OUT_FLOAT (0: bf16). SKEW: steps between both warpgroups' beginnings.
#include "hopper_fp8.cuh"

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

template <int COUNT> struct Ring {
    int place = 0, phase = 0;
    __device__ __forceinline__ void next() {
        if (++place == COUNT) {
            place = 0;
            phase ^= 1;
        }
    }
};

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

// As read by whole warps, known to ptxas to be equal in all lanes: it makes wgmma wait for wgmma
// otherwise.
__device__ __forceinline__ Tile announced_tile(u32 from) {
    int4 a = read_four(from), b = read_four(from + 16);
    return {__shfl_sync(~0u, a.x, 0), __shfl_sync(~0u, a.y, 0), __shfl_sync(~0u, a.z, 0),
            __shfl_sync(~0u, a.w, 0), __shfl_sync(~0u, b.x, 0), __shfl_sync(~0u, b.y, 0),
            __shfl_sync(~0u, b.z, 0), __shfl_sync(~0u, b.w, 0)};
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

// Scales of A at a step for the two rows that a thread has in each of its blocks; of rows past the
// last those of the last.
template <int BLOCKS> struct RowScales {
    const float* place;
    int beside[2 * BLOCKS];  // elements from `place` to each
    float now[BLOCKS][2];

    __device__ __forceinline__ void start(const Call& call, const Tile& tile, int first) {
        int row = 64 * first + 16 * ((threadIdx.x >> 5) & 3) + ((threadIdx.x & 31) >> 2);
        int from = row < tile.rows ? row : tile.rows - 1;
        place = call.a_scales + (tile.a_row + from) * call.a_scale_row;
        place += (long long)(tile.begin / 128) * call.a_scale_k;
#pragma unroll
        for (int i = 1; i < 2 * BLOCKS; ++i) {
            int r = row + 8 * (i & 1) + 128 * (i >> 1);
            beside[i] = ((r < tile.rows ? r : tile.rows - 1) - from) * call.a_scale_row;
            asm volatile("" : "+r"(beside[i]));  // not worked out again at each step
        }
    }
    __device__ __forceinline__ void load() {
        now[0][0] = __ldg(place);
#pragma unroll
        for (int i = 1; i < 2 * BLOCKS; ++i) now[i >> 1][i & 1] = __ldg(place + beside[i]);
    }
};

__device__ __forceinline__ float2 pair_at(u32 address) {
    float2 found;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(found.x), "=f"(found.y)
                 : "r"(address));
    return found;
}

// sums += fresh, times the scales of its rows and, where SCALES is 2, of its columns.
template <int COUNT>
__device__ __forceinline__ void promote(float (&sums)[COUNT], const float (&fresh)[COUNT],
                                        float top, float bottom, u32 columns) {
#pragma unroll
    for (int j = 0; j < COUNT / 4; ++j) {
        const float* f = fresh + 4 * j;
        float* s = sums + 4 * j;
        if (SCALES == 0) {
            s[0] += f[0], s[1] += f[1], s[2] += f[2], s[3] += f[3];
        } else if (SCALES == 1) {
            s[0] = fmaf(f[0], top, s[0]), s[1] = fmaf(f[1], top, s[1]);
            s[2] = fmaf(f[2], bottom, s[2]), s[3] = fmaf(f[3], bottom, s[3]);
        } else {
            float2 c = pair_at(columns + 32 * j);
            s[0] = fmaf(f[0], top * c.x, s[0]), s[1] = fmaf(f[1], top * c.y, s[1]);
            s[2] = fmaf(f[2], bottom * c.x, s[2]), s[3] = fmaf(f[3], bottom * c.y, s[3]);
        }
    }
}

// What is summed is multiplied by the scales of its rows and columns.
template <int BLOCKS, int W>
__device__ __forceinline__ void scale(float (&sums)[BLOCKS][W / 2], const Call& call,
                                      const Tile& tile, const RowScales<BLOCKS>& rows, int left) {
    const float* scales = call.b_scales + (long long)tile.group * call.b_scale_group;
    int q = left + 2 * (threadIdx.x & 3);
#pragma unroll
    for (int j = 0; j < W / 8; ++j) {
        int c = 8 * j + q;
        float one = c < tile.columns ? __ldg(scales + (tile.column + c) * call.b_scale_column) : 0;
        float next =
            c + 1 < tile.columns ? __ldg(scales + (tile.column + c + 1) * call.b_scale_column) : 0;
#pragma unroll
        for (int h = 0; h < BLOCKS; ++h) {
            float* s = sums[h] + 4 * j;
            s[0] *= rows.now[h][0] * one, s[1] *= rows.now[h][0] * next;
            s[2] *= rows.now[h][1] * one, s[3] *= rows.now[h][1] * next;
        }
    }
}

// The second warpgroup may begin, if it has not.
__device__ __forceinline__ void pass_the_turn(bool& lead) {
    if (lead) asm volatile("bar.arrive 1, 256;" ::: "memory");
    lead = false;
}

// Blocks `first` and, of two, `first` + 2 of the tile's rows; W columns from `left` on.
template <int BLOCKS, int W>
__device__ __forceinline__ void multiply_tile(const Stages& at, const Call& call, u32 turn,
                                              const Tile& tile, int first, int left,
                                              Ring<STAGES>& ring, bool& lead) {
    float sums[BLOCKS][W / 2], fresh[W / 2];
#pragma unroll
    for (int h = 0; h < BLOCKS; ++h)
#pragma unroll
        for (int i = 0; i < W / 2; ++i) sums[h][i] = 0.0f;
    RowScales<BLOCKS> rows;
    rows.start(call, tile, first);
    const float* b_scales = call.b_scales + (long long)tile.group * call.b_scale_group +
                            (long long)(tile.column / 128) * call.b_scale_column +
                            (long long)(tile.begin / 128) * call.b_scale_k;
    float of_b = 1.0f;
    int steps = tile.steps;
    if (SCALES == 0 || steps) {
        rows.load();
        if (SCALES == 1) of_b = __ldg(b_scales);
    }
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        float by[BLOCKS][2];
#pragma unroll
        for (int h = 0; h < BLOCKS; ++h)
            by[h][0] = rows.now[h][0] * of_b, by[h][1] = rows.now[h][1] * of_b;
        barrier_wait(at.full(ring.place), ring.phase);
        u64 b = matrix_descriptor(at.b(ring.place) + 128 * left);
#pragma unroll
        for (int h = 0; h < BLOCKS; ++h) {
            u64 a = matrix_descriptor(at.a(ring.place) + 8192 * (first + 2 * h));
            hold(fresh);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4; ++i) multiply(fresh, a + 2 * i, b + 2 * i, i);
            wgmma_commit();
            if (SCALES && h == 0 && step + 1 < steps) {  // while tensor cores are at work
                rows.place += call.a_scale_k;
                rows.load();
                b_scales += call.b_scale_k;
                if (SCALES == 1) of_b = __ldg(b_scales);
            }
            wgmma_wait<0>();
            hold(fresh);
            // The scales of its columns are read after it, so the stage is handed back then.
            if (SCALES != 2 && h == BLOCKS - 1 && (threadIdx.x & 31) == 0)
                barrier_arrive(at.empty(ring.place));
            promote(sums[h], fresh, by[h][0], by[h][1],
                    at.scales(ring.place) + 4 * left + 8 * (threadIdx.x & 3));
        }
        if (SCALES == 2) {
            __syncwarp();
            if ((threadIdx.x & 31) == 0) barrier_arrive(at.empty(ring.place));
        }
        ring.next();
        if (step == SKEW - 1) pass_the_turn(lead);
    }
    Tile done = announced_tile(turn);  // kept in no registers meanwhile
    if (SCALES == 0) scale<BLOCKS, W>(sums, call, done, rows, left);
#pragma unroll
    for (int h = 0; h < BLOCKS; ++h)
        store_block<W>(at.staged(threadIdx.x / 32 - 4), call, done, 64 * (first + 2 * h), left,
                       sums[h]);
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
