// Products of tiles in shared memory, by a warp on tensor cores: acc [16,N] += A [16,K] B [N,K]^T.
//
//     default   float32: a number is hi + lo, both tf32, and a b = lo hi + hi lo + hi hi; what a tensor core adds up it cuts off instead of rounding,
//               so each step of 8 starts at 0 there and is added to acc outside (Ootomo and Yokota 2022, arXiv:2203.03341)
//     TF32      hi hi alone, added up by the tensor core
//     BF16      the numbers in memory are bf16, likewise
//
// A lane is 4 g + t. It has of acc, for each 8 columns, (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1). The steps of K may be taken in any order, so of
// tf32's 8 a lane takes 2t and 2t+1 where the instruction says t and t+4: neighbours in memory.

typedef real elem;
#ifdef BF16
constexpr int DEPTH = 16;
#else
constexpr int DEPTH = 8;
#endif
constexpr int PAD = 8;  // numbers between the rows of a tile: lanes that read along the rows do not meet in a bank

#ifndef EMULATED
__device__ inline unsigned tf32(float x) {
  unsigned y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

__device__ inline void mma_tf32(float *d, const unsigned *a, const unsigned *b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void mma_bf16(float *d, const unsigned *a, const unsigned *b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// COUNT words of a lane: numbers k and k + 1 of `row`, which lie side by side or, turned, `ld` apart
#ifdef BF16
struct Words {
  unsigned whole[4];
};
template <bool TURNED> __device__ inline void take(Words &to, int n, const elem *x, int ld, int row, int k) {
  to.whole[n] = TURNED ? x[k * ld + row].bits | (unsigned)x[(k + 1) * ld + row].bits << 16 : *(const unsigned *)&x[row * ld + k];
}
template <bool TURNED> __device__ inline void take_a(Words &to, const elem *x, int ld, int k) {
  int g = lane() / 4, t = lane() % 4;
  for (int n = 0; n < 4; n++) take<TURNED>(to, n, x, ld, g + n % 2 * 8, k + 2 * t + n / 2 * 8);
}
template <bool TURNED> __device__ inline void take_b(Words &to, const elem *x, int ld, int row, int k) {
  int g = lane() / 4, t = lane() % 4;
  for (int n = 0; n < 2; n++) take<TURNED>(to, n, x, ld, row + g, k + 2 * t + n * 8);
}
__device__ inline void take_own(Words &to, const float (*p)[4], int k) {
  for (int n = 0; n < 4; n++) {
    const float *two = &p[k / 8 + n / 2][n % 2 * 2];
    to.whole[n] = rounded(two[0]).bits | (unsigned)rounded(two[1]).bits << 16;
  }
}
__device__ inline void add_product(float *acc, const Words &a, const Words &b) { mma_bf16(acc, a.whole, b.whole); }
#else
struct Words {
  unsigned hi[4], lo[4];
};
__device__ inline void take(Words &to, int n, float x) {
  to.hi[n] = tf32(x);
#ifndef TF32
  to.lo[n] = tf32(x - __uint_as_float(to.hi[n]));
#endif
}
template <bool TURNED> __device__ inline void take_a(Words &to, const elem *x, int ld, int k) {
  int g = lane() / 4, t = lane() % 4;
  for (int n = 0; n < 4; n++) {
    int row = g + n % 2 * 8, at = k + 2 * t + n / 2;
    take(to, n, TURNED ? x[at * ld + row] : x[row * ld + at]);
  }
}
template <bool TURNED> __device__ inline void take_b(Words &to, const elem *x, int ld, int row, int k) {
  int g = lane() / 4, t = lane() % 4;
  for (int n = 0; n < 2; n++) take(to, n, TURNED ? x[(k + 2 * t + n) * ld + row + g] : x[(row + g) * ld + k + 2 * t + n]);
}
__device__ inline void take_own(Words &to, const float (*p)[4], int k) {
  for (int n = 0; n < 4; n++) take(to, n, p[k / 8][n % 2 * 2 + n / 2]);
}
__device__ inline void add_product(float *acc, const Words &a, const Words &b) {
#ifdef TF32
  mma_tf32(acc, a.hi, b.hi);
#else
  float d[4] = {};
  mma_tf32(d, a.lo, b.hi);
  mma_tf32(d, a.hi, b.lo);
  mma_tf32(d, a.hi, b.hi);
  for (int c = 0; c < 4; c++) acc[c] += d[c];
#endif
}
#endif

// acc [N/8][4] += a b^T; a [16,K] or, A_TURNED, [K,16] and b [N,K] or [K,N] in shared memory, rows lda and ldb apart
template <int K, int N, bool A_TURNED, bool B_TURNED>
__device__ inline void multiply(float (*acc)[4], const elem *a, int lda, const elem *b, int ldb) {
#pragma unroll
  for (int half = 0; half < N; half += 64) {
#pragma unroll 1  // of steps and columns; unrolled they hold more numbers than a thread has registers
    for (int k = 0; k < K; k += DEPTH) {
      Words of_a, of_b;
      take_a<A_TURNED>(of_a, a, lda, k);
#pragma unroll
      for (int n = half; n < half + 64 && n < N; n += 8) {
        take_b<B_TURNED>(of_b, b, ldb, n, k);
        add_product(acc[n / 8], of_a, of_b);
      }
    }
  }
}

// The same with a product of tiles p [16,K] on the left, each lane's share of it: the steps of K lie so that a lane has what it needs.
template <int K, int N, bool B_TURNED> __device__ inline void multiply_own(float (*acc)[4], const float (*p)[4], const elem *b, int ldb) {
#pragma unroll
  for (int half = 0; half < N; half += 64) {
#pragma unroll
    for (int k = 0; k < K; k += DEPTH) {
      Words of_a, of_b;
      take_own(of_a, p, k);
#pragma unroll
      for (int n = half; n < half + 64 && n < N; n += 8) {
        take_b<B_TURNED>(of_b, b, ldb, n, k);
        add_product(acc[n / 8], of_a, of_b);
      }
    }
  }
}

template <int N> __device__ inline void clear(float (*acc)[4]) {
  for (int n = 0; n < N / 8; n++)
    for (int c = 0; c < 4; c++) acc[n][c] = 0;
}

// The row and column, in a warp's 16 rows, of number c of a lane's share of 8 columns n.
__device__ inline int row_of(int c) { return lane() / 4 + c / 2 * 8; }
__device__ inline int column_of(int n, int c) { return 8 * n + lane() % 4 * 2 + c % 2; }

// f(number, c, row, column) for each number of a lane's share of a tile N columns wide
template <int N, class F> __device__ inline void each(float (*acc)[4], F f) {
#pragma unroll
  for (int n = 0; n < N / 8; n++)
#pragma unroll
    for (int c = 0; c < 4; c++) f(acc[n][c], c, row_of(c), column_of(n, c));
}

// Sum, or largest, over a row of acc: the four lanes that share it have it all.
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(ALL, x, 1);
  return x + __shfl_xor_sync(ALL, x, 2);
}
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(ALL, x, 1));
  return fmaxf(x, __shfl_xor_sync(ALL, x, 2));
}

