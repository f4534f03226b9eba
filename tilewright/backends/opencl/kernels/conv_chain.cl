// conv_chain: a whole chain of 3x3 convolutions by Winograd, a strip of the picture a work-item.
//
//     strip of columns         rings of 3 bands: the input of each layer
//     +------+------+           band j + 1 |######|
//     |      |      |           band j     |######| ---> layer l + 1 makes its band j, as soon as
//     |      |      |           band j - 1 |######|      layer l has made its band j + 1
//     +------+------+
//     bands of TILE rows roll down; what lies between layers never leaves the core's cache.
//
//     A layer's band:   SIDE x SIDE pixels of a tile, all channels --> V [position][tile][channel]
//                       V[position] x weights[position]            --> M [position][tile][16 x 1, 2]
//                       M, back to TILE x TILE pixels  --> bias, activation --> ring, or the result
//
// A lane is an output channel; 14 tiles x 2 vectors of them, or 28 x 1, are 28 sums in registers.
// F(4, 3) and F(2, 3) are those of Lavin and Gray (CVPR 2016, arXiv 1509.09308). A sum that comes
// out as NaN or infinite is made anew by the plain sum of its window, so that neither leaves its
// receptive field. A layer of at most 4 outputs has lanes of 4 outputs x 4 inputs, added at the end:
// transforms are linear.
//
// TILE      4 or 2: F(4, 3) or F(2, 3)
// K0 .. K3  the different numbers of input channels, multiples of 16
// Ring rows lie SPARE columns beyond the strip on both sides, for what its neighbours must compute.

#include "conv.clh"

#ifndef TILE
#define TILE 4
#endif
#ifndef K0
#define K0 32
#endif
#define SIDE (TILE + 2)
#define POSITIONS (SIDE * SIDE)
#define RING (3 * TILE)
#define NOINLINE static __attribute__((noinline))
typedef float16 v;
DECLARE_ACTIVATION(v)
#define GET(from) vload16(0, from)
#define PUT(value, to) vstore16(value, 0, to)
#define EACH(i, count) UNROLL for (int i = 0; i < count; i++)
#define FACTS 10  // integers a layer in `layers`

// Where a layer's band lies: rows of its input from the tiles' first column on, and of its output.
typedef struct {
    __global const float *in[SIDE];
    __global float *to[TILE];          // rows of the next ring, at the first tile's column
    __global const float *weights;     // transformed
    __global const float *plain;       // [tap][input][output], for what is not finite
    __global const float *bias;        // and slopes, `outputs` rounded up to 16 behind it
    int tiles, columns, rows;          // of the band; columns and rows that the picture has
    int inputs, outputs, channels;     // inputs and channels (of `to`) as stored: multiples of 16
    int kind, shuffle, last;
    float low, high;
    // the result, where this layer makes it: from this band's first pixel on
    __global stored *out;
    long out_channel, out_row, out_column;
} band;

#include "conv_transforms.clh"

// Lanes of outputs from `first` on that there are; the others 0, whatever they were.
INLINE v only_outputs(v x, int outputs)
{
    const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return lane < outputs ? x : (v)0;
}

// The plain sums of a tile at column `x`, 16 outputs from `first` on.
NOINLINE void plain_sums(const band *b, int x, int first, v *y)
{
    const int stride = (b->outputs + 15) / 16 * 16;
    for (int r = 0; r < TILE; r++)
        for (int c = 0; c < TILE; c++) {
            v total = 0;
            for (int tap = 0; tap < 9; tap++) {
                __global const float *from = b->in[r + tap / 3] + (x + c + tap % 3) * b->inputs;
                for (int k = 0; k < b->inputs; k++)
                    total = fma((v)from[k], GET(b->plain + (tap * b->inputs + k) * stride + first),
                                total);
            }
            y[r * TILE + c] = only_outputs(total, b->outputs - first);
        }
}

// Bias and activation.
INLINE v ended(const band *b, v x, int first)
{
    const int stride = (b->outputs + 15) / 16 * 16;
    return activated_v(x + GET(b->bias + first), b->kind, b->low, b->high, GET(b->bias + stride + first));
}

