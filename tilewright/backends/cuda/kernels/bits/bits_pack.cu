// Numbers to bits: above 0 is 1, below 0 is 0; the ones of every row are counted on the way.
//
//   bits_pack_rows      k is contiguous: a lane reads 16 bytes, V elements, and has V bits of a row
//                       V = 2, 4   neighbouring lanes put theirs together to a byte
//                       V = 8, 16  a lane stores a byte or two, a warp 32 or 64 in a row
//   bits_pack_columns   k is strided, rows are contiguous: a thread gathers the 64 bits of a word,
//                       neighbouring threads read neighbouring rows
//   bits_pack_abreast   the same for the rows whose numbers share 4 bytes: 4, 2 or 1 of them
//   bits_count          ones of every row of words, a warp a row
//
// IN is the type: 0 float32, 1 float16, 2 bfloat16, 3 float64, 4 bool, 5 int8, 6 int16, 7 int32,
// 8 int64, 9 uint8. Floats are looked at as integers: sign, zero and NaN are patterns of bits, and
// several numbers fit a register: one number after the other took 1.5 times as long on an H200.
#include "bits_common.cuh"

#ifndef IN
#define IN 0
#endif
#define SEGMENT 1024  // elements of a row that a warp packs at once, all of its loads in flight

#if IN == 0
typedef u32 Raw;
#define INFINITE 0x7F800000u
#elif IN == 1
typedef u16 Raw;
#define INFINITE 0x7C00u
#elif IN == 2
typedef u16 Raw;
#define INFINITE 0x7F80u
#elif IN == 3
typedef u64 Raw;
#define INFINITE 0x7FF0000000000000ull
#elif IN == 4 || IN == 9
typedef u8 Raw;
#elif IN == 5
typedef signed char Raw;
#elif IN == 6
typedef short Raw;
#elif IN == 7
typedef int Raw;
#else
typedef long long Raw;
#endif

// `zero`: what 0 becomes, 1 or -1, or 0 where it is an error. Errors: 1 a NaN, 2 a zero.
__device__ __forceinline__ bool bit_of(Raw raw, int zero, int &errors) {
#if IN <= 3
  const Raw sign = static_cast<Raw>(static_cast<Raw>(1) << (8 * sizeof(Raw) - 1));
  Raw size = raw & static_cast<Raw>(~sign);
  bool none = size == 0, above = !(raw & sign);
  if (size > INFINITE) errors |= 1;
#elif IN == 4
  return raw;
#else
  bool none = raw == 0, above = raw > 0;
#endif
#if IN != 4
  if (none && zero == 0) errors |= 2;
  return none ? zero > 0 : above;
#endif
}

struct Packing {
  const Raw *x;      // [outer, k, inner] elements
  u64 *words;        // [rows, pitch] words; rows = outer * inner
  int *counts;       // [rows], zeros at first
  int *errors;       // one, 0 at first
  long long stride;  // elements from one row to the next (rows), or from one `outer` to the next
  long long step;    // columns: elements from one of k to the next
  long long pitch;   // words from one row to the next
  long long rows, inner;
  int k, zero;
  int whole;         // rows: every row begins at a multiple of 16 bytes
};

__device__ __forceinline__ int warp_sum(int value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(~0u, value, lanes);
  return value;
}

__device__ __forceinline__ void report(const Packing &p, int errors) {
  if (errors) atomicOr(p.errors, errors);
}

#define V (16 / static_cast<int>(sizeof(Raw)))

#if IN != 3 && IN != 8
// Every number of a register at once: its sign bit stands for it, the bits below it are m, and m
// plus all ones below reaches the sign bit exactly where m is not 0.
#define TOPS (sizeof(Raw) == 4 ? 0x80000000u : sizeof(Raw) == 2 ? 0x80008000u : 0x80808080u)
#if IN <= 2
#define NANS (sizeof(Raw) == 4 ? ~TOPS - INFINITE : ~TOPS - INFINITE * 0x10001u)
#endif

