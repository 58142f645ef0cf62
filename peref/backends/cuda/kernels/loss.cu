// Cross-entropy of logits [M,V] with whole numbers [M], negative where nothing is asked, and its gradient.
//
//     nll = lse - logit[target]        lse = max + log(sum of exp(logit - max))        y = mean of nll over what is asked
//     dlogit = (exp(logit - lse) - [target]) / count, times dy
//
// W warps have a row, of which a lane keeps H packs, so that it is read once; rows that are longer, or not in packs, are read again from the
// cache. The gradient is written while the row is at hand, with dy = 1; backward has something to do only where dy is another number. Bound by
// memory: the logits are read once and their gradient is written once. A target beyond V is NaN.

#include "common.cuh"
#include "rows.cuh"

// One block: count = how many targets are asked, at least 1
KERNEL count_asked(float *count, const i64 *targets, int M) {
  __shared__ double counts[32];
  double asked = 0;
#pragma unroll 8
  for (int m = threadIdx.x; m < M; m += blockDim.x) asked += targets[m] >= 0;
  asked = block_sum(asked, counts);
  if (threadIdx.x == 0) *count = (float)(asked > 1 ? asked : 1);
}

// One block: y = the mean, added in double, in the same order each time
KERNEL nll_mean(real *y, const float *nll, const float *count, int M) {
  __shared__ double sums[32];
  double sum = 0;
#pragma unroll 8
  for (int m = threadIdx.x; m < M; m += blockDim.x) sum += nll[m];
  sum = block_sum(sum, sums);
  if (threadIdx.x == 0) put(y, (float)(sum / *count));
}

// nll of row m and, where d is not null, the row's gradient
template <int N, int H, bool KEPT>
__device__ inline void of_row(float *nll, real *d, const real *logits, i64 t, float count, i64 m, bool there, int V, int W, float *shares) {
  Piece<N> row[H];
  auto fetch = [&](int k, int v) { row[k] = piece<N>(logits + m * V + v); };
  auto each = [&](auto f) {  // f(k, place, the numbers of the piece)
    pieces<N, H, KEPT>(V, W, [&](int k, int v) {
      float x[N];
      if (!KEPT) fetch(k, v);
      unpack(x, row[k]);
      f(k, v, x);
    });
  };
  if (KEPT) pieces<N, H, true>(V, W, fetch);
  float top = -infinity(), sum = 0;
  each([&](int, int, float *x) {
#pragma unroll
    for (int j = 0; j < N; j++) top = fmaxf(top, x[j]);
  });
  top = row_max(top, shares, W);
  const float base = top == -infinity() ? 0 : top;
  each([&](int, int, float *x) {
#pragma unroll
    for (int j = 0; j < N; j++) sum += exp_approx(x[j] - base);
  });
  sum = row_sum(sum, shares, W);
  if (!there) return;
  if (d) {
    const float share = t < 0 ? 0 : 1 / count, times = share / sum;
    each([&](int k, int v, float *x) {
#pragma unroll
      for (int j = 0; j < N; j++) x[j] = exp_approx(x[j] - base) * times - (v + j == t ? share : 0);
      *(Piece<N> *)(d + m * V + v) = in_piece(x, row[k]);
    });
  }
  if (place_in_row(W)) return;
  nll[m] = t < 0 ? 0 : t < V ? top + logf(sum) - wide(logits[m * V + t]) : not_a_number();
}

template <int H>
__device__ inline void rows(float *nll, real *d, const real *logits, const i64 *targets, const float *count, int M, int V, int W) {
  __shared__ float shares[32];
  i64 m = (i64)blockIdx.x * (blockDim.x / 32 / W) + row_of_block(W);
  bool there = m < M, whole = V % MANY<real> == 0 && at_packs(d, logits);
  if (!there) m = M - 1;  // computed once more, not written
  if (whole && fits<H>(V, W))
    of_row<MANY<real>, H, true>(nll, d, logits, targets[m], *count, m, there, V, W, shares);
  else if (whole)
    of_row<MANY<real>, H, false>(nll, d, logits, targets[m], *count, m, there, V, W, shares);
  else
    of_row<1, H, false>(nll, d, logits, targets[m], *count, m, there, V, W, shares);
}

KERNEL nll_rows_2(float *nll, real *MAYBE d, const real *logits, const i64 *targets, const float *count, int M, int V, int W) {
  rows<2>(nll, d, logits, targets, count, M, V, W);
}

KERNEL nll_rows_8(float *nll, real *MAYBE d, const real *logits, const i64 *targets, const float *count, int M, int V, int W) {
  rows<8>(nll, d, logits, targets, count, M, V, W);
}

// d [n] *= dy, which is 1 in training: then nothing moves
KERNEL times_dy(real *d, const real *dy, i64 n) {
  const float times = wide(*dy);
  if (times == 1) return;
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) put(d + k, wide(d[k]) * times);
}
