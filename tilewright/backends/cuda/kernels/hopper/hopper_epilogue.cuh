// How a sum becomes a number of C: activation(alpha sum + beta C + bias), before it is stored.
//
//   d[i] of a warpgroup's W columns    i = 4 b + 2 h + e:  row 16 warp + lane / 4 + 8 h,
//                                                          column 8 b + 2 (lane % 4) + e
//
// GENERAL (else the sum is C's number), ACTIVATION and TRANSPOSED come from outside.
#pragma once

// Per problem: alpha, beta, strides of the bias along C's rows and columns, where bias and C lie.
template <class T> struct ScalarsOf {
    float alpha, beta;
    int bias_row, bias_column;
    const T* bias;
    const T* c;
};

__device__ __forceinline__ float widened(float value) { return value; }

__device__ __forceinline__ float widened(u16 bits) {
#if BF16
    return __uint_as_float((u32)bits << 16);
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#endif
}

__device__ __forceinline__ float activated(float x) {
#if ACTIVATION == 1
    return x < 0.0f ? 0.0f : x;
#elif ACTIVATION == 2
    return 0.5f * x * erfcf(x * -0.70710678118654752f);
#else
    return x;
#endif
}

// Where C's groups of rows have a bias each, along the rows of a turned tile: two numbers a thread.
struct RowBias {
    float of[2];
};

__device__ __forceinline__ RowBias row_bias(const Ragged& r, int4 place, Shape s, int strip) {
    RowBias found = {0.0f, 0.0f};
#if GENERAL && RAGGED
    const u16* bias = r.bias + (long long)place.z * r.bias_group + (long long)place.x * r.bias_step;
    u32 thread;  // anew for each tile: rows known beforehand would stay in registers
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        int row = 64 * strip + 16 * ((thread >> 5) & 3) + ((thread & 31) >> 2) + 8 * h;
        if (row < s.rows) found.of[h] = widened(__ldg(bias + (long long)row * r.bias_step));
    }
#endif
    return found;
}

template <int W> __device__ __forceinline__ void finish(float (&d)[W / 2], const RowBias& bias) {
#pragma unroll
    for (int i = 0; i < W / 2; ++i) d[i] = activated(d[i] + bias.of[(i >> 1) & 1]);
}

template <int W, class T>
__device__ __forceinline__ void finish(float (&d)[W / 2], const ScalarsOf<T>* scalars, int4 place,
                                       Shape s, int group) {
#if GENERAL
    ScalarsOf<T> p = scalars[place.z];
    int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
#pragma unroll
    for (int i = 0; i < W / 2; ++i) {
        int row = 64 * group + 16 * warp + (lane >> 2) + ((i & 2) << 2);
        int column = (i >> 2) * 8 + 2 * (lane & 3) + (i & 1);
        bool inside = row < s.rows && column < s.columns;
        long long r = place.x + row, q = place.y + column;
        if (TRANSPOSED) {
            long long swap = r;
            r = q;
            q = swap;
        }
        float value = p.alpha == 0.0f ? 0.0f : p.alpha * d[i];
        if (inside && p.beta != 0.0f) value += p.beta * widened(p.c[r * place.w + q]);
        if (inside && p.bias) value += widened(p.bias[r * p.bias_row + q * p.bias_column]);
        d[i] = activated(value);
    }
#endif
}