__device__ __forceinline__ u32 tops_of(u32 word, u32 zeros, u32 &nans, u32 &nonzero) {
  u32 low = word & ~TOPS, some = low + ~TOPS, below = word;
#if IN <= 2
  nans |= low + NANS;
#else
  some |= word;
#endif
#if IN == 4 || IN == 9
  below = 0;
#endif
  nonzero &= some;
  return ((some & ~below) | (~some & zeros)) & TOPS;
}

// The sign bits of four registers as neighbours.
__device__ __forceinline__ u32 gathered(u32 a, u32 b, u32 c, u32 d) {
  if (sizeof(Raw) == 4) return (a >> 3 | b >> 2 | c >> 1 | d) >> 28;
  if (sizeof(Raw) == 2) {
    u32 pairs = a >> 6 | b >> 4 | c >> 2 | d;
    return (pairs >> 9 & 0x55) | (pairs >> 24 & 0xAA);
  }
  const u32 side_by_side = 0x10204080u;  // moves bits 0, 8, 16, 24 to 28, 29, 30, 31
  return (a >> 7) * side_by_side >> 28 | (b >> 7) * side_by_side >> 28 << 4 |
         (c >> 7) * side_by_side >> 28 << 8 | (d >> 7) * side_by_side >> 28 << 12;
}

__device__ __forceinline__ u32 bits_of_vector(const Raw *at, int zero, int &errors) {
  uint4 x = *reinterpret_cast<const uint4 *>(at);
  u32 zeros = zero > 0 ? ~0u : 0, nans = 0, nonzero = ~0u;
  u32 a = tops_of(x.x, zeros, nans, nonzero), b = tops_of(x.y, zeros, nans, nonzero);
  u32 c = tops_of(x.z, zeros, nans, nonzero), d = tops_of(x.w, zeros, nans, nonzero);
  if (nans & TOPS) errors |= 1;
  if (IN != 4 && zero == 0 && ~nonzero & TOPS) errors |= 2;
  return gathered(a, b, c, d);
}
#else
struct alignas(16) Vector {
  Raw x[V];
};

__device__ __forceinline__ u32 bits_of_vector(const Raw *at, int zero, int &errors) {
  Vector vector = *reinterpret_cast<const Vector *>(at);
  return bit_of(vector.x[0], zero, errors) | bit_of(vector.x[1], zero, errors) << 1;
}
#endif

// The bits of elements `at` to `at + V` of a row, zeros past its end.
__device__ __forceinline__ u32 bits_at_end(const Packing &p, const Raw *row, long long at,
                                           int &errors) {
  if (p.whole && at + V <= p.k) return bits_of_vector(row + at, p.zero, errors);
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < V; i++)
    if (at + i < p.k) bits |= static_cast<u32>(bit_of(row[at + i], p.zero, errors)) << i;
  return bits;
}

// A warp's bits to their place in the row; V of each lane, the lanes in order.
__device__ __forceinline__ void store_bits(u8 *to, u32 bits, bool inside) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int width = V; width < 8; width *= 2) {
    u32 other = __shfl_xor_sync(~0u, bits, width / V);
    bits = lane & width / V ? bits << width | other : bits | other << width;
  }
  if (V == 16) {
    if (inside) reinterpret_cast<u16 *>(to)[lane] = bits;
  } else if (lane * V % 8 == 0 && inside) {
    to[lane * V / 8] = bits;
  }
}

// blockIdx.x: 8 rows; blockIdx.y, strided: a segment of them.
extern "C" __global__ void __launch_bounds__(256)
    bits_pack_rows(const __grid_constant__ Packing p) {
  const int step = 32 * V;
  int lane = threadIdx.x % 32, errors = 0, count = 0;
  long long row = blockIdx.x * 8ll + threadIdx.x / 32;
  if (row >= p.rows) return;
  const Raw *x = p.x + row * p.stride;
  u8 *to = reinterpret_cast<u8 *>(p.words + row * p.pitch);
  long long end = (p.k + 63ll) / 64 * 64;
  for (long long base = blockIdx.y * static_cast<long long>(SEGMENT); base < end;
       base += gridDim.y * static_cast<long long>(SEGMENT)) {
    if (p.whole && base + SEGMENT <= p.k) {
#pragma unroll
      for (int part = 0; part < SEGMENT; part += step) {
        u32 bits = bits_of_vector(x + base + part + lane * V, p.zero, errors);
        count += __popc(bits);
        store_bits(to + (base + part) / 8, bits, true);
      }
    } else {
      for (long long at = base; at < min(base + SEGMENT, end); at += step) {
        u32 bits = bits_at_end(p, x, at + lane * V, errors);
        count += __popc(bits);
        store_bits(to + at / 8, bits, at + lane * V < end);
      }
    }
  }
  count = warp_sum(count);
  if (lane == 0) atomicAdd(p.counts + row, count);
  report(p, errors);
}

