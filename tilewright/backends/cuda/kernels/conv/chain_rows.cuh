// Where a block is in its share of the rows, and the small things that all its layers do.
//
//     strips side by side in the picture,          a block's share: some rows of a strip, perhaps
//     their rows dealt to the blocks               the next strip's first, as one stream; each part
//     +----+----+----+                             begins and ends HALO rows outside
//     | 0  | 2  |    |
//     |----|    | 4  |                                 .....  halo
//     | 1  |----|    |                                 rows of strip 1
//     |    | 3  |----|                                 .....  halo, halo of the next part
//     +----+----+----+                                 rows of strip 2 ...
#pragma once
#include "chain_layout.cuh"

struct Cursor {
    int y;            // row of the picture, outside of it in the halo
    int first, end;   // rows that this part must make
    int left;         // rows of the part still to come, this one included
    int x;            // left useful column
    int image, strip;
    int rest;         // rows of parts that follow
    int halo;

    // `count` rows of all from `begin` on; `early` rows before the first part's halo come first, or
    // so many of it are left out where that is negative.
    __device__ __forceinline__ void start(const Chain& p, long long begin, int count, int rows_around,
                                          int early) {
        long long column = begin / p.height;
        image = (int)(column / p.strips), strip = (int)(column % p.strips);
        first = (int)(begin % p.height), halo = rows_around;
        part(p, first, count);
        y -= early, left += early;
    }

    __device__ __forceinline__ void part(const Chain& p, int from, int count) {
        int rows = p.height - from < count ? p.height - from : count;
        first = from, end = from + rows, rest = count - rows;
        y = from - halo, left = rows + 2 * halo, x = strip * USEFUL;
    }

    // Whether the next row is elsewhere, not below this one.
    __device__ __forceinline__ bool next(const Chain& p) {
        if (--left) {
            ++y;
            return false;
        }
        if (rest > 0) {
            if (++strip == p.strips) strip = 0, ++image;
            part(p, 0, rest);
        } else {  // all is done: rows that are nowhere
            y = -(1 << 29), first = end = 0, left = 1 << 29;
        }
        return true;
    }

    __device__ __forceinline__ bool inside(const Chain& p) const {
        return y >= 0 && y < p.height;
    }
    __device__ __forceinline__ bool wanted() const { return y >= first && y < end; }
};

struct Block {
    u32 base;    // of shared memory
    int steps;   // rows of ring 0, halos included
    int warp, lane;  // of the warpgroup
    long long begin;
    int rows;

    // Of a ring's first row: that it is full; eight bytes on, that it is empty.
    __device__ __forceinline__ u32 barriers(int ring) const {
        return base + SHARED_BARRIERS + ring * DEPTH * 16;
    }
    __device__ __forceinline__ u32 weights() const { return barriers(LAYERS) + 16; }
    // Barriers that nobody waits for.
    __device__ __forceinline__ u32 nobody() const { return barriers(LAYERS); }
    __device__ __forceinline__ float number(int at) const {
        float value;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(base + at));
        return value;
    }
};

// Which slot of a ring comes next, and how often it went round.
struct Turn {
    int slot = 0;
    u32 phase = 0;

    __device__ __forceinline__ void next() {
        slot = slot == DEPTH - 1 ? 0 : slot + 1;
        phase ^= slot == 0;
    }
};

// A ring of rows of CHANNELS.
template <int CHANNELS> struct Ring {
    u32 begin, barriers;

    __device__ __forceinline__ Ring(const Block& block, int ring)
        : begin(block.base + ring_at(ring)), barriers(block.barriers(ring)) {}
    __device__ __forceinline__ u32 row(Turn at) const {
        return begin + at.slot * (CHANNELS / 8 * PLANE);
    }
    __device__ __forceinline__ u32 full(Turn at) const { return barriers + at.slot * 16; }
    __device__ __forceinline__ u32 empty(Turn at) const { return barriers + at.slot * 16 + 8; }
};

