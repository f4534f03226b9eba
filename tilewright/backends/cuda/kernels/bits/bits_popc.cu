// One-bit products by the population count of the ALUs: any NVIDIA GPU, any row pitch.
//
//             64 rows of B                     256 threads, 4 x 4 outputs each, 16 apart, so that
//            +--------------+                  neighbours read neighbouring rows
//   64 rows  |. . . .       |
//   of A     |              |                  k --->  WORDS words of 64 bits a step, through
//            +--------------+                          shared memory, a word of padding a row
#include "bits_common.cuh"

#ifndef WORDS
#define WORDS 16
#endif
#ifndef GROUP
#define GROUP 8
#endif
#define BM 64
#define BN 64

__device__ __forceinline__ void copy_rows(u64 (&to)[64][WORDS + 1], const u64 *from,
                                          long long pitch, int first, int rows, int words,
                                          int base) {
  for (int index = threadIdx.x; index < 64 * WORDS; index += 256) {
    int row = index / WORDS, word = index % WORDS;
    bool there = first + row < rows && base + word < words;
    to[row][word] = there ? from[(first + row) * pitch + base + word] : 0;
  }
}

extern "C" __global__ void __launch_bounds__(256)
    bits_popc(const __grid_constant__ Product p) {
  __shared__ u64 a[BM][WORDS + 1], b[BN][WORDS + 1];
  Place place = place_of(blockIdx.x, (p.m + BM - 1) / BM, (p.n + BN - 1) / BN, GROUP);
  int row = place.y * BM, col = place.x * BN;
  int y = threadIdx.x / 16, x = threadIdx.x % 16;
  int d[4][4] = {};
  for (int base = 0; base < p.words; base += WORDS) {
    copy_rows(a, p.a, p.pitch_a, row, p.m, p.words, base);
    copy_rows(b, p.b, p.pitch_b, col, p.n, p.words, base);
    __syncthreads();
#pragma unroll 4
    for (int word = 0; word < WORDS; word++)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          d[i][j] += __popcll(a[y + 16 * i][word] & b[x + 16 * j][word]);
    __syncthreads();
  }
#if OUT == 3
  __shared__ u32 bits[BM][2];
  if (threadIdx.x < 2 * BM) bits[threadIdx.x / 2][threadIdx.x % 2] = 0;
  __syncthreads();
#endif
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int term = row_term(p, row + y + 16 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int at = x + 16 * j;
      int dot = FORM * d[i][j] + term + column_term(p, col + at);
#if OUT == 3
      u32 bit = static_cast<u32>(dot >= 0) ^ column_flip(p, col + at);
      if (bit) atomicOr(&bits[y + 16 * i][at / 32], 1u << at % 32);
#else
      put(p, row + y + 16 * i, col + at, dot);
#endif
    }
  }
#if OUT == 3
  __syncthreads();
  int line = threadIdx.x / 2, half = threadIdx.x % 2;
  if (line < BM && row + line < p.m)
    static_cast<u32 *>(p.out)[(row + line) * p.pitch_out + col / 32 + half] = bits[line][half];
#endif
}
