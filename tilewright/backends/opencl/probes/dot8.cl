// dot8: products of bytes a second by cl_khr_integer_dot_product, four in a word.
//
//   a work-item     chain 0    c0 <- c0 + dot4(c0, x)   ...      eight steps unrolled, `rounds` times
//                   chain 1    c1 <- c1 + dot4(c1, x)   ...
//
// A step is four multiplications and four additions. The sum is the next factor, so that no step
// can be left out or done once for all.

#include "common.clh"

#include "chains.clh"

#define DECLARE(c) int chain##c = (int)get_local_id(0) + c;
#define STEP(c) chain##c += dot_4x8packed_ss_int((uint)chain##c, x);
#define COLLECT(c) total += chain##c;

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void dot8(__global int *out, uint x, int rounds)
{
    EVERY_CHAIN(DECLARE)
    for (int i = 0; i < rounds; i++) {
        EIGHT_TIMES(EVERY_CHAIN(STEP))
    }
    int total = 0;
    EVERY_CHAIN(COLLECT)
    out[get_global_id(0)] = total;
}
