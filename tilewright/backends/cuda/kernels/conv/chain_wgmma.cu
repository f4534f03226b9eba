// A chain of 3x3 convolutions as one kernel: rows stream through rings in shared memory, a
// warpgroup a layer, all at work at the same time on different rows.
//
//     x --> source --> ring 0 --> layer 1 --> ring 1 --> layer 2 --> ring 2 --> ... --> out
//                      row t+4    row t+2     row t+2    row t
//
//     layer l, each step:   one row of ring l-1, 64 pixels (x UNITS) x channels, shifted by dx
//                           |
//                           v  x weights, W = 3 x channels: products for three rows at once
//              sums   | row above: done | own row | row below: begun |    then all move up by one
//                           |
//                           v  bias, activation, zeros outside the picture
//                           a row of ring l, stored while the next row's products run
//
// Nothing between the layers leaves the multiprocessor, weights are read once in a block's life, and
// rows are computed twice only where blocks' shares meet. A strip of 64 pixels has 64 - 2 LAYERS
// useful columns.
#include "chain_source.cuh"

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

// The finished third as halves, zeros where the picture is not.
template <int OUT, int HOW>
__device__ __forceinline__ void finish(Row<OUT>& row, const float (&sums)[UNITS][3 * OUT / 2],
                                       const Chain& p, const Block& block, const Cursor& at,
                                       int layer) {
    bool there = at.inside(p);
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit) {
        int column = at.x - LAYERS + 1 + 64 * unit + 16 * block.warp + (block.lane >> 2);
        bool a = there && column >= 0 && column < p.width;
        bool b = there && column + 8 >= 0 && column + 8 < p.width;
#pragma unroll
        for (int n = 0; n < OUT / 8; ++n) {
            const float* d = sums[unit] + 4 * n;
            u32 upper = packed<HOW>(d[0], d[1], p.low[layer], p.high[layer]);
            u32 lower = packed<HOW>(d[2], d[3], p.low[layer], p.high[layer]);
            row[unit][2 * n] = a ? upper : 0, row[unit][2 * n + 1] = b ? lower : 0;
        }
    }
}

template <int OUT>
__device__ __forceinline__ void put_row(const Row<OUT>& row, u32 to, int pitch, int unit) {
#pragma unroll
    for (int n = 0; n < OUT / 16; ++n)
        store_pixels(to + 2 * n * pitch, row[unit][4 * n], row[unit][4 * n + 1],
                     row[unit][4 * n + 2], row[unit][4 * n + 3]);
}

// A layer between two rings.
template <int IN, int OUT, int HOW>
__device__ __forceinline__ void middle(const Chain& p, const Block& block, int layer) {
    Cursor at;
    at.start(p, block.begin, block.rows, LAYERS, 2 * layer - 1);
    Bias<OUT> bias;
    bias.start(block, layer);
    float sums[UNITS][3 * OUT / 2] = {};
    Row<OUT> row = {};
    Ring<IN> from(block, layer - 1);
    Ring<OUT> into(block, layer);
    u32 weights = block.base + weights_at(layer);
    u32 pixel = (block.lane >> 4) * PLANE + 16 * (2 + 16 * block.warp + (block.lane & 15));
#pragma unroll 1
    for (int i = 0; i < block.steps; ++i) {
        bias.put(block, sums);
        barrier_wait(from.full(), from.phase);
        multiply_row<IN, OUT>(sums, from.row(), weights);
        barrier_wait(into.empty(), from.phase ^ 1);
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit)
            put_row<OUT>(row, into.row() + pixel + 1024 * unit, PLANE, unit);
        fence_async();
        __syncwarp();
        if (block.lane == 0) barrier_arrive(into.full());
        wgmma_wait<0>();
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) settle(sums[unit]);
        if (block.lane == 0) barrier_arrive(from.empty());
        finish<OUT, HOW>(row, sums, p, block, at, layer);
        roll<OUT>(sums);
        at.next(p), from.next(), into.next();
    }
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

// Barriers, and weights on their way.
__device__ __forceinline__ void prepare(const Chain& p, const Block& block) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < LAYERS * DEPTH; ++i) {
            barrier_init(block.barriers(0) + 16 * i, i < DEPTH && !INPUTS ? 1 : 4);
            barrier_init(block.barriers(0) + 16 * i + 8, 4);
        }
        barrier_init(block.weights(), 1);
        fence_async();
        barrier_expect(block.weights(), BLOB);
        load_bytes(block.base, p.blob, BLOB, block.weights());
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    chain_wgmma(const __grid_constant__ Chain p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    int group = __shfl_sync(~0u, threadIdx.x >> 7, 0);
    Block block;
    block.base = shared_address(shared);
    block.warp = (threadIdx.x >> 5) & 3, block.lane = threadIdx.x & 31;
    long long end = p.rows * (blockIdx.x + 1) / gridDim.x;
    block.begin = p.rows * blockIdx.x / gridDim.x;
    block.rows = (int)(end - block.begin);
    int parts = (int)((end - 1) / p.height - block.begin / p.height) + 1;
    block.steps = block.rows + 2 * LAYERS * parts + LAYERS - 1;
    prepare(p, block);
    if (group < LAYERS || INPUTS) barrier_wait(block.weights(), 0);
    if (group == LAYERS) {
        source(p, block);
    } else if (group == LAYERS - 1) {
        last(p, block);
    } else {
        run_middle<1>(p, block, group + 1);
    }
}
