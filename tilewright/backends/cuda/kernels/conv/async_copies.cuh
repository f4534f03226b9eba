// cp.async of four floats or one: into shared memory while the thread goes on. Zeros where `there` is
// false; `from` is not read then. A test that runs a kernel on the host brings its own.
#ifndef ASYNC_COPIES
#define ASYNC_COPIES
#include "ptx.cuh"

template <int BYTES>
__device__ __forceinline__ void copy(float* to, const float* from, bool there) {
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                     "l"(from), "r"(there ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                     "l"(from), "r"(there ? 4 : 0)
                     : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void await_all_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif
