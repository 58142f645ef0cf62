// What every kernel file begins with: number types and sums over a warp.
//
// No header of CUDA's is included, so that NVRTC needs no path to one. The signature of a kernel is the one declared behind KERNEL: launch.py
// reads it there; KERNEL_OF has 128 threads in a block and says how many blocks must fit on a processor. MAYBE marks a pointer that may be null. `real` is the type that arrays have in memory; what is computed is float.
// PTX stands between #ifndef EMULATED and #endif; the tests that run kernels on the CPU bring their own twins of what is there.

#define KERNEL extern "C" __global__ void
#define KERNEL_OF(blocks) extern "C" __global__ void __launch_bounds__(128, blocks)
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

// Two numbers as bfloat16 in one word, the first of them low: each to the nearest, of two the even one; a NaN stays one.
#ifndef EMULATED
__device__ inline unsigned bf16_pair(float low, float high) {
  unsigned y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
#endif

__device__ inline bf16 rounded(float x) { return {(unsigned short)bf16_pair(x, 0)}; }

#ifndef EMULATED
// 2^x, to 2 units in the last place
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x, to 1 unit in the last place
__device__ inline float inverse_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

__device__ inline float exp_approx(float x) { return exp2_approx(1.44269504f * x); }  // e^x

__device__ inline void put(double *p, float x) { *p = x; }
__device__ inline void put(float *p, float x) { *p = x; }
__device__ inline void put(bf16 *p, float x) { *p = rounded(x); }

// 16 bytes of memory, loaded and stored at once: they lie at a multiple of 16.
struct __align__(16) Pack {
  unsigned words[4];
};

template <class T> constexpr int MANY = 16 / (int)sizeof(T);  // numbers in a pack

__device__ inline void unpack(float *x, const Pack &p, const float *) {
#pragma unroll
  for (int k = 0; k < 4; k++) x[k] = __uint_as_float(p.words[k]);
}
__device__ inline void unpack(float *x, const Pack &p, const bf16 *) {
#pragma unroll
  for (int k = 0; k < 4; k++) x[2 * k] = __uint_as_float(p.words[k] << 16), x[2 * k + 1] = __uint_as_float(p.words[k] & 0xffff0000u);
}
__device__ inline Pack packed(const float *x, const float *) {
  return {__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3])};
}
__device__ inline Pack packed(const float *x, const bf16 *) {
  return {bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]), bf16_pair(x[6], x[7])};
}

// x [N] from N numbers of memory side by side, and back: one of them, or whole packs
template <int N, class T> __device__ inline void read(float *x, const T *p) {
  if constexpr (N == 1) {
    *x = wide(*p);
  } else {
    Pack packs[N / MANY<T>];
#pragma unroll
    for (int k = 0; k < N / MANY<T>; k++) packs[k] = ((const Pack *)p)[k];
#pragma unroll
    for (int k = 0; k < N / MANY<T>; k++) unpack(x + k * MANY<T>, packs[k], p);
  }
}
template <int N, class T> __device__ inline void write(T *p, const float *x) {
  if constexpr (N == 1) {
    put(p, *x);
  } else {
#pragma unroll
    for (int k = 0; k < N / MANY<T>; k++) ((Pack *)p)[k] = packed(x + k * MANY<T>, p);
  }
}

// whether all these begin at a multiple of 16 bytes, a null pointer too
template <class... P> __device__ inline bool at_packs(const P *...p) { return (((unsigned long long)p | ...) & 15) == 0; }

__device__ inline i64 thread_of_grid() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline i64 threads_in_grid() { return (i64)gridDim.x * blockDim.x; }
__device__ inline int lane() { return threadIdx.x & 31; }
__device__ inline int warp() { return threadIdx.x >> 5; }

// Every lane has the sum, or the largest, of all 32: added in the same order each time.
template <class T> __device__ inline T warp_sum(T x) {
  for (int m = 16; m; m >>= 1) x += __shfl_xor_sync(ALL, x, m);
  return x;
}

__device__ inline float warp_max(float x) {
  for (int m = 16; m; m >>= 1) x = fmaxf(x, __shfl_xor_sync(ALL, x, m));
  return x;
}

// A row of an array that W warps of a block have, 1, 2, 4 .. 32: where in the block it is, and where in the row a thread.
__device__ inline int row_of_block(int W) { return warp() / W; }
__device__ inline int place_in_row(int W) { return threadIdx.x % (32 * W); }

// Every lane of these W warps has the sum, or the largest, over them, `shares` [32] in shared memory. All threads of the block must call it.
template <class F> __device__ inline float over_row(float x, float *shares, int W, F join) {
  if (W == 1) return x;
  __syncthreads();  // what was there before has been read
  if (lane() == 0) shares[warp()] = x;
  __syncthreads();
  const float *mine = shares + warp() / W * W;
  x = mine[0];
  for (int k = 1; k < W; k++) x = join(x, mine[k]);
  return x;
}
__device__ inline float row_sum(float x, float *shares, int W) {
  return over_row(warp_sum(x), shares, W, [](float a, float b) { return a + b; });
}
__device__ inline float row_max(float x, float *shares, int W) {
  return over_row(warp_max(x), shares, W, [](float a, float b) { return fmaxf(a, b); });
}

// The first thread has the sum over the block, of the warps in order; `shares` [32] is shared memory.
__device__ inline double block_sum(double x, double *shares) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) shares[threadIdx.x / 32] = x;
  __syncthreads();
  for (int k = 1; threadIdx.x == 0 && k < (int)blockDim.x / 32; k++) x += shares[k];
  return x;
}
