// A picture between two others: motion through every place at a time, both moved along it, mixed.
//
//     thrown     a thread a place of a field, both ways (blockIdx.y): adds itself to the four places
//                round where it lands, in whole numbers of 2^-32, so that any order gives one sum
//     landed     those sums as floats, [across, down, weight][rows][columns]
//     gathered   sums at half the size      \  the larger sizes a launch each, those of
//     settled    sums -> motion, from below /  a few thousand places all in one block (`little`)
//     warped     a thread a sample of a plane, 64 threads a cell of 8 x 8:
//
//                    | cell 0 | cell 1 | cell 2 | cell 3 |   256 threads, two warps a cell,
//                                                            which say how unsure luma is there
//     mixed      whole samples of both, of the nearer alone where cells are unsure

#include "film.cuh"

#define FEW 1e-3f
#define ONE 4294967296.0f
#define MOST_SIZES 16

extern "C" __global__ void cleared(unsigned long long *at, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) at[i] = 0;
}

extern "C" __global__ void thrown(const float *fields, const float *trust, int rows, int columns,
                                  float share, unsigned long long *sums) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, way = blockIdx.y, size = rows * columns;
    if (i >= size) return;
    const float *field = fields + 2LL * way * size;
    const float u = field[i], v = field[size + i], weight = trust[way * size + i];
    const float part = way ? 1 - share : share, sign = way ? -1.0f : 1.0f;
    const float x = i % columns + part * u, y = i / columns + part * v;
    const int left = int(floorf(x)), top = int(floorf(y));
    const float right = x - left, down = y - top;
    for (int n = 0; n < 4; ++n) {
        const int row = top + n / 2, column = left + n % 2;
        if (row < 0 || row >= rows || column < 0 || column >= columns) continue;
        const float own = (n / 2 ? down : 1 - down) * (n % 2 ? right : 1 - right) * weight;
        unsigned long long *to = sums + row * columns + column;
        atomicAdd(to, (unsigned long long)__float2ll_rn(own * sign * u * ONE));
        atomicAdd(to + size, (unsigned long long)__float2ll_rn(own * sign * v * ONE));
        atomicAdd(to + 2 * size, (unsigned long long)__float2ll_rn(own * ONE));
    }
}

extern "C" __global__ void landed(const long long *sums, int count, float *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = float(sums[i]) * (1 / ONE);
}

// Sums of up to 2 x 2 places.
__device__ __forceinline__ void gather(const float *sums, int rows, int columns, float *out, int i) {
    const int tall = (rows + 1) / 2, wide = (columns + 1) / 2;
    const int y = i / wide * 2, x = i % wide * 2;
    for (int n = 0; n < 3; ++n, sums += rows * columns) {
        float total = 0;
        for (int j = y; j < min(y + 2, rows); ++j)
            for (int k = x; k < min(x + 2, columns); ++k) total += sums[j * columns + k];
        out[n * tall * wide + i] = total;
    }
}

__device__ __forceinline__ void settle(const float *sums, int rows, int columns,
                                       const float *coarse, float *field, int i) {
    const int size = rows * columns, tall = (rows + 1) / 2, wide = (columns + 1) / 2;
    const float share = 1 / (sums[2 * size + i] + FEW);
    for (int n = 0; n < 2; ++n) {
        const int at = n * tall * wide + i / columns / 2 * wide + i % columns / 2;
        const float below = coarse ? coarse[at] : 0.0f;
        field[n * size + i] = (sums[n * size + i] + FEW * below) * share;
    }
}

extern "C" __global__ void gathered(const float *sums, int rows, int columns, float *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < (rows + 1) / 2 * ((columns + 1) / 2)) gather(sums, rows, columns, out, i);
}

extern "C" __global__ void settled(const float *sums, int rows, int columns, const float *coarse,
                                   float *field) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * columns) settle(sums, rows, columns, coarse, field, i);
}

