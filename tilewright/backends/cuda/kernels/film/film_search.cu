// Dense inverse search: where patches of 8 x 8 went, as the host's loops find it.
//
//     patches across ->                 warp of row 0   a  b  c  d  e  .
//     +---+---+---+---+                 warp of row 1   .  a' b' c' d' .     one patch behind
//     |   | x | x |   |  rows of        warp of row 2   .  .  a" b" c" .     and so on down
//     +---+---+---+---+  patches,
//     |   | x | ? |   |  4 samples      ? looks at what was found to its left (registers) and
//     +---+---+---+---+  apart          above it (memory): a row follows the row above it
//
//     tried      a warp a patch, all at once: mean, inverse matrix, and how well the motion of the
//                size below and none at all fit, with the slopes of both; marks patches as not found
//     searched   a warp a row of patches, both ways; what a patch is found to do is one word of 64
//                bits that is stored and read whole, so that no flag stands beside it. Rows are given
//                out in the order in which blocks begin, so that none waits for one that has not.
//     spread     a thread a sample: the patches over it, each by how well it fits that sample
//
// A lane has two samples beside each other: lane 4 * i + j those of row i, columns 2 * j, 2 * j + 1.
// Light that differs as a whole is taken out of sums instead of samples: one pass, not two.

#include "film.cuh"

#define TURNS 8
#define LEAST 0.0025f
#define STIFF 16.0f
#define BETTER 0.9f
#define MARGIN 16.0f
#define NEAR 0.25f
#define KEPT 12  // floats that `tried` leaves of a patch
#define NOT_FOUND 0xffffffffffffffffull

struct Patch {
    float p[2], gx[2], gy[2];
    float ixx, ixy, iyy;
};

struct Fit {
    float score, bx, by;
};

__device__ __forceinline__ float summed(float x) {
    for (int n = 16; n; n /= 2) x += __shfl_xor_sync(~0u, x, n);
    return x;
}

// Where a patch moved so lies, no further outside than the border lets; and parts of a sample.
__device__ __forceinline__ int placed(float y, float x, int rows, int columns, float &down,
                                      float &right) {
    y = within(y, float(1 - BORDER), float(rows + BORDER - SIDE - 2));
    x = within(x, float(1 - BORDER), float(columns + BORDER - SIDE - 2));
    const float top = floorf(y), left = floorf(x);
    down = y - top, right = x - left;
    return int(top) * pitch_of(columns) + int(left);
}

__device__ __forceinline__ Fit fit(const Patch &patch, const float *second, float y, float x,
                                   int rows, int columns, float *light = nullptr) {
    const int lane = threadIdx.x % 32, pitch = pitch_of(columns);
    float down, right;
    const float *above = second + placed(y, x, rows, columns, down, right);
    above += lane / 4 * pitch + lane % 4 * 2;
    const float *below = above + pitch;
    const float a = (1 - down) * (1 - right), b = (1 - down) * right;
    const float c = down * (1 - right), d = down * right;
    const float a0 = above[0], a1 = above[1], a2 = above[2];
    const float b0 = below[0], b1 = below[1], b2 = below[2];
    const float d0 = a * a0 + b * a1 + c * b0 + d * b1 - patch.p[0];
    const float d1 = a * a1 + b * a2 + c * b1 + d * b2 - patch.p[1];
    float sum = d0 + d1, square = d0 * d0 + d1 * d1;
    float bx = patch.gx[0] * d0 + patch.gx[1] * d1, by = patch.gy[0] * d0 + patch.gy[1] * d1;
#pragma unroll
    for (int n = 16; n; n /= 2) {
        sum += __shfl_xor_sync(~0u, sum, n);
        square += __shfl_xor_sync(~0u, square, n);
        bx += __shfl_xor_sync(~0u, bx, n);
        by += __shfl_xor_sync(~0u, by, n);
    }
    const float mean = sum * (1.0f / (SIDE * SIDE));
    if (light) *light = mean;
    return {fmaxf(square - sum * mean, 0.0f), bx, by};
}

