// A chain of 3x3 convolutions as one kernel, as chain_wgmma.cu draws it, by mma.sync: for GPUs that
// have tensor cores and not Hopper's instructions.
//
//     sums of a warp: 16 pixels x three rows x OUT      left: ring l-1, 16 pixels a warp
//                     16 x 8 an instruction             right: weights, from shared memory
#include "chain_ampere.cuh"

#include "chain_body.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    chain_mma(const __grid_constant__ Chain p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    run(p, shared);
}
