// A tile of int8 by one warpgroup: sums stay in the tensor cores' registers from first to last.
//
//   stage 0     stage 1     stage 2 ...        sums: 64 x W a block, int32, nothing is ever lost
//   [ a | b ]   [ a | b ]   [ a | b ]   --->   += a x b; a stage is handed back when the products
//                                              of the next are on their way
//
// OUT_INT: they are C. Else C is bf16 or fp32: sums x (scale of the row x scale of the column).
#pragma once
#include "hopper_fp8_scales.cuh"

static_assert(SCALES == 0 && !DEPTHS, "int8 has scales of rows and columns, and groups of rows");

template <int W>
__device__ __forceinline__ void as_floats(float (&to)[W / 2], const int (&from)[W / 2]) {
#pragma unroll
    for (int i = 0; i < W / 2; ++i)
        to[i] = OUT_INT ? __int_as_float(from[i]) : __int2float_rn(from[i]);
}

// Blocks `first` and, of two, `first` + 2 of the tile's rows; W columns from `left` on.
template <int BLOCKS, int W>
__device__ __forceinline__ void multiply_tile(const Stages& at, const Call& call, u32 turn,
                                              const Tile& tile, int first, int left,
                                              Ring<STAGES>& ring, bool& lead) {
    int sums[BLOCKS][W / 2];  // not begun by the first product: ptxas then runs out of registers
#pragma unroll
    for (int h = 0; h < BLOCKS; ++h)
#pragma unroll
        for (int i = 0; i < W / 2; ++i) sums[h][i] = 0;
    RowScales<BLOCKS> rows;
    if (!OUT_INT) {
        rows.start(call, tile, first);
        rows.load();
    }
    bool hands = (threadIdx.x & 31) == 0;
    u32 previous = 0;
    int steps = tile.steps;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        barrier_wait(at.full(ring.place), ring.phase);
        u64 b = matrix_descriptor(at.b(ring.place) + 128 * left);
        wgmma_fence();
#pragma unroll
        for (int h = 0; h < BLOCKS; ++h) {
            u64 a = matrix_descriptor(at.a(ring.place) + 8192 * (first + 2 * h));
#pragma unroll
            for (int i = 0; i < 4; ++i) multiply(sums[h], a + 2 * i, b + 2 * i, 1);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (step && hands) barrier_arrive(previous);
        previous = at.empty(ring.place);
        ring.next();
        if (step == SKEW - 1) pass_the_turn(lead);
    }
    wgmma_wait<0>();
    if (hands) barrier_arrive(previous);
    Tile done = announced_tile(turn);  // kept in no registers meanwhile
    float found[BLOCKS][W / 2];
#pragma unroll
    for (int h = 0; h < BLOCKS; ++h) {
        hold(sums[h]);
        as_floats<W>(found[h], sums[h]);
    }
    if (!OUT_INT) scale<BLOCKS, W>(found, call, done, rows, left);
#pragma unroll
    for (int h = 0; h < BLOCKS; ++h)
        store_block<W>(at.staged(threadIdx.x / 32 - 4), call, done, 64 * (first + 2 * h), left,
                       found[h]);
}
