// Sizes of Winograd's kernel, its parameters, and which tiles and outputs a block has.
// `backends/cuda/conv/winograd_launch.py` names every macro and fills the parameters in.
#pragma once
#include "ptx.cuh"

#ifndef TILE  // results of a tile: TILE x TILE
#define TILE 4
#endif
#ifndef CHUNK  // channels at a time
#define CHUNK 8
#endif
#ifndef WIDE  // channels lie side by side and by 16 bytes
#define WIDE 1
#endif
#ifndef FAR_APART  // pixels of a picture are more than 2^31 floats from each other
#define FAR_APART 0
#endif
#ifndef SHUFFLE
#define SHUFFLE 1
#endif
#ifndef ADDS  // a residual is added before the activation
#define ADDS 0
#endif
#ifndef HOW
#define HOW 0
#endif

constexpr int SIDE = TILE + 2, POSITIONS = SIDE * SIDE;
constexpr int ACROSS = 8, DOWN = 4;               // tiles of a block
constexpr int WARPS = TILE == 4 ? 12 : 8, THREADS = 32 * WARPS;
constexpr int EACH = POSITIONS / WARPS;           // positions of a warp
constexpr int OUTPUTS = TILE == 4 ? 32 : 64;      // of a block; as many sums as registers hold
constexpr int LANE_OUTPUTS = OUTPUTS / 4, PARTS = OUTPUTS / 16;
constexpr int PITCH = 36;                         // of 32 tiles: channels do not share banks
constexpr int ROWS = DOWN * TILE + 2, COLUMNS = ACROSS * TILE + 2;  // of the picture
constexpr int STAGED_SIZE = ROWS * 9 * TILE * CHUNK;
constexpr int TILES_SIZE = POSITIONS * CHUNK * PITCH;
constexpr int WEIGHTS_SIZE = POSITIONS * CHUNK * OUTPUTS;
constexpr int STAGED_AT = 2 * (TILES_SIZE + WEIGHTS_SIZE);  // behind tiles and weights
constexpr int FLOATS = STAGED_AT + 2 * STAGED_SIZE;         // of shared memory
constexpr int AT_ONCE = STAGED_AT >= 2 * 512 * POSITIONS ? 2 : 1;  // sixteens of outputs at the end
static_assert(STAGED_AT >= AT_ONCE * 512 * POSITIONS, "sums must leave staged pixels alone");

template <bool FAR> struct Distance {
    typedef int Type;
};
template <> struct Distance<true> {
    typedef long long Type;
};
typedef Distance<FAR_APART>::Type Offset;  // within a picture

struct Steps {
    long long image, channel, row, column;  // in elements
};

struct Winograd {
    const float* x;
    float* out;
    const float* added;
    const float* weights;  // transformed: [outputs / OUTPUTS][chunk][position][CHUNK][OUTPUTS]
    const float* plain;    // as they were: [outputs][channels][3][3]
    const float *bias, *slopes;
    Steps at_x, at_out, at_added;
    int channels, outputs, chunks, blocks;  // blocks: of outputs
    int height, width, rows, columns;       // of the picture and of the results
    int top, left, across, down;            // pads; blocks of tiles
    float low, high;
    u32 count, unused;  // of all blocks' work
};

// Where pixel (row, column) of a block is staged, its channels side by side: columns of neighbouring
// tiles are neighbours.
__device__ __forceinline__ constexpr int place_of(int row, int column) {
    return (row * 9 * TILE + column % TILE * 9 + column / TILE) * CHUNK;
}

struct Place {
    int image, row, column;  // of its first result
    int block;               // of outputs

    __device__ __forceinline__ Place(const Winograd& p, u32 index) {
        block = index % p.blocks, index /= p.blocks;
        column = index % p.across * (ACROSS * TILE), index /= p.across;
        row = index % p.down * (DOWN * TILE), image = index / p.down;
    }
};
