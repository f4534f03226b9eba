// The middle of a tile's way, by one warpgroup: sums of k out of shared memory, and numbers of C
// into pieces of it.
//
//   stage 0   stage 1   stage 2 ...           d, in registers          piece 0   piece 1 ...
//   [ l | r ] [ l | r ] [ l | r ]    ---->    64 x W, fp32    ---->    64 x 64   64 x 64, halves
//   full: waited for    empty: handed back when the next step is on its way
#pragma once

__device__ __forceinline__ u32 packed(float low, float high) {
    u32 both;
    asm("cvt.rn." ELEMENT "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// The tile before is written while one of so many columns at least is multiplied: code for each.
constexpr int KEPT_WIDTH = STRIPS > 1 ? 112 : 192;

// Halves of a tile that are still to be written, where the kernel KEEPS them.
struct Kept {
    u32 halves[KEEPS ? WIDTH / 4 : 1];
    int next = 0, pieces = 0, width = 0;
};

// Sixteen columns of 64 rows, from the j-th eight on: two registers of halves for each eight.
__device__ __forceinline__ void write_group(u32 piece, int j, u32 a, u32 b, u32 c, u32 e) {
    int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    int half = (lane >> 3) & 1, next = lane >> 4;
    int row = TRANSPOSED ? 8 * next + (lane & 7) : 16 * warp + 8 * half + (lane & 7);
    int chunk = TRANSPOSED ? 2 * warp + half : (j + next) & 7;
    u32 at = piece + 128 * row + ((chunk ^ (row & 7)) << 4);
#if TRANSPOSED
    at += 128 * (8 * j & 63);  // an offset in the instruction: one register for all of them
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(a), "r"(b), "r"(c), "r"(e)
                 : "memory");
#else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(a), "r"(b), "r"(c), "r"(e)
                 : "memory");
#endif
}

// The next of the kept pieces.
__device__ __forceinline__ void write_kept(const Block& block, Kept& kept, Ring<SLOTS>& ring,
                                           int group) {
    u32 piece = block.piece(group, ring.place);
    barrier_wait(block.taken(group, ring.place), ring.phase ^ 1);
#pragma unroll
    for (int p = 0; p < (KEEPS ? (WIDTH + 63) / 64 : 0); ++p)
        if (p == kept.next) {
#pragma unroll
            for (int j = 8 * p; j < 8 * p + 8 && j < WIDTH / 8; j += 2)
                if (8 * j < kept.width)
                    write_group(piece, j, kept.halves[2 * j], kept.halves[2 * j + 1],
                                kept.halves[2 * j + 2], kept.halves[2 * j + 3]);
        }
    ++kept.next;
    fence_async();
    __syncwarp();
    if ((threadIdx.x & 31) == 0) barrier_arrive(block.ready(group, ring.place));
    ring.next();
}

__device__ __forceinline__ void write_all_kept(const Block& block, Kept& kept, Ring<SLOTS>& ring,
                                               int group) {
    if (!KEEPS) return;
#pragma unroll 1
    while (kept.next < kept.pieces) write_kept(block, kept, ring, group);
}

template <int W> __device__ __forceinline__ void keep(Kept& kept, const float (&d)[W / 2]) {
#pragma unroll
    for (int i = 0; i < W / 4; ++i) kept.halves[i] = packed(d[2 * i], d[2 * i + 1]);
    kept.next = 0, kept.pieces = (W + 63) / 64, kept.width = W;
}

// Pieces of a tile, from group FROM of eight columns on, before group TO.
template <int W, int FROM = 0, int TO = W / 8>
__device__ __forceinline__ void write_pieces(const Block& block, float (&d)[W / 2],
                                             Ring<SLOTS>& ring, int group, bool signal) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int j = FROM; j < TO; j += 2) {
        u32 piece = block.piece(group, ring.place);
        if (j % 8 == 0) barrier_wait(block.taken(group, ring.place), ring.phase ^ 1);
        u32 a = packed(d[4 * j], d[4 * j + 1]), b = packed(d[4 * j + 2], d[4 * j + 3]);
        u32 c = packed(d[4 * j + 4], d[4 * j + 5]), e = packed(d[4 * j + 6], d[4 * j + 7]);
        write_group(piece, j, a, b, c, e);
        if (j % 8 == 6 || j + 2 == W / 8) {
            if (signal) {
                fence_async();
                __syncwarp();
                if (lane == 0) barrier_arrive(block.ready(group, ring.place));
            }
            ring.next();
        }
    }
}

