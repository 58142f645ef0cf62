// Cross-entropy of logits [M,V] with whole numbers [M], negative where nothing is asked, and its gradient.
//
//     nll = lse - logit[target]        lse = max + log(sum of exp(logit - max))        y = mean of nll over what is asked
//     dlogit = (exp(logit - lse) - [target]) dy / count
//
// A warp has a row: each lane keeps the largest logit it saw and a sum relative to it, so that a row is read once. What is kept for backward is
// one number for each row. Bound by memory: the logits are read twice and their gradient is written once. A target beyond V is NaN.

#include "common.cuh"

KERNEL nll_forward(float *nll, float *lse, const real *logits, const i64 *targets, int M, int V) {
  i64 m = (i64)blockIdx.x * (blockDim.x / 32) + warp();
  if (m >= M) return;
  logits += m * V;
  float top = -infinity(), sum = 0;
  for (int v = lane(); v < V; v += 32) {
    float x = wide(logits[v]);
    if (x > top) {
      sum = sum * expf(top - x) + 1;
      top = x;
    } else if (x != -infinity()) {
      sum += expf(x - top);
    }
  }
  float all = warp_max(top);
  sum = warp_sum(top == -infinity() && sum == 0 ? 0 : sum * expf(top - all));
  if (lane()) return;
  i64 t = targets[m];
  lse[m] = all + logf(sum);
  nll[m] = t < 0 ? 0 : t < V ? lse[m] - wide(logits[t]) : not_a_number();
}

// One block: y = the mean, count = how many are asked, at least 1; added in double, in the same order each time
KERNEL nll_mean(real *y, float *count, const float *nll, const i64 *targets, int M) {
  __shared__ double sums[32], counts[32];
  double sum = 0, asked = 0;
  for (int m = threadIdx.x; m < M; m += blockDim.x) {
    sum += nll[m];
    asked += targets[m] >= 0;
  }
  sum = block_sum(sum, sums), asked = block_sum(asked, counts);
  if (threadIdx.x) return;
  *count = (float)(asked > 1 ? asked : 1);
  put(y, (float)(sum / *count));
}

KERNEL nll_backward(real *d, const real *logits, const float *lse, const i64 *targets, const real *dy, const float *count, int M, int V) {
  i64 m = (i64)blockIdx.x * (blockDim.x / 32) + warp();
  if (m >= M) return;
  i64 t = targets[m];
  float share = t < 0 ? 0 : wide(*dy) / *count, line = lse[m];
  for (int v = lane(); v < V; v += 32) {
    float p = expf(wide(logits[m * V + v]) - line);
    put(&d[m * V + v], p * share - (v == t ? share : 0));
  }
}
