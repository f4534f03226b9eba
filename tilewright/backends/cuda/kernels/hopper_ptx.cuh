// The instructions of Hopper that C++ has no words for, one small function each.
//
//   mbarrier     a counter in shared memory that threads and the copy engine arrive at
//   TMA          one thread asks the copy engine for a box of 64 x 64 elements (128-byte rows,
//                swizzled) into or out of shared memory
//   wgmma        four warps multiply 64 x 16 by 16 x W out of shared memory into registers
//
// Names and meanings are those of NVIDIA's PTX ISA 8.x. No header is included, so that NVRTC needs
// no include path. BF16 (0: f16), LEFT_MN and RIGHT_MN (1: k is not contiguous) come from outside.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#if BF16
#define ELEMENT "bf16"
#else
#define ELEMENT "f16"
#endif

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    u64 address;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(pointer));
    return (u32)address;
}

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
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

// What ordinary stores wrote to shared memory becomes visible to the copy engine.
__device__ __forceinline__ void fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void load_box(u32 into, const void* map, int x, int y, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(into),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void prefetch_map(const void* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void store_box(const void* map, int x, int y, u32 from) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
            map),
        "r"(x), "r"(y), "r"(from)
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the copy engine has read (not yet written out) all but PENDING boxes of this thread.
template <int PENDING> __device__ __forceinline__ void store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void store_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

template <int COUNT> __device__ __forceinline__ void registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> __device__ __forceinline__ void registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Where an operand of wgmma lies: 128-byte swizzle; with k contiguous, 8 rows of 128 bytes make a
// group and the next group follows 1024 bytes on; otherwise boxes of 64 columns follow one another
// 8192 bytes apart (the "leading" offset), groups of 8 k within one 1024 apart.
__device__ __forceinline__ u64 matrix_descriptor(u32 address) {
    return ((u64)((address & 0x3ffff) >> 4)) | ((u64)(8192 >> 4) << 16) | ((u64)(1024 >> 4) << 32) |
           ((u64)1 << 62);
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

// The register lists of wgmma, sixteen at a time: placeholders, then operands.
#define P0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define P1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define P2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define P3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define P4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define P5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define P6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define P7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define V4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define V16(i) V4(i), V4(i + 4), V4(i + 8), V4(i + 12)
#define V32(i) V16(i), V16(i + 16)
#define V64(i) V32(i), V32(i + 32)

// d (+)= left x right. `keep` zero: d is overwritten. The last two immediates say which operands
// have k not contiguous.
#define WGMMA(W, LIST, L, R, K, ...)                                                           \
    template <> struct Multiply<W> {                                                           \
        static __device__ __forceinline__ void go(float (&d)[W / 2], u64 left, u64 right,      \
                                                  int keep) {                                  \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " K                                 \
                         ", 0;\n"                                                              \
                         "wgmma.mma_async.sync.aligned.m64n" #W "k16.f32." ELEMENT "." ELEMENT \
                         " {" LIST "}, " L ", " R                                              \
                         ", p, 1, 1, " TEXT(LEFT_MN) ", " TEXT(RIGHT_MN) ";\n}\n"              \
                         : __VA_ARGS__                                                         \
                         : "l"(left), "l"(right), "r"(keep));                                  \
        }                                                                                      \
    };

template <int W> struct Multiply;
WGMMA(32, P0, "%16", "%17", "%18", V16(0))
WGMMA(64, P0 "," P1, "%32", "%33", "%34", V32(0))
WGMMA(96, P0 "," P1 "," P2, "%48", "%49", "%50", V32(0), V16(32))
WGMMA(128, P0 "," P1 "," P2 "," P3, "%64", "%65", "%66", V64(0))
WGMMA(160, P0 "," P1 "," P2 "," P3 "," P4, "%80", "%81", "%82", V64(0), V16(64))
WGMMA(192, P0 "," P1 "," P2 "," P3 "," P4 "," P5, "%96", "%97", "%98", V64(0), V32(64))
WGMMA(224, P0 "," P1 "," P2 "," P3 "," P4 "," P5 "," P6, "%112", "%113", "%114", V64(0), V32(64),
      V16(96))
WGMMA(256, P0 "," P1 "," P2 "," P3 "," P4 "," P5 "," P6 "," P7, "%128", "%129", "%130", V64(0),
      V64(64))
