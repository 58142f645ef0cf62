// Cross-entropy of logits [M,V] with whole numbers [M], negative where nothing is asked, and its gradient.
//
//     nll = lse - logit[target]        lse = max + log(sum of exp(logit - max))        y = mean of nll over what is asked
//     dlogit = (exp(logit - lse) - [target]) dy / count
//
// W warps have a row, and a lane BATCH packs of it at a time, backward half as many; single numbers where rows are not in packs. Each lane keeps the largest logit it saw
// and a sum relative to it, so that a row is read once. What is kept for backward is one number for each row. Bound by memory: the logits are read
// twice and their gradient is written once. A target beyond V is NaN.

#include "common.cuh"

#define BATCH 4

// of what this thread has of a row: the largest, and the sum of exp(logit - largest)
template <int N> __device__ inline void of_lane(float &top, float &sum, const real *logits, int V, int W) {
  int step = N * 32 * W;
  for (int start = N * place_in_row(W); start < V; start += BATCH * step) {
    float x[BATCH][N], best = top;
#pragma unroll
    for (int k = 0; k < BATCH; k++)
      if (start + k * step < V) {
        read<N>(x[k], logits + start + k * step);
      } else {
#pragma unroll
        for (int j = 0; j < N; j++) x[k][j] = -infinity();
      }
#pragma unroll
    for (int k = 0; k < BATCH; k++)
#pragma unroll
      for (int j = 0; j < N; j++) best = fmaxf(best, x[k][j]);
    if (best > top) sum *= expf(top - best);
    top = best;
#pragma unroll
    for (int k = 0; k < BATCH; k++)
#pragma unroll
      for (int j = 0; j < N; j++) sum += x[k][j] == -infinity() ? 0 : expf(x[k][j] - top);
  }
}

KERNEL nll_forward(float *nll, float *lse, const real *logits, const i64 *targets, int M, int V, int W) {
  __shared__ float shares[32];
  i64 m = (i64)blockIdx.x * (blockDim.x / 32 / W) + row_of_block(W);
  bool there = m < M;
  if (!there) m = M - 1;  // computed once more, not written
  float top = -infinity(), sum = 0;
  if (V % MANY<real> == 0 && at_packs(logits))
    of_lane<MANY<real>>(top, sum, logits + m * V, V, W);
  else
    of_lane<1>(top, sum, logits + m * V, V, W);
  float all = row_max(top, shares, W);
  sum = row_sum(top == -infinity() && sum == 0 ? 0 : sum * expf(top - all), shares, W);
  if (!there || place_in_row(W)) return;
  i64 t = targets[m];
  lse[m] = all + logf(sum);
  nll[m] = t < 0 ? 0 : t < V ? lse[m] - wide(logits[m * V + t]) : not_a_number();
}

// One block: y = the mean, count = how many are asked, at least 1; added in double, in the same order each time
KERNEL nll_mean(real *y, float *count, const float *nll, const i64 *targets, int M) {
  __shared__ double sums[32], counts[32];
  double sum = 0, asked = 0;
#pragma unroll 4
  for (int m = threadIdx.x; m < M; m += blockDim.x) {
    sum += nll[m];
    asked += targets[m] >= 0;
  }
  sum = block_sum(sum, sums), asked = block_sum(asked, counts);
  if (threadIdx.x) return;
  *count = (float)(asked > 1 ? asked : 1);
  put(y, (float)(sum / *count));
}

template <int N> __device__ inline void gradient(real *d, const real *logits, float lse, i64 t, float share, int V, int W) {
  int step = N * 32 * W;
  for (int start = N * place_in_row(W); start < V; start += BATCH / 2 * step) {
    float x[BATCH / 2][N];
#pragma unroll
    for (int k = 0; k < BATCH / 2; k++)
      if (start + k * step < V) read<N>(x[k], logits + start + k * step);
#pragma unroll
    for (int k = 0; k < BATCH / 2; k++)
      if (int v = start + k * step; v < V) {
#pragma unroll
        for (int j = 0; j < N; j++) x[k][j] = expf(x[k][j] - lse) * share - (v + j == t ? share : 0);
        write<N>(d + v, x[k]);
      }
  }
}

KERNEL nll_backward(real *d, const real *logits, const float *lse, const i64 *targets, const real *dy, const float *count, int M, int V, int W) {
  i64 m = (i64)blockIdx.x * (blockDim.x / 32 / W) + row_of_block(W);
  if (m >= M) return;
  i64 t = targets[m];
  float share = t < 0 ? 0 : wide(*dy) / *count;
  if (V % MANY<real> == 0 && at_packs(d, logits))
    gradient<MANY<real>>(d + m * V, logits + m * V, lse[m], t, share, V, W);
  else
    gradient<1>(d + m * V, logits + m * V, lse[m], t, share, V, W);
}
