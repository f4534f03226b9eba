// popcount: one-bit products a second: exclusive or, count of ones, sum.
//
//   a work-item     chain 0    c0 <- c0 + ones(c0 ^ x)   ...     eight steps unrolled, `rounds` times
//                   chain 1    c1 <- c1 + ones(c1 ^ x)   ...
//
// A step multiplies and adds 32 bits an element. The sum feeds the next exclusive or, so that no
// step can be left out or done once for all.

#include "common.clh"

#include "chains.clh"

#if VECTOR == 1
typedef uint vec;
#else
typedef JOIN(uint, VECTOR) vec;
#endif

#define DECLARE(c) vec chain##c = (vec)(start + c##u);
#define STEP(c) chain##c += popcount(chain##c ^ xs);
#define COLLECT(c) total += chain##c;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void popcount_sum(__global uint *out, uint x, int rounds)
{
    const uint start = get_local_id(0);
    const vec xs = (vec)x;
    EVERY_CHAIN(DECLARE)
    for (int i = 0; i < rounds; i++) {
        EIGHT_TIMES(EVERY_CHAIN(STEP))
    }
    vec total = (vec)0;
    EVERY_CHAIN(COLLECT)
    out[get_global_id(0)] = ADD_UP(total);
}
