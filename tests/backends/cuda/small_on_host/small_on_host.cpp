// grouped_small.cu compiled for the host. A lane is a fiber, which runs until it waits for its warp
// or for its block; blocks run one after another, the last first, so that what one writes beyond its
// tile is not mended by those behind it.
#include <ucontext.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct float4 {
    float x, y, z, w;
};
struct int4 {
    int x, y, z, w;
};
struct longlong2 {
    long long x, y;
};
struct Index {
    int x;
};
static Index threadIdx, blockIdx;
static char *shared_memory;
static unsigned shared_bytes;
static int wrong;  // accesses outside of shared memory, or not aligned

static void __syncwarp();
static void __syncthreads();
template <class T> static T __ldg(const T *from) { return *from; }
static unsigned __cvta_generic_to_shared(const void *at) {
    return (unsigned)((const char *)at - shared_memory);
}
static double __longlong_as_double(long long bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

#include "grouped_small.cu"

alignas(64) char memory[WARPS * (END + EACH) + 64];

namespace {
enum State { RUNS, FOR_WARP, FOR_BLOCK, DONE };
constexpr int LANES = 32 * WARPS;
struct Fiber {
    ucontext_t context;
    State state;
    std::vector<char> stack;
};
Fiber fibers[LANES];
ucontext_t scheduler;
int current;
struct {
    const i64 *problems;
    const int4 *tiles;
    int count, shared;
} given;

void pause(State state) {
    fibers[current].state = state;
    swapcontext(&fibers[current].context, &scheduler);
    threadIdx.x = current;
}

void lane() {
    threadIdx.x = current;
    grouped_small(given.problems, given.tiles, given.count, given.shared);
    pause(DONE);
}

// Whether all of these lanes wait for this, or are done.
bool all(int from, int to, State state) {
    for (int i = from; i < to; i++)
        if (fibers[i].state != state && fibers[i].state != DONE) return false;
    return true;
}

void release(int from, int to, State state) {
    if (all(from, to, state))
        for (int i = from; i < to; i++)
            if (fibers[i].state == state) fibers[i].state = RUNS;
}

void run_block(int block) {
    blockIdx.x = block;
    memset(memory, 0xff, sizeof memory);  // NaN
    for (Fiber &one : fibers) {
        one.stack.resize(1 << 16);
        getcontext(&one.context);
        one.context.uc_stack.ss_sp = one.stack.data();
        one.context.uc_stack.ss_size = one.stack.size();
        one.context.uc_link = nullptr;
        makecontext(&one.context, lane, 0);
        one.state = RUNS;
    }
    while (!all(0, LANES, DONE)) {
        for (current = 0; current < LANES; current++)
            if (fibers[current].state == RUNS) {
                threadIdx.x = current;
                swapcontext(&scheduler, &fibers[current].context);
            }
        for (int warp = 0; warp < LANES; warp += 32) release(warp, warp + 32, FOR_WARP);
        release(0, LANES, FOR_BLOCK);
    }
}
}  // namespace

static void __syncwarp() { pause(FOR_WARP); }
static void __syncthreads() { pause(FOR_BLOCK); }

// How many accesses to shared memory were wrong.
extern "C" int run(const i64 *problems, const int4 *tiles, int count, int shared, int blocks) {
    given = {problems, tiles, count, shared};
    shared_memory = memory, shared_bytes = sizeof memory - 64, wrong = 0;
    for (int block = blocks - 1; block >= 0; block--) run_block(block);
    return wrong;
}
