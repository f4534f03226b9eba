// What the planner decided of one chain, as constants: the layers, and where all lies in shared
// memory. `backends/cuda/conv/chain_plan.py` names and computes every macro here.
//
//     shared memory   | weights, biases | ring 0 | ring 1 | ... | barriers | windows |      |
//     a ring          DEPTH rows          a row   | plane of channels 0-7 | 8-15 | ...          |
//     a plane         | pixel 0: 8 channels, 16 bytes | pixel 1 | ... | pixel PITCH - 1 |
//
// Pixel i of a row is column (left useful column - LAYERS - 1 + i) of the picture.
#pragma once
#include "ptx.cuh"

#ifndef LAYERS  // so that an editor has something to read: 1 -> 32 -> 32 -> 4 channels, shuffled
#define LAYERS 2
#define INPUTS 1
#define OUTPUTS 4
#define UNITS 1
#define DEPTH 3
#define SHUFFLE 2
#define PAIRS 1
#define C0 32
#define C1 32
#define C2 8
#define ACT0 1
#define ACT1 1
#define SHARED_WEIGHTS1 1024
#define SHARED_WEIGHTS2 19456
#define SHARED_BIAS0 24064
#define SHARED_BIAS1 24192
#define SHARED_BIAS2 24320
#define SHARED_RING0 24448
#define SHARED_RING1 38272
#define SHARED_BARRIERS 52096
#define SHARED_WINDOWS 52224
#define BLOB 24448
#endif
#ifndef BF16
#define BF16 0
#endif
#ifndef ADDS  // a residual is added before the last activation
#define ADDS 0
#endif
#ifndef PLANES_OUT  // the last layer's rows leave as planes, for the next kernel
#define PLANES_OUT 0
#endif
#ifndef SOURCE  // the picture's elements, where it has few channels: halves, floats, uint8, int8
#define SOURCE 0
#endif
#ifndef RESULT  // the same of the result
#define RESULT 0
#endif
#ifndef CHUNKS  // of eight channels that the picture has, where it is not one of few channels
#define CHUNKS 0
#endif

// Layers that the chain does not have.
#ifndef C2
#define C2 0
#endif
#ifndef C3
#define C3 0
#endif
#ifndef C4
#define C4 0
#endif
#ifndef C5
#define C5 0
#endif
#ifndef C6
#define C6 0
#endif
#ifndef C7
#define C7 0
#endif
#ifndef C8
#define C8 0
#endif
#ifndef ACT0
#define ACT0 0
#endif
#ifndef ACT1
#define ACT1 0
#endif
#ifndef ACT2
#define ACT2 0
#endif
#ifndef ACT3
#define ACT3 0
#endif
#ifndef ACT4
#define ACT4 0
#endif
#ifndef ACT5
#define ACT5 0
#endif
#ifndef ACT6
#define ACT6 0
#endif
#ifndef ACT7
#define ACT7 0
#endif
#ifndef ACT8
#define ACT8 0
#endif
#ifndef SHARED_WEIGHTS1
#define SHARED_WEIGHTS1 0
#endif
#ifndef SHARED_WEIGHTS2
#define SHARED_WEIGHTS2 0
#endif
#ifndef SHARED_WEIGHTS3
#define SHARED_WEIGHTS3 0
#endif
#ifndef SHARED_WEIGHTS4
#define SHARED_WEIGHTS4 0
#endif
#ifndef SHARED_WEIGHTS5
#define SHARED_WEIGHTS5 0
#endif
#ifndef SHARED_WEIGHTS6
#define SHARED_WEIGHTS6 0
#endif
#ifndef SHARED_WEIGHTS7
#define SHARED_WEIGHTS7 0
#endif
#ifndef SHARED_WEIGHTS8
#define SHARED_WEIGHTS8 0
#endif
#ifndef SHARED_BIAS1
#define SHARED_BIAS1 0
#endif
#ifndef SHARED_BIAS2
#define SHARED_BIAS2 0
#endif
#ifndef SHARED_BIAS3
#define SHARED_BIAS3 0
#endif
#ifndef SHARED_BIAS4
#define SHARED_BIAS4 0
#endif
#ifndef SHARED_BIAS5
#define SHARED_BIAS5 0
#endif
#ifndef SHARED_BIAS6
#define SHARED_BIAS6 0
#endif
#ifndef SHARED_BIAS7
#define SHARED_BIAS7 0
#endif
#ifndef SHARED_BIAS8
#define SHARED_BIAS8 0
#endif
#ifndef SHARED_SLOPES0
#define SHARED_SLOPES0 0
#endif
#ifndef SHARED_SLOPES1
#define SHARED_SLOPES1 0
#endif
#ifndef SHARED_SLOPES2
#define SHARED_SLOPES2 0
#endif
#ifndef SHARED_SLOPES3
#define SHARED_SLOPES3 0
#endif
#ifndef SHARED_SLOPES4
#define SHARED_SLOPES4 0
#endif
#ifndef SHARED_SLOPES5
#define SHARED_SLOPES5 0
#endif
#ifndef SHARED_SLOPES6
#define SHARED_SLOPES6 0
#endif
#ifndef SHARED_SLOPES7
#define SHARED_SLOPES7 0
#endif
#ifndef SHARED_SLOPES8
#define SHARED_SLOPES8 0
#endif
#ifndef SHARED_RING1
#define SHARED_RING1 0
#endif
#ifndef SHARED_RING2
#define SHARED_RING2 0
#endif
#ifndef SHARED_RING3
#define SHARED_RING3 0
#endif
#ifndef SHARED_RING4
#define SHARED_RING4 0
#endif
#ifndef SHARED_RING5
#define SHARED_RING5 0
#endif
#ifndef SHARED_RING6
#define SHARED_RING6 0
#endif
#ifndef SHARED_RING7
#define SHARED_RING7 0
#endif

