// fp32 products as accurate as fp32's own, on tensor cores: the packing pass has split operands
// into two halves, x 2^e = h0 + h1 2^-11 (hopper_scale.cuh).
//
//        k (64 a step)             width <= 128
//      +----+----+               +--------------+      32 of k     high  = h0 h0
//  64  | h0 | h1 | consumer 0  x | h0 | h1      |                  total += high   (fp32 chains)
//      +----+----+               | planes of k  |      all of k    low  += h0 h1 + h1 h0  (wgmma's)
//  64  | h0 | h1 | consumer 1    +--------------+
//      +----+----+                                    C = (total + low 2^-11) 2^-(e left + e right)
//
// wgmma sums in fewer bits than fp32 has, so `high` is added to an fp32 sum in registers after each
// part (without that errors were 10 to 100 times larger), while wgmma is at work on `low`, which
// counts 2^-11 as much and may stay where it is. h1 h1 is below fp32. After Ootomo and Yokota,
// "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical
// peak performance" (2022). Warp 0 loads, the consumers store. Problems that failed are not stored.
// Records, order and deal are those of hopper_multiply.cu; everything is packed, so one map serves.
#include "hopper_wgmma.cuh"
#include "hopper_tiles.cuh"
#include "hopper_ring.cuh"
#include "hopper_epilogue.cuh"
#include "hopper_scale.cuh"
#include "hopper_sums.cuh"

constexpr int BOX = 64 * 64 * 2;
// wgmma's sums are cut, not rounded, to fp32: on an H200 results of uniform numbers lacked 1.35 x
// 2^-24 of themselves. Sums of few terms lack nothing, so half of 2^-24 is added, rounded once with
// `low`: of 95 % zeros errors were 1.2e-7 with all of it and 0.9e-7 so, of uniform numbers 1.1e-7
// and 1.2e-7.
constexpr float CUT = 0x1p-25f;
constexpr int SLICES = 2, PARTS = 4 / SLICES;  // of 16 k, in a part; the last may be left out
constexpr int LONG = 96;  // parts in a chain of fp32 additions: 3072 of k
constexpr int BOXES = WARPGROUPS + WIDTH / 64;  // of one plane in a stage: left, then right
constexpr int STAGE_BYTES = PLANES * BOXES * BOX;
constexpr int PIECES = STAGES * STAGE_BYTES;
constexpr int BARRIERS = PIECES + WARPGROUPS * SLOTS * PIECE;

typedef ScalarsOf<float> Scalars;

// Both operands of every problem, as they lie, and what packing said of them.
struct Operands {
    const Matrix* matrices;
    const State* states;
};

// Of up to 4 products fp32's errors are smaller than two halves allow (3 times for k = 1, twice for
// 4, normally distributed). Those are multiplied on CUDA cores, from the operands as they lie.
// (With up to 16 products, 1000 problems of 1..256 took 0.017 ms more than by wgmma alone on an
// H200.)
constexpr int SHALLOW = 32;  // packing.py

__device__ __forceinline__ bool shallow(const Shape& s) { return s.flags & SHALLOW; }

__device__ __forceinline__ int loads(const Shape& s) { return shallow(s) ? 0 : s.steps; }

__device__ void load_tiles(u32 memory, const Table& tiles, const char* map, int plane_rows) {
    Ring<STAGES> ring;
    int t = blockIdx.x;
    if (t >= tiles.count) return;
    acquire_map(map);
    int4 head = quad(tiles, t, 0), left = quad(tiles, t, 1), right = quad(tiles, t, 2);
    for (;;) {
        Shape s = shape_of(head, left.w, right.w);
        Walk a = {map, left.x, left.y, left.z, 1}, b = {map, right.x, right.y, right.z, 1};
        t += gridDim.x;
        bool more = t < tiles.count;
        if (more) head = quad(tiles, t, 0), left = quad(tiles, t, 1), right = quad(tiles, t, 2);
        int steps = loads(s);
        int lefts = s.rows > 64 ? WARPGROUPS : 1, rights = (s.width + 63) / 64;
        for (int step = 0; step < steps; ++step) {
            u32 full = memory + BARRIERS + 8 * ring.place, into = memory + ring.place * STAGE_BYTES;
            barrier_wait(full + 8 * STAGES, ring.phase ^ 1);
            barrier_expect(full, PLANES * (lefts + rights) * BOX);
#pragma unroll
            for (int p = 0; p < PLANES; ++p, into += BOXES * BOX) {
                Walk l = a, r = b;
                l.y += p * plane_rows, r.y += p * plane_rows;
                for (int h = 0; h < lefts; ++h)
                    load_operand<LEFT_MN>(into + h * BOX, l, step, h, full);
                for (int h = 0; h < rights; ++h)
                    load_operand<RIGHT_MN>(into + (WARPGROUPS + h) * BOX, r, step, h, full);
            }
            ring.next();
        }
        if (!more) break;
    }
}

