// kernels/simt/chains.cuh in C++, without sums of sums.
#pragma once

template <int SUMS> struct Chains {
    float held[SUMS] = {};
    void add_to(float (&sum)[SUMS]) {
        for (int i = 0; i < SUMS; i++) sum[i] += held[i];
    }
    void turn(float (&sum)[SUMS]) {
        add_to(sum);
        for (int i = 0; i < SUMS; i++) held[i] = sum[i], sum[i] = 0.0f;
    }
};
