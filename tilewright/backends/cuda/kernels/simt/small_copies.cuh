// small_copies: what grouped_small.cu says in the machine's own words: copies past the registers,
// and shared memory by addresses of 32 bits. tests/backends/cuda/small_on_host has the same in C++.
#pragma once

// One number on its way, or nothing.
__device__ __forceinline__ void copy(u32 to, const float *from, bool is_there) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0;\n"
                 "@p cp.async.ca.shared.global [%0], [%1], 4; }" ::"r"(to),
                 "l"(from), "r"((int)is_there)
                 : "memory");
}

// What was copied since the last call is one step.
__device__ __forceinline__ void asked() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until no more than LEFT steps are on their way, for all lanes of the warp.
template <int LEFT> __device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
    __syncwarp();
}

__device__ __forceinline__ float4 four(u32 from) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(from));
    return v;
}

__device__ __forceinline__ float one(u32 from) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from));
    return v;
}

__device__ __forceinline__ void put(u32 to, const float *s) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(s[0]), "f"(s[1]),
                 "f"(s[2]), "f"(s[3])
                 : "memory");
}

// What is made of it is made anew each time: a register for each multiple would be too many.
__device__ __forceinline__ Stride opaque(Stride step) {
#if NEAR
    asm volatile("" : "+r"(step));
#else
    asm volatile("" : "+l"(step));
#endif
    return step;
}

// Made once, and then held.
__device__ __forceinline__ u32 once(u32 value) {
    asm volatile("" : "+r"(value));
    return value;
}
