// bits_threshold: integers to bits where a kernel cannot pack them itself.
//
//     values [m][n] int      ->      words [m][ceil(n / 64)]        64 columns a work-item
//
// 1 where (value >= threshold) differs from flip; zeros past column n.

__kernel void bits_threshold(int m, int n, __global const int *values, __global ulong *out,
                             long out_offset, __global const int *thresholds,
                             long thresholds_offset, __global const uchar *flips,
                             long flips_offset)
{
    const int word = get_global_id(0), row = get_global_id(1), words = (n + 63) / 64;
    if (word >= words || row >= m) return;
    values += (long)row * n + word * 64;
    thresholds += thresholds_offset + word * 64;
    flips += flips_offset + word * 64;
    ulong bits = 0;
    for (int lane = 0; lane < min(64, n - word * 64); lane++)
        bits |= (ulong)((values[lane] >= thresholds[lane]) ^ flips[lane]) << lane;
    out[out_offset + (long)row * words + word] = bits;
}
