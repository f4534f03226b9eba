// stroked: strokes that stand still, a work-item eight samples beside each other and the 3 x 3
// round each:
//
//     . . . . . . . . . .
//     . # # # # # # # # .     steep in both pictures, and alike in both
//     . . . . . . . . . .

#include "strokes.clh"

__kernel IN_VECTORS_OF(float8) void stroked(int rows, int columns, __global const float *image,
                                            __global float *strokes)
{
    const int item = get_global_id(0), y = get_global_id(1), at_once = get_global_size(0);
    const int pitch = pitch_of(columns);
    __global const float *first = image + inside(0, rows, columns) + y * pitch;
    __global const float *second = image + inside(1, rows, columns) + y * pitch;
    strokes += inside(0, rows, columns) + y * pitch;
    for (int x = PIECE * item; x < columns; x += PIECE * at_once) {
        const int8 place = places_of(x);
        const float8 a = vload8(0, first + x), b = vload8(0, second + x);
        float8 far = 0.0f, other = 0.0f;
        UNROLL for (int n = 0; n < 9; n++) {
            const int at = x + (n / 3 - 1) * pitch + n % 3 - 1;
            far = fmax(far, fabs(vload8(0, first + at) - a));
            other = fmax(other, fabs(vload8(0, second + at) - b));
        }
        far = fmin(far, other);
        const float8 alike = fmin(ALIKE + fmax(far - STEEPER, 0.0f) * SHARE, MOST);
        int8 is = far >= STEEP && fabs(a - b) <= alike && place >= 1 && place < columns - 1;
        if (y < 1 || y >= rows - 1) is = 0;
        float8 found = 0.0f;
        if (any(is)) {
            int8 own = 0, count = 0;
            for (int n = 0; n < 9; n++) {
                const int at = x + (n / 3 - 1) * pitch + n % 3 - 1;
                const float8 light = vload8(0, first + at);
                const int8 near = fabs(light - vload8(0, second + at)) <= alike;
                count -= near;
                own -= near && fabs(light - a) <= STROKE;
            }
            found = select((float8)(0.0f), select(alike, -alike, count == 9), is && own >= 3);
        }
        vstore8(found, 0, strokes + x);
    }
}
