// bits_lay_out: rows of B to panels of 16 rows side by side, an element at a time.
//
//     rows [n][words]                     panels [ceil(n / 16)][element][16]
//     r0: e0 e1 e2 ..                     r0e0 r1e0 .. r15e0
//     r1: e0 e1 e2 ..         ->          r0e1 r1e1 .. r15e1      ELEMENT is ulong or uchar; rows
//     ..                                  ..                      past the last are zeros

#ifndef ELEMENT
#define ELEMENT ulong
#endif

// Work-item (x, y): element x of panel y.
__kernel void bits_lay_out(int n, int elements, __global const ELEMENT *rows, long offset,
                           __global ELEMENT *panels)
{
    const int element = get_global_id(0), panel = get_global_id(1);
    if (element >= elements) return;
    // The offset counts words of 64 bits.
    rows += offset * (8 / (int)sizeof(ELEMENT)) + (long)panel * 16 * elements + element;
    panels += ((long)panel * elements + element) * 16;
    for (int row = 0; row < 16; row++)
        panels[row] = panel * 16 + row < n ? rows[(long)row * elements] : (ELEMENT)0;
}
