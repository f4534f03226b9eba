// gathered: sums at half the size, for places where nothing landed; of fewer than four at the ends.
//
//     +---+---+---+
//     | a | b | e |        +---------+-----+     a work-item a place of the smaller size
//     +---+---+---+   ->   | a+b+c+d | e+f |
//     | c | d | f |        +---------+-----+
//     +---+---+---+

#include "film.clh"

__kernel void gathered(int rows, int columns, __global const float *sums, __global float *out)
{
    const int tall = (rows + 1) / 2, wide = (columns + 1) / 2;
    const int x = get_global_id(0), y = get_global_id(1);
    if (x >= wide) return;
    for (int n = 0; n < 3; n++, sums += rows * columns) {
        float total = 0.0f;
        for (int j = 2 * y; j < min(2 * y + 2, rows); j++)
            for (int k = 2 * x; k < min(2 * x + 2, columns); k++) total += sums[j * columns + k];
        out[(n * tall + y) * wide + x] = total;
    }
}
