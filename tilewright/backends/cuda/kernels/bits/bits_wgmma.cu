// One-bit products on Hopper's tensor cores: wgmma m64nBNk256, and.popc (sm_90a).
//
//              BN = 256 rows of B
//            +--------------------+     k --->  1024 bits a stage, STAGES stages in a ring
//   64 rows  | block 0            |
//   of A     +--------------------+     the CLUSTER blocks of a cluster take tiles that lie one
//   64 rows  | block 1            |     below the other: each loads its own rows of A and its share
//            +--------------------+     of the rows of B, which the copy engine hands to all
//
//   warpgroup 0   one thread waits for `empty` and has the copy engine fill a stage, which signals
//                 `full`; it runs up to STAGES ahead, into the next tile too
//   warpgroup 1   | multiply tile 0 | store tile 0    | multiply tile 2 | store tile 2    |
//   warpgroup 2                     | multiply tile 1 | store tile 1    | multiply tile 3 |
//
//   multiply      wait for `full`, 4 instructions a stage from shared memory, signal `empty`
//   store         numbers go through 2 KB of shared memory a warp to the copy engine; bits are put
//                 together with two shuffles a word
//
// Blocks stay on their multiprocessors; clusters take tiles in turn, GROUP down, then to the right.
//
// An accumulator: lane = 4 g + q holds rows g and g + 8 of its warp's 16, columns 8 j + 2 q + e, in
// d[4 j + 2 (row / 8) + e].
//
// On an H200, 8192 cubed to int32: two warpgroups on one tile of 128 rows, which both stop
// multiplying to store it, took 1.07 times as long; without evict-first on what is stored, 1.05 to
// 1.07 times.
#include "bits_common.cuh"
#include "bits_hopper.cuh"

#ifndef BN
#define BN 256
#endif
#ifndef STAGES
#define STAGES 4
#endif
#ifndef CLUSTER
#define CLUSTER 2
#endif
#ifndef GROUP
#define GROUP 8
#endif
// 1: C goes out through the copy engine, which wants 16-byte rows; 0: element by element.
#ifndef COPY_OUT
#define COPY_OUT 1
#endif
// Buffers of 2 KB a warp on the way out.
#ifndef BUFFERS
#define BUFFERS 2
#endif
#define BM 64
#define A_BYTES (BM * 128)
#define B_BYTES (BN * 128)

// What a warpgroup knows of its tile's columns.
struct Columns {
  int term[BN];
#if OUT == 1 || OUT == 2
  float scale[BN];
  float shift[BN];
#endif
  u32 flip[BN / 32];
};

struct Shared {
  u8 a[STAGES][A_BYTES];
  u8 b[STAGES][B_BYTES];
#if COPY_OUT && OUT != 3
  u8 out[8][BUFFERS][2048];
#endif
  Columns columns[2];
  u64 full[STAGES];
  u64 empty[STAGES];
};

struct Tile {
  int row, col;
};

__device__ __forceinline__ int tiles_down(const Product &p) {
  return (p.m + BM * CLUSTER - 1) / (BM * CLUSTER);
}

__device__ __forceinline__ int tiles_right(const Product &p) { return (p.n + BN - 1) / BN; }

// The `index`th tile of a cluster: where its block `rank` begins.
__device__ __forceinline__ Tile tile_at(const Product &p, int index, int rank) {
  Place place = place_of(index, tiles_down(p), tiles_right(p), GROUP);
  return {(place.y * CLUSTER + rank) * BM, place.x * BN};
}

__device__ __forceinline__ int tiles_of(const Product &p) {
  return tiles_down(p) * tiles_right(p);
}

__device__ __forceinline__ void load(const Product &p, const TensorMap &a, const TensorMap &b,
                                     Shared &s, int rank) {
  int steps = (p.words + 15) / 16;
  int stage = 0;
  u32 parity = 1;  // the first wait for an empty stage passes at once
  for (int index = blockIdx.x / CLUSTER; index < tiles_of(p); index += gridDim.x / CLUSTER) {
    Tile tile = tile_at(p, index, rank);
    for (int step = 0; step < steps; step++) {
      u32 full = shared_place(&s.full[stage]);
      barrier_wait(shared_place(&s.empty[stage]), parity);
      barrier_expect(full, A_BYTES + B_BYTES);
      load_box(shared_place(s.a[stage]), &a, step * 128, tile.row, full);
#if CLUSTER == 1
      load_box(shared_place(s.b[stage]), &b, step * 128, tile.col, full);
#else
      const int part = BN / CLUSTER;
      load_box_to_all<CLUSTER>(shared_place(s.b[stage] + rank * part * 128), &b, step * 128,
                               tile.col + rank * part, full);
#endif
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  }
}

struct Ring {
  int stage;
  u32 parity;

  __device__ __forceinline__ void skip(int steps) {
    stage += steps;
    parity ^= stage / STAGES & 1;
    stage %= STAGES;
  }
};

// Warpgroups multiply in turns. Without turns the second would also wait for stages that are whole
// rounds of the ring away, which the parity of a barrier cannot tell apart.
__device__ __forceinline__ void turn_wait(int group) {
  asm volatile("bar.sync %0, 256;" ::"r"(group + 3) : "memory");
}

__device__ __forceinline__ void turn_pass(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(4 - group) : "memory");
}

