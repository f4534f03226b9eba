// Products of halves on Hopper's tensor cores: wgmma, and how it is told where operands lie.
//
//     left   64 x 16, in shared memory        right  16 x W, in shared memory
//                    +----------+-----------+
//                               v
//                     d  64 x W, fp32, in registers of the four warps:  d (+)= left x right
//
// BF16 (0: f16), LEFT_MN and RIGHT_MN (1: k is not contiguous) come from outside.
#pragma once
#include "ptx.cuh"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#if BF16
#define ELEMENT "bf16"
#else
#define ELEMENT "f16"
#endif

// Where an operand of wgmma lies: 128-byte swizzle; with k contiguous, 8 rows of 128 bytes make a
// group and the next group follows 1024 bytes on; otherwise boxes of 64 columns follow one another
// 8192 bytes apart (the "leading" offset), groups of 8 k within one 1024 apart.
__device__ __forceinline__ u64 matrix_descriptor(u32 address) {
    return ((u64)((address & 0x3ffff) >> 4)) | ((u64)(8192 >> 4) << 16) | ((u64)(1024 >> 4) << 32) |
           ((u64)1 << 62);
}

// Half of sixteen registers, past 48, 64, ... of them.
#define H3 "%48,%49,%50,%51,%52,%53,%54,%55"
#define H4 "%64,%65,%66,%67,%68,%69,%70,%71"
#define H5 "%80,%81,%82,%83,%84,%85,%86,%87"
#define H6 "%96,%97,%98,%99,%100,%101,%102,%103"
#define H7 "%112,%113,%114,%115,%116,%117,%118,%119"

#define V4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define V8(i) V4(i), V4(i + 4)
#define V16(i) V8(i), V8(i + 8)
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
WGMMA(112, P0 "," P1 "," P2 "," H3, "%56", "%57", "%58", V32(0), V16(32), V8(48))
WGMMA(128, P0 "," P1 "," P2 "," P3, "%64", "%65", "%66", V64(0))
WGMMA(144, P0 "," P1 "," P2 "," P3 "," H4, "%72", "%73", "%74", V64(0), V8(64))
WGMMA(160, P0 "," P1 "," P2 "," P3 "," P4, "%80", "%81", "%82", V64(0), V16(64))
WGMMA(176, P0 "," P1 "," P2 "," P3 "," P4 "," H5, "%88", "%89", "%90", V64(0), V16(64), V8(80))
WGMMA(192, P0 "," P1 "," P2 "," P3 "," P4 "," P5, "%96", "%97", "%98", V64(0), V32(64))
WGMMA(208, P0 "," P1 "," P2 "," P3 "," P4 "," P5 "," H6, "%104", "%105", "%106", V64(0), V32(64),
      V8(96))
WGMMA(224, P0 "," P1 "," P2 "," P3 "," P4 "," P5 "," P6, "%112", "%113", "%114", V64(0), V32(64),
      V16(96))
WGMMA(240, P0 "," P1 "," P2 "," P3 "," P4 "," P5 "," P6 "," H7, "%120", "%121", "%122", V64(0),
      V32(64), V16(96), V8(112))
WGMMA(256, P0 "," P1 "," P2 "," P3 "," P4 "," P5 "," P6 "," P7, "%128", "%129", "%130", V64(0),
      V64(64))
