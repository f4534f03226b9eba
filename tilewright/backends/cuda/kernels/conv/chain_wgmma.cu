// A chain of 3x3 convolutions as one kernel: rows stream through rings in shared memory, a
// warpgroup a layer, all at work at the same time on different rows.
//
//     x --> source --> ring 0 --> layer 1 --> ring 1 --> layer 2 --> ring 2 --> ... --> out
//                      row t+4    row t+2     row t+2    row t
//
//     layer l, each step:   one row of ring l-1, 64 pixels (x UNITS) x channels, shifted by dx
//                           |
//                           v  x weights, W = 3 x channels: products for three rows at once
//              sums   | row above: done | own row | row below: begun |    then all move up by one
//                           |
//                           v  bias, activation, zeros outside the picture
//                           a row of ring l, stored while the next row's products run
//
// Nothing between the layers leaves the multiprocessor, weights are read once in a block's life, and
// rows are computed twice only where blocks' shares meet. A strip of 64 pixels has 64 - 2 LAYERS
// useful columns.
#include "chain_hopper.cuh"

#include "chain_body.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    chain_wgmma(const __grid_constant__ Chain p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    run(p, shared);
}
