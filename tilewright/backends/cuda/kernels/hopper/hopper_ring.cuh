// Who goes round COUNT places that two barriers each guard: the place, and the phase there.
#pragma once

template <int COUNT> struct Ring {
    int place = 0, phase = 0;
    __device__ __forceinline__ void next() {
        if (++place == COUNT) {
            place = 0;
            phase ^= 1;
        }
    }
};
