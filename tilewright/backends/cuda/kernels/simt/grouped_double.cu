// grouped_double: fp64 tiles of many problems of unlike sizes, by Hopper's tensor cores. A block a
// tile, tiles, problems and PARTS as grouped_single.cu has them.
//
//                    B  8 columns a fragment
//                       0 1 0 1 0 1 0 1         which warp of two across
//     A  16 rows     0  +-------------+
//     a fragment     1  |             |         fragments go to warps in turn, so that the four of
//                    0  |   64 x 64   |         them share tiles at edges too: those with no row or
//                    1  +-------------+         column that exists are not multiplied
//                    which warp of two down
//
// mma of 16 x 8 x 16, where Triton's are of 8 x 8 x 4. Rows and columns that do not exist stay as
// shared memory has them: they make no number that is stored. k that does not exist is zero.
// GENERAL: C = activation(alpha sum + beta C + bias). Steps of A, B and C along their rows are 1.
typedef long long i64;
typedef unsigned int u32;
#include "joined.cuh"

constexpr int THREADS = 128, SIDE = 64, DEPTH = 16, RESIDENT = 3, SUMS = SIDE * SIDE / THREADS;
constexpr int A_STEP = DEPTH + 4, B_STEP = SIDE + 4;  // lanes of half a warp read 16 banks
constexpr int A_WORDS = SIDE * A_STEP, STAGE = A_WORDS + DEPTH * B_STEP;

__device__ __forceinline__ void copy(double *to, const double *from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(
                     (u32)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(inside ? 8 : 0)
                 : "memory");
}

struct Tile {
    const double *a, *b;
    i64 a_step, b_step;
    int rows, columns, k, steps;

    // The next step's numbers, a thread one k of every eighth row, and a column of every second k.
    __device__ __forceinline__ void load(int step, double *to) const {
        if (step < steps) {
            const int left = k - step * DEPTH;
            const int mine = threadIdx.x % DEPTH, row = threadIdx.x / DEPTH;
            const double *from = a + row * a_step + (mine < left ? step * DEPTH + mine : 0);
            double *at = to + row * A_STEP + mine;
#pragma unroll
            for (int i = 0; i < SIDE; i += THREADS / DEPTH) {
                if (row + i < rows) copy(at + i * A_STEP, from, mine < left);
                from += THREADS / DEPTH * a_step;
            }
            const int column = threadIdx.x % SIDE, first = threadIdx.x / SIDE;
            from = b + ((i64)step * DEPTH + first) * b_step + column;
            at = to + A_WORDS + first * B_STEP + column;
            if (column < columns)
#pragma unroll
                for (int i = 0; i < DEPTH; i += THREADS / SIDE) {
                    copy(at + i * B_STEP, first + i < left ? from : b, first + i < left);
                    from += THREADS / SIDE * b_step;
                }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
};

__device__ __forceinline__ void multiply(double *sum, const double (&a)[8],
                                         const double (&b)[4]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3},"
                 " {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
                 : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]),
                   "d"(a[7]), "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
}

// A step: the fragments of this warp, of which `down` by `across` are there, or all.
template <bool WHOLE>
__device__ __forceinline__ void add_step(double (&sum)[SUMS], const double *stage, int wm, int wn,
                                         int down, int across) {
    const int lane = threadIdx.x % 32;
    const double *left = stage + (16 * wm + lane / 4) * A_STEP + lane % 4;
    const double *right = stage + A_WORDS + lane % 4 * B_STEP + 8 * wn + lane / 4;
    double a[2][8], b[4][4];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int l = 0; l < 8; l++) a[i][l] = left[(32 * i + l % 2 * 8) * A_STEP + l / 2 * 4];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int l = 0; l < 4; l++) b[j][l] = right[4 * l * B_STEP + 16 * j];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (WHOLE || (i < down && j < across)) multiply(sum + 16 * i + 4 * j, a[i], b[j]);
}