// A tile's outputs into the result; `part` [pixel][16]. Rows of pixels or channels that lie side by
// side are stored together, else one by one.
NOINLINE void store_result(const band *b, int x, int first, const float *part)
{
    const int square = b->shuffle * b->shuffle, count = min(16, b->outputs - first);
    if (square == 1 && x + TILE <= b->columns && b->rows >= TILE) {
        __global stored *to = b->out + first * b->out_channel + x * b->out_column;
        if (b->out_channel == 1 && count == 16) {
            EACH(i, TILE * TILE)
                STORE(16, vload16(i, part),
                      to + i / TILE * b->out_row + i % TILE * b->out_column);
            return;
        }
        if (b->out_column == 1) {
            for (int o = 0; o < count; o++)
                EACH(r, TILE) {
                    float line[TILE];
                    EACH(c, TILE) line[c] = part[(r * TILE + c) * 16 + o];
                    STORE(TILE, JOIN(vload, TILE)(0, line),
                          to + o * b->out_channel + r * b->out_row);
                }
            return;
        }
    }
    for (int r = 0; r < min(TILE, b->rows); r++)
        for (int c = 0; c < TILE && x + c < b->columns; c++)
            for (int o = 0; o < count; o++) {
                const int channel = (first + o) / square, at = (first + o) % square;
                const long row = r * b->shuffle + at / b->shuffle;
                const long column = (x + c) * b->shuffle + at % b->shuffle;
                STORE_ONE(part[(r * TILE + c) * 16 + o],
                          b->out + channel * b->out_channel + row * b->out_row
                              + column * b->out_column);
            }
}

// A tile's sums at column `x`, outputs from `first` on, into the next ring or the result.
INLINE void store_tile(const band *b, int x, int first, v *y)
{
    if (b->last) {
        float part[TILE * TILE * 16];
        EACH(i, TILE * TILE) vstore16(ended(b, y[i], first), i, part);
        store_result(b, x, first, part);
        return;
    }
    if (x + TILE <= b->columns && b->rows >= TILE) {
        EACH(r, TILE) EACH(c, TILE)
            PUT(ended(b, y[r * TILE + c], first), b->to[r] + (x + c) * b->channels + first);
        return;
    }
    EACH(r, TILE) EACH(c, TILE) {
        const bool there = r < b->rows && x + c < b->columns;
        PUT(there ? ended(b, y[r * TILE + c], first) : (v)0,
            b->to[r] + (x + c) * b->channels + first);
    }
}

// 4 outputs of each pixel of a tile into the result: two rows of pairs where pixels are shuffled.
INLINE void store_four(const band *b, int x, v *y)
{
    float part[TILE * TILE * 16];
    const bool whole = b->shuffle == 2 && b->outputs == 4 && b->out_column == 1 && BITS == 32
        && x + TILE <= b->columns && b->rows >= TILE;
    EACH(i, TILE * TILE) {
        const v ended_ = ended(b, y[i], 0);
        if (whole) {
            __global float *to = (__global float *)b->out + i / TILE * 2 * b->out_row
                + 2 * (x + i % TILE);
            vstore2(ended_.s01, 0, to);
            vstore2(ended_.s23, 0, to + b->out_row);
        } else {
            vstore16(ended_, i, part);
        }
    }
    if (!whole) store_result(b, x, 0, part);
}

