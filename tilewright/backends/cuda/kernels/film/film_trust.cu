// How far motion is to be trusted, and what stands still: a thread a sample, none writes another's.
//
//     trusted    at the field's size, both ways (blockIdx.y): do motion there and back meet
//     stroked    samples of strokes that stand still: how far apart they may be, below 0 where all
//                round them stands still too; 0 elsewhere
//     widened    a sample looks at the 7 x 7 round it for strokes that it belongs to
//     counted    a block a cell of 8 x 8: its samples of strokes
//     softened   3 x 3 cells with too few lose theirs; half tones beside what is left are added
//
// The host throws a stroke's width round it; here each sample fetches, and the order is no matter.

#include "film.cuh"

#define STEEP 40.0f
#define ALIKE 4.0f
#define STEEPER 70.0f
#define SHARE 0.5f
#define MOST 32.0f
#define STROKE 24.0f
#define FEW 48
#define REACH 3

extern "C" __global__ void trusted(const float *image, int rows, int columns, const float *fields,
                                   float *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, way = blockIdx.y, size = rows * columns;
    if (i >= size) return;
    const int y = i / columns, x = i % columns, pitch = pitch_of(columns);
    const float *field = fields + 2LL * way * size, *back = fields + 2LL * (1 - way) * size;
    const float at_y = within(y + field[size + i], 0.0f, rows - 1.001f);
    const float at_x = within(x + field[i], 0.0f, columns - 1.001f);
    const int top = int(at_y), left = int(at_x);
    const float down = at_y - top, right = at_x - left;
    const float a = (1 - down) * (1 - right), b = (1 - down) * right;
    const float c = down * (1 - right), d = down * right;
    float far = 0;
    for (int n = 0; n < 2; ++n) {
        const float *to = back + n * size + top * columns + left;
        const float meet = a * to[0] + b * to[1] + c * to[columns] + d * to[columns + 1] +
                           field[n * size + i];
        far += meet * meet;
    }
    const float *there = inside(image, 1 - way, rows, columns) + top * pitch + left;
    const float light = a * there[0] + b * there[1] + c * there[pitch] + d * there[pitch + 1] -
                        inside(image, way, rows, columns)[y * pitch + x];
    out[way * size + i] = expf(-0.5f * far - 0.1f * fabsf(light)) + 1e-4f;
}

extern "C" __global__ void stroked(const float *image, int rows, int columns, float *strokes) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    const int y = i / columns, x = i % columns, pitch = pitch_of(columns);
    const float *first = inside(image, 0, rows, columns) + y * pitch + x;
    const float *second = inside(image, 1, rows, columns) + y * pitch + x;
    const float a = first[0], b = second[0];
    strokes[i] = 0;
    if (y < 1 || y >= rows - 1 || x < 1 || x >= columns - 1 || fabsf(a - b) > MOST) return;
    float far = 0, other = 0;
    for (int n = 0; n < 9; ++n) {
        const int at = (n / 3 - 1) * pitch + n % 3 - 1;
        far = fmaxf(far, fabsf(first[at] - a)), other = fmaxf(other, fabsf(second[at] - b));
    }
    far = fminf(far, other);
    const float alike = fminf(ALIKE + fmaxf(far - STEEPER, 0.0f) * SHARE, MOST);
    if (far < STEEP || fabsf(a - b) > alike) return;
    int own = 0, count = 0;
    for (int n = 0; n < 9; ++n) {
        const int at = (n / 3 - 1) * pitch + n % 3 - 1;
        const bool near = fabsf(first[at] - second[at]) <= alike;
        count += near, own += near && fabsf(first[at] - a) <= STROKE;
    }
    if (own >= 3) strokes[i] = count == 9 ? -alike : alike;
}

extern "C" __global__ void widened(const float *image, int rows, int columns, const float *strokes,
                                   unsigned char *mask) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    const int y = i / columns, x = i % columns, pitch = pitch_of(columns);
    const float *first = inside(image, 0, rows, columns);
    const float light = first[y * pitch + x];
    const float far = fabsf(light - inside(image, 1, rows, columns)[y * pitch + x]);
    int found = int(fabsf(strokes[i]));
    for (int j = max(y - REACH, 0); j <= min(y + REACH, rows - 1); ++j)
        for (int k = max(x - REACH, 0); k <= min(x + REACH, columns - 1); ++k) {
            const float alike = strokes[j * columns + k];
            if (alike > 0 && far <= alike && fabsf(light - first[j * pitch + k]) <= STROKE)
                found = max(found, int(alike));
        }
    mask[i] = found;
}

extern "C" __global__ void counted(const unsigned char *mask, int rows, int columns, int *counts) {
    const int wide = (columns + SIDE - 1) / SIDE;
    const int y = blockIdx.x / wide * SIDE + threadIdx.x / SIDE;
    const int x = blockIdx.x % wide * SIDE + threadIdx.x % SIDE;
    const bool there = y < rows && x < columns && mask[y * columns + x];
    const int count = __syncthreads_count(there);
    if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

// A sample of the mask, where enough of its kind lies round it.
__device__ __forceinline__ int left_of(const unsigned char *mask, const int *counts, int y, int x,
                                       int rows, int columns) {
    const int found = mask[y * columns + x];
    if (!found) return 0;
    const int high = (rows + SIDE - 1) / SIDE, wide = (columns + SIDE - 1) / SIDE;
    int total = 0;
    for (int j = max(y / SIDE - 1, 0); j <= min(y / SIDE + 1, high - 1); ++j)
        for (int k = max(x / SIDE - 1, 0); k <= min(x / SIDE + 1, wide - 1); ++k)
            total += counts[j * wide + k];
    return total < FEW ? 0 : found;
}

extern "C" __global__ void softened(const float *image, int rows, int columns,
                                    const unsigned char *mask, const int *counts,
                                    unsigned char *out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    const int y = i / columns, x = i % columns, at = y * pitch_of(columns) + x;
    int found = left_of(mask, counts, y, x, rows, columns);
    if (!found) {
        const float far = fabsf(inside(image, 0, rows, columns)[at] -
                                inside(image, 1, rows, columns)[at]);
        for (int j = max(y - 1, 0); j <= min(y + 1, rows - 1); ++j)
            for (int k = max(x - 1, 0); k <= min(x + 1, columns - 1); ++k) {
                const int near = left_of(mask, counts, j, k, rows, columns);
                if (near && far <= float(2 * near)) found = near;
            }
    }
    out[i] = found;
}