struct __align__(16) Sixteen {
  unsigned words[4];
};

// ROWS rows of COLUMNS numbers into shared memory, by all threads: `rows` of them are there, `width` numbers in each, the rest is 0. 16 bytes at a
// time where rows are whole sixteens and begin at one, else number by number.
template <int ROWS, int COLUMNS> __device__ inline void load(elem *to, int ld, const real *from, i64 stride, int rows, int width) {
  constexpr int MANY = 16 / (int)sizeof(real), SIXTEENS = COLUMNS / MANY;
  if (width % MANY == 0 && stride % MANY == 0 && (unsigned long long)from % 16 == 0) {
    for (int k = threadIdx.x; k < ROWS * SIXTEENS; k += blockDim.x) {
      int r = k / SIXTEENS, c = k % SIXTEENS * MANY;
      *(Sixteen *)&to[r * ld + c] = r < rows && c < width ? *(const Sixteen *)&from[r * stride + c] : Sixteen{};
    }
    return;
  }
  for (int k = threadIdx.x; k < ROWS * COLUMNS; k += blockDim.x) {
    int r = k / COLUMNS, c = k % COLUMNS;
    if (r < rows && c < width)
      to[r * ld + c] = from[r * stride + c];
    else
      put(&to[r * ld + c], 0);
  }
}
