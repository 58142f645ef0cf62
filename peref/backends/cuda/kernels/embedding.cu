// Rows of a table, and the sum of what comes back for each row.
//
//     gather    y[m] = table[index[m]]                            a row beyond the table is NaN
//     scatter   out[v] = sum of x[m] over all m with index[m] = v
//
// Gather: one thread for one pack, or one number where rows are not in packs; bound by memory. Scatter: a block has R rows of the table, 1 .. ROWS, and
// a channel for each thread. It goes through the index TILE places at a time: its warps list, each of its share of the places, those that name one of
// the R rows, in order, then each thread adds its channel of what is listed, AT_ONCE of them under way. No sorting, no atomics. The index is
// read V C / (R 256) times, from the cache.

#include "common.cuh"

constexpr int ROWS = 16, WARPS = 8, THREADS = 32 * WARPS, SHARE = 256, TILE = WARPS * SHARE, AT_ONCE = 8;

template <int N> __device__ inline void rows(real *y, const real *table, const i64 *index, i64 M, int C, int V) {
  unsigned units = C / N;
  for (i64 k = thread_of_grid(); k < M * units; k += threads_in_grid()) {
    i64 m = k / units, v = index[m];
    int c = (int)(k - m * units) * N;
    float x[N];
    if (v >= 0 && v < V) {
      read<N>(x, table + v * C + c);
    } else {
#pragma unroll
      for (int j = 0; j < N; j++) x[j] = not_a_number();
    }
    write<N>(y + m * C + c, x);
  }
}

KERNEL gather(real *y, const real *table, const i64 *index, i64 M, int C, int V) {
  if (C % MANY<real> == 0 && at_packs(y, table))
    rows<MANY<real>>(y, table, index, M, C, V);
  else
    rows<1>(y, table, index, M, C, V);
}

// x [M,C]; block (n, p) has rows n R .. and channels p 256 ..; `more` is added last
KERNEL scatter(real *out, const real *x, const i64 *index, const real *MAYBE more, i64 M, int C, int V, int R) {
  __shared__ double sums[ROWS][THREADS];      // a row may be named by most of the index
  __shared__ int places[TILE], found[WARPS];  // places in the tile and which of the R rows they name, and how many each warp found
  i64 first = (i64)blockIdx.x * R;
  int c = blockIdx.y * THREADS + threadIdx.x;
  for (int r = 0; r < R; r++) sums[r][threadIdx.x] = 0;
  for (i64 start = 0; start < M; start += TILE) {
    const int mine = warp() * SHARE + lane();  // and each 32nd behind it
    int row[SHARE / 32], before = 0, all = 0;
    unsigned named[SHARE / 32];
#pragma unroll
    for (int k = 0; k < SHARE / 32; k++) {
      i64 m = start + mine + 32 * k, r = m < M ? index[m] - first : -1;
      row[k] = r >= 0 && r < R ? (int)r : -1;
    }
#pragma unroll
    for (int k = 0; k < SHARE / 32; k++) named[k] = __ballot_sync(ALL, row[k] >= 0), all += __popc(named[k]);
    if (lane() == 0) found[warp()] = all;
    __syncthreads();
    all = 0;
    for (int w = 0; w < WARPS; w++) before += w < warp() ? found[w] : 0, all += found[w];
#pragma unroll
    for (int k = 0; k < SHARE / 32; before += __popc(named[k++]))
      if (row[k] >= 0) places[before + __popc(named[k] & ((1u << lane()) - 1))] = row[k] * TILE + mine + 32 * k;
    __syncthreads();
    for (int k = 0; k < all && c < C; k += AT_ONCE) {
      float next[AT_ONCE];
#pragma unroll
      for (int j = 0; j < AT_ONCE; j++) next[j] = k + j < all ? wide(x[(start + places[k + j] % TILE) * C + c]) : 0;
#pragma unroll
      for (int j = 0; j < AT_ONCE; j++)
        if (k + j < all) sums[places[k + j] / TILE][threadIdx.x] += next[j];
    }
  }
  for (int r = 0; r < R && first + r < V && c < C; r++) {
    i64 place = (first + r) * C + c;
    put(&out[place], (float)sums[r][threadIdx.x] + (more ? wide(more[place]) : 0));
  }
}
