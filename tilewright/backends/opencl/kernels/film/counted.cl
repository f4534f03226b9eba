// counted: how many samples of strokes a cell of 8 x 8 has; a work-item a cell.
//
//     +---------+---------+
//     | . # # . |         |
//     | . . # . |         |      -> 3, 0     beyond the picture the mask is 0
//     +---------+---------+

#include "strokes.clh"

__kernel IN_VECTORS_OF(uchar8) void counted(int rows, int columns, __global const uchar *mask,
                                            __global int *counts)
{
    const int item = get_global_id(0), y = get_global_id(1), at_once = get_global_size(0);
    const int wide = (columns + CELL - 1) / CELL, pitch = pitch_of(columns);
    for (int x = item; x < wide; x += at_once) {
        __global const uchar *at = mask + inside(0, rows, columns) + CELL * (y * pitch + x);
        char8 found = 0;
        for (int n = 0; n < CELL; n++) found -= vload8(0, at + n * pitch) != (uchar)0;
        const char4 four = found.lo + found.hi;
        counts[y * wide + x] = four.x + four.y + four.z + four.w;
    }
}