// A stage was read by this warp: told to every block that may copy into it.
__device__ __forceinline__ void release(Shared &s, int stage) {
  int block = threadIdx.x % 32;
  if (block < CLUSTER)
    barrier_arrive_in_cluster(address_in(shared_place(&s.empty[stage]), block));
}

__device__ __forceinline__ void multiply(Shared &s, int (&d)[BN / 2], int steps, int group,
                                         Ring &ring) {
  int before = 0;
  turn_wait(group);
  for (int step = 0; step < steps; step++) {
    barrier_wait(shared_place(&s.full[ring.stage]), ring.parity);
    u64 a = operand(shared_place(s.a[ring.stage]));
    u64 b = operand(shared_place(s.b[ring.stage]));
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < 4; part++) product(d, a + 2 * part, b + 2 * part, step + part > 0);
    wgmma_commit();
    wgmma_wait<1>();
    if (step > 0) release(s, before);
    before = ring.stage;
    if (++ring.stage == STAGES) ring.stage = 0, ring.parity ^= 1;
  }
  turn_pass(group);  // the other's first products follow these last ones at once
  wgmma_wait<0>();
  if (steps > 0) release(s, before);
}

__device__ __forceinline__ Pair pair_at(const Columns &s, int col) {
  Pair pair;
  pair.term = *reinterpret_cast<const int2 *>(&s.term[col]);
#if OUT == 1 || OUT == 2
  pair.scale = *reinterpret_cast<const float2 *>(&s.scale[col]);
  pair.shift = *reinterpret_cast<const float2 *>(&s.shift[col]);
#endif
  return pair;
}

#if OUT == 3
// Trade a bit of the lane's number for that bit of a place in the word which moves it by SHIFT;
// `low` are the places where it is 0.
template <int SHIFT>
__device__ __forceinline__ u32 trade(u32 word, u32 low, int lane) {
  u32 other = __shfl_xor_sync(~0u, word, lane);
  bool upper = threadIdx.x & lane;
  return upper ? (word & ~low) | (other & ~low) >> SHIFT
               : (word & low) | (other & low) << SHIFT;
}

// The lanes of a quad hold columns 8 j + 2 q + e for all j; each is to hold 64 in a row. With
// j = (j4 j3 j2 j1 j0): j2 picks one of two words, (j1 j0 j4 j3 e) is a bit's place in it; trading
// (j4 j3) for the lane's (q1 q0) leaves column (j1 j0 q1 q0 e) in its place.
__device__ __forceinline__ void store(const Product &p, const TensorMap &, Shared &,
                                      const Columns &s, const int (&d)[BN / 2], Tile tile,
                                      int2 row_terms) {
  int lane = threadIdx.x % 32, quad = lane % 4;
  int row = tile.row + lane / 4;
  int words = (p.n + 63) / 64 * 2;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int term = half ? row_terms.y : row_terms.x;
    u32 word[BN / 128] = {};
#pragma unroll
    for (int place = 15; place >= 0; place--) {
#pragma unroll
      for (int part = 0; part < BN / 128; part++) {
        int high = BN == 256 ? (place & 3) << 3 | part << 2 : (place & 3) << 2;
        int j = high | place >> 2;
        int2 terms = pair_at(s, 8 * j + 2 * quad).term;
        const int *counts = &d[4 * j + 2 * half];
        // The sign says "below the threshold"; a funnel shift collects it.
        word[part] = __funnelshift_l(FORM * counts[1] + terms.y + term, word[part], 1);
        word[part] = __funnelshift_l(FORM * counts[0] + terms.x + term, word[part], 1);
      }
    }
#pragma unroll
    for (int part = 0; part < BN / 128; part++) {
      u32 traded = trade<4>(trade<2>(~word[part], 0x33333333u, 1), 0x0F0F0F0Fu, 2);
      int index = BN == 256 ? 2 * quad + part : quad;
      int at = tile.col / 32 + index;
      if (row + 8 * half < p.m && at < words)
        static_cast<u32 *>(p.out)[(row + 8 * half) * p.pitch_out + at] = traded ^ s.flip[index];
    }
  }
}
#elif COPY_OUT
// Through a warp's own 128-byte rows, swizzled as the copy engine undoes it; C's edges are clipped.
__device__ __forceinline__ void store(const Product &p, const TensorMap &c, Shared &shared,
                                      const Columns &s, const int (&d)[BN / 2], Tile tile,
                                      int2 row_terms) {
  const int width = OUT == 2 ? 64 : 32;  // columns in 128 bytes
  u64 policy = evict_first();
  int lane = threadIdx.x % 32, quad = lane % 4, row = lane / 4;
#pragma unroll
  for (int chunk = 0; chunk < BN / width; chunk++) {
    u8 *buffer = shared.out[threadIdx.x / 32 - 4][chunk % BUFFERS];
    if (lane == 0) store_wait_read<BUFFERS - 1>();
    __syncwarp();
#pragma unroll
    for (int part = 0; part < width / 8; part++) {
      int j = chunk * (width / 8) + part;
      Pair pair = pair_at(s, 8 * j + 2 * quad);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int *counts = &d[4 * j + 2 * half];
        int2 value = finished(pair, counts[0], counts[1], half ? row_terms.y : row_terms.x);
        u8 *line = buffer + (row + 8 * half) * 128;
        if (OUT == 2)
          *reinterpret_cast<int *>(line + (part ^ row) * 16 + quad * 4) = value.x;
        else
          *reinterpret_cast<int2 *>(line + ((2 * part + quad / 2) ^ row) * 16 + quad % 2 * 8) =
              value;
      }
    }
    fence_async();
    __syncwarp();
    if (lane == 0) {
      if (tile.col + chunk * width < p.n)
        store_box(&c, tile.col + chunk * width, tile.row, shared_place(buffer), policy);
      stores_commit();  // of nothing past n, so that buffers and groups stay in step
    }
  }
}
#else
// From registers, two neighbours at a time where the rows allow.
__device__ __forceinline__ void store(const Product &p, const TensorMap &, Shared &,
                                      const Columns &s, const int (&d)[BN / 2], Tile tile,
                                      int2 row_terms) {
  int lane = threadIdx.x % 32, quad = lane % 4;
  int row = tile.row + lane / 4;
#pragma unroll
  for (int j = 0; j < BN / 8; j++) {
    Pair pair = pair_at(s, 8 * j + 2 * quad);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int *counts = &d[4 * j + 2 * half];
      int2 value = finished(pair, counts[0], counts[1], half ? row_terms.y : row_terms.x);
      put_pair(p, row + 8 * half, tile.col + 8 * j + 2 * quad, value);
    }
  }
}
#endif

