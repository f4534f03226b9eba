// copy: bytes a second through global memory, read and written.
//
//   in        | part of group 0 | part of group 1 | ...          `count` vectors a group
//               ||||||||              items side by side, GROUP vectors a step
//   out       | part of group 0 | part of group 1 | ...

#include "common.clh"

#include "chains.clh"

#if VECTOR == 1
typedef float vec;
#else
typedef JOIN(float, VECTOR) vec;
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void copy(__global const vec *in, __global vec *out, int count)
{
    const long begin = (long)get_group_id(0) * count;
    for (int i = get_local_id(0); i < count; i += GROUP) out[begin + i] = in[begin + i];
}
