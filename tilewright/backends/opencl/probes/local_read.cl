// local_read: bytes a second out of local memory, all work-groups together.
//
//   local memory   | LOCAL_VECTORS vectors of four floats |
//                    ||||||||  ->  ||||||||  ->  ...        items side by side, around and around
//
// The place read depends on the round, so that no read can be done once for all.

#include "common.clh"

#include "chains.clh"

#ifndef LOCAL_VECTORS
#define LOCAL_VECTORS 512
#endif

#define READ(step) total += shared[(place + (step) * GROUP) & (LOCAL_VECTORS - 1)];

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void local_read(__global float *out, int rounds)
{
    __local float4 shared[LOCAL_VECTORS];
    for (int i = get_local_id(0); i < LOCAL_VECTORS; i += GROUP) shared[i] = (float4)i;
    barrier(CLK_LOCAL_MEM_FENCE);
    float4 total = (float4)0;
    int place = get_local_id(0);
    for (int r = 0; r < rounds; r++) {
        READ(0) READ(1) READ(2) READ(3) READ(4) READ(5) READ(6) READ(7)
        place += 8 * GROUP + 1;
    }
    out[get_global_id(0)] = total.x + total.y + total.z + total.w;
}
