// A tile of 8-bit floats by one warpgroup: never more than 128 of k in a tensor core's own sums.
//
//   stage 0     stage 1     stage 2 ...        fresh: 64 x W, fp32        sums: 64 x W a block, fp32
//   [ a | b ]   [ a | b ]   [ a | b ]   --->   of one step and block ---> += fresh x scales
#pragma once
#include "hopper_fp8_scales.cuh"

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
