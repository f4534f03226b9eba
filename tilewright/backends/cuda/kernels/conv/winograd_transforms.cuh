// Winograd's transforms of a row or a column: SIDE values of a picture into SIDE, SIDE products into
// TILE results. Lavin and Gray, CVPR 2016 (arXiv 1509.09308); weights are transformed on the host
// (engines/winograd.py).
#pragma once
#include "winograd_layout.cuh"

#if TILE == 4
// The points 0, +-5/8, +-3/2 and infinity, half the error of +-1 and +-2: every power is exact.
constexpr float NEAR = 0.625f, FAR = 1.5f;

__device__ __forceinline__ void transform_in(const float (&d)[6], float (&t)[6]) {
    float a = fmaf(d[2], -FAR * FAR, d[4]), b = fmaf(d[1], -FAR * FAR, d[3]);
    float c = fmaf(d[2], -NEAR * NEAR, d[4]), e = fmaf(d[1], -NEAR * NEAR, d[3]);
    constexpr float ends = NEAR * NEAR * FAR * FAR, middle = -NEAR * NEAR - FAR * FAR;
    t[0] = fmaf(d[0], ends, fmaf(d[2], middle, d[4]));
    t[1] = fmaf(b, NEAR, a);
    t[2] = fmaf(b, -NEAR, a);
    t[3] = fmaf(e, FAR, c);
    t[4] = fmaf(e, -FAR, c);
    t[5] = fmaf(d[1], ends, fmaf(d[3], middle, d[5]));
}

__device__ __forceinline__ void transform_back(const float (&m)[6], float (&y)[4]) {
    float s = m[1] + m[2], d = m[1] - m[2], t = m[3] + m[4], e = m[3] - m[4];
    y[0] = m[0] + s + t;
    y[1] = fmaf(e, FAR, d * NEAR);
    y[2] = fmaf(t, FAR * FAR, s * (NEAR * NEAR));
    y[3] = fmaf(d, NEAR * NEAR * NEAR, fmaf(e, FAR * FAR * FAR, m[5]));
}
#else
__device__ __forceinline__ void transform_in(const float (&d)[4], float (&t)[4]) {
    t[0] = d[0] - d[2];
    t[1] = d[1] + d[2];
    t[2] = d[2] - d[1];
    t[3] = d[1] - d[3];
}

__device__ __forceinline__ void transform_back(const float (&m)[4], float (&y)[2]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
}
#endif