// All sizes from this one down, one behind another in memory: sums, and motion of each.
extern "C" __global__ void little(float *sums, float *fields, int rows, int columns) {
    int tall[MOST_SIZES], wide[MOST_SIZES];
    int many = 1;
    tall[0] = rows, wide[0] = columns;
    for (; max(tall[many - 1], wide[many - 1]) > 1; ++many) {
        tall[many] = (tall[many - 1] + 1) / 2, wide[many] = (wide[many - 1] + 1) / 2;
        const int size = tall[many - 1] * wide[many - 1];
        for (int i = threadIdx.x; i < tall[many] * wide[many]; i += blockDim.x)
            gather(sums, tall[many - 1], wide[many - 1], sums + 3 * size, i);
        sums += 3 * size, fields += 2 * size;
        __syncthreads();
    }
    const float *coarse = nullptr;
    for (int n = many - 1; n >= 0; --n) {
        for (int i = threadIdx.x; i < tall[n] * wide[n]; i += blockDim.x)
            settle(sums, tall[n], wide[n], coarse, fields, i);
        __syncthreads();
        coarse = fields;
        if (n) sums -= 3 * tall[n - 1] * wide[n - 1], fields -= 2 * tall[n - 1] * wide[n - 1];
    }
}

// Motion of a plane's sample, in its own samples; down and across are the field's places a sample.
__device__ __forceinline__ float2 along(const float *field, int high, int wide, int y, int x,
                                        float down, float across) {
    const float place = within((y + 0.5f) * down - 0.5f, 0.0f, high - 1.001f);
    const float at = within((x + 0.5f) * across - 0.5f, 0.0f, wide - 1.001f);
    const int top = int(place), left = int(at);
    const int next = min(top + 1, high - 1), beside = min(left + 1, wide - 1);
    float found[2];
    for (int n = 0; n < 2; ++n, field += high * wide) {
        const float a = field[top * wide + left], b = field[top * wide + beside];
        const float c = field[next * wide + left], d = field[next * wide + beside];
        const float here = a + (place - top) * (c - a), there = b + (place - top) * (d - b);
        found[n] = here + (at - left) * (there - here);
    }
    return {found[0] / across, found[1] / down};
}

__device__ __forceinline__ float4 taps(float part) {
    const float half = 0.5f * part;
    return {((-half + 1) * part - 0.5f) * part, (3 * half - 2.5f) * part * part + 1,
            ((-3 * half + 2) * part + 0.5f) * part, (half - 0.5f) * part * part};
}

// A sample between samples, cubic.
__device__ __forceinline__ float fetched(const float *image, float y, float x, int rows,
                                         int columns) {
    const int pitch = pitch_of(columns);
    y = within(y, float(2 - BORDER), float(rows + BORDER - 4));
    x = within(x, float(2 - BORDER), float(columns + BORDER - 4));
    const float top = floorf(y), left = floorf(x);
    const float4 across = taps(x - left), down = taps(y - top);
    const float *at = image + (int(top) - 1) * pitch + int(left) - 1;
    float total = 0;
    const float weights[4] = {down.x, down.y, down.z, down.w};
#pragma unroll
    for (int n = 0; n < 4; ++n, at += pitch)
        total += weights[n] *
                 (across.x * at[0] + across.y * at[1] + across.z * at[2] + across.w * at[3]);
    return total;
}

struct Mask {
    const unsigned char *at;
    int high, wide, down, across;  // samples of it for one of the plane's
};

__device__ __forceinline__ bool stands(const Mask &mask, float y, float x) {
    const int i = min(max(int(y + 0.5f), 0) * mask.down, mask.high - 1);
    const int j = min(max(int(x + 0.5f), 0) * mask.across, mask.wide - 1);
    return mask.at[i * mask.wide + j] > 0;
}

