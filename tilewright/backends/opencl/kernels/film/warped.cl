// warped: both pictures moved to a time between, along the motion through each sample.
//
//     first             between           second
//     +-------+        +-------+        +-------+
//     | x     |  share |       |  rest  |       |   a work-item a sample of a plane; what lies
//     |   `---|--------|-->x---|--------|-->.   |   between samples is cubic (Keys 1981), of 4 x 4
//     +-------+        +-------+        +-------+
//
// And how much is taken of the second: `share`; 0 or 1 where the other's sample lies on a stroke
// that stands still; 2 where this place does.

#include "film.clh"

// A field between four of its places.
INLINE float among(__global const float *field, int above, int below, int left, int beside,
                   float down, float right)
{
    const float a = field[above + left], b = field[above + beside];
    const float c = field[below + left], d = field[below + beside];
    const float here = a + down * (c - a), there = b + down * (d - b);
    return here + right * (there - here);
}

// Motion of a plane's sample, in its own samples; down and across are the field's places a sample.
INLINE float2 along(__global const float *field, int high, int wide, int y, int x, float down,
                    float across)
{
    const float place = clamp((y + 0.5f) * down - 0.5f, 0.0f, high - 1.001f);
    const float at = clamp((x + 0.5f) * across - 0.5f, 0.0f, wide - 1.001f);
    const int top = (int)place, left = (int)at, beside = min(left + 1, wide - 1);
    const int above = top * wide, below = min(top + 1, high - 1) * wide;
    const float u = among(field, above, below, left, beside, place - top, at - left);
    field += high * wide;
    const float v = among(field, above, below, left, beside, place - top, at - left);
    return (float2)(u * (1 / across), v * (1 / down));
}

INLINE float4 taps(float part)
{
    const float half_of = 0.5f * part;
    return (float4)(((-half_of + 1) * part - 0.5f) * part,
                    (3 * half_of - 2.5f) * part * part + 1,
                    ((-3 * half_of + 2) * part + 0.5f) * part, (half_of - 0.5f) * part * part);
}

INLINE float fetched(__global const float *image, float y, float x, int rows, int columns)
{
    const int pitch = pitch_of(columns);
    y = clamp(y, (float)(2 - BORDER), (float)(rows + BORDER - 4));
    x = clamp(x, (float)(2 - BORDER), (float)(columns + BORDER - 4));
    const float top = floor(y), left = floor(x);
    const float4 across = taps(x - left), down = taps(y - top);
    __global const float *at = image + ((int)top - 1) * pitch + (int)left - 1;
    const float4 a = vload4(0, at), b = vload4(0, at + pitch);
    const float4 c = vload4(0, at + 2 * pitch), d = vload4(0, at + 3 * pitch);
    return dot(across, down.x * a + down.y * b + down.z * c + down.w * d);
}

// Whether a plane's place lies on a stroke; tall and wide are luma's, steps its samples for one.
INLINE int stands(__global const uchar *mask, float y, float x, int tall, int wide, int steps_down,
                  int steps_across)
{
    const int i = min(max((int)(y + 0.5f), 0) * steps_down, tall - 1);
    const int j = min(max((int)(x + 0.5f), 0) * steps_across, wide - 1);
    return mask[inside(0, tall, wide) + i * pitch_of(wide) + j] > 0;
}

__kernel IN_VECTORS_OF(float4) void warped(int rows, int columns, int high, int wide, float down, float across,
                     float share, int luma_rows, int luma_columns, int steps_down,
                     int steps_across, __global const float *image, __global const float *field,
                     __global const uchar *mask, __global float *out)
{
    const int item = get_global_id(0), y = get_global_id(1), at_once = get_global_size(0);
    const int size = rows * columns;
    for (int x = item; x < columns; x += at_once) {
        const float2 motion = along(field, high, wide, y, x, down, across);
        const float u = motion.x, v = motion.y, rest = 1 - share;
        __global const float *first = image + inside(0, rows, columns);
        __global const float *second = image + inside(1, rows, columns);
        const int i = y * columns + x;
        out[i] = fetched(first, y - share * v, x - share * u, rows, columns);
        out[size + i] = fetched(second, y + rest * v, x + rest * u, rows, columns);
#define STANDS(y, x) stands(mask, y, x, luma_rows, luma_columns, steps_down, steps_across)
        float take = share;
        if (STANDS(y, x)) {
            take = 2;
        } else if (fabs(u) + fabs(v) > 0.5f) {
            const int lost = STANDS(y - share * v, x - share * u);
            const int gone = STANDS(y + rest * v, x + rest * u);
            if (lost != gone) take = lost ? 1 : 0;
        }
        out[2 * size + i] = take;
    }
}
