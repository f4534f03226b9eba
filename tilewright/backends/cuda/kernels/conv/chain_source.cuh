// What fills ring 0: the first layer where the chain begins with few channels, else the copy engine.
#pragma once
#include "chain_products.cuh"
#include "chain_rows.cuh"

#if INPUTS
// The first layer: 3x3 windows of INPUTS channels as A in registers, k = channel * 9 + dy * 3 + dx.
//
// Each warp keeps the columns it needs, 18 of them a unit, in shared memory of its own. A row is
// written to three windows, as the last of one, the middle of the next, the first of the third:
//
//     window s   | row s-1 | row s | row s+1 |  a channel; 24 columns a row, of which 18 are used;
//                | zeros                     |  for what k has past the window
constexpr int COLUMNS = 24, WINDOW_ROWS = 3 * INPUTS + 1;
constexpr int WINDOW_BYTES = WINDOW_ROWS * COLUMNS * 2;
constexpr int OWN_WINDOWS = 4 * UNITS * WINDOW_BYTES;

// A row of the stream, and the lane's place in the next.
struct Reader {
    Cursor at;
    const u16* from[UNITS];
    bool inside[UNITS];  // whether the lane's columns are

    __device__ __forceinline__ void place(const Chain& p, const Block& block) {
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) {
            int column = at.x - LAYERS + 64 * unit + 16 * block.warp + block.lane - 1;
            inside[unit] = block.lane < 18 && column >= 0 && column < p.width;
            from[unit] = p.x + at.image * p.at_x.image + at.y * p.at_x.row +
                         column * p.at_x.column;
        }
    }
    __device__ __forceinline__ void start(const Chain& p, const Block& block) {
        at.start(p, block.begin, block.rows, LAYERS + 1, 0);
        place(p, block);
    }
    __device__ __forceinline__ void read(u16 (&row)[UNITS][INPUTS], const Chain& p,
                                         const Block& block) {
        bool there = at.inside(p);
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) {
#pragma unroll
            for (int c = 0; c < INPUTS; ++c)
                row[unit][c] =
                    there && inside[unit] ? __ldg(from[unit] + c * p.at_x.channel) : (u16)0;
            from[unit] += p.at_x.row;
        }
        if (at.next(p)) place(p, block);
    }
};

__device__ __forceinline__ void write_half(u32 at, u16 value) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(value) : "memory");
}

__device__ __forceinline__ u32 read_half(u32 at) {
    u16 value;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(at) : "memory");
    return value;
}

// Row `index` of the stream goes to the windows around it.
__device__ __forceinline__ void spread(u32 windows, const u16 (&row)[UNITS][INPUTS], int index,
                                       int lane) {
    __syncwarp();
    if (lane < 18) {
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit)
#pragma unroll
            for (int c = 0; c < INPUTS; ++c)
#pragma unroll
                for (int dy = 0; dy < 3; ++dy)
                    write_half(windows + (((index + 1 - dy) & 3) * UNITS + unit) * WINDOW_BYTES +
                                   (3 * c + dy) * 2 * COLUMNS + 2 * lane,
                               row[unit][c]);
    }
    __syncwarp();
}

struct First {
    u32 windows;
    int tap[WINDOW16][2][2];  // where, in a window, the lane's elements of k are
    float2 bias[C0 / 8];

    __device__ __forceinline__ void start(const Block& block) {
        int g = block.lane >> 2, q = block.lane & 3;
        windows = block.base + SHARED_WINDOWS + block.warp * OWN_WINDOWS;
        for (int i = block.lane; i < OWN_WINDOWS / 2; i += 32) write_half(windows + 2 * i, 0);
#pragma unroll
        for (int i = 0; i < WINDOW16; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    int k = 16 * i + 8 * half + 2 * q + e;
                    int at = k < WINDOW ? (k / 3) * COLUMNS + k % 3 : 3 * INPUTS * COLUMNS;
                    tap[i][half][e] = 2 * (at + g);
                }
#pragma unroll
        for (int n = 0; n < C0 / 8; ++n) {
            int at = bias_at(0) + 4 * (8 * n + 2 * q);
            bias[n] = {block.number(at), block.number(at + 4)};
        }
    }

    // Elements of k from `k` on that no lane has are zero without reading.
    __device__ __forceinline__ u32 two(u32 window, int i, int half, int pixels) const {
        if (16 * i + 8 * half >= WINDOW) return 0;
        u32 low = read_half(window + tap[i][half][0] + 2 * pixels);
        if (16 * i + 8 * half + 1 >= WINDOW) return low;
        return low | read_half(window + tap[i][half][1] + 2 * pixels) << 16;
    }

