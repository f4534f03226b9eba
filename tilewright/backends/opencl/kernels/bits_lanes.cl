// bits_lanes: 4 rows x 1 column of C a work-item, for GPUs: the lanes are the work-items.
//
//     panels of 16 rows of B: [panel][word][16]     neighbouring work-items read neighbouring words
//       | w w w w ... |  word 0                     of B; the words of A are the same for all of a
//       | w w w w ... |  word 1                     group's column of work-items and come from cache
//         ^ 16 work-items
//
// Three words pass a full adder before popcounts are taken, two popcounts for three words: counting
// has a quarter of the rate of logic on NVIDIA's units.

#include "bits.clh"

#define ROWS 4

__kernel void bits_lanes(int m, int n, int k, int block, __global const ulong *a, long a_offset,
                         __global const ulong *panels, EPILOGUE_ARGUMENTS)
{
    const int column = get_global_id(0), first = get_global_id(1) * ROWS;
    if (column >= n || first >= m) return;
    const int words = (k + 63) / 64;
    __global const ulong *b = panels + (long)(column / 16) * words * 16 + column % 16;
    __global const ulong *rows[ROWS];
    int counts[ROWS];
    for (int r = 0; r < ROWS; r++) {
        rows[r] = a + a_offset + (long)min(m - 1, first + r) * words;
        counts[r] = 0;
    }
    int i = 0;
    for (; i + 3 <= words; i += 3) {
        const ulong y0 = b[16 * i], y1 = b[16 * i + 16], y2 = b[16 * i + 32];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const ulong x0 = MEET(rows[r][i], y0), x1 = MEET(rows[r][i + 1], y1);
            const ulong x2 = MEET(rows[r][i + 2], y2), u = x0 ^ x1;
            counts[r] += (int)popcount(u ^ x2) + 2 * (int)popcount((x0 & x1) | (u & x2));
        }
    }
    for (; i < words; i++)
        for (int r = 0; r < ROWS; r++) counts[r] += (int)popcount(MEET(rows[r][i], b[16 * i]));
    for (int r = 0; r < ROWS && first + r < m; r++)
        finish(VALUE(counts[r], k), first + r, column, out + out_offset, out_width,
               scale + scale_offset, shift + shift_offset);
}