__device__ __forceinline__ void group_sync(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

__device__ __forceinline__ void compute(const Product &p, const TensorMap &c, Shared &s, int rank) {
  int group = threadIdx.x / 128 - 1, thread = threadIdx.x % 128, lane = thread % 32;
  int steps = (p.words + 15) / 16;
  Columns &columns = s.columns[group];
  Ring ring = {0, 0};
  int turn = 0;
  if (group == 1) turn_pass(group);
  for (int index = blockIdx.x / CLUSTER; index < tiles_of(p); index += gridDim.x / CLUSTER) {
    if (turn++ % 2 != group) {
      ring.skip(steps);
      continue;
    }
    Tile tile = tile_at(p, index, rank);
    tile.row += thread / 32 * 16;  // this warp's
    // Asked for before the products, used after them: the latency hides behind the main loop.
    int terms[BN / 128];
    u32 flips[BN / 128];
#if OUT == 1 || OUT == 2
    float scales[BN / 128], shifts[BN / 128];
#endif
#pragma unroll
    for (int i = 0; i < BN / 128; i++) {
      int col = tile.col + i * 128 + thread;
      terms[i] = column_term(p, col);
      flips[i] = OUT == 3 ? column_flip(p, col) : 0;
#if OUT == 1 || OUT == 2
      scales[i] = column_scale(p, col);
      shifts[i] = column_shift(p, col);
#endif
    }
    int row = tile.row + lane / 4;
    int2 row_terms = make_int2(row_term(p, row), row_term(p, row + 8));
    int d[BN / 2];
    multiply(s, d, steps, group, ring);
    group_sync(group);  // the columns of the tile before are read
#pragma unroll
    for (int i = 0; i < BN / 128; i++) {
      int at = i * 128 + thread;
      columns.term[at] = terms[i];
#if OUT == 1 || OUT == 2
      columns.scale[at] = scales[i];
      columns.shift[at] = shifts[i];
#endif
      if (OUT == 3) {
        u32 word = __ballot_sync(~0u, flips[i]);
        if (lane == 0) columns.flip[at / 32] = word;
      }
    }
    group_sync(group);
    store(p, c, s, columns, d, tile, row_terms);
  }
#if COPY_OUT && OUT != 3
  if (lane == 0) store_wait();
#endif
}

extern "C" __global__ void __launch_bounds__(384, 1)
#if CLUSTER > 1
    __cluster_dims__(CLUSTER, 1, 1)
#endif
        bits_wgmma(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                   const __grid_constant__ TensorMap c, const __grid_constant__ Product p) {
  extern __shared__ __align__(1024) u8 memory[];
  Shared &s = *reinterpret_cast<Shared *>(memory);
  int rank = CLUSTER > 1 ? cluster_rank() : 0;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; stage++) {
      barrier_init(shared_place(&s.full[stage]), 1);
      barrier_init(shared_place(&s.empty[stage]), 4 * CLUSTER);  // warps that read it
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync_aligned();
  if (threadIdx.x < 128) {
    registers_down<40>();
    if (threadIdx.x == 0) load(p, a, b, s, rank);
    __syncwarp();
  } else {
    registers_up<232>();
    compute(p, c, s, rank);
  }
  cluster_sync_aligned();  // nobody leaves while a neighbour may still signal its barriers
}
