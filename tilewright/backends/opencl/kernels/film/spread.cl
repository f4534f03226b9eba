// spread: a field of motion, from the patches over each sample, each by how well it fits there.
//
//        patch     next patch         a work-item has four samples beside each other of a row: over
//     +---------+                     them lie two patches across and two down, at the ends three,
//     |    +----|----+                as the last patch begins where it still fits
//     |    |####|    |                a patch moves as one, so its four samples lie beside each
//     +----|----+    |                other in the second picture too
//          +---------+

#include "film.clh"

#define PIECE 4

__kernel IN_VECTORS_OF(float4) void spread(int rows, int columns, int high, int wide,
                                           __global const float *image,
                                           __global const float2 *found, __global float *field)
{
    const int item = get_global_id(0), row = get_global_id(1), at_once = get_global_size(0);
    const int way = row / rows, y = row % rows, pitch = pitch_of(columns);
    __global const float *first = image + inside(way, rows, columns) + y * pitch;
    __global const float *second = image + inside(1 - way, rows, columns);
    found += way * high * wide;
    field += (2 * way * rows + y) * columns;
    const int top = max(y - SIDE + STEP, 0) / STEP;
    const int bottom = y >= rows - SIDE ? high - 1 : min(y / STEP, high - 1);
    for (int x = PIECE * item; x < columns; x += PIECE * at_once) {
        const int4 place = x + (int4)(0, 1, 2, 3);
        const float4 light = vload4(0, first + x);
        const int start = max(x - SIDE + STEP, 0) / STEP;
        const int end = x + PIECE > columns - SIDE ? wide - 1 : min(x / STEP, wide - 1);
        float4 u = 0.0f, v = 0.0f, total = 0.0f;
        for (int pi = top; pi <= bottom; pi++) {
            const int py = min(pi * STEP, rows - SIDE);
            if (y < py || y >= py + SIDE) continue;
            for (int pj = start; pj <= end; pj++) {
                const int px = min(pj * STEP, columns - SIDE);
                const float2 went = found[pi * wide + pj];
                const float from_y = clamp(py + went.y, (float)(1 - BORDER),
                                           (float)(rows + BORDER - SIDE - 2));
                const float from_x = clamp(px + went.x, (float)(1 - BORDER),
                                           (float)(columns + BORDER - SIDE - 2));
                const float whole_y = floor(from_y), whole_x = floor(from_x);
                const float down = from_y - whole_y, right = from_x - whole_x;
                __global const float *above =
                    second + ((int)whole_y + y - py) * pitch + (int)whole_x + x - px;
                __global const float *below = above + pitch;
                const float4 a = vload4(0, above), c = vload4(0, below);
                const float4 one = a + right * (vload4(0, above + 1) - a);
                const float4 other = c + right * (vload4(0, below + 1) - c);
                const float4 apart = fabs(one + down * (other - one) - light);
                const float4 weight = select((float4)(0.0f), 1.0f / fmax(apart, 1.0f),
                                             place >= px && place < px + SIDE);
                u += weight * went.x, v += weight * went.y, total += weight;
            }
        }
        u /= total, v /= total;
        if (x + PIECE <= columns) {
            vstore4(u, 0, field + x);
            vstore4(v, 0, field + rows * columns + x);
            continue;
        }
        const float us[PIECE] = {u.x, u.y, u.z, u.w}, vs[PIECE] = {v.x, v.y, v.z, v.w};
        for (int n = 0; x + n < columns; n++)
            field[x + n] = us[n], field[rows * columns + x + n] = vs[n];
    }
}
