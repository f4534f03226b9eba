// A 3x3 convolution of stride 1 by Winograd in float32, transforms and products as one kernel:
// F(4, 3) where TILE is 4, F(2, 3) where it is 2 (winograd_transforms.cuh).
//
//     picture, CHUNK channels      tiles, transformed           products of a position
//     +--------------------+       POSITIONS of them                   OUTPUTS outputs
//     | 8 x 4 tiles and    |       +--------------+  weights,        +-----------------+
//     | what is around     |  -->  | 32 tiles     |  transformed  -> | 32 tiles: sums  |  a warp has
//     | them, memory to    |       +--------------+  once, on the    +-----------------+  EACH of
//     | shared memory      |        CHUNK channels   host                                 them
//     +--------------------+
//
// All sums of a block, POSITIONS x 32 tiles x OUTPUTS, lie in registers until the last channel; then
// they go through shared memory, sixteen or 32 outputs at a time, to threads that have all positions of a
// tile, transform them back and end as any convolution does. Nothing is written between.
//
// While a chunk is multiplied the next is transformed and the one after it is copied. A sum that
// comes out as NaN or infinite is made anew by the plain sum, so that neither leaves its window.
#include "winograd_copies.cuh"
#include "winograd_endings.cuh"
#include "winograd_transforms.cuh"

// Of a lane: tiles 4 * tile .. + 3, and of every sixteen outputs 4 * four .. + 3. Neighbouring lanes
// share tiles, those two apart outputs, so that a read of 16 bytes takes two turns, not four.
struct Lane {
    int tile, four;
    __device__ __forceinline__ explicit Lane(int lane)
        : tile(lane >> 1 & 7), four((lane & 1) | (lane >> 4) << 1) {}
};

__device__ __forceinline__ void transform_chunk(const float* staged, float* tiles, int warp,
                                                int lane) {
    if (warp >= CHUNK) return;
    int channel = lane % CHUNK, tile = warp * (32 / CHUNK) + lane / CHUNK;
    const float* from = staged + place_of(tile / ACROSS * TILE, tile % ACROSS * TILE) + channel;
    float half_way[SIDE][SIDE];
#pragma unroll
    for (int column = 0; column < SIDE; ++column) {
        float d[SIDE], t[SIDE];
#pragma unroll
        for (int row = 0; row < SIDE; ++row) d[row] = from[place_of(row, column)];
        transform_in(d, t);
#pragma unroll
        for (int row = 0; row < SIDE; ++row) half_way[row][column] = t[row];
    }
    float* to = tiles + channel * PITCH + tile;
#pragma unroll
    for (int row = 0; row < SIDE; ++row) {
        float t[SIDE];
        transform_in(half_way[row], t);
#pragma unroll
        for (int column = 0; column < SIDE; ++column)
            to[(row * SIDE + column) * CHUNK * PITCH] = t[column];
    }
}

__device__ __forceinline__ void multiply_chunk(float (&sums)[EACH][4][LANE_OUTPUTS],
                                               const float* tiles, const float* weights, int warp,
                                               Lane at) {
#pragma unroll
    for (int k = 0; k < CHUNK; ++k)
#pragma unroll
        for (int each = 0; each < EACH; ++each) {
            int row = (warp * EACH + each) * CHUNK + k;
            float4 a = *(const float4*)(tiles + row * PITCH + 4 * at.tile);
            float left[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                float4 b = *(const float4*)(weights + row * OUTPUTS + 16 * part + 4 * at.four);
                float right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int j = 0; j < 4; ++j)
                        sums[each][i][4 * part + j] =
                            fmaf(left[i], right[j], sums[each][i][4 * part + j]);
            }
        }
}

// Where a tile's sixteen sums of a position begin: tile 4 t + i of the products is t + 8 i here, and
// its four fours are turned about, so that neither writing nor reading meets a bank twice.
__device__ __forceinline__ int turned(int tile, int four) {
    return 16 * tile + 4 * (four ^ (tile & 2));
}

