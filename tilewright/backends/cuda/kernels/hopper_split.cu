// fp32 products as accurate as fp32's own, on tensor cores: the packing pass has split operands
// into PLANES bfloat16 parts, x = x0 + x1 + x2, each rounded from what the ones before left.
//
//        k (64 a step), 3 planes       width <= 128
//      +---+---+---+                 +--------------+
//  64  | 0 | 1 | 2 | consumer 0   x  | 0 | 1 | 2    |     per step x0 y2 + x1 y1 + x2 y0
//      +---+---+---+                 | planes of k  |              + x0 y1 + x1 y0 + x0 y0
//  64  | 0 | 1 | 2 | consumer 1      +--------------+     (6 of 9; the others are below fp32)
//      +---+---+---+
//
// wgmma sums in fewer bits than fp32 has, so each step's sum is added to an fp32 one in registers:
// without that errors were 10 to 100 times larger. Warp 0 loads, the consumers store.
// Records, order and deal are those of hopper_multiply.cu; everything is packed, so one map serves.
#undef BF16
#define BF16 1  // the parts
#include "hopper_ptx.cuh"
#include "hopper_tiles.cuh"
#include "hopper_store.cuh"
#include "hopper_epilogue.cuh"

constexpr int BOX = 64 * 64 * 2;
constexpr int BOXES = WARPGROUPS + WIDTH / 64;  // of one plane in a stage: left, then right
constexpr int STAGE_BYTES = PLANES * BOXES * BOX;
constexpr int PIECES = STAGES * STAGE_BYTES;  // where pieces of C begin: 64 rows of 32 numbers
constexpr int BARRIERS = PIECES + WARPGROUPS * SLOTS * BOX;

typedef ScalarsOf<float> Scalars;

struct Ring {
    int place = 0, phase = 0;
    __device__ __forceinline__ void next() {
        if (++place == STAGES) place = 0, phase ^= 1;
    }
};

__device__ void load_tiles(u32 memory, const Table& tiles, const char* map, int plane_rows) {
    Ring ring;
    for (int t = blockIdx.x; t < tiles.count; t += gridDim.x) {
        int4 left = quad(tiles, t, 1), right = quad(tiles, t, 2);
        Shape s = shape_of(quad(tiles, t, 0), left.w, right.w);
        Walk a = {map, left.x, left.y, left.z, 1}, b = {map, right.x, right.y, right.z, 1};
        int lefts = s.rows > 64 ? WARPGROUPS : 1, rights = (s.width + 63) / 64;
        for (int step = 0; step < s.steps; ++step) {
            u32 full = memory + BARRIERS + 8 * ring.place, into = memory + ring.place * STAGE_BYTES;
            barrier_wait(full + 8 * STAGES, ring.phase ^ 1);
            barrier_expect(full, PLANES * (lefts + rights) * BOX);
            for (int p = 0; p < PLANES; ++p, into += BOXES * BOX) {
                a.y = left.y + p * plane_rows, b.y = right.y + p * plane_rows;
                for (int h = 0; h < lefts; ++h)
                    load_operand<LEFT_MN>(into + h * BOX, a, step, h, full);
                for (int h = 0; h < rights; ++h)
                    load_operand<RIGHT_MN>(into + (WARPGROUPS + h) * BOX, b, step, h, full);
            }
            ring.next();
        }
    }
}

// SLOTS pieces of 32 columns at a time through shared memory, so that whole rows are stored.
template <int W>
__device__ __forceinline__ void store_tile(u32 pieces, float (&d)[W / 2], Shape s, int4 place,
                                           int4 address, int group) {
    int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    u32* c =
        (u32*)(((u64)(u32)address.y << 32) | (u32)address.x) + (long long)place.w * (64 * group);
    int rows = s.rows - 64 * group < 64 ? s.rows - 64 * group : 64;
#pragma unroll
    for (int first = 0; first < W / 32; first += SLOTS) {
        constexpr int ALL = W / 32;
        asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
#pragma unroll
        for (int j = 4 * first; j < 4 * ALL && j < 4 * (first + SLOTS); ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int row = 16 * warp + 8 * half + (lane >> 2),
                    chunk = 2 * (j & 3) + ((lane & 3) >> 1);
                u32 at = pieces + BOX * (j / 4 - first) + 128 * row + ((chunk ^ (row & 7)) << 4) +
                         8 * (lane & 1);
                asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(d[4 * j + 2 * half]),
                             "f"(d[4 * j + 2 * half + 1])
                             : "memory");
            }
        }
        asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
        int side_by_side = ALL - first < SLOTS ? ALL - first : SLOTS,
            columns = s.columns - 32 * first;
        if (columns > 0)
            store_rows<u32>(pieces, SLOTS, 0, side_by_side, c + 32 * first, place.w, rows,
                            columns < 32 * side_by_side ? columns : 32 * side_by_side, warp, 4);
    }
}

