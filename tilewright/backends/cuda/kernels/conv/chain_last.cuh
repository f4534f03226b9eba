// What makes the last layer, and puts its rows into memory: as the caller's tensor, or as planes
// of eight channels that the next kernel reads.
#pragma once

constexpr int LAST = channels(LAYERS), BEFORE = channels(LAYERS - 1);
constexpr int LAST_HOW = activation(LAYERS);

// Planes have eight channels side by side, and as many as were computed.
constexpr int WANTED = PLANES_OUT ? LAST : OUTPUTS;

__device__ __forceinline__ long long offset_of(const Strides& at, int o) {
    if (PLANES_OUT) return o / 8 * at.channel + o % 8;
    return o / (SHUFFLE * SHUFFLE) * at.channel + o / SHUFFLE % SHUFFLE * at.row +
           o % SHUFFLE * at.column;
}

// How far it is from output o to o + 8.
__device__ __forceinline__ long long step_of(const Strides& at, int o) {
    if (PLANES_OUT) return at.channel;
    if (SHUFFLE <= 2) return 8 / (SHUFFLE * SHUFFLE) * at.channel;
    return offset_of(at, o + 8) - offset_of(at, o);
}

// An element of the result.
__device__ __forceinline__ Result result_of(const Chain& p, float value) {
    if constexpr (RESULT == 0) return narrowed(value);
    if constexpr (RESULT == 1) return value;
    return (Result)((int)value + p.shift);
}

// Two outputs of a pixel, neighbours in memory where PAIRS.
__device__ __forceinline__ void put_two(const Chain& p, Result* place, int o, float a, float b) {
    if (PAIRS && RESULT == 0) {
        if (o < WANTED) *(u32*)place = packed<NONE>(a, b, {});
        return;
    }
    if (PAIRS && RESULT == 1) {
        if (o < WANTED) *(float2*)place = make_float2(a, b);
        return;
    }
    if (o < WANTED) *place = result_of(p, a);
    if (o + 1 < WANTED)
        place[offset_of(p.at_out, o + 1) - offset_of(p.at_out, o)] = result_of(p, b);
}

__device__ __forceinline__ float added_to(const Chain& p, const u16* pixel, int o) {
    return o < OUTPUTS ? widened(__ldg(pixel + o * p.at_added.channel)) : 0.0f;
}

// Where a lane's pixels are: the first of its two in each unit, in the row that comes next.
struct Writer {
    Cursor at;
    Result* pixel;
    const u16* beside;
    int column;

    __device__ __forceinline__ void place(const Chain& p, const Block& block) {
        column = at.x - LAYERS + 1 + 16 * block.warp + (block.lane >> 2);
        pixel = (Result*)p.out + at.image * p.at_out.image + (long long)at.y * SHUFFLE * p.at_out.row +
                (long long)column * SHUFFLE * p.at_out.column +
                offset_of(p.at_out, 2 * (block.lane & 3));
        beside = p.added + at.image * p.at_added.image + at.y * p.at_added.row +
                 column * p.at_added.column;
    }
    __device__ __forceinline__ void start(const Chain& p, const Block& block) {
        at.start(p, block.begin, block.rows, LAYERS, 2 - LAYERS);
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
            Result* place = to.pixel + right * SHUFFLE * p.at_out.column;
            const u16* other = to.beside + right * p.at_added.column;
#pragma unroll
            for (int n = 0; n < LAST / 8; ++n) {
                int o = 8 * n + 2 * q;
                float a = sums[unit][4 * n + 2 * half], b = sums[unit][4 * n + 2 * half + 1];
                if (ADDS) a += added_to(p, other, o), b += added_to(p, other, o + 1);
                activate<LAST_HOW>(
                    a, b, numbers_of<LAST_HOW>(p, block, LAYERS, slopes_at(LAYERS), n));
                put_two(p, place, o, a, b);
                if (LAST > 8) place += step_of(p.at_out, o);
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
    Turn turn;
    u32 weights = block.base + weights_at(LAYERS);
#pragma unroll 1
    for (int i = 0; i < block.steps - 2 * (LAYERS - 1); ++i) {
        bias.put(block, sums);
        await(from.full(turn), turn.phase);
        multiply_row<BEFORE, LAST>(sums, from.row(turn), weights, block);
        end_products(sums);
        hand_back(from.empty(turn), block);
        put_out(sums, p, block, to);
        roll<LAST>(sums);
        to.next(p, block), turn.next();
    }
}
