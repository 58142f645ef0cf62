// Rows of a table, and the sum of what comes back for each row.
//
//     gather    y[m] = table[index[m]]                            a row beyond the table is NaN
//     scatter   out[v] = sum of x[m] over all m with index[m] = v
//
// Gather: one thread for one number, bound by memory. Scatter: a block has one row v and 32 CHANNELS channels, its warps each a share of the
// index in order; a warp asks for 32 places at a time which are v's and adds those in order, a lane for every 32nd channel; then the shares are
// added in order. No sorting, no atomics. It reads the index from the cache once for each row of the table: V M / 32 steps of a warp.

#include "common.cuh"

#define CHANNELS 4
#define WARPS 8

KERNEL gather(real *y, const real *table, const i64 *index, i64 M, int C, int V) {
  for (i64 k = thread_of_grid(); k < M * C; k += threads_in_grid()) {
    i64 v = index[k / C];
    if (v >= 0 && v < V)
      y[k] = table[v * C + k % C];
    else
      put(&y[k], not_a_number());
  }
}

// x [M,C]
KERNEL scatter(float *out, const real *x, const i64 *index, i64 M, int C) {
  __shared__ float shares[WARPS][32 * CHANNELS];
  i64 v = blockIdx.x;
  int start = blockIdx.y * 32 * CHANNELS + lane();
  float sums[CHANNELS] = {};
  i64 stop = M * (warp() + 1) / WARPS;
  for (i64 m = M * warp() / WARPS; m < stop; m += 32) {
    unsigned mine = __ballot_sync(ALL, m + lane() < stop && index[m + lane()] == v);
    for (; mine; mine &= mine - 1) {
      const real *row = x + (m + __ffs(mine) - 1) * C;
      for (int k = 0; k < CHANNELS; k++)
        if (start + 32 * k < C) sums[k] += wide(row[start + 32 * k]);
    }
  }
  for (int k = 0; k < CHANNELS; k++) shares[warp()][lane() + 32 * k] = sums[k];
  __syncthreads();
  if (warp()) return;
  for (int k = 0; k < CHANNELS; k++) {
    for (int w = 1; w < WARPS; w++) sums[k] += shares[w][lane() + 32 * k];
    if (start + 32 * k < C) out[v * C + start + 32 * k] = sums[k];
  }
}