// blockIdx.x: 256 rows; blockIdx.y, strided: a word of them.
extern "C" __global__ void __launch_bounds__(256)
    bits_pack_columns(const __grid_constant__ Packing p) {
  long long row = blockIdx.x * 256ll + threadIdx.x;
  if (row >= p.rows) return;
  const Raw *x = p.x + row / p.inner * p.stride + row % p.inner;
  int errors = 0, count = 0, words = (p.k + 63) / 64;
  for (int word = blockIdx.y; word < words; word += gridDim.y) {
    int last = min(64, p.k - 64 * word);
    u64 bits = 0;
#pragma unroll 16
    for (int i = 0; i < 64; i++) {
      bool bit = i < last && bit_of(x[(64ll * word + i) * p.step], p.zero, errors);
      bits |= static_cast<u64>(bit) << i;
    }
    count += __popcll(bits);
    p.words[row * p.pitch + word] = bits;
  }
  if (count) atomicAdd(p.counts + row, count);
  report(p, errors);
}

#if IN != 3 && IN != 8
#define ABREAST (4 / static_cast<int>(sizeof(Raw)))

// blockIdx.x: 256 times ABREAST rows; blockIdx.y, strided: a word of them.
extern "C" __global__ void __launch_bounds__(256)
    bits_pack_abreast(const __grid_constant__ Packing p) {
  long long row = (blockIdx.x * 256ll + threadIdx.x) * ABREAST, step = p.step / ABREAST;
  if (row >= p.rows) return;
  const u32 *x = reinterpret_cast<const u32 *>(p.x + row / p.inner * p.stride + row % p.inner);
  u32 zeros = p.zero > 0 ? ~0u : 0, nans = 0, nonzero = ~0u;
  int counts[ABREAST] = {}, words = (p.k + 63) / 64;
  for (int word = blockIdx.y; word < words; word += gridDim.y) {
    u64 bits[ABREAST] = {};
#pragma unroll
    for (int half = 1; half >= 0; half--) {
      int first = 64 * word + 32 * half, last = p.k - first;
      u32 sum[ABREAST] = {};
#pragma unroll
      for (int i = 31; i >= 0; i--) {
        u32 tops = i < last ? tops_of(x[(first + i) * step], zeros, nans, nonzero) : 0;
#pragma unroll
        for (int r = 0; r < ABREAST; r++)
          sum[r] = __funnelshift_l(tops << 32 / ABREAST * (ABREAST - 1 - r), sum[r], 1);
      }
#pragma unroll
      for (int r = 0; r < ABREAST; r++) bits[r] = bits[r] << 32 | sum[r];
    }
#pragma unroll
    for (int r = 0; r < ABREAST; r++) {
      counts[r] += __popcll(bits[r]);
      p.words[(row + r) * p.pitch + word] = bits[r];
    }
  }
#pragma unroll
  for (int r = 0; r < ABREAST; r++)
    if (counts[r]) atomicAdd(p.counts + row + r, counts[r]);
  report(p, (nans & TOPS ? 1 : 0) | (IN != 4 && p.zero == 0 && ~nonzero & TOPS ? 2 : 0));
}
#endif

extern "C" __global__ void __launch_bounds__(256)
    bits_count(const u64 *words, int *counts, long long rows, long long pitch, int row_words) {
  long long row = blockIdx.x * 8ll + threadIdx.x / 32;
  if (row >= rows) return;
  int count = 0;
  for (int word = threadIdx.x % 32; word < row_words; word += 32)
    count += __popcll(words[row * pitch + word]);
  count = warp_sum(count);
  if (threadIdx.x % 32 == 0) counts[row] = count;
}