// What wgmma wrote, not to be read before the wait that stands above this.
template <int W> __device__ __forceinline__ void settled(float (&d)[W / 2]) {
#pragma unroll
    for (int i = 0; i < W / 2; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d (+)= one plane of the left by one of the right, from slice `at` of a step's four on.
template <int W>
__device__ __forceinline__ void multiply_planes(float (&d)[W / 2], u32 left, u32 right, int at,
                                                int keep) {
    constexpr u64 LEFT_SLICE = (LEFT_MN ? 2048 : 32) >> 4,
                  RIGHT_SLICE = (RIGHT_MN ? 2048 : 32) >> 4;
    u64 a = matrix_descriptor(left) + at * LEFT_SLICE;
    u64 b = matrix_descriptor(right) + at * RIGHT_SLICE;
#pragma unroll
    for (int i = 0; i < SLICES; ++i)
        Multiply<W>::go(d, a + i * LEFT_SLICE, b + i * RIGHT_SLICE, i ? 1 : keep);
}

// What the chains before gave, in memory of the thread's own, as registers are all taken. In one
// chain of all k = 20,000 equal numbers were 2.7 times as far off as cuBLAS's.
template <int W> struct Before {
    __align__(16) float held[W / 2];
    __device__ __forceinline__ u64 at(int i) { return __cvta_generic_to_local(held + 4 * i); }
    // `sum` begins anew, and is added to what is held unless this is the first.
    __device__ __forceinline__ void take(float (&sum)[W / 2], bool first) {
        if (!first) add_to(sum);
#pragma unroll
        for (int i = 0; i < W / 8; ++i) {
            float* s = sum + 4 * i;
            asm volatile("st.local.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at(i)), "f"(s[0]),
                         "f"(s[1]), "f"(s[2]), "f"(s[3])
                         : "memory");
            s[0] = s[1] = s[2] = s[3] = 0.0f;
        }
    }
    __device__ __forceinline__ void add_to(float (&sum)[W / 2]) {
#pragma unroll
        for (int i = 0; i < W / 8; ++i) {
            float x, y, z, w, *s = sum + 4 * i;
            asm volatile("ld.local.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                         : "l"(at(i)));
            s[0] += x, s[1] += y, s[2] += z, s[3] += w;
        }
    }
};

// The sum over all of k of what the halves hold, scaled back.
template <int W>
__device__ __forceinline__ void multiply_halves(float (&total)[W / 2], u32 memory, Shape s,
                                                int scale, int group, Ring<STAGES>& ring) {
    constexpr int PLANE = BOXES * BOX;
    float high[W / 2], low[W / 2];
    bool first = (threadIdx.x & 31) == 0;
    u32 full = 0;
    if (s.steps == 0) {
#pragma unroll
        for (int i = 0; i < W / 2; ++i) low[i] = 0.0f;
    }
    Before<W> before;
    int parts = PARTS * s.steps - (4 - s.slices) / SLICES;
    for (int begin = 0; begin < parts; begin += LONG) {
        if (begin) before.take(total, begin == LONG);
        int end = parts - begin < LONG ? parts : begin + LONG;
        for (int p = begin; p < end; ++p) {
            int part = p % PARTS;
            u32 previous = full + 8 * STAGES, stage = memory + ring.place * STAGE_BYTES;
            u32 left = stage + group * BOX, right = stage + WARPGROUPS * BOX;
            full = memory + BARRIERS + 8 * ring.place;
            if (part == 0) barrier_wait(full, ring.phase);
            wgmma_fence();
            multiply_planes<W>(high, left, right, part * SLICES, 0);
            wgmma_commit();
            multiply_planes<W>(low, left, right + PLANE, part * SLICES, p);
            multiply_planes<W>(low, left + PLANE, right, part * SLICES, 1);
            wgmma_commit();
            wgmma_wait<1>();
            settled<W>(high);
            // `high` came after all of the part before.
            if (p && part == 0 && first) barrier_arrive(previous);
            if (part == PARTS - 1) ring.next();
#pragma unroll
            for (int i = 0; i < W / 2; ++i) total[i] += high[i];
        }
    }
    if (parts > LONG) before.add_to(total);
    wgmma_wait<0>();
    settled<W>(low);
    if (parts && first) barrier_arrive(full + 8 * STAGES);
    if (parts % PARTS) ring.next();
#pragma unroll
    for (int i = 0; i < W / 2; ++i) {
        float rest = fmaf(low[i], power_of_two(-SHIFT), CUT * total[i]);
        total[i] = unscaled(total[i] + rest, scale);
    }
}

// The same of a shallow tile, from the operands as they lie.
template <int W>
__device__ __forceinline__ void multiply_directly(float (&total)[W / 2], Shape s, int4 place,
                                                  const Matrix* operands, int group) {
    Source<LEFT_MN> a(operands[0], place.x, s.rows);
    Source<RIGHT_MN> b(operands[1], place.y, s.columns);
    int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    int row = 64 * group + 16 * warp + (lane >> 2), column = 2 * (lane & 3);
#pragma unroll 1
    for (int k = 0; k < a.k; ++k) {
        float upper = a.at(row, k), lower = a.at(row + 8, k), right[W / 4];
        const char* place = b.corner + b.k_bytes * k + b.free_bytes * column;
#pragma unroll
        for (int j = 0; j < W / 8; ++j, place += 8 * b.free_bytes) {
            right[2 * j] = 8 * j + column < b.free_left ? read_number(place) : 0.0f;
            right[2 * j + 1] =
                8 * j + column + 1 < b.free_left ? read_number(place + b.free_bytes) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < W / 2; ++i)
            total[i] = fmaf(i & 2 ? lower : upper, right[i / 4 * 2 + (i & 1)], total[i]);
    }
}

// What a consumer has to know of a tile, as it was loaded.
struct Record {
    int4 head, place, address;
    int rows, columns;
};

__device__ __forceinline__ Record record(const Table& tiles, int t) {
    if (t >= tiles.count) return {};
    return {quad(tiles, t, 0), quad(tiles, t, 3), quad(tiles, t, 4), quad(tiles, t, 1).w,
            quad(tiles, t, 2).w};
}

// Leaves the record of tile `t`, the next, in `next`: asked for when registers are free again.
template <int W>
__device__ __forceinline__ void multiply_tile(u32 memory, Shape s, const Table& tiles, int t,
                                              Record& next, const Scalars* scalars,
                                              const Operands& operands, int group,
                                              Ring<STAGES>& ring) {
    float total[W / 2];
    int4 place = next.place, address = next.address;
    const State* at = operands.states + place.z;
    int scale = at->exponent[0] + at->exponent[1];
    u32 counts = at->counts[0] | at->counts[1];
#pragma unroll
    for (int i = 0; i < W / 2; ++i) total[i] = 0.0f;
    if (shallow(s))
        multiply_directly<W>(total, s, place, operands.matrices + 2 * place.z, group);
    else
        multiply_halves<W>(total, memory, s, scale, group, ring);
    next = record(tiles, t);
    if (counts & FAILED) return;
    finish<W>(total, scalars, place, s, group);
    store_tile<W>(memory + PIECES + group * SLOTS * PIECE, total, s, place, address, group);
}

__device__ void multiply_tiles(u32 memory, const Table& tiles, const Scalars* scalars,
                               const Operands& operands, int group) {
    Ring<STAGES> ring;
    Record next = record(tiles, blockIdx.x);
    for (int t = blockIdx.x; t < tiles.count;) {
        Shape s = uniform(shape_of(next.head, next.rows, next.columns));
        t += gridDim.x;
        if (s.width == 0 || 64 * group >= s.rows) {
            next = record(tiles, t);
            for (int step = 0; step < loads(s); ++step, ring.next()) {
                barrier_wait(memory + BARRIERS + 8 * ring.place, ring.phase);
                if ((threadIdx.x & 31) == 0)
                    barrier_arrive(memory + BARRIERS + 8 * (STAGES + ring.place));
            }
            continue;
        }
#define CASE(W)                                                                      \
    case W / 32:                                                                     \
        multiply_tile<W>(memory, s, tiles, t, next, scalars, operands, group, ring); \
        break;
        switch (s.width / 32) { CASE(32) CASE(64) CASE(96) CASE(128) }
    }
}

extern "C" __global__ void __launch_bounds__(128 * (WARPGROUPS + 1), BLOCKS)
    hopper_split(const int4* __restrict__ tiles, int count, const char* __restrict__ map,
                 int plane_rows, const Scalars* __restrict__ scalars,
                 const Matrix* __restrict__ matrices, const State* __restrict__ states) {
    extern __shared__ __align__(1024) char shared[];
    u32 memory = shared_address(shared);
    if (memory % 1024) __trap();  // no room is left to align it, and none was ever needed
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(memory + BARRIERS + 8 * i, 1);
            barrier_init(memory + BARRIERS + 8 * (STAGES + i), 4 * WARPGROUPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        fence_async();
    }
    __syncthreads();
    Table table = {tiles, count};
    int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp < 4) {
        registers_down<LOADER_REGISTERS>();
        if (threadIdx.x == 0) load_tiles(memory, table, map, plane_rows);
    } else {
        registers_up<CONSUMER_REGISTERS>();
        multiply_tiles(memory, table, scalars, {matrices, states}, warp / 4 - 1);
    }
}
