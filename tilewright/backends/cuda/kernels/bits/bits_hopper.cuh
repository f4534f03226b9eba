// Products of bits on Hopper's tensor cores: wgmma, and how it is told where operands lie.
//
// A warpgroup multiplies 64 rows of A by BN rows of B, 256 bits of k an instruction. Both lie in
// shared memory as the copy engine's 128-byte swizzle writes them:
//
//   row   0  |c0 c1 c2 c3 c4 c5 c6 c7|   16-byte chunks, 1024 bits of k a row
//   row   1  |c1 c0 c3 c2 c5 c4 c7 c6|   chunk c of row r lies at c xor (r mod 8)
//   ...                                  8 rows are one atom of 1024 bytes
//
// Names and fields: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix".

#include "ptx.cuh"

struct alignas(64) TensorMap {
  char opaque[128];
};

// As `shared_address`, which makes other machine code here.
__device__ __forceinline__ u32 shared_place(const void *pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// 128-byte swizzle (bits 62-63: 1), 1024 bytes from one atom of 8 rows to the next (bits 32-45).
__device__ __forceinline__ u64 operand(u32 address) {
  return 1ull << 62 | 64ull << 32 | 1ull << 16 | (address & 0x3FFFF) >> 4;
}

// The registers of the sums as operands; the text for the assembler is P0 to P7.
#define FOUR(d, i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define SIXTEEN(d, i) FOUR(d, i), FOUR(d, i + 4), FOUR(d, i + 8), FOUR(d, i + 12)
#define SIXTY_FOUR(d, i) SIXTEEN(d, i), SIXTEEN(d, i + 16), SIXTEEN(d, i + 32), SIXTEEN(d, i + 48)

// d (+)= A [64, 256 bits] by B [BN, 256 bits]; `add` 0 overwrites.
__device__ __forceinline__ void product(int (&d)[128], u64 a, u64 b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k256.s32.b1.b1.and.popc {" P0 "," P1 "," P2
      "," P3 "," P4 "," P5 "," P6 "," P7 "}, %128, %129, add;\n}"
      : SIXTY_FOUR(d, 0), SIXTY_FOUR(d, 64)
      : "l"(a), "l"(b), "r"(add));
}

__device__ __forceinline__ void product(int (&d)[64], u64 a, u64 b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k256.s32.b1.b1.and.popc {" P0 "," P1 "," P2
      "," P3 "}, %64, %65, add;\n}"
      : SIXTY_FOUR(d, 0)
      : "l"(a), "l"(b), "r"(add));
}
