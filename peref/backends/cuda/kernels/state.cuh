// A state of WIDTH rows of which each column goes its own way over the tokens; inputs say for each token what its rows, or its columns, are met with.
//
// A block has COLUMNS columns of one sequence, a thread ROWS numbers of one column: lane = 4 part + column, and the rows of a part are part,
// part + 8, ... A sum over rows is one over the lanes of a column; a sum over columns is one over four lanes, then over the four warps, then over the
// blocks that share the rows, which write their shares out. Tokens are taken TOKENS at a time: what they bring is read into shared memory, and from
// token to token no warp waits for another. Forward keeps the state before every such piece, backward makes those between again, `kept`, in shared
// memory: nothing is divided by a decay to go back, and no gradient is the difference of long sums.

constexpr int COLUMNS = 16, THREADS = 128, ROWS = WIDTH / 8, TOKENS = 512 / WIDTH;

__device__ inline int part() { return lane() / 4; }
__device__ inline int column() { return warp() * 4 + lane() % 4; }

// Every lane of a column has the sum over its rows.
template <class T> __device__ inline T over_rows(T x) {
  for (int m = 4; m < 32; m *= 2) x += __shfl_xor_sync(ALL, x, m);
  return x;
}

// The four lanes that have a row have the sum over the columns of the warp.
__device__ inline float over_columns(float x) {
  x += __shfl_xor_sync(ALL, x, 1);
  return x + __shfl_xor_sync(ALL, x, 2);
}

// work(start, n) for each piece of n tokens from `start` on, in order or, BACK, from the last to the first, after load(start, n) has filled shared
// memory
template <bool BACK, class Load, class Work> __device__ inline void pieces(int T, Load load, Work work) {
  int count = (T + TOKENS - 1) / TOKENS;
  for (int k = 0; k < count; k++) {
    int start = (BACK ? count - 1 - k : k) * TOKENS, n = min(TOKENS, T - start);
    __syncthreads();
    load(start, n);
    __syncthreads();
    work(start, n);
  }
}

// to [TOKENS,W] = f of n rows of x, `stride` apart and `width` long; 0 beyond them
template <int W, class F> __device__ inline void load(float *to, const real *x, i64 stride, int n, int width, F f) {
  for (int k = threadIdx.x; k < TOKENS * W; k += blockDim.x) {
    int t = k / W, c = k % W;
    to[k] = t < n && c < width ? f(wide(x[t * stride + c]), t) : 0;
  }
}
template <int W> __device__ inline void load(float *to, const real *x, i64 stride, int n, int width) {
  load<W>(to, x, stride, n, width, [](float x, int) { return x; });
}

// A warp's share of a sum over columns, one of QUANTITIES for each row of a token: sums [QUANTITIES][4 warps][TOKENS][WIDTH].
__device__ inline void share(float *sums, int quantity, int t, int row, float x) {
  x = over_columns(x);
  if (lane() % 4 == 0) sums[((quantity * 4 + warp()) * TOKENS + t) * WIDTH + row] = x;
}

// The shares of the four warps, added in order: f(quantity, t, row, sum) for n tokens and `width` rows
template <int QUANTITIES, class F> __device__ inline void shared_out(const float *sums, int n, int width, F f) {
  __syncthreads();
  for (int k = threadIdx.x; k < QUANTITIES * TOKENS * WIDTH; k += blockDim.x) {
    int row = k % WIDTH, t = k / WIDTH % TOKENS, quantity = k / WIDTH / TOKENS;
    float x = 0;
    for (int w = 0; w < 4; w++) x += t < n ? sums[((quantity * 4 + w) * TOKENS + t) * WIDTH + row] : 0;
    if (t < n && row < width) f(quantity, t, row, x);
  }
}
