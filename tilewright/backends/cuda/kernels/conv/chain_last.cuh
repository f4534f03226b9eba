// What makes the last layer, and puts its rows into memory: as the caller's tensor, or as planes
// that the next kernel's copy engine reads. Included by chain_wgmma.cu, in its middle.
#pragma once

constexpr int LAST = channels(LAYERS), BEFORE = channels(LAYERS - 1);
constexpr int LAST_HOW = activation(LAYERS);

#if PLANES_OUT
// Planes of a row in a warp's own shared memory, twice, 16 pixels of each plane a unit; the copy
// engine takes those that are useful, one lane a plane.
constexpr int OWN_PLANE = 256 * UNITS, OWN_ROW = LAST / 8 * OWN_PLANE;

__device__ __forceinline__ void send_row(const Row<LAST>& row, const Chain& p, const Block& block,
                                         const Cursor& at, int turn) {
    if (!at.wanted()) return;
    u32 own = block.base + SHARED_RESULTS + (2 * block.warp + turn) * OWN_ROW;
    if (block.lane < LAST / 8) store_wait_read<1>();
    __syncwarp();
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit)
        put_row<LAST>(row,
                      own + (block.lane >> 4) * OWN_PLANE + 256 * unit + 16 * (block.lane & 15),
                      OWN_PLANE, unit);
    fence_async();
    __syncwarp();
    if (block.lane < LAST / 8) {
        u16* to = p.out + at.image * p.at_out.image + at.y * p.at_out.row +
                  block.lane * p.at_out.channel + 8 * MARGIN;
        int end = at.x + USEFUL < p.width ? at.x + USEFUL : p.width;
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) {
            int left = at.x - LAYERS + 1 + 64 * unit + 16 * block.warp;
            int from = left < at.x ? at.x : left, until = left + 16 < end ? left + 16 : end;
            if (from < until)
                store_bytes(to + 8 * from,
                            own + block.lane * OWN_PLANE + 256 * unit + 16 * (from - left),
                            16 * (until - from));
        }
        stores_commit();
    }
}

__device__ __forceinline__ void last(const Chain& p, const Block& block) {
    Cursor at;
    at.start(p, block.begin, block.rows, LAYERS, 2 * LAYERS - 1);
    Bias<LAST> bias;
    bias.start(block, LAYERS);
    float sums[UNITS][3 * LAST / 2] = {};
    Row<LAST> row = {};
    Ring<BEFORE> from(block, LAYERS - 1);
    u32 weights = block.base + weights_at(LAYERS);
    int own = 0;
#pragma unroll 1
    for (int i = 0; i < block.steps; ++i) {
        bias.put(block, sums);
        barrier_wait(from.full(), from.phase);
        multiply_row<BEFORE, LAST>(sums, from.row(), weights);
        wgmma_wait<0>();
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) settle(sums[unit]);
        if (block.lane == 0) barrier_arrive(from.empty());
        finish<LAST, LAST_HOW>(row, sums, p, block, at, LAYERS);
        send_row(row, p, block, at, own);
        own ^= at.wanted();
        roll<LAST>(sums);
        at.next(p), from.next();
    }
    store_wait();
}
#else
__device__ __forceinline__ long long offset_of(const Strides& at, int o) {
    return o / (SHUFFLE * SHUFFLE) * at.channel + o / SHUFFLE % SHUFFLE * at.row +
           o % SHUFFLE * at.column;
}

// Two outputs of a pixel, neighbours in memory where PAIRS. `place` is that of output `first`.
__device__ __forceinline__ void put_two(const Chain& p, u16* place, int o, int first, float a,
                                        float b) {
    a = activated<LAST_HOW>(a, p.low[LAYERS], p.high[LAYERS]);
    b = activated<LAST_HOW>(b, p.low[LAYERS], p.high[LAYERS]);
    if (LAST > 8 && o != first) place += offset_of(p.at_out, o) - offset_of(p.at_out, first);
    if (PAIRS) {
        if (o < OUTPUTS) *(u32*)place = packed<NONE>(a, b, 0, 0);
        return;
    }
    if (o < OUTPUTS) *place = narrowed(a);
    if (o + 1 < OUTPUTS)
        place[offset_of(p.at_out, o + 1) - offset_of(p.at_out, o)] = narrowed(b);
}

__device__ __forceinline__ float added_to(const Chain& p, const u16* pixel, int o) {
    return o < OUTPUTS ? widened(__ldg(pixel + o * p.at_added.channel)) : 0.0f;
}

// Where a lane's pixels are: the first of its two in each unit, in the row that comes next.
struct Writer {
    Cursor at;
    u16* pixel;
    const u16* beside;
    int column;

    __device__ __forceinline__ void place(const Chain& p, const Block& block) {
        column = at.x - LAYERS + 1 + 16 * block.warp + (block.lane >> 2);
        pixel = p.out + at.image * p.at_out.image + (long long)at.y * SHUFFLE * p.at_out.row +
                (long long)column * SHUFFLE * p.at_out.column +
                offset_of(p.at_out, 2 * (block.lane & 3));
        beside = p.added + at.image * p.at_added.image + at.y * p.at_added.row +
                 column * p.at_added.column;
    }
    __device__ __forceinline__ void start(const Chain& p, const Block& block) {
        at.start(p, block.begin, block.rows, LAYERS, 2 * LAYERS - 1);
        place(p, block);
    }
    __device__ __forceinline__ void next(const Chain& p, const Block& block) {
        pixel += SHUFFLE * p.at_out.row, beside += p.at_added.row;
        if (at.next(p)) place(p, block);
    }
};

__device__ __forceinline__ void put_out(const float (&sums)[UNITS][3 * LAST / 2], const Chain& p,
                                        const Block& block, const Writer& to) {
    if (!to.at.wanted()) return;
    int q = block.lane & 3, begin = to.at.x;
    int end = begin + USEFUL < p.width ? begin + USEFUL : p.width;
#pragma unroll
    for (int unit = 0; unit < UNITS; ++unit)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int right = 64 * unit + 8 * half;
            if (to.column + right < begin || to.column + right >= end) continue;
            u16* pixel = to.pixel + right * SHUFFLE * p.at_out.column;
            const u16* other = to.beside + right * p.at_added.column;
#pragma unroll
            for (int n = 0; n < LAST / 8; ++n) {
                int o = 8 * n + 2 * q;
                float a = sums[unit][4 * n + 2 * half], b = sums[unit][4 * n + 2 * half + 1];
                if (ADDS) a += added_to(p, other, o), b += added_to(p, other, o + 1);
                put_two(p, pixel, o, 2 * q, a, b);
            }
        }
}

__device__ __forceinline__ void last(const Chain& p, const Block& block) {
    Writer to;
    to.start(p, block);
    Bias<LAST> bias;
    bias.start(block, LAYERS);
    float sums[UNITS][3 * LAST / 2] = {};
    Ring<BEFORE> from(block, LAYERS - 1);
    u32 weights = block.base + weights_at(LAYERS);
#pragma unroll 1
    for (int i = 0; i < block.steps; ++i) {
        bias.put(block, sums);
        barrier_wait(from.full(), from.phase);
        multiply_row<BEFORE, LAST>(sums, from.row(), weights);
        wgmma_wait<0>();
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) settle(sums[unit]);
        if (block.lane == 0) barrier_arrive(from.empty());
        put_out(sums, p, block, to);
        roll<LAST>(sums);
        to.next(p, block), from.next();
    }
}
#endif