#define ALL_FINITE(y, found)                                                                  \
    v found##_sum = y[0];                                                                     \
    UNROLL for (int i_ = 1; i_ < TILE * TILE; i_++) found##_sum += y[i_];                     \
    const bool found = !any(isnan(found##_sum - found##_sum));

INLINE void back(__global const float *m, int plane, v *y)
{
    v half_way[SIDE][TILE];
    EACH(k, SIDE) {
        v e[SIDE];
        EACH(i, SIDE) e[i] = GET(m + (i * SIDE + k) * plane);
        transform_back(e, half_way[k]);
    }
    EACH(i, TILE) {
        v e[SIDE];
        EACH(k, SIDE) e[k] = half_way[k][i];
        transform_back(e, y + i * TILE);
    }
}

#define K K0
#include "conv_chain_layer.clh"
#undef K
#ifdef K1
#define K K1
#include "conv_chain_layer.clh"
#undef K
#endif
#ifdef K2
#define K K2
#include "conv_chain_layer.clh"
#undef K
#endif
#ifdef K3
#define K K3
#include "conv_chain_layer.clh"
#undef K
#endif

// A band of a layer of few inputs, as they lie in a ring without gaps: the plain sum, 8 pixels at a
// time. `weights` [tap][input][output].
NOINLINE void few_inputs(const band *b)
{
    const int stride = (b->outputs + 15) / 16 * 16;
    for (int r = 0; r < TILE; r++)
        for (int first = 0; first < b->outputs; first += 16)
            for (int x = 0; x < b->columns; x += 8) {
                v total[8];
                EACH(p, 8) total[p] = 0;
                __global const float *w = b->weights + first;
                for (int tap = 0; tap < 9; tap++) {
                    __global const float *from = b->in[r + tap / 3] + (x + tap % 3) * b->inputs;
                    for (int k = 0; k < b->inputs; k++, w += stride) {
                        const v weight = GET(w);
                        EACH(p, 8) total[p] = fma((v)from[p * b->inputs + k], weight, total[p]);
                    }
                }
                EACH(p, 8) {
                    const bool there = r < b->rows && x + p < b->columns;
                    const v value = only_outputs(ended(b, total[p], first), b->outputs - first);
                    PUT(there ? value : (v)0, b->to[r] + (x + p) * b->channels + first);
                }
            }
}

// Pixels [x, x + columns) of a band's rows into the first ring, channels together; the inner loop is
// along what lies side by side.
NOINLINE void lay_in(__global const stored *from, long x_channel, long x_row, long x_column,
                     int inputs, int stored_inputs, int rows, int columns,
                     __global float *const *to)
{
    for (int r = 0; r < TILE; r++) {
        __global const stored *line = from + r * x_row;
        const int there = r < rows ? inputs : 0;
        if (x_channel == 1)
            for (int x = 0; x < columns; x++)
                for (int c = 0; c < there; c++)
                    to[r][x * stored_inputs + c] = LOAD_ONE(line + c + x * x_column);
        else  // 16 pixels at a time, which stay in L1 until every channel is there
            for (int begin = 0; begin < columns; begin += 16)
                for (int c = 0; c < there; c++)
                    for (int x = begin; x < min(columns, begin + 16); x++)
                        to[r][x * stored_inputs + c] =
                            LOAD_ONE(line + c * x_channel + x * x_column);
        if (there < stored_inputs)
            for (int x = 0; x < columns; x++)
                for (int c = there; c < stored_inputs; c++) to[r][x * stored_inputs + c] = 0;
    }
}

#define CLEAR(from, count) \
    for (long i_ = 0; i_ < (count); i_++) (from)[i_] = 0

// Facts of a layer: 0 inputs, 1 inputs as stored, 2 outputs, 3 which K, or -1 for few inputs,
// 4 activation, 5 shuffle, 6 weights, 7 plain weights, 8 bias: where in `weights`; 9 its ring.
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) __attribute__((vec_type_hint(v)))
void conv_chain(int first_item, int items, int count, int height, int width,
                int strips, int strip, int parts, int part, int ring_columns, long ring_size,
                long block_size, int m_at,
                __global const int *layers, __global const float *numbers,
                __global const float *weights, __global float *rings, __global float *blocks,
                __global const stored *x, long x_offset,
                long x_image, long x_channel, long x_row, long x_column,
                __global stored *out, long out_offset,
                long out_image, long out_channel, long out_row, long out_column)
{
    const int item = first_item + get_global_id(0);
    if (item >= items) return;
    const int image = item / (strips * parts), at = item % (strips * parts);
    const int left = at % strips * strip, right = min(width, left + strip);
    const int bands = (height + TILE - 1) / TILE;
    const int top = at / strips * part, bottom = min(bands, top + part);
    const int spare = count + 1;
    rings += get_global_id(0) * ring_size;
    blocks += get_global_id(0) * block_size;
    x += x_offset + image * x_image;
    out += out_offset + image * out_image;

    // What is read before it is written: the row above the picture, and columns beside a layer's.
    for (int l = 0; l < count; l++) {
        const int channels = layers[l * FACTS + 1];
        __global float *ring = rings + (long)layers[l * FACTS + 9] * RING * ring_columns;
        const int begin = max(0, left - count + l) - left + spare;
        const int end = min(width, right + count - l) - left + spare;
        const long line = (long)ring_columns * channels;
        CLEAR(ring + (RING - 1) * line, line);
        for (int r = 0; r < RING - 1; r++) {
            CLEAR(ring + r * line, begin * channels);
            CLEAR(ring + r * line + end * channels, line - end * channels);
        }
    }
    for (int step = max(0, top - count); step < bottom + count; step++)
        for (int q = 0; q <= count; q++) {
            // Stage q: 0 lays the picture in, q > 0 is layer q - 1.
            const int j = step - q, halo = count - q;
            __global const int *facts = layers + (q == 0 ? 0 : q - 1) * FACTS;
            const int begin = max(0, left - halo), end = min(width, right + halo);
            __global float *to[TILE];
            if (q < count) {
                const int channels = layers[q * FACTS + 1];
                __global float *ring = rings + (long)layers[q * FACTS + 9] * RING * ring_columns;
                EACH(r, TILE)
                    to[r] = ring + ((long)((j * TILE + r + RING) % RING) * ring_columns + begin - left
                                    + spare) * channels;
                if (j == bands) {
                    // Below the picture: one row of zeros, from the ring's first column on.
                    CLEAR(to[0] - (begin - left + spare) * channels, ring_columns * channels);
                    continue;
                }
            }
            if (j < max(0, top - halo) || j >= min(bands, bottom + halo)) continue;
            const int rows = min(TILE, height - j * TILE);
            if (q == 0) {
                lay_in(x + (long)j * TILE * x_row + (long)begin * x_column, x_channel, x_row,
                       x_column, facts[0], facts[1], rows, end - begin, to);
                continue;
            }
            band b;
            __global const float *ring = rings + (long)facts[9] * RING * ring_columns;
            EACH(r, SIDE)
                b.in[r] = ring + ((long)((j * TILE - 1 + r + RING) % RING) * ring_columns + begin - 1
                                  - left + spare) * facts[1];
            EACH(r, TILE) b.to[r] = to[r];
            b.weights = weights + facts[6];
            b.plain = weights + facts[7];
            b.bias = weights + facts[8];
            b.columns = end - begin;
            b.tiles = (b.columns + TILE - 1) / TILE;
            b.rows = rows;
            b.inputs = facts[1];
            b.outputs = facts[2];
            b.channels = q < count ? layers[q * FACTS + 1] : 0;
            b.kind = facts[4];
            b.shuffle = facts[5];
            b.last = q == count;
            b.low = numbers[2 * (q - 1)];
            b.high = numbers[2 * (q - 1) + 1];
            b.out = out + (long)j * TILE * b.shuffle * out_row + (long)begin * b.shuffle * out_column;
            b.out_channel = out_channel;
            b.out_row = out_row;
            b.out_column = out_column;
            switch (facts[3]) {
            case 0: JOIN(layer_, K0)(&b, blocks, blocks + m_at); break;
#ifdef K1
            case 1: JOIN(layer_, K1)(&b, blocks, blocks + m_at); break;
#endif
#ifdef K2
            case 2: JOIN(layer_, K2)(&b, blocks, blocks + m_at); break;
#endif
#ifdef K3
            case 3: JOIN(layer_, K3)(&b, blocks, blocks + m_at); break;
#endif
            default: few_inputs(&b);
            }
        }
}
