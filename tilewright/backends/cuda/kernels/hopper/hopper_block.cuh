// What is in a block's shared memory, and how its warps tell each other about it.
//
//   stages     LEFT_BYTES + boxes of the right operand      full: loaded     empty: multiplied
//   pieces     64 x 64 of C, SLOTS a warpgroup              ready: written   taken: stored
//   turns      numbers of tiles                             announced: by one  read: by the others
//
// Each of these has two barriers, and whoever goes round has a Ring: a place, and its phase there.
#pragma once
#include "hopper_ring.cuh"

constexpr int BOX = 64 * 64 * 2;
constexpr int LEFT_BYTES = WARPGROUPS * STRIPS * BOX,
              STAGE_BYTES = LEFT_BYTES + WIDTH * 128;
constexpr int PIECES = STAGES * STAGE_BYTES;  // where the pieces of C begin
constexpr int BARRIERS = PIECES + WARPGROUPS * SLOTS * BOX;
// Where a whole row of pieces has places, consumers store unaligned rows themselves: four warps,
// not one. On an H200 one warp took 9 us for a tile of 128 x 256.
constexpr bool CONSUMERS_STORE = STRIPS == 1 && SLOTS * 64 >= WIDTH;
constexpr int STORERS = 3 / WARPGROUPS;  // warps a warpgroup of consumers
constexpr int TURNS = 4;                 // tiles that a loader may be ahead of those who store
// Where CHOSEN, two warps load the rows of that operand; the second also hears of tiles.
constexpr int GATHERERS = CHOSEN ? 2 : 0;

struct Block {
    u32 memory;
    u32 free;  // where this lane says that stage 0 is free: each of CLUSTER lanes to one block
    __device__ u32 stage(int i) const { return memory + i * STAGE_BYTES; }
    __device__ u32 piece(int group, int slot) const {
        return memory + PIECES + (group * SLOTS + slot) * BOX;
    }
    __device__ u32 full(int i) const { return memory + BARRIERS + 8 * i; }
    __device__ u32 empty(int i) const { return full(STAGES + i); }
    __device__ u32 ready(int group, int slot) const {
        return full(2 * STAGES + group * SLOTS + slot);
    }
    __device__ u32 taken(int group, int slot) const {
        return full(2 * STAGES + (WARPGROUPS + group) * SLOTS + slot);
    }
    __device__ u32 announced(int i) const { return full(2 * STAGES + 2 * WARPGROUPS * SLOTS + i); }
    __device__ u32 read(int i) const { return announced(TURNS + i); }
    __device__ u32 turn(int i) const { return announced(2 * TURNS) + 4 * i; }
};

// Lanes 0 to CLUSTER - 1 of a consuming warp hand a stage back, each to one block's loader.
__device__ __forceinline__ void hand_back(u32 free) {
    if (CLUSTER == 1)
        barrier_arrive(free);
    else
        barrier_arrive_in_cluster(free);
}

// The tile after tile t of this block, as its loader asks for it and announces it to the other warps.
// Where tiles are TAKEN a block that is done takes the next (records.py says when), and of RAGGED_ROWS,
// where only the device knows which tiles are long: 0.336 ms on an H200 where taking turns was 0.352
// (64 experts). What is in a tile depends on nobody.
__device__ __forceinline__ int ask_tile(const Block& block, const Table& tiles, Ring<TURNS>& turns,
                                        int t) {
#if TAKES_NEXT
    // As many ask as there are tiles; the last of them sets the count back for the next launch.
    u32 next = in_turn(tiles, gridDim.x + atomicInc(tiles.taken(), tiles.count - 1));
    barrier_wait(block.read(turns.place), turns.phase ^ 1);
    write_one(block.turn(turns.place), next);
    barrier_arrive(block.announced(turns.place));
    turns.next();
    return next;
#else
    return t + gridDim.x;
#endif
}

__device__ __forceinline__ int next_dealt_tile(const Block& block, Ring<TURNS>& turns, int t) {
#if TAKES_NEXT
    barrier_wait(block.announced(turns.place), turns.phase);
    u32 next = __shfl_sync(~0u, read_one<u32>(block.turn(turns.place)), 0);
    if ((threadIdx.x & 31) == 0) barrier_arrive(block.read(turns.place));
    turns.next();
    return next;
#else
    return t + gridDim.x;
#endif
}
