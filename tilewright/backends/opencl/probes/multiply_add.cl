// multiply_add: how many multiplications and additions a second the registers give.
//
//   a work-item     chain 0    c0 <- c0*x + y   c0*x + y   ...   eight steps unrolled, `rounds` times
//                   chain 1    c1 <- c1*x + y   c1*x + y   ...
//                   ...        each a vector of VECTOR elements that waits for nothing but itself
//
// x and y come with the call and every chain starts elsewhere, so there is nothing to fold; all
// chains are stored. With x = y = 1/2 they run to 1: no denormals, no infinities, in any precision.

#include "common.clh"

#include "chains.clh"

#if VECTOR == 1
typedef SUM vec;
#else
typedef JOIN(SUM, VECTOR) vec;
#endif

#define DECLARE(c) vec chain##c = (vec)(start + (sum)c);
#define STEP(c) chain##c = MADD(chain##c, xs, ys);
#define COLLECT(c) total += chain##c;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void multiply_add(__global float *out, sum x, sum y, int rounds)
{
    const sum start = (sum)(get_local_id(0) & 7);
    const vec xs = (vec)x, ys = (vec)y;
    EVERY_CHAIN(DECLARE)
    for (int i = 0; i < rounds; i++) {
        EIGHT_TIMES(EVERY_CHAIN(STEP))
    }
    vec total = (vec)0;
    EVERY_CHAIN(COLLECT)
    out[get_global_id(0)] = (float)ADD_UP(total);
}
