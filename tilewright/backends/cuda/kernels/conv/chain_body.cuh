// Layers of a chain, a warpgroup each, and who is which. Included behind the products of one kind of
// tensor cores; chain_wgmma.cu draws the whole.
#pragma once
#include "chain_source.cuh"

// The third that was begun last starts at the bias; what is finished has left.
template <int OUT>
__device__ __forceinline__ void roll(float (&sums)[UNITS][3 * OUT / 2]) {
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit)
#pragma unroll
        for (int i = 0; i < OUT; ++i) sums[unit][i] = sums[unit][i + OUT / 2];
}

template <int OUT> struct Bias {
    float2 held[OUT <= 32 ? OUT / 8 : 1];  // of 64 channels there are no registers left for it
    int at;

    __device__ __forceinline__ void start(const Block& block, int layer) {
        at = bias_at(layer) + 8 * (block.lane & 3);
        if constexpr (OUT <= 32) {
#pragma unroll
            for (int n = 0; n < OUT / 8; ++n) {
                held[n] = read(block, n);
                asm volatile("" : "+f"(held[n].x), "+f"(held[n].y));
            }
        }
    }
    __device__ __forceinline__ float2 read(const Block& block, int n) const {
        return {block.number(at + 32 * n), block.number(at + 32 * n + 4)};
    }
    // The row that begins.
    __device__ __forceinline__ void put(const Block& block,
                                        float (&sums)[UNITS][3 * OUT / 2]) const {
#pragma unroll
        for (int n = 0; n < OUT / 8; ++n) {
            float2 b = OUT <= 32 ? held[OUT <= 32 ? n : 0] : read(block, n);
#pragma unroll
            for (int unit = 0; unit < UNITS; ++unit) {
                float* d = sums[unit] + OUT + 4 * n;
                d[0] = d[2] = b.x, d[1] = d[3] = b.y;
            }
        }
    }
};

template <int OUT> using Row = u32[UNITS][OUT / 4];

// Whether the picture has all columns of this warp's pixels in the cursor's strip.
__device__ __forceinline__ bool has_all_columns(const Chain& p, const Block& block,
                                                const Cursor& at) {
    int left = at.x - LAYERS + 1 + 16 * block.warp;
    return left >= 0 && left + 64 * (UNITS - 1) + 16 <= p.width;
}

// The finished third as halves, zeros where the picture is not.
template <int OUT, int HOW>
__device__ __forceinline__ void finish(Row<OUT>& row, const float (&sums)[UNITS][3 * OUT / 2],
                                       const Chain& p, const Block& block, const Cursor& at,
                                       bool all_columns, int layer, int slopes) {
    bool there = at.inside(p);
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit)
#pragma unroll
        for (int n = 0; n < OUT / 8; ++n) {
            const float* d = sums[unit] + 4 * n;
            Numbers with = numbers_of<HOW>(p, block, layer, slopes, n);
            row[unit][2 * n] = packed<HOW>(d[0], d[1], with);
            row[unit][2 * n + 1] = packed<HOW>(d[2], d[3], with);
        }
    if (there && all_columns) return;
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit) {
        int column = at.x - LAYERS + 1 + 64 * unit + 16 * block.warp + (block.lane >> 2);
        bool a = there && column >= 0 && column < p.width;
        bool b = there && column + 8 >= 0 && column + 8 < p.width;
#pragma unroll
        for (int i = 0; i < OUT / 4; ++i)
            if (!(i % 2 ? b : a)) row[unit][i] = 0;
    }
}

template <int OUT>
__device__ __forceinline__ void put_row(const Row<OUT>& row, u32 to, int unit,
                                        const Block& block) {
#pragma unroll
    for (int n = 0; n < OUT / 16; ++n)
        store_pixels(to + 2 * n * PLANE, row[unit][4 * n], row[unit][4 * n + 1],
                     row[unit][4 * n + 2], row[unit][4 * n + 3], block);
}

