// tiles: what the two kinds of fp32 tiles share, single.cuh and thirds.cuh: how operands come into
// shared memory. Who includes this says before how many THREADS make a tile of SIDE by SIDE, and how
// many steps of k, DEPTH, come at a time.
//
//    operand, k across its rows             shared memory (`Across`): as it lies, k a row of SIDE
//    k  | 0 1 2 .. SIDE - 1 |        ->     numbers and PAD that nobody reads; 16 bytes at a time
//    k+1| ...               |               where EACH is 4
//
// Copies go past the registers (cp.async), STAGES - 1 steps ahead. k that does not exist becomes
// zero; rows and columns that do not, where the includer wants them CLEAN, else nobody copies them:
// they make no sum that is stored.
#pragma once
#include "chains.cuh"

constexpr int SUMS = SIDE * SIDE / THREADS;

template <int BYTES>
__device__ __forceinline__ void copy(u32 to, const float *from, bool inside) {
    const int size = inside ? BYTES : 0;  // the rest is zeros
    if (BYTES == 4)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(size)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size)
                     : "memory");
}

// The same of 4 bytes where `there`, else nothing; what follows in memory is brought into L2, for
// k along rows: 500 products of 64 x 64 by 1,000 to 20,000 took 1.19 ms without that, 1.09 so (H200).
__device__ __forceinline__ void copy_if(u32 to, const float *from, bool inside, bool there) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %3, 0;"
                 " @p cp.async.ca.shared.global.L2::256B [%0], [%1], 4, %2;}" ::"r"(to), "l"(from),
                 "r"(inside ? 4 : 0), "r"((int)there)
                 : "memory");
}

// What one thread copies of an operand: its first element, and every so many rows from there on.
struct Source {
    const float *matrix, *first;
    i64 step;  // from a row to the next
    int left;  // rows (k along them) or columns (k across them) from there to the matrix's end
    bool wide = false;  // 16 bytes at a time (`Either`)
};

template <int EACH> struct Across {
    static constexpr int BESIDE = SIDE / EACH, APART = THREADS / BESIDE, STEP = SIDE + PAD;
    static constexpr int WORDS = DEPTH * STEP;
    static constexpr bool K_FIRST = false;  // k is not what follows one another
    static __device__ __forceinline__ Source of(const float *at, i64 step, int left) {
        const int row = threadIdx.x / BESIDE, column = threadIdx.x % BESIDE * EACH;
        return {at, at + row * step + column, step, left - column};
    }
    // DEPTH of k from `k` on; `depth` of them exist. INSIDE: all of the block does.
    template <bool INSIDE>
    static __device__ __forceinline__ void load(const Source &s, i64 k, int depth, u32 to) {
        const int row = threadIdx.x / BESIDE;
        if (!INSIDE && !CLEAN && s.left <= 0) return;
        const float *from = s.first + k * s.step;
        to += (row * STEP + threadIdx.x % BESIDE * EACH) * 4;
#pragma unroll
        for (int i = 0; i < DEPTH / APART; i++) {
            const bool inside = INSIDE || (row + i * APART < depth && s.left > 0);
            copy<4 * EACH>(to + i * APART * STEP * 4, inside || !CLEAN ? from : s.matrix, inside);
            from += APART * s.step;
        }
    }
    // The numbers of k and k + 1 of one row or column of the tile.
    static __device__ __forceinline__ float2 pair(const float *block, int place, int k) {
        return {block[k * STEP + place], block[(k + 1) * STEP + place]};
    }
};

// Numbers of shared memory that a block needs: for blocks of operands, then for its sums.
template <class A, class B> struct Words {
    static constexpr int blocks = STAGES * (A::WORDS + B::WORDS), sums = SIDE * C_STEP;
    static constexpr int value = blocks > sums ? blocks : sums;
};

// Both operands of a tile on their way: steps of k, one after another into STAGES places.
template <class A, class B> struct Feed {
    const Source &a, &b;
    int k, steps;
    bool inside;  // all rows and columns of the tile exist
    u32 shared;
    int step = 0, place = 0;

    __device__ __forceinline__ Feed(const Source &a, const Source &b, int k, bool inside,
                                    const float *memory)
        : a(a), b(b), k(k), steps(k / DEPTH + (k % DEPTH > 0)), inside(inside),
          shared((u32)__cvta_generic_to_shared(memory)) {
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++) fetch();
    }
    __device__ __forceinline__ void fetch() {
        const i64 at = (i64)step * DEPTH;
        const u32 to = shared + place * (A::WORDS + B::WORDS) * 4;
        if (inside && at + DEPTH <= k) {
            A::template load<true>(a, at, DEPTH, to);
            B::template load<true>(b, at, DEPTH, to + A::WORDS * 4);
        } else if (step < steps) {
            A::template load<false>(a, at, k - (int)at, to);
            B::template load<false>(b, at, k - (int)at, to + A::WORDS * 4);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        step++, place = place + 1 == STAGES ? 0 : place + 1;
    }
    // Whether the next step is before this one, and there is one.
    __device__ __forceinline__ bool within(int end) const {
        return step - (STAGES - 1) < (end < steps ? end : steps);
    }
    // Where the next step's blocks are, when they have come and all threads are done with others.
    __device__ __forceinline__ int next() {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        fetch();
        return place * (A::WORDS + B::WORDS);
    }
    __device__ __forceinline__ void end() {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
    }
};
