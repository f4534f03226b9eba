// activated: what ACTIVATION makes of a number of C, numbered as ACTIVATIONS of facts/problem.py
// are: 0 the number itself, 1 relu, 2 gelu.
#pragma once

__device__ __forceinline__ float activated(float value) {
    if (ACTIVATION == 1) value = value < 0.0f ? 0.0f : value;  // a NaN stays one
    if (ACTIVATION == 2) value = 0.5f * value * (1.0f + erff(value * 0.70710678f));
    return value;
}
