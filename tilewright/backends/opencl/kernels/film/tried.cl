// tried: of every patch its mean slopes and inverse matrix, and how well it fits where the size
// below says that it went, and where it is.
//
//     patches across ->
//     +---+---+---+---+---+---+---+---+
//     | a | b | c |   group 1 ...           LANES 8: a group has BAND patches of a row, eight
//     +---+---+---+---+---+---+---+---+              work-items each
//     | row of patches ------------->       LANES 1: a work-item goes along a row
//     +---+---+---+---+---+---+---+---+
//
// None waits for another; what needs a neighbour's motion is done by `searched`.

#include "patch.clh"

__kernel GROUP void tried(int rows, int columns, int coarser, int high, int wide,
                          __global const float *image, __global const float *coarse,
                          __global float4 *kept)
{
    LOCAL_PARTS
    const int item = get_global_id(0), row = get_global_id(1), at_once = get_global_size(0);
#if LANES > 1
    const int own = get_local_id(0), lane = own % LANES;
    __local float4 *parts = shared + own / LANES * LANES;
#endif
    const int way = row / high, pi = row % high, pitch = pitch_of(columns);
    const int y = min(pi * STEP, rows - SIDE);
    __global const float *first = image + inside(way, rows, columns);
    __global const float *second = image + inside(1 - way, rows, columns);
    // As many turns in each work-item of a group, since all of them meet at barriers.
    for (int n = 0; n < wide; n += at_once / LANES) {
        const int number = n + item / LANES, pj = min(number, wide - 1);
        const int x = min(pj * STEP, columns - SIDE);
        patch_rows patch;
        sloped(first + y * pitch + x, pitch, &patch GIVEN);
        float8 sums[2] = {0.0f, 0.0f};
        for (int i = 0; i < ROWS; i++) sums[0] += patch.gx[i], sums[1] += patch.gy[i];
        float4 means = together((float4)(total(sums[0]), total(sums[1]), 0.0f, 0.0f) GIVEN);
        means *= 1.0f / (SIDE * SIDE);
        float8 xx = 0.0f, xy = 0.0f, yy = 0.0f;
        for (int i = 0; i < ROWS; i++) {
            patch.gx[i] -= means.x, patch.gy[i] -= means.y;
            xx += patch.gx[i] * patch.gx[i];
            xy += patch.gx[i] * patch.gy[i];
            yy += patch.gy[i] * patch.gy[i];
        }
        float4 matrix = together((float4)(total(xx), total(xy), total(yy), 0.0f) GIVEN);
        matrix.x += STIFF, matrix.z += STIFF;
        matrix *= 1.0f / (matrix.x * matrix.z - matrix.y * matrix.y);
        const float2 from = begun(coarser, coarse, way, y, x, rows, columns);
        float4 one = fit(&patch, second, y + from.y, x + from.x, rows, columns GIVEN);
        float4 none = fit(&patch, second, y, x, rows, columns GIVEN);
        if (number < wide && LANE == 0) {
            __global float4 *to = kept + (row * wide + number) * KEPT;
            to[0] = (float4)(matrix.z, -matrix.y, matrix.x, one.w);
            to[1] = (float4)(one.xyz, means.x);
            to[2] = (float4)(none.xyz, means.y);
        }
    }
}
