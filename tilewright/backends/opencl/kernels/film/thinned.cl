// thinned: cells with too few samples of strokes in the 3 x 3 cells round them lose theirs: these
// were alike by chance. A work-item a cell.
//
//     +---+---+---+
//     | 0 | 2 | 0 |
//     +---+---+---+
//     | 1 |[5]| 0 |    8 in all, of at least FEW: the 5 go
//     +---+---+---+
//     | 0 | 0 | 0 |
//     +---+---+---+

#include "strokes.clh"

__kernel IN_VECTORS_OF(uchar8) void thinned(int rows, int columns, __global const int *counts,
                                            __global uchar *mask)
{
    const int item = get_global_id(0), y = get_global_id(1), at_once = get_global_size(0);
    const int high = (rows + CELL - 1) / CELL, wide = (columns + CELL - 1) / CELL;
    const int pitch = pitch_of(columns);
    for (int x = item; x < wide; x += at_once) {
        if (!counts[y * wide + x]) continue;
        int total = 0;
        for (int j = max(y - 1, 0); j <= min(y + 1, high - 1); j++)
            for (int k = max(x - 1, 0); k <= min(x + 1, wide - 1); k++)
                total += counts[j * wide + k];
        if (total >= FEW) continue;
        __global uchar *at = mask + inside(0, rows, columns) + CELL * (y * pitch + x);
        for (int n = 0; n < CELL; n++) vstore8((uchar8)(0), 0, at + n * pitch);
    }
}
