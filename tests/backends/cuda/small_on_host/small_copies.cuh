// What kernels/simt/small_copies.cuh says in the machine's own words, in C++: copies are there at
// once, and what lies outside of shared memory is found.
#pragma once

static float *word(u32 at, int bytes) {
    if (at % bytes || at + bytes > shared_bytes) wrong++, at = 0;
    return (float *)(shared_memory + at);
}

static void copy(u32 to, const float *from, bool is_there) {
    if (is_there) *word(to, 4) = *from;
}
static void asked() {}
template <int LEFT> static void wait() { __syncwarp(); }
static float4 four(u32 from) {
    const float *v = word(from, 16);
    return {v[0], v[1], v[2], v[3]};
}
static float one(u32 from) { return *word(from, 4); }
static void put(u32 to, const float *s) { memcpy(word(to, 16), s, 16); }
static Stride opaque(Stride step) { return step; }
static u32 once(u32 value) { return value; }
