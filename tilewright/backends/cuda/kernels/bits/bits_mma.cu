// One-bit products on the tensor cores of sm_80 and later: mma.sync m16n8k256, and.popc.
//
//              BN = 128 rows of B
//            +------+------+------+------+     8 warps, 64 x 32 each: 4 x 4 instructions
//   128 rows | w0   | w1   | w2   | w3   |
//   of A     +------+------+------+------+     k --->  512 bits (64 bytes a row) a stage, STAGES
//            | w4   | w5   | w6   | w7   |             stages filled by cp.async, two in flight or
//            +------+------+------+------+             more while one is multiplied
//
//   shared row of 64 bytes: |c0 c1 c2 c3|, chunk c of row r at c xor (r / 2 mod 4), so that the 8
//   rows of an ldmatrix lie in 8 different groups of banks
//
// An accumulator: lane = 4 g + q holds rows g and g + 8, columns 2 q and 2 q + 1 of each 16 x 8.
#include "bits_common.cuh"

#ifndef STAGES
#define STAGES 4
#endif
#ifndef GROUP
#define GROUP 8
#endif
#define BM 128
#define BN 128
#define STAGE_BYTES ((BM + BN) * 64)

__device__ __forceinline__ int place_in_shared(int row, int chunk) {
  return row * 64 + (chunk ^ (row >> 1 & 3)) * 16;
}

__device__ __forceinline__ void copy_chunk(u32 to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

// 128 rows of 4 chunks by 256 threads; past the edges zeros are written and nothing is read.
__device__ __forceinline__ void copy_rows(u32 to, const u64 *from, long long pitch, int first,
                                          int rows, int words, int step) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int index = threadIdx.x + 256 * i, row = index / 4, chunk = index % 4;
    int word = step * 8 + chunk * 2;
    int bytes = first + row < rows ? max(0, min(16, (words - word) * 8)) : 0;
    const u64 *source = bytes ? from + (first + row) * pitch + word : from;
    copy_chunk(to + place_in_shared(row, chunk), source, bytes);
  }
}

__device__ __forceinline__ void fetch(u32 (&to)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

__device__ __forceinline__ void product(int (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"
      " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply(int (&d)[4][4][4], u32 a_tile, u32 b_tile) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int a_row = warp / 4 * 64 + lane % 16, b_row = warp % 4 * 32 + lane / 16 * 8 + lane % 8;
#pragma unroll
  for (int part = 0; part < 2; part++) {
    u32 a[4][4], b[2][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
      fetch(a[i], a_tile + place_in_shared(a_row + 16 * i, 2 * part + lane / 16));
#pragma unroll
    for (int j = 0; j < 2; j++)
      fetch(b[j], b_tile + place_in_shared(b_row + 16 * j, 2 * part + lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        product(d[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
}

#if OUT == 3
// A warp's 32 columns are one word a row: 8 bits a lane, gathered from the 4 lanes of a quad.
__device__ __forceinline__ void store(const Product &p, const int (&d)[4][4][4], int row, int col) {
  int quad = threadIdx.x % 4, words = (p.n + 63) / 64 * 2;
  int terms[8];
  u32 flips = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int at = i / 2 * 8 + 2 * quad + i % 2;
    terms[i] = column_term(p, col + at);
    flips |= column_flip(p, col + at) << at;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int y = row + i / 2 * 16 + i % 2 * 8;
    int term = row_term(p, y);
    u32 word = flips;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      int past = FORM * d[i / 2][j / 2][i % 2 * 2 + j % 2] + term + terms[j];
      word ^= static_cast<u32>(past >= 0) << (j / 2 * 8 + 2 * quad + j % 2);
    }
    word |= __shfl_xor_sync(~0u, word, 1);
    word |= __shfl_xor_sync(~0u, word, 2);
    if (quad == 0 && y < p.m && col / 32 < words)
      static_cast<u32 *>(p.out)[y * p.pitch_out + col / 32] = word;
  }
}
#else
__device__ __forceinline__ void store(const Product &p, const int (&d)[4][4][4], int row, int col) {
  int quad = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    int x = col + j * 8 + 2 * quad;
    Pair pair = pair_of(p, x);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      int y = row + i / 2 * 16 + i % 2 * 8, term = row_term(p, y);
      const int *counts = &d[i / 2][j][i % 2 * 2];
      put_pair(p, y, x, finished(pair, counts[0], counts[1], term));
    }
  }
}
#endif

extern "C" __global__ void __launch_bounds__(256)
    bits_mma(const __grid_constant__ Product p) {
  extern __shared__ __align__(128) u8 memory[];
  u32 shared = static_cast<u32>(__cvta_generic_to_shared(memory));
  Place place = place_of(blockIdx.x, (p.m + BM - 1) / BM, (p.n + BN - 1) / BN, GROUP);
  int row = place.y * BM, col = place.x * BN, steps = (p.words + 7) / 8;
  int d[4][4][4] = {};
  auto copy = [&](int step) {
    u32 stage = shared + step % STAGES * STAGE_BYTES;
    if (step < steps) {
      copy_rows(stage, p.a, p.pitch_a, row, p.m, p.words, step);
      copy_rows(stage + BM * 64, p.b, p.pitch_b, col, p.n, p.words, step);
    }
    asm volatile("cp.async.commit_group;");
  };
  for (int step = 0; step < STAGES - 1; step++) copy(step);
  for (int step = 0; step < steps; step++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    copy(step + STAGES - 1);  // into the stage that everybody has left
    u32 stage = shared + step % STAGES * STAGE_BYTES;
    multiply(d, stage, stage + BM * 64);
  }
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  store(p, d, row + warp / 4 * 64 + lane / 4, col + warp % 4 * 32);
}
