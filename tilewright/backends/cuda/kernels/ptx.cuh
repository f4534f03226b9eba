// The instructions of Hopper that C++ has no words for, one small function each.
//
//   mbarrier     a counter in shared memory that threads and the copy engine arrive at
//   TMA          one thread asks the copy engine for a box, rows of 128 bytes, swizzled, into or
//                out of shared memory:
//
//       memory  +-----------------+     shared   row 0  |c0 c1 c2 c3 c4 c5 c6 c7|   chunks of 16
//               |    +-----+      |     memory   row 1  |c1 c0 c3 c2 c5 c4 c7 c6|   bytes: c of
//               |    | box |      |  ------->    row 2  |c2 c3 c0 c1 c6 c7 c4 c5|   row r lies at
//               |    +-----+      |               ...                               c xor (r mod 8)
//               +-----------------+
//
//   cluster      blocks that see each other's shared memory; a box may go to all of them
//   registers_*  a warpgroup takes registers that another has left
//   wgmma_*      asynchronous products: the fence before, the group they make, waiting for it
//
// Names and meanings are those of NVIDIA's PTX ISA 8.x. No header of others is included, so that
// NVRTC needs no include path but these folders.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    u64 address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(pointer));
    return (u32)address;
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void write_one(u32 address, u32 value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void write_zeros(u32 address) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0) : "memory");
}

__device__ __forceinline__ void load_box(u32 into, const void* map, int x, int y, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(into),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// The same box to the same place in every block of the cluster, and the bytes told to the barrier
// at the same place there.
template <int MEMBERS>
__device__ __forceinline__ void load_box_to_all(u32 into, const void* map, int x, int y,
                                                u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(into),
        "l"(map), "r"(x), "r"(y), "r"(barrier), "h"((u16)((1 << MEMBERS) - 1))
        : "memory");
}

// `bytes` of a run of memory, whole sixteens, told to the barrier.
__device__ __forceinline__ void load_bytes(u32 into, const void* from, u32 bytes, u32 barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(into),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

// Of sixteen bytes the first `bytes`, and zeros, by a thread itself.
__device__ __forceinline__ void load_sixteen(u32 into, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(into), "l"(from),
                 "r"(bytes)
                 : "memory");
}

// This thread arrives at the barrier once all that it has so asked for lies there.
__device__ __forceinline__ void arrive_when_loaded(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void stores_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// One of several boxes that `stores_commit` sends together.
__device__ __forceinline__ void add_box(const void* map, int x, int y, u32 from) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
            map),
        "r"(x), "r"(y), "r"(from)
        : "memory");
}

__device__ __forceinline__ void store_box(const void* map, int x, int y, u32 from) {
    add_box(map, x, y, from);
    stores_commit();
}

// What leaves the L2 cache first: results, which nobody reads here, before operands.
__device__ __forceinline__ u64 evict_first() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// The same, with a word to the L2 cache.
__device__ __forceinline__ void store_box(const void* map, int x, int y, u32 from, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint"
        " [%0, {%1, %2}], [%3], %4;" ::"l"(map),
        "r"(x), "r"(y), "r"(from), "l"(policy)
        : "memory");
}

// What ordinary stores wrote to shared memory becomes visible to the copy engine.
__device__ __forceinline__ void fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Until the copy engine has read (not yet written out) all but PENDING boxes of this thread.
template <int PENDING> __device__ __forceinline__ void store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void store_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Where `address` of this block's shared memory lies in that of the cluster's block `rank`.
__device__ __forceinline__ u32 address_in(u32 address, u32 rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// Says that reads are over, which the reader has waited for; hands no written data on. Release at
// cluster scope, which that would need, is a fence of the whole GPU in machine code.
__device__ __forceinline__ void barrier_arrive_in_cluster(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Until all threads of all blocks of the cluster are here, or gone.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// The same, by warps whose threads are all here.
__device__ __forceinline__ void cluster_sync_aligned() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

__device__ __forceinline__ void prefetch_map(const void* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Maps in global memory were copied there, perhaps over others: their readers must not have those
// cached. Of the whole system, as the host's copies are; of launches' own arguments none is needed.
__device__ __forceinline__ void acquire_map(const void* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

template <int COUNT> __device__ __forceinline__ void registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> __device__ __forceinline__ void registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// The registers of wgmma's sums as its text names them, sixteen at a time.
#define P0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define P1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define P2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define P3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define P4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define P5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define P6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define P7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
