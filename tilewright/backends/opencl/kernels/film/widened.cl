// widened: samples that belong to a stroke within three samples of them, eight a work-item.
//
//     . . . . . . . . . . . . . .
//     . . . # # # # # # # # . . .   7 rows, of which those with a stroke are looked at: 7 shifts
//     . . . . . . . . . . . . . .

#include "strokes.clh"

__kernel IN_VECTORS_OF(float8) void widened(int rows, int columns, __global const float *image,
                                            __global const float *strokes, __global uchar *mask)
{
    const int item = get_global_id(0), y = get_global_id(1), at_once = get_global_size(0);
    const int pitch = pitch_of(columns), begin = inside(0, rows, columns) + y * pitch;
    __global const float *first = image + begin;
    __global const float *second = image + inside(1, rows, columns) + y * pitch;
    strokes += begin;
    for (int x = PIECE * item; x < columns; x += PIECE * at_once) {
        const float8 light = vload8(0, first + x);
        const float8 far = fabs(light - vload8(0, second + x));
        int8 found = convert_int8(fabs(vload8(0, strokes + x)));
        for (int j = -REACH; j <= REACH; j++) {
            __global const float *row = strokes + j * pitch + x;
            if (!any(fmax(vload8(0, row - REACH), vload8(0, row + REACH)) > 0.0f)) continue;
            for (int k = -REACH; k <= REACH; k++) {
                const float8 alike = vload8(0, row + k);
                const float8 near = fabs(light - vload8(0, first + j * pitch + x + k));
                const int8 is = alike > 0.0f && far <= alike && near <= STROKE;
                found = select(found, max(found, convert_int8(alike)), is);
            }
        }
        found = select((int8)(0), found, places_of(x) < columns);
        vstore8(convert_uchar8(found), 0, mask + begin + x);
    }
}