constexpr int PITCH = 64 * UNITS + 9, PLANE = 16 * PITCH;  // odd: no two planes share banks
constexpr int WINDOW = 9 * INPUTS, WINDOW16 = (WINDOW + 15) / 16;  // of the first layer, and in k16
constexpr int USEFUL = 64 * UNITS - 2 * LAYERS;                    // columns of a strip
constexpr int THREADS = 128 * (LAYERS + 1);
enum Activation { NONE, RELU, LEAKY, CLIP, PRELU, ROUNDED, WORTH };

template <int KIND> struct Element { typedef u16 Type; };
template <> struct Element<1> { typedef float Type; };
template <> struct Element<2> { typedef unsigned char Type; };
template <> struct Element<3> { typedef signed char Type; };
typedef Element<SOURCE>::Type Source;
typedef Element<RESULT>::Type Result;

// By layer, 0 being what makes ring 0. These are folded where the layer is a constant.
#define BY_LAYER(NAME, OF)                                                                    \
    __device__ __forceinline__ constexpr int NAME(int l) {                                    \
        return l == 0   ? OF##0                                                               \
               : l == 1 ? OF##1                                                               \
               : l == 2 ? OF##2                                                               \
               : l == 3 ? OF##3                                                               \
               : l == 4 ? OF##4                                                               \
               : l == 5 ? OF##5                                                               \
               : l == 6 ? OF##6                                                               \
               : l == 7 ? OF##7                                                               \
                        : OF##8;                                                              \
    }
#define SHARED_WEIGHTS0 0
#define SHARED_RING8 0
BY_LAYER(channels, C)
BY_LAYER(activation, ACT)
BY_LAYER(weights_at, SHARED_WEIGHTS)
BY_LAYER(bias_at, SHARED_BIAS)
BY_LAYER(slopes_at, SHARED_SLOPES)
BY_LAYER(ring_at, SHARED_RING)

struct Strides {
    long long image, channel, row, column;  // in elements; of planes, eight channels for a channel
};

struct Chain {
    const void* x;
    void* out;
    const u16* added;
    const unsigned char* blob;  // weights and biases as they lie in shared memory
    Strides at_x, at_out, at_added;
    long long counted;  // rows of all strips of all images, a halo for each strip included
    int height, width, strips, unused;
    float low[9], high[9];  // numbers of each layer's activation
    float step[9], inverse[9];  // of whole numbers, what one is worth and 1 / step
    float taken, least, most;   // the same of the picture, and between what it may lie
    int zero, shift;            // what stands for 0 in the picture, and in the result
};
