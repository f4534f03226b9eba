// What every one-bit product shares: its parameters, and the way from a count to an element of C.
//
//   count = popcount(a and b), over the k bits of a row of A and a row of B
//   dot   = 4 count + row + column          elements of {-1, +1}  (FORM 4)
//             row    = -2 popcount(a)
//             column = k - 2 popcount(b)
//   dot   = count                           elements of {0, 1}    (FORM 1)
//
//   OUT 0 int32     dot
//   OUT 1 float32   float32(scale * dot) + shift
//   OUT 2 float16   the same, rounded once more
//   OUT 3 bits      (dot >= threshold) xor flip, 32 a word, bits past n are 0
//
// `and` serves both forms because it is the one operation that Hopper's tensor cores have for bits
// (`xor` is emulated there); bits past the end of a row are 0 and so count nothing.

#ifndef FORM
#define FORM 4
#endif
#ifndef OUT
#define OUT 0
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Matched field by field by `Product` in bits/launch.py.
struct Product {
  const u64 *a;          // [m, pitch_a] words
  const u64 *b;          // [n, pitch_b] words
  const int *a_counts;   // [m] ones a row
  const int *b_counts;   // [n]
  const float *scale;    // [n] or null for 1
  const float *shift;    // [n] or null for 0
  const int *threshold;  // [n], OUT 3
  const u8 *flip;        // [n] or null for 0, OUT 3
  void *out;             // [m, pitch_out] elements, or words of 32 bits
  long long pitch_a, pitch_b, pitch_out;
  int m, n, k, words;    // words of 64 bits a row of A and B holds
};

// Past n: a threshold that no dot reaches, as k < 2^28.
#define NEVER (1 << 30)

__device__ __forceinline__ int row_term(const Product &p, int row) {
  return FORM == 4 && row < p.m ? -2 * p.a_counts[row] : 0;
}

// Added to FORM * count + row_term: the dot itself, or how far it is past the threshold.
__device__ __forceinline__ int column_term(const Product &p, int col) {
  if (col >= p.n) return OUT == 3 ? -NEVER : 0;
  int term = FORM == 4 ? p.k - 2 * p.b_counts[col] : 0;
  if (OUT == 3) term -= max(-p.k - 1, min(p.k + 1, p.threshold[col]));
  return term;
}

__device__ __forceinline__ u32 column_flip(const Product &p, int col) {
  return p.flip && col < p.n ? p.flip[col] & 1u : 0u;
}

__device__ __forceinline__ float column_scale(const Product &p, int col) {
  return p.scale && col < p.n ? p.scale[col] : 1.0f;
}

__device__ __forceinline__ float column_shift(const Product &p, int col) {
  return p.shift && col < p.n ? p.shift[col] : 0.0f;
}

// Two roundings, never one fused: the result is then the same on every back end.
__device__ __forceinline__ float scaled(int dot, float scale, float shift) {
  return __fadd_rn(__fmul_rn(scale, __int2float_rn(dot)), shift);
}

__device__ __forceinline__ u16 half_of(float value) {
  u16 half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}

// One element, its dot already summed, to its place; not for OUT 3.
__device__ __forceinline__ void put(const Product &p, int row, int col, int dot) {
  if (row >= p.m || col >= p.n) return;
  long long at = row * p.pitch_out + col;
  if (OUT == 0) {
    static_cast<int *>(p.out)[at] = dot;
  } else {
    float value = scaled(dot, column_scale(p, col), column_shift(p, col));
    if (OUT == 1) static_cast<float *>(p.out)[at] = value;
    if (OUT == 2) static_cast<u16 *>(p.out)[at] = half_of(value);
  }
}

// What two neighbouring columns add to their counts, and the way on from their dots.
struct Pair {
  int2 term;
  float2 scale, shift;
};

__device__ __forceinline__ Pair pair_of(const Product &p, int col) {
  Pair pair;
  pair.term = make_int2(column_term(p, col), column_term(p, col + 1));
  if (OUT == 1 || OUT == 2) {
    pair.scale = make_float2(column_scale(p, col), column_scale(p, col + 1));
    pair.shift = make_float2(column_shift(p, col), column_shift(p, col + 1));
  }
  return pair;
}

// Two neighbouring elements of C: floats as their bits, halves both in x.
__device__ __forceinline__ int2 finished(const Pair &pair, int x, int y, int row_term) {
  int2 dot = make_int2(FORM * x + pair.term.x + row_term, FORM * y + pair.term.y + row_term);
  if (OUT == 0) return dot;
  float left = scaled(dot.x, pair.scale.x, pair.shift.x);
  float right = scaled(dot.y, pair.scale.y, pair.shift.y);
  if (OUT == 1) return make_int2(__float_as_int(left), __float_as_int(right));
  return make_int2(half_of(left) | static_cast<u32>(half_of(right)) << 16, 0);
}

// Two neighbours, finished: floats as their bits, halves both in `value.x`; not for OUT 3.
__device__ __forceinline__ void put_pair(const Product &p, int row, int col, int2 value) {
  if (row >= p.m || col >= p.n) return;
  const int size = OUT == 2 ? 2 : 4;
  u8 *at = static_cast<u8 *>(p.out) + (row * p.pitch_out + col) * size;
  bool pair = col + 1 < p.n && reinterpret_cast<u64>(at) % (2 * size) == 0;
  if (OUT == 2) {
    if (pair)
      *reinterpret_cast<int *>(at) = value.x;
    else {
      reinterpret_cast<u16 *>(at)[0] = value.x;
      if (col + 1 < p.n) reinterpret_cast<u16 *>(at)[1] = static_cast<u32>(value.x) >> 16;
    }
  } else {
    if (pair)
      *reinterpret_cast<int2 *>(at) = value;
    else {
      reinterpret_cast<int *>(at)[0] = value.x;
      if (col + 1 < p.n) reinterpret_cast<int *>(at)[1] = value.y;
    }
  }
}

// Tiles in the order in which blocks take them: GROUP down, then to the right, so that those which
// run at the same time share rows of A and of B in the L2 cache.
struct Place {
  int y, x;
};

__device__ __forceinline__ Place place_of(int index, int down, int right, int group) {
  int strip = index / (group * right);
  int height = min(group, down - strip * group);
  int within = index - strip * group * right;
  return {strip * group + within % height, within / height};
}
