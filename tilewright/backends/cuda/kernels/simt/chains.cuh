// chains: how fp32 sums of a long k are kept exact, in kernels whose threads have SUMS of them each.
//
//    | CHAIN of k | CHAIN | ...             a sum in registers each
//    |-- CHAINS of them, summed --| ...     in memory of the thread's own, as are the sums of those
//
// One chain of all k would round each addend away from an ever larger sum. Of 2,000 equal products
// chains of 256 are 2.9e-6 off, of 128 0.6e-6; of 1,000,000, with no sums between those chains and
// the whole, 3.4e-5.
#pragma once

constexpr int CHAINS = 64;

// Sums in memory of the thread's own: registers are all taken by the chain that is under way.
template <int SUMS> struct Totals {
    __align__(16) float held[SUMS];
    __device__ __forceinline__ u64 at(int i) { return __cvta_generic_to_local(held + 4 * i); }
    __device__ __forceinline__ void add_to(float (&sum)[SUMS]) {
#pragma unroll
        for (int i = 0; i < SUMS / 4; i++) {
            float x, y, z, w, *s = sum + 4 * i;
            asm volatile("ld.local.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                         : "l"(at(i)));
            s[0] += x, s[1] += y, s[2] += z, s[3] += w;
        }
    }
    __device__ __forceinline__ float one(int i) {
        float x;
        asm volatile("ld.local.f32 %0, [%1];" : "=f"(x) : "l"(__cvta_generic_to_local(held + i)));
        return x;
    }
    __device__ __forceinline__ void take(float (&sum)[SUMS]) {
#pragma unroll
        for (int i = 0; i < SUMS / 4; i++) {
            float *s = sum + 4 * i;
            asm volatile("st.local.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at(i)), "f"(s[0]),
                         "f"(s[1]), "f"(s[2]), "f"(s[3])
                         : "memory");
            s[0] = s[1] = s[2] = s[3] = 0.0f;
        }
    }
};

// The chains before the one under way.
template <int SUMS> struct Chains {
    Totals<SUMS> few, all;
    int count = 0;  // of chains; `few` has those past the last whole CHAINS
    // `sum` is put aside and begins anew.
    __device__ __forceinline__ void turn(float (&sum)[SUMS]) {
        if (count % CHAINS) few.add_to(sum);
        if (++count % CHAINS) {
            few.take(sum);
            return;
        }
        if (count > CHAINS) all.add_to(sum);
        all.take(sum);
    }
    __device__ __forceinline__ void add_to(float (&sum)[SUMS]) {
        if (count % CHAINS) few.add_to(sum);
        if (count >= CHAINS) all.add_to(sum);
    }
};