__device__ __forceinline__ double finished(double sum, const double *c, const i64 *p, int column) {
#if GENERAL
    const double beta = __longlong_as_double(p[14]);
    double value = __longlong_as_double(p[13]) * sum;
    if (beta != 0.0) value += beta * *c;
    if (p[3]) value += ((const double *)p[3])[column];
    if (ACTIVATION == 1) value = value < 0.0 ? 0.0 : value;  // a NaN stays one
    if (ACTIVATION == 2) value = 0.5 * value * (1.0 + erf(value * 0.70710678118654752));
    return value;
#else
    return sum;
#endif
}

__device__ __forceinline__ void write(double *to, double x) {
    asm volatile("st.global.f64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "d"(x) : "memory");
}

// Writes the sums of `m` rows and `n` columns. Of two neighbouring rows' four lanes each all eight
// write a row's eight numbers of a fragment, then the other's: whole sectors of memory.
__device__ __forceinline__ void finish(const double (&sum)[SUMS], const int4 &tile, const i64 *p,
                                       int wm, int wn, int m, int n) {
    const int lane = threadIdx.x % 32;
    const bool odd = lane & 4;
    const i64 c_row = p[11];
    const int row = 16 * wm + lane / 8 * 2, column = 8 * wn + lane % 4 * 2 + odd;
    double *c = (double *)p[2] + (tile.y + row) * c_row + tile.z + column;
#pragma unroll
    for (int at = 0; at < 8; at++) {
        const int i = at / 4, half = at / 2 % 2, next = at % 2, below = 32 * i + 8 * half + next;
        double *to = c + below * c_row;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const double *two = sum + 16 * i + 4 * j + 2 * half;
            const double other = __shfl_xor_sync(~0u, two[1 - next], 4);
            const double value = odd == (next == 1) ? two[next] : other;
            if (row + below < m && column + 16 * j < n)
                write(to + 16 * j, finished(value, to + 16 * j, p, tile.z + column + 16 * j));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
grouped_double(const i64 *problems, const int4 *tiles, const Piece *pieces, int *arrived,
               double *scratch) {
    extern __shared__ __align__(16) double memory[];
    const int4 tile = tiles[blockIdx.x];
    const i64 *p = problems + 16 * (i64)tile.x;
    const Piece piece = PARTS ? piece_of(pieces, tile.w, (int)p[6]) : Piece{0, (int)p[6], 0, 0, 1};
    const int wm = threadIdx.x / 32 % 2, wn = threadIdx.x / 64, k = piece.depth;
    const int m = min((int)p[4] - tile.y, SIDE), n = min((int)p[5] - tile.z, SIDE);
    const Tile from = {(const double *)p[0] + tile.y * p[7] + piece.begin,
                       (const double *)p[1] + piece.begin * p[9] + tile.z,
                       p[7], p[9], m, n, k, (k + DEPTH - 1) / DEPTH};
    // Of every second fragment, from the warp's first on, those that exist.
    const int down = (m - 16 * wm + 31) / 32, across = (n - 8 * wn + 15) / 16;
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; i++) from.load(i, memory + i * STAGE);
    double sum[SUMS] = {};
    int now = 0, later = STAGES - 1;
#pragma unroll 1
    for (int step = 0; step < from.steps; step++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        from.load(step + STAGES - 1, memory + later * STAGE);
        if (down == 2 && across == 4) add_step<true>(sum, memory + now * STAGE, wm, wn, 2, 4);
        else add_step<false>(sum, memory + now * STAGE, wm, wn, down, across);
        now = now + 1 == STAGES ? 0 : now + 1, later = later + 1 == STAGES ? 0 : later + 1;
    }
    // Read again: there are no registers to keep it in.
    const int number = PARTS ? tiles[blockIdx.x].w : 0;
    if (number && !joined<THREADS>(sum, pieces[number - 1], scratch, arrived)) return;
    finish(sum, tile, p, wm, wn, m, n);
}
