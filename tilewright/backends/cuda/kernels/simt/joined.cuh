// joined: the sums of a tile of which several blocks make a part of k each, added by twos.
//
//    part  0   1   2   3   4        who comes first of two writes its sums into scratch and ends,
//          +-+-+   +-+-+   |        who comes second adds those to its own and goes on: to a next
//            +---+---+     |        pair, and at last as if it had made the tile alone
//                +-----+---+
//
// Nobody waits for anybody. Who is added to whom, and so every bit, depends on the number of parts
// alone. Each pair has a counter, 0 again when both have come: launches may follow one another with
// nothing in between. Sums lie in the order in which threads hold them, 16 bytes of each after
// another, so that reads and writes are whole lines.
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
    __shared__ int there;
    scratch += (long long)piece.first * TILE + threadIdx.x * EACH;
    arrived += piece.first;
#pragma unroll 1
    for (int span = 1; span < piece.parts; span *= 2) {
        const int mine = piece.part / span * span, other = mine ^ span;
        if (other >= piece.parts) continue;
        int *count = arrived + max(mine, other);
        if (threadIdx.x == 0) there = *(volatile int *)count;
        __syncthreads();
        if (!there) {
#pragma unroll
            for (int i = 0; i < COUNT / EACH; i++) {
                Word w;
#pragma unroll
                for (int j = 0; j < EACH; j++) w.number[j] = sum[i * EACH + j];
                __stcg((int4 *)(scratch + (long long)mine * TILE + i * APART), w.word);
            }
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) there = atomicAdd(count, 1);
            __syncthreads();
            if (!there) return false;
        }
        __threadfence();
#pragma unroll
        for (int i = 0; i < COUNT / EACH; i++) {
            Word w;
            w.word = __ldcg((const int4 *)(scratch + (long long)other * TILE + i * APART));
#pragma unroll
            for (int j = 0; j < EACH; j++) sum[i * EACH + j] += w.number[j];
        }
        __syncthreads();
        if (threadIdx.x == 0) *count = 0;
    }
    return true;
}
