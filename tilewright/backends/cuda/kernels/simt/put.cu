// Words that travel with the launch itself: no memory of the host is read later, so a graph that
// records the launch holds them, and nobody else need.
//
//     launch parameters  [ to | count | word 0 .. WORDS - 1 ]  ->  to[0 .. count - 1]

#ifndef WORDS
#define WORDS 508
#endif

struct Words {
    long long at[WORDS];
};

extern "C" __global__ void put(long long *to, int count, const __grid_constant__ Words words) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = words.at[i];
}