// The products of one step, the smallest first, into `sum`, which they overwrite. All 64 of k:
// packing fills them with zeros, since a shorter last step, a copy of this, spilled registers.
template <int W>
__device__ __forceinline__ void multiply_step(float (&sum)[W / 2], u32 left, u32 right) {
    constexpr u64 LEFT_SLICE = (LEFT_MN ? 2048 : 32) >> 4,
                  RIGHT_SLICE = (RIGHT_MN ? 2048 : 32) >> 4;
#pragma unroll
    for (int order = PLANES - 1; order >= 0; --order) {
#pragma unroll
        for (int p = 0; p <= order; ++p) {
            u64 a = matrix_descriptor(left + p * BOXES * BOX),
                b = matrix_descriptor(right + (order - p) * BOXES * BOX);
#pragma unroll
            for (int i = 0; i < 4; ++i)
                Multiply<W>::go(sum, a + i * LEFT_SLICE, b + i * RIGHT_SLICE,
                                order < PLANES - 1 || p || i);
        }
    }
}

template <int W>
__device__ __forceinline__ void multiply_tile(u32 memory, Shape s, int4 place, int4 address,
                                              const Scalars* scalars, int group, Ring& ring) {
    float total[W / 2], sum[W / 2];
    bool first = (threadIdx.x & 31) == 0;
#pragma unroll
    for (int i = 0; i < W / 2; ++i) total[i] = 0.0f;
    for (int step = 0; step < s.steps; ++step, ring.next()) {
        u32 full = memory + BARRIERS + 8 * ring.place, stage = memory + ring.place * STAGE_BYTES;
        barrier_wait(full, ring.phase);
        wgmma_fence();
        multiply_step<W>(sum, stage + group * BOX, stage + WARPGROUPS * BOX);
        wgmma_commit();
        wgmma_wait<0>();
        if (first) barrier_arrive(full + 8 * STAGES);
#pragma unroll
        for (int i = 0; i < W / 2; ++i) total[i] += sum[i];
    }
    finish<W>(total, scalars, place, s, group);
    store_tile<W>(memory + PIECES + group * SLOTS * BOX, total, s, place, address, group);
}

__device__ void multiply_tiles(u32 memory, const Table& tiles, const Scalars* scalars, int group) {
    Ring ring;
    for (int t = blockIdx.x; t < tiles.count; t += gridDim.x) {
        int4 place = quad(tiles, t, 3), address = quad(tiles, t, 4);
        Shape s = uniform(shape_of(quad(tiles, t, 0), quad(tiles, t, 1).w, quad(tiles, t, 2).w));
        if (s.width == 0) continue;
        if (64 * group >= s.rows) {
            for (int step = 0; step < s.steps; ++step, ring.next()) {
                barrier_wait(memory + BARRIERS + 8 * ring.place, ring.phase);
                if ((threadIdx.x & 31) == 0)
                    barrier_arrive(memory + BARRIERS + 8 * (STAGES + ring.place));
            }
            continue;
        }
#define CASE(W)                                                            \
    case W / 32:                                                           \
        multiply_tile<W>(memory, s, place, address, scalars, group, ring); \
        break;
        switch (s.width / 32) { CASE(32) CASE(64) CASE(96) CASE(128) }
    }
}

extern "C" __global__ void __launch_bounds__(128 * (WARPGROUPS + 1), BLOCKS)
    hopper_split(const int4* __restrict__ tiles, int count, const char* __restrict__ map,
                 int plane_rows, const Scalars* __restrict__ scalars) {
    extern __shared__ __align__(1024) char shared[];
    u32 memory = (shared_address(shared) + 1023) & ~1023u;
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
        multiply_tiles(memory, table, scalars, warp / 4 - 1);
    }
}
