// AdamW (Loshchilov and Hutter 2019, algorithm 2), of one tensor and of a whole arena with clipping.
//
//     m += (1 - beta1) (g - m)    v += (1 - beta2) (g^2 - v)    p -= rate (m / first / (sqrt(v / second) + eps) + decay p)
//     first = 1 - beta1^step, second = 1 - beta2^step, in double; rate, step and clip are in device memory
//
// The arena is a line of chunks, each of one tensor and with its own factor of the rate and decay; the numbers between two tensors are 0 and stay 0.
// `squares` finds the length of the gradient and the first chunk of it that is not finite, `arena` updates, unless the loss or the gradient is not
// finite: then nothing is written but the word (loss, norm, fault), and as long as its fault is not 0 no later call writes anything.
// Bound by memory: 7 numbers move for each parameter, 28 bytes, and 4 more to find the length.

#include "common.cuh"

struct Rule {
  float rate, first, second, keep1, keep2, eps;
};

__device__ inline Rule rule_of(double rate, double step, double beta1, double beta2, float eps) {
  return {(float)rate, (float)(1 - pow(beta1, step)), (float)(1 - pow(beta2, step)), (float)(1 - beta1), (float)(1 - beta2), eps};
}

__device__ inline void update(float *p, float g, float *m, float *v, const Rule &r, float rate, float decay) {
  float a = *m + r.keep1 * (g - *m), b = *v + r.keep2 * (g * g - *v);
  *m = a, *v = b;
  *p -= rate * (a / r.first / (sqrtf(b / r.second) + r.eps) + decay * *p);
}

KERNEL one_tensor(float *p, const float *g, float *m, float *v, const double *rate, const double *step, const double *MAYBE shrink, i64 n,
                  double beta1, double beta2, float eps, float decay) {
  __shared__ Rule rule;
  const float times = shrink ? (float)*shrink : 1;
  if (!(times > 0)) return;
  if (threadIdx.x == 0) rule = rule_of(*rate, *step, beta1, beta2, eps);
  __syncthreads();
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) update(&p[k], times < 1 ? g[k] * times : g[k], &m[k], &v[k], rule, rule.rate, decay);
}

// Eight tensors, as many of them as there are, into the line: n numbers from place `at` on. What lies between tensors is not written.
KERNEL gather(float *line, const real *MAYBE g0, i64 at0, i64 n0, const real *MAYBE g1, i64 at1, i64 n1, const real *MAYBE g2, i64 at2, i64 n2,
              const real *MAYBE g3, i64 at3, i64 n3, const real *MAYBE g4, i64 at4, i64 n4, const real *MAYBE g5, i64 at5, i64 n5,
              const real *MAYBE g6, i64 at6, i64 n6, const real *MAYBE g7, i64 at7, i64 n7) {
  const real *const from[8] = {g0, g1, g2, g3, g4, g5, g6, g7};
  const i64 at[8] = {at0, at1, at2, at3, at4, at5, at6, at7}, n[8] = {n0, n1, n2, n3, n4, n5, n6, n7};
#pragma unroll
  for (int part = 0; part < 8; part++)
    for (i64 k = thread_of_grid(); k < n[part]; k += threads_in_grid()) put(&line[at[part] + k], wide(from[part][k]));
}

// total [P] = the sum of squares of each of P shares of the chunks, bad [P] = the first chunk there that is not finite, or -1
KERNEL squares(double *total, int *bad, const float *g, i64 chunks, int chunk) {
  __shared__ double sums[32];
  __shared__ int firsts[256];
  i64 begin = chunks * blockIdx.x / gridDim.x * chunk, end = chunks * (blockIdx.x + 1) / gridDim.x * chunk;
  double sum = 0;
  int first = -1;
  for (i64 k = begin + threadIdx.x; k < end; k += blockDim.x) {
    double square = (double)g[k] * g[k];
    if (first < 0 && !(square < 1e300)) first = (int)(k / chunk);
    sum += square;
  }
  firsts[threadIdx.x] = first;
  sum = block_sum(sum, sums);
  if (threadIdx.x) return;
  for (int k = 1; k < (int)blockDim.x; k++)
    if (firsts[k] >= 0 && (first < 0 || firsts[k] < first)) first = firsts[k];
  total[blockIdx.x] = sum, bad[blockIdx.x] = first;
}

// scale, decay and owner [chunks]; word [3]: loss, the length before clipping, and 0, or 1 for the loss, or 2 + the owner of the first bad chunk
KERNEL arena(float *p, const float *g, float *m, float *v, const float *scale, const float *decay, const int *owner, const double *total,
             const int *bad, int P, const double *loss, const double *rate, const double *step, const double *clip, double *word, i64 chunks,
             int chunk, double beta1, double beta2, float eps) {
  __shared__ Rule rule;
  __shared__ float shrink;
  __shared__ int found;
  if (threadIdx.x == 0) {
    double sum = 0;
    found = *loss - *loss == 0 ? 0 : 1;  // not so for an infinity or a NaN
    for (int k = 0; k < P; k++) {
      sum += total[k];
      if (!found && bad[k] >= 0) found = 2 + owner[bad[k]];
    }
    double length = sqrt(sum);
    if (word[2] != 0)
      found = (int)word[2];
    else if (blockIdx.x == 0)
      word[0] = *loss, word[1] = length, word[2] = found;  // what the other blocks find is the same, before and after
    shrink = (float)(length > *clip ? *clip / length : 1);
    rule = rule_of(*rate, *step, beta1, beta2, eps);
  }
  __syncthreads();
  if (found) return;
  for (i64 c = blockIdx.x; c < chunks; c += gridDim.x)
    for (i64 k = c * chunk + threadIdx.x; k < (c + 1) * chunk; k += blockDim.x)
      update(&p[k], shrink < 1 ? g[k] * shrink : g[k], &m[k], &v[k], rule, rule.rate * scale[c], decay[c]);
}