// A patch's samples and slopes, these without their means.
__device__ __forceinline__ void sloped(const float *first, int y, int x, int columns, Patch &patch,
                                       float &sx, float &sy) {
    const int lane = threadIdx.x % 32, pitch = pitch_of(columns);
    const float *at = first + (long long)(y + lane / 4) * pitch + x + lane % 4 * 2;
    for (int n = 0; n < 2; ++n) {
        patch.p[n] = at[n];
        patch.gx[n] = 0.5f * (at[n + 1] - at[n - 1]);
        patch.gy[n] = 0.5f * (at[n + pitch] - at[n - pitch]);
    }
    sx = summed(patch.gx[0] + patch.gx[1]) * (1.0f / (SIDE * SIDE));
    sy = summed(patch.gy[0] + patch.gy[1]) * (1.0f / (SIDE * SIDE));
    for (int n = 0; n < 2; ++n) patch.gx[n] -= sx, patch.gy[n] -= sy;
}

// Motion that the size below has for a patch.
__device__ __forceinline__ float2 begun(const float *coarse, int way, int y, int x, int rows,
                                        int columns) {
    if (!coarse) return {0.0f, 0.0f};
    const int tall = rows / 2, wide = columns / 2;
    const int at = min((y + SIDE / 2) / 2, tall - 1) * wide + min((x + SIDE / 2) / 2, wide - 1);
    const float *field = coarse + 2LL * way * tall * wide;
    return {2 * field[at], 2 * field[tall * wide + at]};
}

extern "C" __global__ void tried(const float *image, int rows, int columns, const float *coarse,
                                 int high, int wide, float *kept, unsigned long long *found,
                                 unsigned *begun_rows) {
    const int number = (blockIdx.x * blockDim.x + threadIdx.x) / 32, way = blockIdx.y;
    const int lane = threadIdx.x % 32;
    if (number == 0 && way == 0 && lane == 0) *begun_rows = 0;
    if (number >= high * wide) return;
    const int y = min(number / wide * STEP, rows - SIDE), x = min(number % wide * STEP, columns - SIDE);
    const float *second = inside(image, 1 - way, rows, columns);
    Patch patch;
    float sx, sy, light;
    sloped(inside(image, way, rows, columns), y, x, columns, patch, sx, sy);
    float xx = patch.gx[0] * patch.gx[0] + patch.gx[1] * patch.gx[1];
    float xy = patch.gx[0] * patch.gy[0] + patch.gx[1] * patch.gy[1];
    float yy = patch.gy[0] * patch.gy[0] + patch.gy[1] * patch.gy[1];
    xx = summed(xx) + STIFF, xy = summed(xy), yy = summed(yy) + STIFF;
    const float whole = 1 / (xx * yy - xy * xy);
    const float2 from = begun(coarse, way, y, x, rows, columns);
    const Fit one = fit(patch, second, y + from.y, x + from.x, rows, columns, &light);
    const Fit none = fit(patch, second, float(y), float(x), rows, columns);
    if (lane) return;
    const long long at = (long long)way * high * wide + number;
    float4 *to = reinterpret_cast<float4 *>(kept + at * KEPT);
    to[0] = {yy * whole, -xy * whole, xx * whole, light};
    to[1] = {one.score, one.bx, one.by, sx};
    to[2] = {none.score, none.bx, none.by, sy};
    found[at] = NOT_FOUND;
}

__device__ __forceinline__ unsigned long long waited(const volatile unsigned long long *at) {
    unsigned long long word;
    while ((word = *at) == NOT_FOUND) {
    }
    return word;
}

__device__ __forceinline__ bool apart(float2 one, float2 other) {
    return fabsf(one.x - other.x) + fabsf(one.y - other.y) >= NEAR;
}

