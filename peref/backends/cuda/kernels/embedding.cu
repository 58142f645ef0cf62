// Rows of a table, and the sum of what comes back for each row.
//
//     gather    y[m] = table[index[m]]                            a row beyond the table is NaN
//     scatter   out[v] = sum of x[m] over all m with index[m] = v
//
// Gather: one thread for one pack, or one number where rows are not in packs; bound by memory. Scatter: a block has R rows of the table, 1 .. ROWS, and
// a channel for each thread. It goes through the index TILE places at a time: its warps list, each of its share of the places in order, those that
// name one of the R rows, then each thread adds its channel of what is listed, in order. No sorting, no atomics. The index is read V C / (R 256)
// times, from the cache.

#include "common.cuh"

constexpr int ROWS = 16, WARPS = 8, THREADS = 32 * WARPS, SHARE = 256, TILE = WARPS * SHARE;

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

// x [M,C]; block (n, p) has rows n R .. and channels p 256 ..
KERNEL scatter(float *out, const real *x, const i64 *index, i64 M, int C, int V, int R) {
  __shared__ double sums[ROWS][THREADS];  // a row may be named by most of the index
  __shared__ int places[WARPS][SHARE], found[WARPS];  // places in the tile and which of the R rows they name
  i64 first = (i64)blockIdx.x * R;
  int c = blockIdx.y * THREADS + threadIdx.x;
  for (int r = 0; r < R; r++) sums[r][threadIdx.x] = 0;
  for (i64 start = 0; start < M; start += TILE) {
    i64 mine[SHARE / 32], here = start + warp() * SHARE;
#pragma unroll
    for (int k = 0; k < SHARE / 32; k++) {
      i64 m = here + 32 * k + lane();
      mine[k] = m < M ? index[m] - first : -1;
    }
    int count = 0;
#pragma unroll
    for (int k = 0; k < SHARE / 32; k++) {
      bool wanted = mine[k] >= 0 && mine[k] < R;
      unsigned all = __ballot_sync(ALL, wanted);
      if (wanted) places[warp()][count + __popc(all & ((1u << lane()) - 1))] = (int)mine[k] * TILE + warp() * SHARE + 32 * k + lane();
      count += __popc(all);
    }
    if (lane() == 0) found[warp()] = count;
    __syncthreads();
    for (int w = 0; w < WARPS; w++)
      for (int k = 0; k < found[w]; k += 4) {
        float next[4];
#pragma unroll
        for (int j = 0; j < 4; j++) next[j] = c < C && k + j < found[w] ? wide(x[(start + (places[w][k + j] & (TILE - 1))) * C + c]) : 0;
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (k + j < found[w]) sums[places[w][k + j] / TILE][threadIdx.x] += next[j];
      }
    __syncthreads();
  }
  for (int r = 0; r < R && first + r < V && c < C; r++) out[(first + r) * C + c] = (float)sums[r][threadIdx.x];
}
