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
        const float* from = held + (long long)chunk * WEIGHTS_SIZE;
        for (int i = 4 * threadIdx.x; i < WEIGHTS_SIZE; i += 4 * THREADS) copy<16>(to + i, from + i, true);
    }
    __device__ __forceinline__ void picture(const Winograd& p, float* to, int chunk) const {
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            int index = i * THREADS + threadIdx.x, channel = index % (CHUNK / RUN) * RUN;
            int pixel = index / (CHUNK / RUN), dy = pixel / COLUMNS, dx = pixel % COLUMNS;
            if (index >= RUNS) break;
            int y = row + dy, left = column + dx, c = chunk * CHUNK + channel;
            bool there = y >= 0 && y < p.height && left >= 0 && left < p.width && c < p.channels;
            const float* from = x + y * p.at_x.row + left * p.at_x.column + c * p.at_x.channel;
            copy<4 * RUN>(to + place_of(dy, dx) + channel, there ? from : p.x, there);
        }
    }
};
