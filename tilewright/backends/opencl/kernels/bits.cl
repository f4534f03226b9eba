// bits: 16 columns of C side by side in wide vectors, counted through a tree of carry-save adders.
//
//     B laid out: panels of 16 rows of B         x = a xor b, 8 columns a vector
//     [panel][word][16]                          x0 x1 \ ones               Harley and Seal:
//       +----------+----------+                  x2 x3 / twos \             TREE words pass full
//       | 8 words  | 8 words  |  word 0          x4 x5 \ twos / fours  ->   adders before one
//       +----------+----------+                  ...                        popcount is taken
//         ^ one word of a row of A meets all
//
// A lane is a column, so nothing is added across a vector. Where the compiler has a native popcount
// TREE 1 is enough; Intel's OpenCL compiler has none for vectors, and counts 16 words at a time:
// adders are two ternary instructions each on AVX-512. Harley and Seal's counter is described in
// Warren, Hacker's Delight, section 5-1; with vectors in Muła, Kurz and Lemire, "Faster Population
// Counts Using AVX2 Instructions" (Computer Journal 61, 2018).

#include "bits.clh"

#ifndef TREE
#define TREE 16
#endif
typedef ulong8 vec;

// high and low of a + b + c; low may be a.
#define ADD3(high, low, a, b, c)                                                              \
    {                                                                                         \
        const vec u = (a) ^ (b), w = (c);                                                     \
        high = ((a) & (b)) | (u & w);                                                         \
        low = u ^ w;                                                                          \
    }
#define WORD(i) MEET((vec)(a_row[i]), vload8(2 * (i), b_half))
#define FOUR(fours_out, i)                                                                    \
    {                                                                                         \
        vec two0, two1;                                                                       \
        ADD3(two0, ones, ones, WORD(i), WORD((i) + 1))                                        \
        ADD3(two1, ones, ones, WORD((i) + 2), WORD((i) + 3))                                  \
        ADD3(fours_out, twos, twos, two0, two1)                                               \
    }
#define EIGHT(eights_out, i)                                                                  \
    {                                                                                         \
        vec four0, four1;                                                                     \
        FOUR(four0, i)                                                                        \
        FOUR(four1, (i) + 4)                                                                  \
        ADD3(eights_out, fours, fours, four0, four1)                                          \
    }

// popcounts of `words` words of 8 columns met with a row of A
inline vec count_8(__global const ulong *a_row, __global const ulong *b_half, int words)
{
    vec total = 0;
    int i = 0;
#if TREE > 1
    vec ones = 0, twos = 0, fours = 0, eights = 0;
#if TREE == 16
    for (; i + 16 <= words; i += 16) {
        vec eight0, eight1, sixteen;
        EIGHT(eight0, i)
        EIGHT(eight1, i + 8)
        ADD3(sixteen, eights, eights, eight0, eight1)
        total += popcount(sixteen) << 4;
    }
#endif
    for (; i + 4 <= words; i += 4) {
        vec four;
        FOUR(four, i)
        total += popcount(four) << 2;
    }
    total += (popcount(eights) << 3) + (popcount(fours) << 2);
    total += (popcount(twos) << 1) + popcount(ones);
#endif
    for (; i < words; i++) total += popcount(WORD(i));
    return total;
}

// Work-item (x, y): panel x, rows [y * block, + block).
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void bits(int m, int n, int k, int block, __global const ulong *a, long a_offset,
          __global const ulong *panels, EPILOGUE_ARGUMENTS)
{
    const int words = (k + 63) / 64, panel = get_global_id(0);
    const int first = get_global_id(1) * block, last = min(m, first + block);
    __global const ulong *b = panels + (long)panel * words * 16;
    out += out_offset;
    for (int row = first; row < last; row++) {
        __global const ulong *a_row = a + a_offset + (long)row * words;
        uint counts[16];
        vstore8(convert_uint8(count_8(a_row, b, words)), 0, counts);
        vstore8(convert_uint8(count_8(a_row, b + 8, words)), 1, counts);
        finish_16(counts, k, row, panel * 16, min(16, n - panel * 16), out, out_width,
                  scale + scale_offset, shift + shift_offset, thresholds + thresholds_offset,
                  flips + flips_offset);
    }
}