extern "C" __global__ void searched(const float *image, int rows, int columns, const float *coarse,
                                    int high, int wide, const float *kept,
                                    unsigned long long *found, unsigned *begun_rows) {
    const int lane = threadIdx.x;
    unsigned ticket = 0;
    if (lane == 0) ticket = atomicAdd(begun_rows, 1u);
    ticket = __shfl_sync(~0u, ticket, 0);
    const int way = ticket % 2, pi = ticket / 2, y = min(pi * STEP, rows - SIDE);
    const float *first = inside(image, way, rows, columns);
    const float *second = inside(image, 1 - way, rows, columns);
    found += ((long long)way * high + pi) * wide;
    const float4 *tries = reinterpret_cast<const float4 *>(kept) +
                          ((long long)way * high + pi) * wide * (KEPT / 4);
    float2 left = {0.0f, 0.0f};
    for (int pj = 0; pj < wide; ++pj) {
        const int x = min(pj * STEP, columns - SIDE);
        const float4 own = tries[3 * pj], one = tries[3 * pj + 1], none = tries[3 * pj + 2];
        Patch patch;
        const float *at = first + (y + lane / 4) * pitch_of(columns) + x + lane % 4 * 2;
        for (int n = 0; n < 2; ++n) {  // with the light of the place that it is likely to go to
            patch.p[n] = at[n] + own.w;
            patch.gx[n] = 0.5f * (at[n + 1] - at[n - 1]) - one.w;
            patch.gy[n] = 0.5f * (at[n + pitch_of(columns)] - at[n - pitch_of(columns)]) - none.w;
        }
        float2 best = begun(coarse, way, y, x, rows, columns);
        Fit now = {one.x, one.y, one.z};
        float2 above = {0.0f, 0.0f};
        if (pi) {
            const unsigned long long word = waited(found - wide + pj);
            above = {__uint_as_float(unsigned(word)), __uint_as_float(unsigned(word >> 32))};
        }
        const Fit beside = fit(patch, second, y + left.y, x + left.x, rows, columns);
        const Fit over = fit(patch, second, y + above.y, x + above.x, rows, columns);
        if (pj && apart(left, best) && beside.score < now.score * BETTER - MARGIN)
            best = left, now = beside;
        if (pi && apart(above, best) && over.score < now.score * BETTER - MARGIN)
            best = above, now = over;
        if (apart({0.0f, 0.0f}, best) && none.x < now.score * BETTER - MARGIN)
            best = {0.0f, 0.0f}, now = {none.x, none.y, none.z};
        for (int turn = 0; turn < TURNS; ++turn) {
            const float du = own.x * now.bx + own.y * now.by, dv = own.y * now.bx + own.z * now.by;
            const float2 next = {best.x - du, best.y - dv};
            const Fit then = fit(patch, second, y + next.y, x + next.x, rows, columns);
            if (!(then.score < now.score)) break;
            best = next, now = then;
            if (du * du + dv * dv < LEAST) break;
        }
        left = best;
        if (lane == 0) {
            const unsigned long long word = __float_as_uint(best.x) |
                                            (unsigned long long)__float_as_uint(best.y) << 32;
            *static_cast<volatile unsigned long long *>(found + pj) = word;
        }
    }
}

extern "C" __global__ void spread(const float *image, int rows, int columns,
                                  const unsigned long long *found, int high, int wide, float *field) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, way = blockIdx.y;
    if (i >= rows * columns) return;
    const int y = i / columns, x = i % columns, pitch = pitch_of(columns);
    const float light = inside(image, way, rows, columns)[y * pitch + x];
    const float *second = inside(image, 1 - way, rows, columns);
    found += (long long)way * high * wide;
    // The last patch begins where it still fits, nearer to the one before it.
    const int top = max(y - SIDE + STEP, 0) / STEP, start = max(x - SIDE + STEP, 0) / STEP;
    const int bottom = y >= rows - SIDE ? high - 1 : min(y / STEP, high - 1);
    const int end = x >= columns - SIDE ? wide - 1 : min(x / STEP, wide - 1);
    float u = 0, v = 0, total = 0;
    for (int pi = top; pi <= bottom; ++pi) {
        const int py = min(pi * STEP, rows - SIDE);
        if (y < py || y >= py + SIDE) continue;
        for (int pj = start; pj <= end; ++pj) {
            const int px = min(pj * STEP, columns - SIDE);
            if (x < px || x >= px + SIDE) continue;
            const unsigned long long word = found[pi * wide + pj];
            const float pu = __uint_as_float(unsigned(word));
            const float pv = __uint_as_float(unsigned(word >> 32));
            float down, right;
            const float *above = second + placed(py + pv, px + pu, rows, columns, down, right);
            above += (y - py) * pitch + x - px;
            const float *below = above + pitch;
            const float a = above[0] + right * (above[1] - above[0]);
            const float b = below[0] + right * (below[1] - below[0]);
            const float weight = 1 / fmaxf(fabsf(a + down * (b - a) - light), 1.0f);
            u += weight * pu, v += weight * pv, total += weight;
        }
    }
    field += 2LL * way * rows * columns;
    field[i] = u / total;
    field[rows * columns + i] = v / total;
}
