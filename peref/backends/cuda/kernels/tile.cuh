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
#ifdef WGMMA
constexpr int DEPTH = 16;  // of K, in one instruction
#elif defined(BF16)
constexpr int DEPTH = 16, STEPS = 8;  // STEPS of K at a time: more hold more numbers than a thread has registers
#elif defined(TF32)
constexpr int DEPTH = 8, STEPS = 4;
#else
constexpr int DEPTH = 8, STEPS = 1;
#endif
constexpr int THREADS = 128;  // of a block that load tiles
#ifndef WGMMA
constexpr int PAD = 8;  // numbers between the rows of a tile: lanes that read along the rows do not meet in a bank
#endif

// What is closest to x in TF32, or nearly: the tensor core cuts the last 13 bits, and this lifts x by half of what is cut, on average. A number
// of 11 bits stays what it is, as do infinity and NaN. Root mean square error 2.2e-4 of x, of the closest 2.1e-4, which takes three instructions.
__device__ inline unsigned tf32(float x) { return __float_as_uint(x * 1.00033845f); }

#ifndef EMULATED
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

typedef unsigned Where;  // a byte of shared memory
__device__ inline Where in_shared(const void *p) {
  unsigned address;
  asm("{ .reg .u64 whole; cvta.to.shared.u64 whole, %1; cvt.u32.u64 %0, whole; }" : "=r"(address) : "l"(p));
  return address;
}

