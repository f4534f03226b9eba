// searched: where patches went, each beginning with the best of what the size below, its neighbours
// to the left and above, and no motion say.
//
//     blocks of BAND x TILE patches, and which launch has them    a block: who looks at which when
//     +-----+-----+-----+-----+                                   row 0   a  b  c  d  e  .
//     |  0  |  1  |  2  |  3  |                                   row 1   .  a' b' c' d' .   a step
//     +-----+-----+-----+-----+                                   row 2   .  .  a" b" c" .   behind
//     |  1  |  2  |  3  |  4  |
//     +-----+-----+-----+-----+   what lies to the left of a block and above it was found by the
//     |  2  |  3  |  4  |  5  |   launch before: no work-group waits for another, since none need
//     +-----+-----+-----+-----+   ever run beside one that waits
//
//     LANES 8   a row of patches is that of eight work-items of a group, which meet at every step
//     LANES 1   a work-item takes a block, row by row
//
// Both ways are looked for by the same launch (dimension 1).

#include "patch.clh"

#ifndef TILE
#define TILE 16
#endif
#define TURNS 8
#define LEAST 0.0025f
#define BETTER 0.9f
#define MARGIN 16.0f
#define NEAR 0.25f

INLINE int apart(float2 one, float2 other)
{
    return fabs(one.x - other.x) + fabs(one.y - other.y) >= NEAR;
}

// Whether any patch of the group still moves: all of them take as many turns.
INLINE int any_of(int own, int row, __local int *going)
{
#if LANES == 1
    return own;
#else
    going[row] = own;
    barrier(CLK_LOCAL_MEM_FENCE);
    int found = 0;
    for (int n = 0; n < BAND; n++) found |= going[n];
    return found;
#endif
}

// A patch's motion; of one that is not there, whatever comes, as its work-items have to be.
INLINE float2 searched_one(int there, __global const float *first, __global const float *second,
                           int rows, int columns, int y, int x, __global const float4 *tries,
                           float2 best, int has_left, float2 left, int has_above, float2 above,
                           int row, __local int *going PLACE)
{
    const int pitch = pitch_of(columns);
    const float4 own = tries[0], one = tries[1], none = tries[2];
    patch_rows patch;
    sloped(first + y * pitch + x, pitch, &patch GIVEN);
    for (int i = 0; i < ROWS; i++) {  // with the light of the place that it is likely to go to
        patch.p[i] += own.w;
        patch.gx[i] -= one.w;
        patch.gy[i] -= none.w;
    }
    float3 now = one.xyz;
    if (LANES > 1 || (has_left && apart(left, best))) {
        const float4 found = fit(&patch, second, y + left.y, x + left.x, rows, columns GIVEN);
        if (has_left && apart(left, best) && found.x < now.x * BETTER - MARGIN)
            best = left, now = found.xyz;
    }
    if (LANES > 1 || (has_above && apart(above, best))) {
        const float4 found = fit(&patch, second, y + above.y, x + above.x, rows, columns GIVEN);
        if (has_above && apart(above, best) && found.x < now.x * BETTER - MARGIN)
            best = above, now = found.xyz;
    }
    if (apart((float2)(0.0f, 0.0f), best) && none.x < now.x * BETTER - MARGIN)
        best = (float2)(0.0f, 0.0f), now = none.xyz;
    int moves = there;
    for (int turn = 0; turn < TURNS && any_of(moves, row, going); turn++) {
        const float2 step = (float2)(own.x * now.y + own.y * now.z, own.y * now.y + own.z * now.z);
        const float2 next = best - step;
        const float4 then = fit(&patch, second, y + next.y, x + next.x, rows, columns GIVEN);
        moves = moves && then.x < now.x;
        if (moves) {
            best = next, now = then.xyz;
            moves = step.x * step.x + step.y * step.y >= LEAST;
        }
    }
    return best;
}

__kernel GROUP void searched(int diagonal, int first_band, int rows, int columns, int coarser,
                             int high, int wide, __global const float *image,
                             __global const float *coarse, __global const float4 *kept,
                             __global float2 *found)
{
    LOCAL_PARTS
    const int band = first_band + (int)get_group_id(0), way = get_group_id(1);
    const int begin = (diagonal - band) * TILE;
    __global const float *first = image + inside(way, rows, columns);
    __global const float *second = image + inside(1 - way, rows, columns);
    kept += way * high * wide * KEPT;
    found += way * high * wide;
#if LANES > 1
    __local int going[BAND];
    const int own = get_local_id(0), lane = own % LANES, row = own / LANES;
    __local float4 *parts = shared + row * LANES;
    for (int step = 0; step < TILE + BAND - 1; step++) {
        const int column = step - row;
#else
    __local int *going = 0;
    for (int row = 0; row < BAND; row++)
        for (int column = 0; column < TILE; column++) {
#endif
        const int there = column >= 0 && column < TILE && begin + column < wide &&
                          band * BAND + row < high;
        const int pi = min(band * BAND + row, high - 1), pj = clamp(begin + column, 0, wide - 1);
        const int y = min(pi * STEP, rows - SIDE), x = min(pj * STEP, columns - SIDE);
        const int at = pi * wide + pj;
        if (LANES > 1 || there) {
            const float2 from = begun(coarser, coarse, way, y, x, rows, columns);
            const float2 left = there && pj ? found[at - 1] : from;
            const float2 above = there && pi ? found[at - wide] : from;
            const float2 best = searched_one(there, first, second, rows, columns, y, x,
                                             kept + at * KEPT, from, pj, left, pi, above, row,
                                             going GIVEN);
            if (there && LANE == 0) found[at] = best;
        }
#if LANES > 1
        barrier(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
#endif
    }
}