// A layer between two rings. Of three rows that it reads the first result comes, so that each ring
// carries two rows fewer than the one before; what the rings' rows are is counted by `Cursor`.
template <int IN, int OUT, int HOW>
__device__ __forceinline__ void middle(const Chain& p, const Block& block, int layer) {
    Cursor at;
    at.start(p, block.begin, block.rows, LAYERS, 2 - layer);
    Bias<OUT> bias;
    bias.start(block, layer);
    float sums[UNITS][3 * OUT / 2] = {};
    Row<OUT> row = {};
    Ring<IN> from(block, layer - 1);
    Ring<OUT> into(block, layer);
    Turn turn, put;
    u32 weights = block.base + weights_at(layer);
    u32 pixel = 16 * (2 + 16 * block.warp);
    bool all_columns = has_all_columns(p, block, at);
    int slopes = HOW >= PRELU ? slopes_at(layer) : 0;
    int rows = block.steps - 2 * (layer - 1);
    // The first three times there is no row to put: it goes where the first will, unannounced. A
    // condition here would have products wait for each other.
    auto put_before = [&](bool real) {
        await(real ? into.empty(put) : block.nobody() + 8, put.phase ^ 1);
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit)
            put_row<OUT>(row, into.row(put) + pixel + 1024 * unit, unit, block);
        hand_over(real ? into.full(put) : block.nobody(), block);
    };
#pragma unroll 1
    for (int i = 0; i < rows; ++i) {
        bias.put(block, sums);
        await(from.full(turn), turn.phase);
        multiply_row<IN, OUT>(sums, from.row(turn), weights, block);
        put_before(i >= 3);
        end_products(sums);
        hand_back(from.empty(turn), block);
        finish<OUT, HOW>(row, sums, p, block, at, all_columns, layer, slopes);
        roll<OUT>(sums);
        if (at.next(p)) all_columns = has_all_columns(p, block, at);
        turn.next();
        if (i >= 3) put.next();
    }
    put_before(true);
}

#include "chain_last.cuh"

// The first layer whose code serves this one too.
__device__ __forceinline__ constexpr int model(int layer) {
    for (int one = 1; one < layer; ++one)
        if (channels(one - 1) == channels(layer - 1) && channels(one) == channels(layer) &&
            activation(one) == activation(layer))
            return one;
    return layer;
}

template <int LAYER>
__device__ __forceinline__ void run_middle(const Chain& p, const Block& block, int layer) {
    if constexpr (LAYER < LAYERS) {
        if constexpr (model(LAYER) == LAYER) {
            bool mine = false;
#pragma unroll
            for (int l = LAYER; l < LAYERS; ++l) mine |= l == layer && model(l) == LAYER;
            if (mine) {
                middle<channels(LAYER - 1), channels(LAYER), activation(LAYER)>(p, block, layer);
                return;
            }
        }
        run_middle<LAYER + 1>(p, block, layer);
    }
}

// Where a block's share begins. Each strip counts as its rows and those of a halo, which a block
// that goes on from the strip before computes as well: so all take as many steps.
__device__ __forceinline__ long long share_begin(const Chain& p, int index) {
    int counted = p.height + 2 * LAYERS;
    long long at = p.counted * index / gridDim.x, strip = at / counted;
    int row = (int)(at - strip * counted) - 2 * LAYERS;
    return strip * p.height + (row > 0 ? row : 0);
}

// A block's share, its barriers, and weights on their way; then every warpgroup does its part.
__device__ __forceinline__ void run(const Chain& p, unsigned char* shared) {
    int group = __shfl_sync(~0u, threadIdx.x >> 7, 0);
    Block block;
    block.base = shared_address(shared);
    block.warp = (threadIdx.x >> 5) & 3, block.lane = threadIdx.x & 31;
    long long end = share_begin(p, blockIdx.x + 1);
    block.begin = share_begin(p, blockIdx.x);
    block.rows = (int)(end - block.begin);
    if (!block.rows) return;
    int parts = (int)((end - 1) / p.height - block.begin / p.height) + 1;
    block.steps = block.rows + 2 * LAYERS * parts;
    for (int i = threadIdx.x; i < 2 * LAYERS * DEPTH + 2; i += THREADS)
        barrier_init(block.barriers(0) + 8 * i, 4);
    fetch_weights(p, block);
    __syncthreads();
    await_weights(block);
    if (group == LAYERS) {
        source(p, block);
    } else if (group == LAYERS - 1) {
        last(p, block);
    } else {
        run_middle<1>(p, block, group + 1);
    }
}
