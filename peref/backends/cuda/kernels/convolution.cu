// A short causal convolution of each channel with its own K weights, forward and backward.
//
//     y_t = sum of w_k x_(t + k - K + 1) over the slots that token t sees        the slots below 0 are those handed in: line [B,K-1+T,C]
//     dx_s = sum of w_k dy_(s - k + K - 1)        dw_k = sum over sequences and tokens of dy_t x_(t + k - K + 1)
//
// Forward and dx: one thread for one number. dw: a block has 32 channels of one of the K weights and a share of the tokens, its warps take these in
// turn; then the warps, then the shares are added in order. Bound by memory: x is read once, and K - 1 times from the cache.

#include "common.cuh"
#include "parts.cuh"
#include "runs.cuh"

// what stands in slot s of a sequence, from -(K - 1) on
__device__ inline float slot(const real *x, const real *first, int line, int s, int c, int T, int C, int K) {
  if (s >= 0) return wide(x[((i64)line * T + s) * C + c]);
  return first ? wide(first[((i64)line * (K - 1) + s + K - 1) * C + c]) : 0;
}

// y [B,T,C]; last [B,K-1,C]: what the next call is handed
KERNEL convolved(real *y, real *MAYBE last, const real *x, const real *w, const real *MAYBE first, const i64 *MAYBE runs, int B, int T, int C,
                 int K) {
  for (i64 n = thread_of_grid(); n < (i64)B * (T + K - 1) * C; n += threads_in_grid()) {
    int c = (int)(n % C), t = (int)(n / C % (T + K - 1)), line = (int)(n / C / (T + K - 1));
    const i64 *run = runs ? runs + (i64)line * T : runs;
    if (t >= T) {  // the slots T - K + 1 to T - 1, as far as the last token sees them
      int s = t - K + 1;
      put(&last[((i64)line * (K - 1) + t - T) * C + c], reaches(run, T - 1, s) ? slot(x, first, line, s, c, T, C, K) : 0);
      continue;
    }
    float sum = 0;
    for (int k = 0; k < K; k++) {
      int s = t + k - K + 1;
      if (reaches(run, t, s)) sum += slot(x, first, line, s, c, T, C, K) * wide(w[(i64)c * K + k]);
    }
    put(&y[((i64)line * T + t) * C + c], sum);
  }
}

// dx [B,T,C], dfirst [B,K-1,C]
KERNEL convolved_back(real *dx, real *MAYBE dfirst, const real *dy, const real *w, const i64 *MAYBE runs, int B, int T, int C, int K) {
  for (i64 n = thread_of_grid(); n < (i64)B * (T + K - 1) * C; n += threads_in_grid()) {
    int c = (int)(n % C), s = (int)(n / C % (T + K - 1)) - K + 1, line = (int)(n / C / (T + K - 1));
    const i64 *run = runs ? runs + (i64)line * T : runs;
    if (s < 0 && !dfirst) continue;
    float sum = 0;
    for (int k = 0; k < K; k++) {
      int t = s - k + K - 1;
      if (t >= 0 && t < T && reaches(run, t, s)) sum += wide(dy[((i64)line * T + t) * C + c]) * wide(w[(i64)c * K + k]);
    }
    put(s < 0 ? &dfirst[((i64)line * (K - 1) + s + K - 1) * C + c] : &dx[((i64)line * T + s) * C + c], sum);
  }
}

// parts [P,C,K]: the shares of P pieces of the B T tokens
KERNEL convolved_weights(float *parts, const real *dy, const real *x, const real *MAYBE first, const i64 *MAYBE runs, int B, int T, int C, int K,
                         int P) {
  __shared__ float shares[32][32];
  int c = blockIdx.x * 32 + lane(), k = blockIdx.z, warps = blockDim.x / 32;
  i64 begin = (i64)B * T * blockIdx.y / P, stop = (i64)B * T * (blockIdx.y + 1) / P;
  float sum = 0;
  for (i64 m = begin + warp(); m < stop && c < C; m += warps) {
    int line = (int)(m / T), t = (int)(m % T), s = t + k - K + 1;
    if (reaches(runs ? runs + (i64)line * T : runs, t, s)) sum += wide(dy[m * C + c]) * slot(x, first, line, s, c, T, C, K);
  }
  shares[warp()][lane()] = sum;
  __syncthreads();
  if (warp() || c >= C) return;
  for (int n = 1; n < warps; n++) sum += shares[n][lane()];
  parts[((i64)blockIdx.y * C + c) * K + k] = sum;
}
