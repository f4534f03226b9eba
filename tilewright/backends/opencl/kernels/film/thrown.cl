// thrown: a field's samples land where they are at a time between, both ways.
//
//     field                sums
//     +---+---+---+       +---+---+---+
//     |   | x |   |  ->   |   |   | x |   each place adds itself to the four places round where it
//     +---+---+---+       +---+---+-|-+   lands, by how near they are and how far it is trusted:
//     |   |   |   |       |   |   | x |   its motion times that, and that
//     +---+---+---+       +---+---+---+

#include "sums.clh"

INLINE void add(__global long *to, long whole)
{
#if SLICES
    *to += whole;
#else
    volatile __global uint *words = (volatile __global uint *)to;
    const uint low = (uint)whole, before = atomic_add(words, low);
    const uint high = (uint)(whole >> 32) + (before + low < low ? 1u : 0u);
    if (high) atomic_add(words + 1, high);
#endif
}

// part and sign: of the way from the first picture the share of the time, and 1; of the way from
// the second the rest of it, and -1.
INLINE void throw_one(__global const float *field, float weight, int y, int x, int rows,
                      int columns, float part, float sign, __global long *sums)
{
    const int size = rows * columns;
    const float u = field[y * columns + x], v = field[size + y * columns + x];
    const float to_x = x + part * u, to_y = y + part * v;
    const int left = (int)floor(to_x), top = (int)floor(to_y);
    const float right = to_x - left, down = to_y - top;
    for (int n = 0; n < 4; n++) {
        const int row = top + n / 2, column = left + n % 2;
        if (row < 0 || row >= rows || column < 0 || column >= columns) continue;
        const float own = (n / 2 ? down : 1 - down) * (n % 2 ? right : 1 - right) * weight;
        const float4 all = own * (float4)(sign * u, sign * v, 1.0f, 0.0f);
        const long4 whole = convert_long4(rint(all * ONE));
        __global long *to = sums + row * columns + column;
        add(to, whole.x);
        add(to + size, whole.y);
        add(to + 2 * size, whole.z);
    }
}

__kernel void thrown(int rows, int columns, float share, __global const float *fields,
                     __global const float *trust, __global long *sums)
{
    const int item = get_global_id(0), number = get_global_id(1), size = rows * columns;
#if SLICES
    const int way = number / SLICES, slice = number % SLICES;
    const int begin = rows * slice / SLICES, end = rows * (slice + 1) / SLICES;
    const int first = 0, last = columns;
    sums += number * 3 * size;
#else
    const int way = number / rows, begin = number % rows, end = begin + 1;
    const int first = item, last = min(item + 1, columns);
#endif
    const float part = way ? 1 - share : share, sign = way ? -1.0f : 1.0f;
    fields += 2 * way * size, trust += way * size;
    for (int y = begin; y < end; y++)
        for (int x = first; x < last; x++)
            throw_one(fields, trust[y * columns + x], y, x, rows, columns, part, sign, sums);
}
