// softened: half tones at strokes' ends, beside them and alike to twice what they have to be.
//
//     . . . . . . . . . .
//     . # # # # # # # # .     a work-item eight samples, and the 3 x 3 round each
//     . . . . . . . . . .

#include "strokes.clh"

__kernel IN_VECTORS_OF(float8) void softened(int rows, int columns, __global const float *image,
                                             __global const uchar *left, __global uchar *mask)
{
    const int item = get_global_id(0), y = get_global_id(1), at_once = get_global_size(0);
    const int pitch = pitch_of(columns), begin = inside(0, rows, columns) + y * pitch;
    __global const float *second = image + inside(1, rows, columns) + y * pitch;
    image += begin, left += begin;
    for (int x = PIECE * item; x < columns; x += PIECE * at_once) {
        uchar8 near = 0;
        for (int j = -1; j <= 1; j++)
            near |= vload8(0, left + j * pitch + x - 1) | vload8(0, left + j * pitch + x + 1);
        int8 found = 0;
        if (any(near != (uchar)0)) {
            const int8 before = convert_int8(vload8(0, left + x));
            const float8 far = fabs(vload8(0, image + x) - vload8(0, second + x));
            for (int n = 0; n < 9; n++) {
                const uchar8 beside = vload8(0, left + (n / 3 - 1) * pitch + x + n % 3 - 1);
                const int8 alike = convert_int8(beside);
                found = select(found, alike, alike > 0 && far <= convert_float8(2 * alike));
            }
            found = select(found, before, before > 0);
            found = select((int8)(0), found, places_of(x) < columns);
        }
        vstore8(convert_uchar8(found), 0, mask + begin + x);
    }
}