__device__ __forceinline__ void hand_over(const float (&sums)[EACH][4][LANE_OUTPUTS], float* shared,
                                          int part, int warp, Lane at) {
#pragma unroll
    for (int each = 0; each < EACH; ++each)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float* s = sums[each][i] + 4 * part;
            float* to = shared + (warp * EACH + each) * 512 + turned(at.tile + 8 * i, at.four);
            *(float4*)to = make_float4(s[0], s[1], s[2], s[3]);
        }
}

// The results of a tile and an output, from products of all positions.
__device__ __forceinline__ void put_tile(const Winograd& p, const Place& block, const float* shared,
                                         int index, int output) {
    const float* from = shared + turned(index, output % 16 / 4) + output % 4;
    float half_way[SIDE][TILE];
#pragma unroll
    for (int column = 0; column < SIDE; ++column) {
        float m[SIDE], y[TILE];
#pragma unroll
        for (int row = 0; row < SIDE; ++row) m[row] = from[(row * SIDE + column) * 512];
        transform_back(m, y);
#pragma unroll
        for (int row = 0; row < TILE; ++row) half_way[column][row] = y[row];
    }
    int tile = index % 8 * 4 + index / 8;
    Ending end(p, block, tile, output);
#pragma unroll
    for (int row = 0; row < TILE; ++row) {
        float m[SIDE], y[TILE];
#pragma unroll
        for (int column = 0; column < SIDE; ++column) m[column] = half_way[column][row];
        transform_back(m, y);
        end.put_row(p, row, y);
    }
}

// All chunks of a block's channels; its first two are staged, or on their way.
__device__ __forceinline__ void add_up(float (&sums)[EACH][4][LANE_OUTPUTS], const Winograd& p,
                                       const Copies& copies, float* shared, int warp, int lane) {
    float *tiles = shared, *weights = tiles + 2 * TILES_SIZE, *staged = shared + STAGED_AT;
    copies.weights(weights, 0), commit();
    await_all_but<2>();
    __syncthreads();
    transform_chunk(staged, tiles, warp, lane);
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
        int now = chunk & 1, then = now ^ 1;
        await_all_but<0>();
        __syncthreads();
        if (chunk + 1 < p.chunks) {
            copies.weights(weights + then * WEIGHTS_SIZE, chunk + 1);
            copies.picture(p, staged + now * STAGED_SIZE, chunk + 2);
            commit();
            transform_chunk(staged + then * STAGED_SIZE, tiles + then * TILES_SIZE, warp, lane);
        }
        multiply_chunk(sums, tiles + now * TILES_SIZE, weights + now * WEIGHTS_SIZE, warp,
                       Lane(lane));
    }
    __syncthreads();
}

// Their sums' end; pixels that are staged meanwhile lie where nothing of it does.
__device__ __forceinline__ void end(const float (&sums)[EACH][4][LANE_OUTPUTS], const Winograd& p,
                                    const Place& block, float* shared, int warp, int lane) {
#pragma unroll
    for (int part = 0; part < PARTS; part += AT_ONCE) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
            hand_over(sums, shared + i * POSITIONS * 512, part + i, warp, Lane(lane));
        __syncthreads();
        for (int i = threadIdx.x; i < 512 * AT_ONCE; i += THREADS)
            put_tile(p, block, shared + i / 512 * POSITIONS * 512, i % 512 / 16,
                     16 * (part + i / 512) + i % 16);
        __syncthreads();
    }
}

// The block's share of all: while the results of one leave, pixels of the next arrive.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    winograd(const __grid_constant__ Winograd p) {
    extern __shared__ __align__(128) float shared[];
    float* staged = shared + STAGED_AT;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Place block(p, blockIdx.x);
    Copies copies(p, block);
    copies.picture(p, staged, 0), commit();
    copies.picture(p, staged + STAGED_SIZE, 1), commit();
#pragma unroll 1
    for (u32 index = blockIdx.x; index < p.count; index += gridDim.x) {
        float sums[EACH][4][LANE_OUTPUTS] = {};
        add_up(sums, p, copies, shared, warp, lane);
        Place next(p, index + gridDim.x);
        if (index + gridDim.x < p.count) {
            copies = Copies(p, next);
            copies.picture(p, staged, 0), commit();
            copies.picture(p, staged + STAGED_SIZE, 1), commit();
        }
        end(sums, p, block, shared, warp, lane);
        block = next;
    }
}
