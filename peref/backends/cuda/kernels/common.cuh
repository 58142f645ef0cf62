// What every kernel file begins with: number types and sums over a warp.
//
// No header of CUDA's is included, so that NVRTC needs no path to one. The signature of a kernel is the one declared behind KERNEL: launch.py
// reads it there. MAYBE marks a pointer that may be null. `real` is the type that arrays have in memory; what is computed is float.
// PTX stands between #ifndef EMULATED and #endif; the tests that run kernels on the CPU bring their own twins of what is there.

#define KERNEL extern "C" __global__ void
#define MAYBE
#define ALL 0xffffffffu
#ifndef EMULATED
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]
#endif

typedef long long i64;

struct bf16 {
  unsigned short bits;
};

#ifdef BF16
typedef bf16 real;
#else
typedef float real;
#endif

__device__ inline float infinity() { return __uint_as_float(0x7f800000u); }
__device__ inline float not_a_number() { return __uint_as_float(0x7fffffffu); }

__device__ inline float wide(float x) { return x; }
__device__ inline float wide(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

// to the nearest, of two the even one; a NaN stays one
__device__ inline bf16 rounded(float x) {
  unsigned u = __float_as_uint(x);
  bf16 y;
  y.bits = (unsigned short)(x == x ? (u + 0x7fffu + (u >> 16 & 1)) >> 16 : u >> 16 | 0x40u);
  return y;
}

__device__ inline void put(double *p, float x) { *p = x; }
__device__ inline void put(float *p, float x) { *p = x; }
__device__ inline void put(bf16 *p, float x) { *p = rounded(x); }

// Every lane has the sum, or the largest, of all 32: added in the same order each time.
template <class T> __device__ inline T warp_sum(T x) {
  for (int m = 16; m; m >>= 1) x += __shfl_xor_sync(ALL, x, m);
  return x;
}

__device__ inline float warp_max(float x) {
  for (int m = 16; m; m >>= 1) x = fmaxf(x, __shfl_xor_sync(ALL, x, m));
  return x;
}

// The first thread has the sum over the block, of the warps in order; `shares` [32] is shared memory.
__device__ inline double block_sum(double x, double *shares) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) shares[threadIdx.x / 32] = x;
  __syncthreads();
  for (int k = 1; threadIdx.x == 0 && k < (int)blockDim.x / 32; k++) x += shares[k];
  return x;
}

__device__ inline i64 thread_of_grid() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline i64 threads_in_grid() { return (i64)gridDim.x * blockDim.x; }
__device__ inline int lane() { return threadIdx.x & 31; }
__device__ inline int warp() { return threadIdx.x >> 5; }