    __device__ __forceinline__ void multiply(float (&sums)[UNITS][C0 / 2], const Block& block,
                                             int index) const {
        u32 a[UNITS][WINDOW16][4];
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) {
            u32 window = windows + ((index & 3) * UNITS + unit) * WINDOW_BYTES;
#pragma unroll
            for (int i = 0; i < WINDOW16; ++i)
#pragma unroll
                for (int part = 0; part < 4; ++part)
                    a[unit][i][part] = two(window, i, part >> 1, 8 * (part & 1));
#pragma unroll
            for (int n = 0; n < C0 / 8; ++n) {
                float* d = sums[unit] + 4 * n;
                d[0] = d[2] = bias[n].x, d[1] = d[3] = bias[n].y;
            }
        }
        wgmma_fence();
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit)
#pragma unroll
            for (int i = 0; i < WINDOW16; ++i)
                MultiplyHeld<C0>::go(sums[unit], a[unit][i],
                                     operand(block.base + i * 32 * C0, 16 * C0));
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) settle(sums[unit]);
    }
};

// Puts a row of sums into ring 0, zeros where the picture is not.
__device__ __forceinline__ void put_first(const Chain& p, const Block& block, const Cursor& at,
                                          const Ring<C0>& into, float (&sums)[UNITS][C0 / 2]) {
    bool there = at.inside(p);
    barrier_wait(into.empty(), into.phase ^ 1);
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit) {
        int pixel = 64 * unit + 16 * block.warp;
        int column = at.x - LAYERS + pixel + (block.lane >> 2);
        bool a = there && column >= 0 && column < p.width;
        bool b = there && column + 8 >= 0 && column + 8 < p.width;
        u32 to = into.row() + (block.lane >> 4) * PLANE +
                 16 * (1 + pixel + (block.lane & 15));
#pragma unroll
        for (int n = 0; n < C0 / 16; ++n) {
            const float* d = sums[unit] + 8 * n;
            u32 v[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                v[i] = packed<ACT0>(d[2 * i], d[2 * i + 1], p.low[0], p.high[0]);
            store_pixels(to + 2 * n * PLANE, a ? v[0] : 0, b ? v[1] : 0, a ? v[2] : 0,
                         b ? v[3] : 0);
        }
    }
    fence_async();
    __syncwarp();
    if (block.lane == 0) barrier_arrive(into.full());
}

__device__ __forceinline__ void source(const Chain& p, const Block& block) {
    Reader reader;  // two rows before those that windows are made of
    u16 now[UNITS][INPUTS], then[UNITS][INPUTS];
    reader.start(p, block);
    reader.read(now, p, block), reader.read(then, p, block);
    Cursor at;  // of the sums
    at.start(p, block.begin, block.rows, LAYERS, 0);
    First first;
    first.start(block);
    Ring<C0> into(block, 0);
    int index = 0;
    auto read = [&]() {
        spread(first.windows, now, index++, block.lane);
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit)
#pragma unroll
            for (int c = 0; c < INPUTS; ++c) now[unit][c] = then[unit][c];
        reader.read(then, p, block);
    };
    for (int done = 0; done < block.steps;) {
        read(), read();  // the rows around a part's first
        int rows = at.left < block.steps - done ? at.left : block.steps - done;
#pragma unroll 1
        for (int i = 0; i < rows; ++i) {
            read();
            float sums[UNITS][C0 / 2];
            first.multiply(sums, block, index - 2);
            put_first(p, block, at, into, sums);
            at.next(p), into.next();
        }
        done += rows;
    }
}
#else
// Rows of planes, one thread: 64 pixels and a plane a copy. Rows that are not there are zeros.
__device__ __forceinline__ void source(const Chain& p, const Block& block) {
    if (block.lane) return;
    Cursor at;
    at.start(p, block.begin, block.rows, LAYERS, 0);
    Ring<C0> into(block, 0);
#pragma unroll 1
    for (int i = 0; i < block.steps; ++i) {
        long long row = at.inside(p) ? at.image * p.at_x.image + at.y * p.at_x.row : p.zero_row;
        const u16* from = p.x + row + 8 * (MARGIN + (at.inside(p) ? at.x : 0) - LAYERS);
        barrier_wait(into.empty(), into.phase ^ 1);
        barrier_expect(into.full(), C0 / 8 * 1024 * UNITS);
#pragma unroll 1
        for (int c = 0; c < C0 / 8; ++c)
            load_bytes(into.row() + c * PLANE + 16, from + c * p.at_x.channel,
                       1024 * UNITS, into.full());
        at.next(p), into.next();
    }
}
#endif
