// Products of tiles by the four warps of a warpgroup at once, Hopper's own (wgmma): d [64,N] = or += a b, with b in shared memory, a too or in registers.
// Lanes have of d and of a what they have in mma's products, of 16 rows for each warp. What is sent belongs to a group that wgmma_sent() closes;
// until the group was waited for nobody touches d, nor what is multiplied.
//
// A tile in shared memory lies as place() says, from a multiple of 1,024 bytes on.

typedef unsigned long long u64;

#undef KERNEL_OF
#define KERNEL_OF(blocks) extern "C" __global__ void __launch_bounds__(BLOCK, blocks)

#ifndef EMULATED
#undef DYNAMIC_SHARED
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) char name[]

__device__ inline u64 byte_of_shared(const void *p) { return in_shared(p); }

#define D4(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define D16(n) D4(n), D4(n + 1), D4(n + 2), D4(n + 3)
#define D32(n) D16(n), D16(n + 4)
#define D64(n) D32(n), D32(n + 8)
#define TO16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TO32 TO16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TO64 TO32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_OF(N, TO, D, ADDS, B, A, TURNED, ...)                                                                                                \
  asm volatile("{ .reg .pred adds; setp.ne.b32 adds, " ADDS ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" TO "}, " A ", " B \
               ", adds, 1, 1, " TURNED "; }"                                                                                                    \
               : D(0)                                                                                                                           \
               : "n"(ADD), "l"(b), __VA_ARGS__)

// a [64,16] and b [N,16] as their tiles say
template <int N, bool ADD> __device__ inline void wgmma(float (*d)[4], u64 a, u64 b) {
  if constexpr (N == 32) WGMMA_OF(32, TO16, D16, "%16", "%17", "%18", "0, 0", "l"(a));
  if constexpr (N == 64) WGMMA_OF(64, TO32, D32, "%32", "%33", "%34", "0, 0", "l"(a));
  if constexpr (N == 128) WGMMA_OF(128, TO64, D64, "%64", "%65", "%66", "0, 0", "l"(a));
}
// a in registers, b [16,N]
template <int N, bool ADD> __device__ inline void wgmma_own(float (*d)[4], const unsigned *a, u64 b) {
#define A4 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
  if constexpr (N == 32) WGMMA_OF(32, TO16, D16, "%16", "%17", "{%18,%19,%20,%21}", "1", A4);
  if constexpr (N == 64) WGMMA_OF(64, TO32, D32, "%32", "%33", "{%34,%35,%36,%37}", "1", A4);
  if constexpr (N == 128) WGMMA_OF(128, TO64, D64, "%64", "%65", "{%66,%67,%68,%69}", "1", A4);
}
__device__ inline void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_sent() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ inline void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

// What this thread has written to shared memory is there for wgmma too, behind a barrier.
__device__ inline void seen_by_wgmma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Barrier `which` of the 16: a thread that meets waits until `threads` have come, one that arrives goes on.
__device__ inline void meet(int which, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory"); }
__device__ inline void arrive(int which, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(which), "r"(threads) : "memory"); }

// The same, and whether all `threads` say yes, wherever in the program each of their warps asks: __syncthreads_and() has to be one place for all.
__device__ inline bool all_agree(int which, int threads, bool yes) {
  int all;
  asm volatile("{ .reg .pred mine, all; setp.ne.s32 mine, %1, 0; barrier.cta.red.and.aligned.pred all, %2, %3, mine; selp.s32 %0, 1, 0, all; }"
               : "=r"(all)
               : "r"((int)yes), "r"(which), "r"(threads)
               : "memory");
  return all;
}

// A warpgroup gives registers back, or takes some: each thread has N from here on.
template <int N> __device__ inline void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> __device__ inline void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

// What was computed of d before is computed here: the compiler moves it past nothing that waits.
template <int N> __device__ inline void settle(float (*d)[4]) {
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int c = 0; c < 4; c++) asm volatile("" : "+f"(d[n][c])::"memory");
}
#endif

// A tile of `rows` rows of LD numbers and blocks of columns, for wgmma: its address; how far apart blocks of columns are, and 8 rows; rows of 128 bytes (1)
// or of 64 (2). The address is in sixteens of bytes, so are what is added to it.
__device__ inline u64 tile_at(const void *tile, int rows) {
  constexpr int ROW = 2 * LD;
  return byte_of_shared(tile) >> 4 | (u64)(rows * ROW >> 4) << 16 | (u64)(8 * ROW >> 4) << 32 | (u64)(ROW == 128 ? 1 : 2) << 62;
}

// acc [64,N] = a b^T, a [64,K] of a tile of A rows, b [N,K]: sent
template <int K, int N, int A> __device__ inline void send(float (*acc)[4], u64 a, u64 b) {
#pragma unroll
  for (int k = 0; k < K; k += DEPTH) {
    u64 x = a + (k / LD * A * LD + k % LD) / 8, y = b + (k / LD * N * LD + k % LD) / 8;
    if (k == 0)
      wgmma<N, false>(acc, x, y);
    else
      wgmma<N, true>(acc, x, y);
  }
}

// acc [64,N] += p b, p [64,K] each lane's share of it as bf16, b [K,N]: sent
template <int K, int N> __device__ inline void send_own(float (*acc)[4], const unsigned (*p)[4], u64 b) {
#pragma unroll
  for (int k = 0; k < K; k += DEPTH) wgmma_own<N, true>(acc, p[k / DEPTH], b + k * LD / 8);
}
