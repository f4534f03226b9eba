// fp32 products whose operands do not split into halves (hopper_scale.cuh), on CUDA cores: plain
// fp32 sums of the operands as they lie, so infinities, NaN and the whole range are IEEE's.
//
//      k (16 a step)      128                  thread of a warpgroup: 2 rows, 32 columns, where
//    +------------+     +--------------+       wgmma would have its sums, so that the epilogue and
//    | 64 rows:   |  x  | 16 x 128     |       the way to memory are hopper_split.cu's own
//    | group 0    |     +--------------+
//    | 64: gr. 1  |     steps are two deep in shared memory: one is read while the next arrives
//    +------------+
//
// The records are hopper_split.cu's, of which those of problems that failed are worked on; THREADS
// are looked through at once. Where no problem failed a block only puts its share of the counts
// back to zero, else the last block to finish does so with all: the next packing pass finds zeros.
#include "hopper_wgmma.cuh"
#include "hopper_tiles.cuh"
#include "hopper_epilogue.cuh"
#include "hopper_scale.cuh"
#include "hopper_sums.cuh"

constexpr int THREADS = 128 * WARPGROUPS, STEP = 16, LEFT_ROWS = 64 * WARPGROUPS;
// Rows of shared memory are padded so that 16 k of 2 neighbours, as they are written, are 32 banks.
constexpr int LEFT_PITCH = LEFT_ROWS + 2, RIGHT_PITCH = WIDTH + 2;

typedef ScalarsOf<float> Scalars;

// Which of FREE x STEP numbers are this thread's: neighbours along the runs to neighbouring
// threads.
template <int MN, int FREE> struct Share {
    static constexpr int COUNT = FREE * STEP / THREADS;
    static constexpr int FREE_APART = MN ? 0 : THREADS / STEP, K_APART = MN ? THREADS / FREE : 0;
    static_assert(THREADS % FREE == 0 && THREADS % STEP == 0, "shares are evenly apart");
    int free = MN ? threadIdx.x % FREE : threadIdx.x / STEP;
    int k = MN ? threadIdx.x / FREE : threadIdx.x % STEP;
};

template <int MN, int FREE>
__device__ __forceinline__ void fetch(float (&v)[FREE * STEP / THREADS], const Source<MN>& s,
                                      int step) {
    using Mine = Share<MN, FREE>;
    Mine mine;
    int k = step * STEP + mine.k;
    const char* from = s.corner + s.free_bytes * mine.free + s.k_bytes * k;
    long long apart = MN ? s.k_bytes * Mine::K_APART : s.free_bytes * Mine::FREE_APART;
#pragma unroll
    for (int i = 0; i < Mine::COUNT; ++i) {
        bool inside = mine.free + i * Mine::FREE_APART < s.free_left && k + i * Mine::K_APART < s.k;
        v[i] = inside ? __ldg((const float*)(from + i * apart)) : 0.0f;
    }
}

template <int MN, int FREE>
__device__ __forceinline__ void keep(float* into, const float (&v)[FREE * STEP / THREADS]) {
    using Mine = Share<MN, FREE>;
    Mine mine;
#pragma unroll
    for (int i = 0; i < Mine::COUNT; ++i)
        into[(mine.k + i * Mine::K_APART) * (FREE + 2) + mine.free + i * Mine::FREE_APART] = v[i];
}

__device__ __forceinline__ void multiply_step(float (&sum)[WIDTH / 2], const float* left,
                                              const float* right) {
    int lane = threadIdx.x & 31, row = 16 * (threadIdx.x / 32) + (lane >> 2),
        column = 2 * (lane & 3);
#pragma unroll 4
    for (int k = 0; k < STEP; ++k) {
        float a0 = left[k * LEFT_PITCH + row], a1 = left[k * LEFT_PITCH + row + 8];
#pragma unroll
        for (int b = 0; b < WIDTH / 8; ++b) {
            float2 y = *(const float2*)(right + k * RIGHT_PITCH + 8 * b + column);
            sum[4 * b] = fmaf(a0, y.x, sum[4 * b]);
            sum[4 * b + 1] = fmaf(a0, y.y, sum[4 * b + 1]);
            sum[4 * b + 2] = fmaf(a1, y.x, sum[4 * b + 2]);
            sum[4 * b + 3] = fmaf(a1, y.y, sum[4 * b + 3]);
        }
    }
}