// 0 to 1: how far two moved pictures differ in a cell by more than light. Of threads of two warps.
__device__ __forceinline__ float doubt(bool counts, float apart, float limit, float (*halves)[3]) {
    float number = counts, total = counts ? apart : 0.0f, square = total * total;
    for (int n = 16; n; n /= 2) {
        number += __shfl_xor_sync(~0u, number, n);
        total += __shfl_xor_sync(~0u, total, n);
        square += __shfl_xor_sync(~0u, square, n);
    }
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0)
        halves[warp][0] = number, halves[warp][1] = total, halves[warp][2] = square;
    __syncthreads();
    number = halves[warp & ~1][0] + halves[warp | 1][0];
    if (number == 0) return 0.0f;
    const float mean = (halves[warp & ~1][1] + halves[warp | 1][1]) / number;
    square = (halves[warp & ~1][2] + halves[warp | 1][2]) / number;
    const float spread = sqrtf(fmaxf(square - mean * mean, 0.0f));
    return within((spread - limit) / limit, 0.0f, 1.0f);
}

// cells is given for luma alone; count says in how many cells one is unsure.
extern "C" __global__ void warped(const float *image, int rows, int columns, const float *field,
                                  int high, int wide, float down, float across, float share,
                                  Mask mask, float *out, float limit, float *cells, int *count) {
    __shared__ float halves[8][3];
    const int in_row = (columns + CELL - 1) / CELL, in_all = (rows + CELL - 1) / CELL * in_row;
    const int cell = blockIdx.x * 4 + threadIdx.x / 64;
    const int y = cell / in_row * CELL + threadIdx.x % 64 / CELL;
    const int x = cell % in_row * CELL + threadIdx.x % CELL;
    const bool there = y < rows && x < columns;
    float one = 0, other = 0, take = 0;
    if (there) {
        const float2 motion = along(field, high, wide, y, x, down, across);
        const float u = motion.x, v = motion.y, rest = 1 - share;
        one = fetched(inside(image, 0, rows, columns), y - share * v, x - share * u, rows, columns);
        other = fetched(inside(image, 1, rows, columns), y + rest * v, x + rest * u, rows, columns);
        take = share;
        if (stands(mask, y, x)) {
            take = 2;
        } else if (fabsf(u) + fabsf(v) > 0.5f) {
            const bool lost = stands(mask, y - share * v, x - share * u);
            const bool gone = stands(mask, y + rest * v, x + rest * u);
            if (lost != gone) take = lost ? 1 : 0;
        }
        const long long at = (long long)y * columns + x, size = (long long)rows * columns;
        out[at] = one, out[size + at] = other, out[2 * size + at] = take;
    }
    if (!cells) return;
    const float found = doubt(there && take > 0 && take < 1, one - other, limit, halves);
    if (threadIdx.x % 64 || cell >= in_all) return;
    cells[cell] = found;
    if (found > 0) atomicAdd(count, 1);
}

extern "C" __global__ void mixed(const float *image, int rows, int columns, const float *moved,
                                 float share, const float *cells, int high, int wide, float down,
                                 float across, float scale, float most, Sample *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const long long size = (long long)rows * columns;
    if (i >= size) return;
    const int y = i / columns, x = i % columns;
    float part = moved[2 * size + i], found;
    if (part > 1) {
        const int at = y * pitch_of(columns) + x;
        const float here = inside(image, 0, rows, columns)[at];
        found = here + share * (inside(image, 1, rows, columns)[at] - here);
    } else {
        if (0 < part && part < 1) {
            const float place = within((y + 0.5f) * down - 0.5f, 0.0f, high - 1.0f);
            const float at = within((x + 0.5f) * across - 0.5f, 0.0f, wide - 1.0f);
            const int top = int(place), left = int(at);
            const float *above = cells + top * wide, *below = cells + min(top + 1, high - 1) * wide;
            const int next = min(left + 1, wide - 1);
            const float a = above[left] + (at - left) * (above[next] - above[left]);
            const float b = below[left] + (at - left) * (below[next] - below[left]);
            part += (a + (place - top) * (b - a)) * ((share > 0.5f ? 1.0f : 0.0f) - part);
        }
        found = moved[i] + part * (moved[size + i] - moved[i]);
    }
    out[i] = Sample(within(found * scale + 0.5f, 0.0f, most));
}
