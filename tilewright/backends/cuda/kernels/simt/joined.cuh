// joined: the sums of a tile of which several blocks make a part of k each. All write theirs into
// scratch; who comes last adds all of them up, part 0 first, and goes on as if alone.
//
//    tile's parts    block 3 ->  | sums |               in the order in which threads hold them,
//                    block 0 ->  | sums |  -> added     16 bytes of each thread after another, so
//                    block 9 ->  | sums |               that reads and writes are whole lines
//                                 arrived: 3, then 0 again
//
// Nobody waits for anybody, the order of sums does not depend on who is last, and a counter is
// zero again when the tile is done: launches may follow one another with nothing in between.
#pragma once

// k from `begin` on, `depth` of it: part `part` of `parts`, whose sums lie from place `first` on.
struct Piece {
    int begin, depth, first, part, parts, none[3];
};

// Piece `number`, from one on, or, for 0, all of `k`; nothing of a `k` that counts for none.
__device__ __forceinline__ Piece piece_of(const Piece *pieces, int number, int k) {
    if (!number) return {0, k, 0, 0, 1};
    Piece piece = pieces[number - 1];
    piece.depth = min(piece.depth, k);
    return piece;
}

// Whether this block goes on, with the sums of all parts.
template <int THREADS, class T, int COUNT>
__device__ __forceinline__ bool joined(T (&sum)[COUNT], const Piece &piece, T *scratch,
                                       int *arrived) {
    constexpr int EACH = 16 / sizeof(T), APART = THREADS * EACH, TILE = COUNT * THREADS;
    union Word {
        int4 word;
        T number[EACH];
    };
    __shared__ int last;
    T *first = scratch + (long long)piece.first * TILE + threadIdx.x * EACH;
#pragma unroll
    for (int i = 0; i < COUNT / EACH; i++) {
        Word w;
#pragma unroll
        for (int j = 0; j < EACH; j++) w.number[j] = sum[i * EACH + j];
        __stcg((int4 *)(first + (long long)piece.part * TILE + i * APART), w.word);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(arrived + piece.first, 1) == piece.parts - 1;
        if (last) arrived[piece.first] = 0;
    }
    __syncthreads();
    if (!last) return false;
    __threadfence();
#pragma unroll 1
    for (int part = 0; part < piece.parts; part++, first += TILE)
#pragma unroll
        for (int i = 0; i < COUNT / EACH; i++) {
            Word w;
            w.word = __ldcg((const int4 *)(first + i * APART));
#pragma unroll
            for (int j = 0; j < EACH; j++)
                sum[i * EACH + j] = part ? sum[i * EACH + j] + w.number[j] : w.number[j];
        }
    return true;
}