// Sums of 128 k are added up: one sum of all k would have twice the error of cuBLAS's for k of 512.
__device__ __forceinline__ void multiply_tile(float (&total)[WIDTH / 2], float* memory,
                                              const Source<LEFT_MN>& a, const Source<RIGHT_MN>& b) {
    constexpr int BUFFER = STEP * (LEFT_PITCH + RIGHT_PITCH), TOGETHER = 128 / STEP;
    float left[LEFT_ROWS * STEP / THREADS], right[WIDTH * STEP / THREADS], sum[WIDTH / 2];
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) total[i] = sum[i] = 0.0f;
    int steps = (a.k + STEP - 1) / STEP;
    fetch<LEFT_MN, LEFT_ROWS>(left, a, 0);
    fetch<RIGHT_MN, WIDTH>(right, b, 0);
    for (int step = 0; step < steps; ++step) {
        float* buffer = memory + (step & 1) * BUFFER;
        keep<LEFT_MN, LEFT_ROWS>(buffer, left);
        keep<RIGHT_MN, WIDTH>(buffer + STEP * LEFT_PITCH, right);
        __syncthreads();
        if (step + 1 < steps) {
            fetch<LEFT_MN, LEFT_ROWS>(left, a, step + 1);
            fetch<RIGHT_MN, WIDTH>(right, b, step + 1);
        }
        multiply_step(sum, buffer, buffer + STEP * LEFT_PITCH);
        if (step % TOGETHER == TOGETHER - 1 || step + 1 == steps) {
#pragma unroll
            for (int i = 0; i < WIDTH / 2; ++i) total[i] += sum[i], sum[i] = 0.0f;
        }
    }
    __syncthreads();
}

// Whether this block is the last of all to come here.
__device__ __forceinline__ bool last_block(State* launch) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&launch->counts[1], 1) == gridDim.x - 1;
    __syncthreads();
    return last;
}

__device__ __forceinline__ bool ours(const Table& table, int t, const State* states) {
    Shape s = shape_of(quad(table, t, 0), 0, 0);
    return s.width && failed(states[quad(table, t, 3).z]);
}

__device__ __forceinline__ void work_on(const Table& table, int t, const Matrix* matrices,
                                        const Scalars* scalars, u32 pieces, float* buffers) {
    int4 place = quad(table, t, 3), address = quad(table, t, 4);
    Shape s = shape_of(quad(table, t, 0), quad(table, t, 1).w, quad(table, t, 2).w);
    int group = threadIdx.x / 128;
    float sum[WIDTH / 2];
    multiply_tile(sum, buffers, {matrices[2 * place.z], place.x, s.rows},
                  {matrices[2 * place.z + 1], place.y, s.columns});
    if (64 * group >= s.rows) return;
    finish<WIDTH>(sum, scalars, place, s, group);
    store_tile<WIDTH>(pieces + group * SLOTS * PIECE, sum, s, place, address, group);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    hopper_exact(const int4* __restrict__ tiles, int count, const Matrix* __restrict__ matrices,
                 const Scalars* __restrict__ scalars, State* states, int problems) {
    extern __shared__ __align__(16) char shared[];
    State* launch = states + problems;
    bool failures = *(volatile u32*)&launch->counts[0];
    if (failures) {
        __shared__ int found, mine[THREADS];
        u32 pieces = shared_address(shared);
        float* buffers = (float*)(shared + WARPGROUPS * SLOTS * PIECE);
        Table table = {tiles, count};
        for (int base = blockIdx.x; base < count; base += THREADS * gridDim.x) {
            int t = base + threadIdx.x * gridDim.x;
            if (threadIdx.x == 0) found = 0;
            __syncthreads();
            if (t < count && ours(table, t, states)) mine[atomicAdd(&found, 1)] = t;
            __syncthreads();
            for (int i = 0; i < found; ++i)
                work_on(table, mine[i], matrices, scalars, pieces, buffers);
            __syncthreads();
        }
    }
    if (failures && !last_block(launch)) return;
    int first = failures ? 0 : blockIdx.x, blocks = failures ? 1 : gridDim.x;
    for (int i = first * THREADS + threadIdx.x; i <= problems; i += blocks * THREADS)
        states[i].counts[0] = states[i].counts[1] = 0;
}
