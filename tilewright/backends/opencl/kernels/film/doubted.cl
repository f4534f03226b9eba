// doubted: 0 to 1 a cell of 8 x 8: how far the two moved pictures differ there by more than light,
// from `limit` to twice that; and in how many cells they do.
//
//     one             other
//     +---+---+      +---+---+
//     | a |   |      | b |   |     a work-item a cell: the deviation of a - b, of samples of which
//     +---+---+      +---+---+     both pictures are taken

#include "film.clh"

// A cell at a time on processors, too: vectors over cells would gather.
__kernel IN_VECTORS_OF(float8) void doubted(int rows, int columns, float limit, __global const float *moved,
                      __global float *cells, __global int *unsure)
{
    const int x = get_global_id(0), y = get_global_id(1);
    const int wide = (columns + CELL - 1) / CELL, size = rows * columns;
    if (x >= wide) return;
    float number = 0.0f, total = 0.0f, square = 0.0f;
    for (int j = y * CELL; j < min(y * CELL + CELL, rows); j++)
        for (int k = x * CELL; k < min(x * CELL + CELL, columns); k++) {
            const int i = j * columns + k;
            const float take = moved[2 * size + i];
            const int counts = take > 0 && take < 1;
            const float apart = counts ? moved[i] - moved[size + i] : 0.0f;
            number += counts, total += apart, square += apart * apart;
        }
    const float mean = total / fmax(number, 1.0f);
    const float spread = sqrt(fmax(square / fmax(number, 1.0f) - mean * mean, 0.0f));
    const float found = number > 0 ? clamp((spread - limit) / limit, 0.0f, 1.0f) : 0.0f;
    cells[y * wide + x] = found;
    if (found > 0) atomic_inc(unsure);
}