// Rows of k past `rows` are another group's, and 0 x NaN is NaN: zeros, up to a slice's end, in what
// this warpgroup reads. The other one may write the same zeros.
template <int W>
__device__ __forceinline__ void clear_past(u32 stage, int rows, int group) {
    int row = rows + ((threadIdx.x & 127) >> 3), chunk = threadIdx.x & 7;
    if (row < ((rows + 15) & ~15)) {
        u32 at = stage + 128 * row + 16 * chunk;
        write_zeros(at + group * BOX);
#pragma unroll
        for (int h = 0; h < (W + 63) / 64; ++h) write_zeros(at + LEFT_BYTES + h * BOX);
    }
    fence_async();
    asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
}

// The second warpgroup may begin, if it has not.
__device__ __forceinline__ void pass_the_turn(bool& lead) {
    if (lead) asm volatile("bar.arrive 1, 256;" ::: "memory");
    lead = false;
}

// d = left x right of a whole tile. `lead`: the other warpgroup waits for this one's SKEW steps.
// Several strips: `first_done` is called when the first one's sums are, while others are added up.
template <int W, class Done>
__device__ __forceinline__ void sum_tile(const Block& block, Shape s, int group,
                                         Ring<STAGES>& ring, bool& lead,
                                         float (&d)[STRIPS][W / 2], Kept& kept,
                                         Ring<SLOTS>& pieces, Done first_done) {
    constexpr u64 LEFT_SLICE = (LEFT_MN ? 2048 : 32) >> 4,
                  RIGHT_SLICE = (RIGHT_MN ? 2048 : 32) >> 4;
    bool first = (threadIdx.x & 31) < CLUSTER;
    u32 previous = 0;
    if (s.steps == 0) {
#pragma unroll
        for (int i = 0; i < STRIPS * W / 2; ++i) d[i / (W / 2)][i % (W / 2)] = 0.0f;
    }
    // The last step apart: a loop in which steps differ would make ptxas wait after each.
    int whole = s.steps - (s.slices < STEP_SLICES);
#pragma unroll 1
    for (int step = 0; step < whole; ++step) {
        barrier_wait(block.full(ring.place), ring.phase);
        if (CHOSEN) fence_async();
        u64 left = matrix_descriptor(block.stage(ring.place) + group * STRIPS * BOX);
        u64 right = matrix_descriptor(block.stage(ring.place) + LEFT_BYTES);
        wgmma_fence();
#pragma unroll
        for (int h = 0; h < STRIPS; ++h) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                Multiply<W>::go(d[h], left + h * (BOX >> 4) + i * LEFT_SLICE,
                                right + i * RIGHT_SLICE, step | i);
            wgmma_commit();
        }
        if (KEEPS && W >= KEPT_WIDTH && kept.next < kept.pieces)
            write_kept(block, kept, pieces, group);
        wgmma_wait<1>();
        if (step && first) hand_back(previous);
        previous = block.free + 8 * ring.place;
        ring.next();
        if (step == SKEW - 1) pass_the_turn(lead);
    }
    if (RAGGED_DEPTHS && whole < s.steps) {
        barrier_wait(block.full(ring.place), ring.phase);
        clear_past<W>(block.stage(ring.place), s.slices, group);
    }
    if (STRIPS > 1 && whole == s.steps) first_done();
    wgmma_wait<0>();
    if (whole > 0 && first) hand_back(previous);
    if (whole < s.steps) {
        if (!RAGGED_DEPTHS) barrier_wait(block.full(ring.place), ring.phase);
        if (CHOSEN) fence_async();
        int slices = RAGGED_DEPTHS ? (s.slices + 15) / 16 : s.slices;
        u64 left = matrix_descriptor(block.stage(ring.place) + group * STRIPS * BOX);
        u64 right = matrix_descriptor(block.stage(ring.place) + LEFT_BYTES);
#pragma unroll 1
        for (int i = 0; i < slices; ++i) {
            wgmma_fence();
#pragma unroll
            for (int h = 0; h < STRIPS; ++h)
                Multiply<W>::go(d[h], left + h * (BOX >> 4) + i * LEFT_SLICE,
                                right + i * RIGHT_SLICE, whole | i);
            wgmma_commit();
        }
        wgmma_wait<0>();
        if (first) hand_back(block.free + 8 * ring.place);
        ring.next();
    }
}

// A warpgroup whose rows all lie past the edge only hands the stages back.
__device__ __forceinline__ void pass_tile(const Block& block, Shape s, Ring<STAGES>& ring) {
    for (int step = 0; step < s.steps; ++step) {
        barrier_wait(block.full(ring.place), ring.phase);
        if ((threadIdx.x & 31) < CLUSTER) hand_back(block.free + 8 * ring.place);
        ring.next();
    }
}
