// Winograd's kernel compiled for the host: a thread for each of a block's, two blocks one by one.
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes)

struct float4 {
    float x, y, z, w;
};
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct Index {
    unsigned x;
};
static thread_local Index threadIdx, blockIdx, gridDim;
static std::barrier<>* gate;
static void __syncthreads() { gate->arrive_and_wait(); }

#define ASYNC_COPIES  // at once
template <int BYTES> static void copy(float* to, const float* from, bool there) {
    if ((size_t)to % BYTES || (size_t)from % BYTES) std::terminate();
    there ? std::memcpy(to, from, BYTES) : std::memset(to, 0, BYTES);
}
static void commit() {}
template <int LEFT> static void await_all_but() {}

#include "winograd.cu"

alignas(128) float shared[FLOATS];

extern "C" int shared_bytes() { return sizeof shared; }

extern "C" void run(const Winograd* p) {
    std::barrier<> all(THREADS);
    gate = &all;
    for (float& one : shared) one = NAN;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < THREADS; ++thread)
        threads.emplace_back([=] {
            threadIdx.x = thread, gridDim.x = 2;
            for (blockIdx.x = 0; blockIdx.x < 2; ++blockIdx.x) {
                winograd(*p);
                __syncthreads();
            }
        });
    for (std::thread& one : threads) one.join();
}
