// sum_parts: the second phase of products cut along k: adds their parts and finishes C.
//
//    scratch  part 0 [ m x n ]   part 1 [ m x n ]   part 2 [ m x n ]    row-major, gapless sums
//                    |                  |                  |
//                    +--------- + ------+--------- + ------+            always in this order: the
//                               |                                       bits of C never change
//               C [ m x n ]  = epilogue(alpha * total + beta * C + bias)
//
// A work-group finishes one piece: CHUNK elements of one C, as many work-items as the host likes.
// The table of sums, the list of pieces and an example stand in grouped.clh. Devices of all kinds.
//
// Parts are chains: there may be thousands, and what an addition rounds away is kept. Added plainly,
// 3,677 parts of 0.1 * 0.01 over k = 500,000 are off by 4.4e-5, so by 7.4e-7.

#ifndef CHAIN
#define CHAIN 64
#endif
#include "common.clh"
#include "grouped.clh"

#ifndef CHUNK
#define CHUNK 1024
#endif

__kernel void sum_parts(__global const long *problems, __global const sum *scalars,
                        __global const long *splits, __global const int *pieces, int first_piece,
                        __global const sum *scratch, __global real *c_base,
                        __global const real *bias_base)
{
    const Tile piece = read_tile(pieces, first_piece + get_group_id(0));
    const Split split = read_split(splits, piece.problem);
    const Problem p = read_problem(problems, scalars, split.problem);
    __global const sum *from = SCRATCH_OF(split);
    __global const real *bias = BIAS_OF(p);
    __global real *c = C_OF(p);
    const long elements = (long)p.m * p.n, first = (long)piece.row * CHUNK;
    const long end = min(first + CHUNK, elements);

    for (long e = first + get_local_id(0); e < end; e += get_local_size(0)) {
        sum total = from[e], lost = 0;
        for (int part = 1; part < split.parts; part++)
            JOIN_CHAIN(sum, total, lost, from[part * elements + e])
        const long i = e / p.n, j = e - i * p.n;
        finish(WHOLE(total, lost), c + i * p.c_row + j * p.c_col, p.alpha, p.beta, bias, j, p.epilogue);
    }
}
