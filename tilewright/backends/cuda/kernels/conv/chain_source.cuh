// What fills ring 0: the first layer where the chain begins with few channels, else copies of rows.
// Included behind the products of one kind of tensor cores.
#pragma once
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

// An element of the picture as a half: of whole numbers what it is above what stands for 0.
__device__ __forceinline__ u16 taken(const Chain& p, Source value) {
    if constexpr (SOURCE == 0) return value;
    if constexpr (SOURCE == 1)
        return narrowed(rounded(fminf(fmaxf(__fdiv_rn(value, p.taken), p.least), p.most)));
    return narrowed((float)((int)value - p.zero));
}

// A row of the stream, and the lane's place in the next.
struct Reader {
    Cursor at;
    const Source* from[UNITS];
    bool inside[UNITS];  // whether the lane's columns are

    __device__ __forceinline__ void place(const Chain& p, const Block& block) {
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) {
            int column = at.x - LAYERS + 64 * unit + 16 * block.warp + block.lane - 1;
            inside[unit] = block.lane < 18 && column >= 0 && column < p.width;
            from[unit] = (const Source*)p.x + at.image * p.at_x.image + at.y * p.at_x.row +
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
                    there && inside[unit]
                        ? taken(p, __ldg(from[unit] + c * p.at_x.channel))
                        : (u16)0;
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
        multiply_windows(sums, a, block.base, block);
    }
};

// Puts a row of sums into ring 0, zeros where the picture is not.
__device__ __forceinline__ void put_first(const Chain& p, const Block& block, const Cursor& at,
                                          const Ring<C0>& into, Turn turn,
                                          float (&sums)[UNITS][C0 / 2]) {
    bool there = at.inside(p);
    await(into.empty(turn), turn.phase ^ 1);
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit) {
        int pixel = 64 * unit + 16 * block.warp;
        int column = at.x - LAYERS + pixel + (block.lane >> 2);
        bool a = there && column >= 0 && column < p.width;
        bool b = there && column + 8 >= 0 && column + 8 < p.width;
        u32 to = into.row(turn) + 16 * (1 + pixel);
#pragma unroll
        for (int n = 0; n < C0 / 16; ++n) {
            const float* d = sums[unit] + 8 * n;
            u32 v[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                v[i] = packed<ACT0>(
                    d[2 * i], d[2 * i + 1],
                    numbers_of<ACT0>(p, block, 0, slopes_at(0), 2 * n + i / 2));
            store_pixels(to + 2 * n * PLANE, a ? v[0] : 0, b ? v[1] : 0, a ? v[2] : 0,
                         b ? v[3] : 0, block);
        }
    }
    hand_over(into.full(turn), block);
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
    Turn turn;
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
            put_first(p, block, at, into, turn, sums);
            at.next(p), turn.next();
        }
        done += rows;
    }
}
#else
// Rows of many channels, 16 bytes a thread and copy; what lies outside arrives as zeros.
constexpr int COPIES = UNITS * C0 / 16;  // a thread's of a row
constexpr int AHEAD = DEPTH - 1;         // rows on their way

__device__ __forceinline__ void copy_row(const Chain& p, const Block& block, const Cursor& at,
                                         u32 row) {
    const u16* from = (const u16*)p.x + at.image * p.at_x.image + at.y * p.at_x.row;
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
        int index = 32 * block.warp + block.lane + 128 * i;
        int chunk = index % (C0 / 8), pixel = index / (C0 / 8), column = at.x - LAYERS + pixel;
        bool there = at.inside(p) && column >= 0 && column < p.width && chunk < CHUNKS;
        const u16* here = from + column * p.at_x.column + chunk * p.at_x.channel;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(row + chunk * PLANE +
                                                                          16 * (1 + pixel)),
                     "l"(there ? here : (const u16*)p.x), "r"(there ? 16 : 0)
                     : "memory");
    }
}

__device__ __forceinline__ void source(const Chain& p, const Block& block) {
    Cursor at;
    at.start(p, block.begin, block.rows, LAYERS, 0);
    Ring<C0> into(block, 0);
    Turn ahead, turn;
#pragma unroll 1
    for (int i = -AHEAD; i < block.steps; ++i) {
        if (i + AHEAD < block.steps) {
            await(into.empty(ahead), ahead.phase ^ 1);
            copy_row(p, block, at, into.row(ahead));
            at.next(p), ahead.next();
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (i < 0) continue;
        asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD) : "memory");
        hand_over(into.full(turn), block);
        turn.next();
    }
}
#endif
