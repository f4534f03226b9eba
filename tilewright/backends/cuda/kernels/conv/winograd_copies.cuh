// Pictures and weights into shared memory, behind the threads' backs; what lies outside as zeros.
#pragma once
#include "async_copies.cuh"
#include "winograd_layout.cuh"

constexpr int RUN = WIDE ? 4 : 1;                     // channels of a copy
constexpr int RUNS = ROWS * COLUMNS * CHUNK / RUN;    // of a chunk
constexpr int COPIES = (RUNS + THREADS - 1) / THREADS;  // of a thread

struct Copies {
    const float *x, *held;
    int row, column;  // of the block's first pixel

    __device__ __forceinline__ Copies(const Winograd& p, const Place& block)
        : row(block.row - p.top), column(block.column - p.left) {
        x = p.x + block.image * p.at_x.image;
        held = p.weights + (long long)block.block * p.chunks * WEIGHTS_SIZE;
    }
    __device__ __forceinline__ void weights(float* to, int chunk) const {
        const float* from = held + (long long)chunk * WEIGHTS_SIZE + 4 * threadIdx.x;
        static_assert(WEIGHTS_SIZE % (4 * THREADS) == 0, "every thread copies as many");
#pragma unroll
        for (int i = 0; i < WEIGHTS_SIZE; i += 4 * THREADS)
            copy<16>(to + 4 * threadIdx.x + i, from + i, true);
    }
    __device__ __forceinline__ void picture(const Winograd& p, float* to, int chunk) const {
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            u32 index = i * THREADS + threadIdx.x, channel = index % (CHUNK / RUN) * RUN;
            u32 pixel = index / (CHUNK / RUN), dy = pixel / COLUMNS, dx = pixel % COLUMNS;
            if (RUNS % THREADS && index >= RUNS) break;
            int y = row + (int)dy, left = column + (int)dx, c = chunk * CHUNK + (int)channel;
            bool there = (u32)y < (u32)p.height && (u32)left < (u32)p.width && c < p.channels;
            Offset at = y * (Offset)p.at_x.row + left * (Offset)p.at_x.column;
            at += WIDE ? c : c * (Offset)p.at_x.channel;
            copy<4 * RUN>(to + place_of(dy, dx) + channel, there ? x + at : p.x, there);
        }
    }
};