#if BF16
#define HALF "bf16"
#else
#define HALF "f16"
#endif

__device__ __forceinline__ float widened(u16 half) {
    float value;
#if BF16
    value = __uint_as_float((u32)half << 16);
#else
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
#endif
    return value;
}

__device__ __forceinline__ u16 narrowed(float value) {
    u16 half;
    asm("cvt.rn." HALF ".f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

// What an activation needs to know: of PRELU the slopes of two neighbouring channels, of whole
// numbers what their sums are worth.
struct Numbers {
    float low, high;
    float step, inverse, least, most;
};

// Of channels 8 n + 2 (lane % 4) and the next. `slopes`: where the layer's lie in shared memory.
template <int HOW>
__device__ __forceinline__ Numbers numbers_of(const Chain& p, const Block& block, int layer,
                                              int slopes, int n) {
    if (HOW != PRELU && HOW != ROUNDED && HOW != WORTH) return {p.low[layer], p.high[layer]};
    int at = slopes + 32 * n + 8 * (block.lane & 3);
    Numbers found = {block.number(at), block.number(at + 4)};
    if (HOW != PRELU)
        found.step = p.step[layer], found.inverse = p.inverse[layer], found.least = p.low[layer],
        found.most = p.high[layer];
    return found;
}

// A whole number, ties to even: beside 1.5 * 2^23 float32 keeps no fraction.
__device__ __forceinline__ float rounded(float v) {
    return __fsub_rn(__fadd_rn(v, 12582912.0f), 12582912.0f);
}

// v / step as IEEE 754 rounds it: the second correction begins within an ulp, which makes it exact
// (P. Markstein, IBM J. Res. Dev. 34, 1990). `inverse` is 1 / step, rounded.
__device__ __forceinline__ float divided(float v, float step, float inverse) {
    float q = __fmul_rn(v, inverse);
    q = __fmaf_rn(__fmaf_rn(-q, step, v), inverse, q);
    return __fmaf_rn(__fmaf_rn(-q, step, v), inverse, q);
}

// A sum of whole numbers, worth `scale` each, as float32; or rounded to steps, less what stands for
// 0 in them. Every operation is one of float32 with one rounding, in this order, as it is defined.
template <int HOW>
__device__ __forceinline__ float worth(float sum, float scale, const Numbers& with) {
    float v = __fmul_rn(sum, scale);
    if (HOW == ROUNDED) v = divided(v, with.step, with.inverse);
    v = fminf(fmaxf(v, with.least), with.most);
    return HOW == ROUNDED ? rounded(v) : v;
}

// Two neighbouring channels of a pixel. A NaN stays one in all of them.
template <int HOW>
__device__ __forceinline__ void activate(float& first, float& second, Numbers with) {
    if (HOW == ROUNDED || HOW == WORTH) {
        first = worth<HOW>(first, with.low, with);
        second = worth<HOW>(second, with.high, with);
    }
    if (HOW == LEAKY) with.high = with.low;
    if (HOW == LEAKY || HOW == PRELU) {
        first = first > 0 ? first : first * with.low;
        second = second > 0 ? second : second * with.high;
    }
    if (HOW == RELU) with.low = 0;
    if (HOW == RELU || HOW == CLIP) {
        asm("max.NaN.f32 %0, %0, %1;" : "+f"(first) : "f"(with.low));
        asm("max.NaN.f32 %0, %0, %1;" : "+f"(second) : "f"(with.low));
    }
    if (HOW == CLIP) {
        asm("min.NaN.f32 %0, %0, %1;" : "+f"(first) : "f"(with.high));
        asm("min.NaN.f32 %0, %0, %1;" : "+f"(second) : "f"(with.high));
    }
}

// The same as two halves.
template <int HOW> __device__ __forceinline__ u32 packed(float first, float second, Numbers with) {
    u32 both;
    if (HOW == RELU) {
        asm("cvt.rn.relu." HALF "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
        return both;
    }
    activate<HOW>(first, second, with);
    asm("cvt.rn." HALF "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}
