// read: bytes a second out of global memory, a working set read `rounds` times over.
//
//   memory    | part of group 0 | part of group 1 | ...          `parts` of `count` vectors each
//               ||||||||              items side by side, GROUP vectors a step, four steps unrolled
//
// Where there are more groups than parts, several read the same one. In every round a group moves on
// by `stride` parts: 0 on CPUs, whose cores keep a part each; far on GPUs, whose units would otherwise
// read theirs from the first-level cache, or what their neighbours have just read. Every element enters a sum that is stored, and
// floating-point sums keep their order, so no round can be merged with another.

#include "common.clh"

#include "chains.clh"

// Vectors are read as such: vload promises no alignment, and NVIDIA's compiler then loads elements.
#if VECTOR == 1
typedef float vec;
#else
typedef JOIN(float, VECTOR) vec;
#endif

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void read_sum(__global const vec *in, __global float *out, int parts, int count, int stride,
              int rounds)
{
    vec a = (vec)0, b = (vec)0, c = (vec)0, d = (vec)0;
    for (int r = 0; r < rounds; r++) {
        __global const vec *part = in + (((long)get_group_id(0) + (long)r * stride) % parts) * count;
        for (int i = get_local_id(0); i < count; i += 4 * GROUP) {
            a += part[i];
            b += part[i + GROUP];
            c += part[i + 2 * GROUP];
            d += part[i + 3 * GROUP];
        }
    }
    const vec total = (a + b) + (c + d);
    out[get_global_id(0)] = ADD_UP(total);
}