// Four 8 x 8 squares of 16-bit numbers in shared memory: lane 8 m + r gives where row r of square m begins, 16 bytes aligned, and gets of each
// square numbers 2t and 2t + 1 of row g or, turned, of column g.
template <bool TURNED> __device__ inline void ldmatrix(unsigned *to, Where row) {
  if (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

// 16 bytes on their way to shared memory, or 0 there; they are there for this thread after cp_async_wait(), for its block after a barrier behind that
__device__ inline void cp_async(Where to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ inline void cp_async_word(Where to, const void *from) {  // 4 bytes
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void cp_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif

// A lane's share of a product's sides, in words: of a [16,DEPTH] 4, of b [16,DEPTH], two columns of the product's, 2 and 2.
#ifdef BF16
struct Words {
  unsigned whole[4];
};
// Where a lane reads is one place of its own and, known before, how many bytes from there: the instruction adds them.
template <bool TURNED> __device__ inline void take_a(Words &to, const elem *x, int ld, int k) {
  int r = lane() % 8, right = lane() / 16 * 8, down = lane() / 8 % 2 * 8;
  Where mine = in_shared(x) + 2 * (TURNED ? (right + r) * ld + down : (down + r) * ld + right);
  ldmatrix<TURNED>(to.whole, mine + 2 * (TURNED ? k * ld : k));
}
template <bool TURNED> __device__ inline void take_b(Words &to, const elem *x, int ld, int row, int k) {
  int r = lane() % 8, right = lane() / 8 % 2 * 8, down = lane() / 16 * 8;
  Where mine = in_shared(x) + 2 * (TURNED ? (right + r) * ld + down : (down + r) * ld + right);
  ldmatrix<TURNED>(to.whole, mine + 2 * (TURNED ? k * ld + row : row * ld + k));
}
__device__ inline void take_own(unsigned *to, const float (*p)[4], int k) {
  for (int n = 0; n < 4; n++) to[n] = bf16_pair(p[k / 8 + n / 2][n % 2 * 2], p[k / 8 + n / 2][n % 2 * 2 + 1]);
}
__device__ inline void take_own(Words &to, const float (*p)[4], int k) { take_own(to.whole, p, k); }
__device__ inline void add_product(float *acc, const Words &a, const Words &b, int column) { mma_bf16(acc, a.whole, b.whole + 2 * column); }
#else
struct Words {
  unsigned hi[4], lo[4];
};
__device__ inline void take(Words &to, int n, float x) {
#ifdef TF32
  to.hi[n] = tf32(x);
#else
  to.hi[n] = (__float_as_uint(x) + 0x1000) & 0xffffe000;  // a NaN may be none there: it is one in lo
  to.lo[n] = __float_as_uint(x - __uint_as_float(to.hi[n]));
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
  for (int n = 0; n < 4; n++) {
    int r = row + g + n / 2 * 8, at = k + 2 * t + n % 2;
    take(to, n, TURNED ? x[at * ld + r] : x[r * ld + at]);
  }
}
__device__ inline void take_own(Words &to, const float (*p)[4], int k) {
  for (int n = 0; n < 4; n++) take(to, n, p[k / 8][n % 2 * 2 + n / 2]);
}
__device__ inline void add_product(float *acc, const Words &a, const Words &b, int column) {
#ifdef TF32
  mma_tf32(acc, a.hi, b.hi + 2 * column);
#else
  float d[4] = {};
  mma_tf32(d, a.lo, b.hi + 2 * column);
  mma_tf32(d, a.hi, b.lo + 2 * column);
  mma_tf32(d, a.hi, b.hi + 2 * column);
  for (int c = 0; c < 4; c++) acc[c] += d[c];
#endif
}
#endif

#ifndef WGMMA
// acc [R,N/8][4] += a b^T for the step k of K, of R tiles of 16 rows
template <int N, bool B_TURNED, int R> __device__ inline void add_step(float (*acc)[4], const Words *a, const elem *b, int ldb, int k) {
#pragma unroll
  for (int n = 0; n < N; n += 16) {
    Words of_b;
    take_b<B_TURNED>(of_b, b, ldb, n, k);
#pragma unroll
    for (int r = 0; r < R; r++)
      for (int c = 0; c < 2; c++) add_product(acc[(r * N + n) / 8 + c], a[r], of_b, c);
  }
}

// acc [R,N/8][4] += a b^T; a [16 R,K] or, A_TURNED, [K,16 R] and b [N,K] or [K,N] in shared memory, rows lda and ldb apart
template <int K, int N, bool A_TURNED, bool B_TURNED, int R = 1>
__device__ inline void multiply(float (*acc)[4], const elem *a, int lda, const elem *b, int ldb) {
#pragma unroll STEPS
  for (int k = 0; k < K; k += DEPTH) {
    Words of_a[R];
#pragma unroll
    for (int r = 0; r < R; r++) take_a<A_TURNED>(of_a[r], a + 16 * r * (A_TURNED ? 1 : lda), lda, k);
    add_step<N, B_TURNED, R>(acc, of_a, b, ldb, k);
  }
}

// The same with a product of tiles p [R,K/8][4] on the left, each lane's share of it: the steps of K lie so that a lane has what it needs.
template <int K, int N, bool B_TURNED, int R = 1>
__device__ inline void multiply_own(float (*acc)[4], const float (*p)[4], const elem *b, int ldb) {
#pragma unroll
  for (int k = 0; k < K; k += DEPTH) {
    Words of_a[R];
#pragma unroll
    for (int r = 0; r < R; r++) take_own(of_a[r], p + r * (K / 8), k);
    add_step<N, B_TURNED, R>(acc, of_a, b, ldb, k);
  }
}
#endif

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

// two neighbours of a row of E numbers, those at e and e + 1 where there are, e even
struct __align__(8) Two {
  float x, y;
};
__device__ inline void put_two(bf16 *row, float x, float y) { *(unsigned *)row = bf16_pair(x, y); }
__device__ inline void put_two(float *row, float x, float y) { *(Two *)row = {x, y}; }
template <class T> __device__ inline void put_two(T *row, int e, int E, float x, float y) {
  if (E % 2 == 0) {
    if (e < E) put_two(row + e, x, y);
  } else {
    if (e < E) put(&row[e], x);
    if (e + 1 < E) put(&row[e + 1], y);
  }
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

// Where in a tile of ROWS rows, ld numbers apart, number c of row r lies. Under wgmma rows longer than ld go on in another block of columns, and
// eight 16s of eight rows (of 64 bytes: four) change places with the row's number: no eight rows of a column meet in a bank.
template <int ROWS> __device__ inline int place(int ld, int r, int c) {
#ifdef WGMMA
  int at = (c / ld * ROWS + r) * ld + c % ld;
  return at ^ (at >> 3 & ld - 8);
#else
  return r * ld + c;
#endif
}

// This thread among those that load
__device__ inline int loader() {
#ifdef WGMMA
  return threadIdx.x % THREADS;
#else
  return threadIdx.x;
#endif
}

// ROWS rows of COLUMNS numbers into shared memory, by THREADS threads: `rows` of them are there, `width` numbers in each, the rest is 0. They are sent
// 16 bytes at a time where rows are whole sixteens and begin at one, else copied number by number: cp_async_wait() and a barrier have to follow.
template <int ROWS, int COLUMNS> __device__ inline void load(elem *to, int ld, const real *from, i64 stride, int rows, int width) {
  constexpr int MANY = 16 / (int)sizeof(real), SIXTEENS = COLUMNS / MANY, STEP = THREADS / SIXTEENS;
  int me = loader();
  if (width % MANY == 0 && stride % MANY == 0 && (unsigned long long)from % 16 == 0) {
    int r = me / SIXTEENS, c = me % SIXTEENS * MANY;
    Where at = in_shared(&to[place<ROWS>(ld, r, c)]);
    from += r * stride + c, rows = c < width ? rows - r : 0;
#pragma unroll
    for (int m = 0; m < ROWS; m += STEP, from += STEP * stride)
      if (ROWS % STEP == 0 || r + m < ROWS) cp_async(at + m * ld * (int)sizeof(real), from, m < rows);
    return;
  }
#pragma unroll 1
  for (int k = me; k < ROWS * COLUMNS; k += THREADS) {
    int r = k / COLUMNS, c = k % COLUMNS;
    if (r < rows && c < width)
      to[place<ROWS>(ld, r, c)] = from[r * stride + c];
    else
      put(&to[place<ROWS>(ld, r, c)], 0);
  }
}
