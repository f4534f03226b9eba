// Rows of an operand found by index, loaded by two warps into the places that boxes would have.
//
//   index   | 7 | 2 | 2 | 40 | ...     row r of a box: 128 bytes of row index[..] of the source, its
//             |   +-----+              chunks of 16 bytes swizzled as the copy engine does it (ptx.cuh)
//   source    v       v
//   row 2   |---------====---|         RAGGED_ROWS: a tile's rows of x, 64 of k a step, the same rows
//   row 7   |---------====---|         at each step
//                                      RAGGED_DEPTHS: 64 other rows at each step, of which each has
//                                      the tile's columns: 64 a box, boxes side by side
//
// CHOSEN: 1 the left operand, 2 the right one. Rows past a group's end are its last row again: what
// becomes of them is not stored, or overwritten with zeros. Columns past the operand's are zeros.
// Gathered so, x costs no permuted copy; who multiplies fences, as the copies are not the engine's.
#pragma once

// Numbers of rows that lanes tell each other before any is used: one at a time, each would be
// waited for, which took twice as long as multiplying.
constexpr int TOGETHER = 8;

__device__ __forceinline__ int within(int value, int most) {
    return value < 0 ? 0 : value < most ? value : most;
}

#if CHOSEN && RAGGED_ROWS
static_assert(CHOSEN == 1, "weights on the right lie in order");

// The rows of a tile that this warp loads: of every 8 rows 4, a lane 16 bytes of one of them. Lanes
// hold their numbers in turns: all that one lane needs would not fit its registers.
struct Chosen {
    u32 row[WARPGROUPS];
    int count, limit;

    __device__ __forceinline__ Chosen(const Ragged& r, int4 entry, int warp)
        : count(entry.z - entry.y), limit(r.k) {
        int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < WARPGROUPS; ++i) {
            int at = entry.y + 64 * i + 8 * (lane >> 2) + 4 * warp + (lane & 3);
            row[i] = __ldg(r.index + (at < entry.z ? at : entry.z - 1));
        }
    }

    __device__ __forceinline__ void load(const Ragged& r, u32 stage, int step, int warp) const {
        int lane = threadIdx.x & 31, chunk = lane & 7, place = 4 * warp + (lane >> 3);
        int column = 64 * step + 8 * chunk, bytes = within(2 * (limit - column), 16);
        const char* from = r.source + 2ll * (bytes ? column : 0);
        u32 into = stage + 128 * place + ((chunk ^ (place & 7)) << 4);
#pragma unroll
        for (int i = 0; i < WARPGROUPS; ++i) {
            if (64 * i >= count) break;
            u32 number[TOGETHER];
#pragma unroll
            for (int j = 0; j < TOGETHER; ++j)
                number[j] = __shfl_sync(~0u, row[i], 4 * j + (lane >> 3));
#pragma unroll
            for (int j = 0; j < TOGETHER; ++j)
                load_sixteen(into + 8192 * i + 1024 * j,
                             from + (u64)number[j] * (u32)r.source_stride, bytes);
        }
    }
};
#elif CHOSEN
// The rows of a step: half of them each warp's, a lane has the number of one.
struct Chosen {
    static constexpr int BOXES = CHOSEN == 1 ? WARPGROUPS : WIDTH / 64, LANES = 8 * BOXES,
                         AT_ONCE = 32 / LANES;
    const char* from;
    u32 into, next;
    int bytes, at, end;

    __device__ __forceinline__ Chosen(const Ragged& r, int4 entry, int first, int warp)
        : end(entry.z) {
        int lane = threadIdx.x & 31, chunk = lane % LANES;
        at = entry.y + 32 * warp + lane;
        next = __ldg(r.index + (at < end ? at : end - 1));
        int column = first + 8 * chunk;
        bytes = within(2 * ((CHOSEN == 1 ? r.k : r.n) - column), 16);
        from = r.source + 2ll * (bytes ? column : 0);
        into = (CHOSEN == 2 ? LEFT_BYTES : 0) + (chunk >> 3) * BOX + 32 * warp * 128;
    }

    // Asks for the next step's numbers, too.
    __device__ __forceinline__ void load(const Ragged& r, u32 stage, int step, int warp) {
        int lane = threadIdx.x & 31, chunk = lane & 7, part = lane / LANES;
        u32 mine = next;
        at += 64;
        next = __ldg(r.index + (at < end ? at : end - 1));
#pragma unroll
        for (int i = 0; i < 32; i += AT_ONCE * TOGETHER) {
            u32 number[TOGETHER];
#pragma unroll
            for (int j = 0; j < TOGETHER; ++j)
                number[j] = __shfl_sync(~0u, mine, i + AT_ONCE * j + part);
#pragma unroll
            for (int j = 0; j < TOGETHER; ++j) {
                int row = i + AT_ONCE * j + part;
                load_sixteen(stage + into + 128 * row + ((chunk ^ (row & 7)) << 4),
                             from + (u64)number[j] * (u32)r.source_stride, bytes);
            }
        }
    }
};
#endif

#if CHOSEN && RAGGED_DEPTHS
// What `load_tiles` does, by two warps: the copy engine brings the other operand.
__device__ void load_chosen_tiles(const Block& block, const Table& tiles, const char* maps,
                                  int warp) {
    Ring<STAGES> ring;
    Ring<TURNS> turns;
    bool asks = warp == 0 && (threadIdx.x & 31) == 0;
    for (int t = blockIdx.x; t < tiles.count;) {
        int4 head = quad(tiles, t, 0), left = quad(tiles, t, 1), right = quad(tiles, t, 2);
        Shape s = shape_of(head, left.w, right.w);
        int4 entry = entry_of(tiles.tiles, t, tiles.ragged);
        Walk a = {maps + 128ll * head.x, left.x, left.y, left.z, 0};
        Walk b = {maps + 128ll * head.y, right.x, right.y, right.z, 0};
        t = next_dealt_tile(block, turns, t);
        int boxes = CHOSEN == 1 ? (s.width + 63) / 64 : (s.rows + 63) / 64;
        if (s.steps == 0) continue;
        Chosen chosen(tiles.ragged, entry, CHOSEN == 1 ? left.x : right.x, warp);
        for (int step = 0; step < s.steps; ++step) {
            u32 full = block.full(ring.place), into = block.stage(ring.place);
            barrier_wait(block.empty(ring.place), ring.phase ^ 1);
            if (asks) {
                barrier_expect(full, boxes * BOX);
                for (int h = 0; h < boxes; ++h) {
                    if (CHOSEN == 1)
                        load_operand<RIGHT_MN>(into + LEFT_BYTES + h * BOX, b, step, h, full);
                    else
                        load_operand<LEFT_MN>(into + h * BOX, a, step, h, full);
                }
            }
            __syncwarp();
            chosen.load(tiles.ragged, into, step, warp);
            arrive_when_loaded(full);
            ring.next();
        }
    }
}
#endif
