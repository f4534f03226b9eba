// bits_bytes: 16 columns of C in one 128-bit register, counted byte by byte.
//
//     B laid out: [panel][byte][16]              8-bit sums:  + popcount(a ^ b), at most 8 each,
//       +----------------------+                              31 times: 31 * 8 = 248 <= 255
//       | byte 0 of 16 columns |                 16-bit sums: + 8-bit sums, at most 248 each,
//       | byte 1 of 16 columns |                              264 times: 264 * 248 <= 65535
//         ^ one byte of a row of A meets all     32-bit sums: + 16-bit sums
//
// For units of 128 bits whose popcount is a byte's (NEON's cnt, Midgard): a lane is a column, so
// nothing is added across a register, and sums are widened only once they could overflow. A 32nd sum
// in 8 bits may reach 256, which a byte shows as 0.

#include "bits.clh"

#ifndef BYTES_A_FLUSH
#define BYTES_A_FLUSH 31
#endif
#ifndef FLUSHES_A_FLUSH
#define FLUSHES_A_FLUSH 264
#endif

inline uint16 count_16(__global const uchar *a_row, __global const uchar *b, int octets)
{
    uint16 total = 0;
    for (int start = 0; start < octets; start += BYTES_A_FLUSH * FLUSHES_A_FLUSH) {
        const int stop = min(octets, start + BYTES_A_FLUSH * FLUSHES_A_FLUSH);
        ushort16 sums = 0;
        for (int i = start; i < stop; i += BYTES_A_FLUSH) {
            const int end = min(stop, i + BYTES_A_FLUSH);
            uchar16 small = 0;
            for (int l = i; l < end; l++)
                small += popcount(MEET((uchar16)(a_row[l]), vload16(l, b)));
            sums += convert_ushort16(small);
        }
        total += convert_uint16(sums);
    }
    return total;
}

// Work-item (x, y): panel x, rows [y * block, + block).
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void bits_bytes(int m, int n, int k, int block, __global const ulong *a, long a_offset,
                __global const ulong *panels, EPILOGUE_ARGUMENTS)
{
    const int words = (k + 63) / 64, panel = get_global_id(0), octets = (k + 7) / 8;
    const int first = get_global_id(1) * block, last = min(m, first + block);
    __global const uchar *b = (__global const uchar *)(panels + (long)panel * words * 16);
    out += out_offset;
    for (int row = first; row < last; row++) {
        uint counts[16];
        vstore16(count_16((__global const uchar *)(a + a_offset + (long)row * words), b, octets),
                 0, counts);
        finish_16(counts, k, row, panel * 16, min(16, n - panel * 16), out, out_width,
                  scale + scale_offset, shift + shift_offset, thresholds + thresholds_offset,
                  flips + flips_offset);
    }
}
