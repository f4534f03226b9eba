// Hopper's instructions as functions: mbarriers, the bulk tensor copy engine, wgmma on bits.
//
// A warpgroup multiplies 64 rows of A by BN rows of B, 256 bits of k an instruction. Both lie in
// shared memory as the copy engine's 128-byte swizzle writes them:
//
//   row   0  |c0 c1 c2 c3 c4 c5 c6 c7|   16-byte chunks, 1024 bits of k a row
//   row   1  |c1 c0 c3 c2 c5 c4 c7 c6|   chunk c of row r lies at c xor (r mod 8)
//   ...                                  8 rows are one atom of 1024 bytes
//
// Names and fields: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix" and "cp.async.bulk.tensor".

struct alignas(64) TensorMap {
  char opaque[128];
};

__device__ __forceinline__ u32 shared_address(const void *pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
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
      "@!done bra again;\n}" ::"r"(barrier), "r"(parity)
      : "memory");
}

// Arrive at the same barrier in the block of rank `block` of the cluster.
__device__ __forceinline__ void barrier_arrive(u32 barrier, u32 block) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier), "r"(block)
      : "memory");
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void load_tile(u32 to, const TensorMap *map, u32 barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

// The same to every block of the cluster whose bit is set in `blocks`, and to its barrier.
__device__ __forceinline__ void load_tile_shared(u32 to, const TensorMap *map, u32 barrier, int x,
                                                 int y, u16 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to), "l"(map), "r"(barrier),
      "r"(x), "r"(y), "h"(blocks)
      : "memory");
}

// What leaves the L2 cache first: results, which nobody reads here, before operands.
__device__ __forceinline__ u64 evict_first() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void store_tile(const TensorMap *map, u32 from, int x, int y,
                                           u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint"
      " [%0, {%2, %3}], [%1], %4;" ::"l"(map), "r"(from), "r"(x), "r"(y), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void stores_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until all but the latest `PENDING` stores have read their shared memory.
template <int PENDING>
__device__ __forceinline__ void stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void stores_done() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// What ordinary stores wrote to shared memory, the copy engine will see.
__device__ __forceinline__ void fence_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int REGISTERS>
__device__ __forceinline__ void registers_more() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void registers_fewer() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// 128-byte swizzle (bits 62-63: 1), 1024 bytes from one atom of 8 rows to the next (bits 32-45).
__device__ __forceinline__ u64 operand(u32 address) {
  return 1ull << 62 | 64ull << 32 | 1ull << 16 | (address & 0x3FFFF) >> 4;
}

__device__ __forceinline__ void products_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Register lists of the instruction, sixteen at a time: text for the assembler, and operands.
#define TEXT_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TEXT_1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TEXT_2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define TEXT_3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TEXT_4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define TEXT_5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define TEXT_6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define TEXT_7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define FOUR(d, i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define SIXTEEN(d, i) FOUR(d, i), FOUR(d, i + 4), FOUR(d, i + 8), FOUR(d, i + 12)
#define SIXTY_FOUR(d, i) SIXTEEN(d, i), SIXTEEN(d, i + 16), SIXTEEN(d, i + 32), SIXTEEN(d, i + 48)

// d (+)= A [64, 256 bits] by B [BN, 256 bits]; `add` 0 overwrites.
__device__ __forceinline__ void product(int (&d)[128], u64 a, u64 b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k256.s32.b1.b1.and.popc {" TEXT_0 "," TEXT_1 "," TEXT_2
      "," TEXT_3 "," TEXT_4 "," TEXT_5 "," TEXT_6 "," TEXT_7 "}, %128, %129, add;\n}"
      : SIXTY_FOUR(d, 0), SIXTY_FOUR(d, 64)
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void product(int (&d)[64], u64 a, u64 b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k256.s32.b1.b1.and.popc {" TEXT_0 "," TEXT_1 "," TEXT_2
      "," TEXT_3 "}, %64, %65, add;\n}"
      : SIXTY_FOUR(d, 0)
      : "l"(a), "l"(b), "r"(add));
}
