// What the kernels of motion share: the numbers of the host's loops, and how pictures lie.
//
//     image  float [2 pictures][rows + 2 * BORDER][columns + 2 * BORDER], the edges repeated
//     field  float [2 ways][across, down][rows][columns], in samples
//
// The numbers are those of backends/host/kernels/motion.py and between.py; a test compares them.

#define BORDER 16
#define SIDE 8
#define STEP 4
#define CELL 8

#ifndef BYTES
#define BYTES 1
#endif
#if BYTES == 1
typedef unsigned char Sample;
#else
typedef unsigned short Sample;
#endif

__device__ __forceinline__ int pitch_of(int columns) { return columns + 2 * BORDER; }

// Where sample (0, 0) of a picture lies.
__device__ __forceinline__ const float *inside(const float *image, int picture, int rows,
                                               int columns) {
    const long long pitch = pitch_of(columns);
    return image + picture * pitch * (rows + 2 * BORDER) + BORDER * pitch + BORDER;
}

__device__ __forceinline__ int within(int x, int low, int high) { return min(max(x, low), high); }

__device__ __forceinline__ float within(float x, float low, float high) {
    return fminf(fmaxf(x, low), high);
}
