// AdamW (Loshchilov and Hutter 2019, algorithm 2), of one tensor and of a whole arena with clipping.
//
//     m += (1 - beta1) (g - m)    v += (1 - beta2) (g^2 - v)    p -= rate (m / first / (sqrt(v / second) + eps) + decay p)
//     first = 1 - beta1^step, second = 1 - beta2^step, in double; rate, step and clip are in device memory
//
// The arena is a line of chunks, each of one tensor and with its own factor of the rate and decay; the numbers between two tensors are 0 and stay 0.
// Gradients are read where they lie.
// `squares` finds the length of the gradient and the first owner of a chunk that is not finite, `arena` updates, unless the loss or the gradient is not
// finite: then nothing is written but the word (loss, norm, fault), and as long as its fault is not 0 no later call writes anything. Every block of
// it adds the totals of `squares` for itself, a thread for each; its blocks are few. Lines begin at packs, and a thread has one at a time.
// Bound by memory: 7 numbers move for each parameter, 28 bytes, and 4 more to find the length.

#include "common.cuh"

constexpr int CHUNK = 256, QUADS = CHUNK / 4;  // numbers of a chunk, as in flat.py, and packs

struct Rule {
  float rate, first, second, keep1, keep2, eps;
};

__device__ inline Rule rule_of(double rate, double first, double second, double beta1, double beta2, float eps) {
  return {(float)rate, (float)first, (float)second, (float)(1 - beta1), (float)(1 - beta2), eps};
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
  if (threadIdx.x == 0) rule = rule_of(*rate, 1 - pow(beta1, *step), 1 - pow(beta2, *step), beta1, beta2, eps);
  __syncthreads();
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) update(&p[k], times < 1 ? g[k] * times : g[k], &m[k], &v[k], rule, rule.rate, decay);
}

// The first thread has the sum over the block and, in `first`, the least of its numbers, -1 being none and behind all others.
__device__ inline double sum_and_first(double sum, int &first, double *sums, unsigned *firsts) {
  unsigned least = (unsigned)first;
  for (int m = 16; m; m >>= 1) least = min(least, __shfl_xor_sync(ALL, least, m));
  if (lane() == 0) firsts[warp()] = least;
  sum = block_sum(sum, sums);  // its barrier is that of `firsts` too
  for (int k = 1; threadIdx.x == 0 && k < (int)blockDim.x / 32; k++) least = min(least, firsts[k]);
  first = (int)least;
  return sum;
}

constexpr int TENSORS = 192;  // as in optimizer.py
struct Tensors {  // where the gradients of so many owners lie, how long they are, and at which chunk they begin
  const real *g[TENSORS];
  i64 n[TENSORS];
  int first[TENSORS];
};

struct __align__(4 * sizeof(real)) Four {
  real x[4];
};

// The gradient of 4 numbers of the line from place k on, which are owner t's; 0 behind its end.
__device__ inline void gradient(float *x, const Tensors &tensors, unsigned t, i64 k) {
  const real *g = tensors.g[t];
  k -= (i64)tensors.first[t] * CHUNK;
  i64 left = tensors.n[t] - k;
  if (left >= 4 && (unsigned long long)g % sizeof(Four) == 0) {
    const Four four = *(const Four *)(g + k);
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = wide(four.x[j]);
  } else {
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = j < left ? wide(g[k + j]) : 0;
  }
}

// Of TENSORS owners from number `from` on: total [P+2] = the sum of squares of each of P shares of the chunks, then 1 - beta1^step and
// 1 - beta2^step; bad [P] = the least owner of a chunk of the share that is not finite, or -1; owner [chunks]
KERNEL squares(double *total, int *bad, Tensors tensors, int from, const int *owner, i64 chunks, const double *step, double beta1, double beta2) {
  constexpr int MOST = 2;  // packs of a thread that are under way
  __shared__ double sums[32];
  __shared__ unsigned firsts[32];
  i64 begin = chunks * blockIdx.x / gridDim.x * QUADS, end = chunks * (blockIdx.x + 1) / gridDim.x * QUADS;
  double sum = 0;
  int first = -1;
  for (i64 k = begin + threadIdx.x; k < end; k += MOST * (i64)blockDim.x) {
    unsigned of[MOST];
    float x[MOST][4] = {};
#pragma unroll
    for (int i = 0; i < MOST; i++) of[i] = k + i * blockDim.x < end ? owner[(k + i * blockDim.x) / QUADS] - from : TENSORS;
#pragma unroll
    for (int i = 0; i < MOST; i++)
      if (of[i] < TENSORS) gradient(x[i], tensors, of[i], 4 * (k + i * blockDim.x));
#pragma unroll
    for (int i = 0; i < MOST; i++) {
      double square = 0;
#pragma unroll
      for (int j = 0; j < 4; j++) square += (double)x[i][j] * x[i][j];
      if (!(square < 1e300)) first = (int)min((unsigned)first, from + of[i]);
      sum += square;
    }
  }
  sum = sum_and_first(sum, first, sums, firsts);
  if (threadIdx.x) return;
  total[blockIdx.x] = sum, bad[blockIdx.x] = first;
  if (blockIdx.x == 0) total[gridDim.x] = 1 - pow(beta1, *step), total[gridDim.x + 1] = 1 - pow(beta2, *step);
}

// The same owners; `narrow`, p in bfloat16, two in each; scale and decay [chunks]; word [3]: loss, the length before clipping, and 0, or 1 for the loss, or 2 + the least of `bad`.
// total [L,P+2] and bad [L,P] as L launches of `squares` left them, P at most the threads of a block
KERNEL arena(float *p, float *m, float *v, int *MAYBE narrow, Tensors tensors, int from, const int *owner, const float *scale, const float *decay,
             const double *total, const int *bad, int L, int P, const double *loss, const double *rate, const double *clip, double *word,
             i64 chunks, double beta1, double beta2, float eps) {
  __shared__ double sums[32];
  __shared__ unsigned firsts[32];
  __shared__ Rule rule;
  __shared__ float shrink;
  __shared__ int found;
  int first = -1;
  double sum = 0;
  for (int l = 0; l < L && (int)threadIdx.x < P; l++) {
    first = (int)min((unsigned)first, (unsigned)bad[l * P + threadIdx.x]);
    sum += total[l * (P + 2) + threadIdx.x];
  }
  sum = sum_and_first(sum, first, sums, firsts);
  if (threadIdx.x == 0) {
    found = *loss - *loss == 0 ? 0 : 1;  // not so for an infinity or a NaN
    if (!found && first >= 0) found = 2 + first;
    double length = sqrt(sum);
    if (word[2] != 0)
      found = (int)word[2];
    else if (blockIdx.x == 0)
      word[0] = *loss, word[1] = length, word[2] = found;  // what the other blocks find is the same, before and after
    shrink = (float)(length > *clip ? *clip / length : 1);
    rule = rule_of(*rate, total[P], total[P + 1], beta1, beta2, eps);
  }
  __syncthreads();
  if (found) return;
  const Rule r = rule;
  const float times = shrink;
  for (i64 k = thread_of_grid(); k < chunks * QUADS; k += threads_in_grid()) {
    i64 c = k / QUADS;
    unsigned t = owner[c] - from;
    if (t >= TENSORS) continue;
    float of_p[4], of_g[4], of_m[4], of_v[4], speed = r.rate * scale[c], falls = decay[c];
    read<4>(of_p, p + 4 * k), read<4>(of_m, m + 4 * k), read<4>(of_v, v + 4 * k), gradient(of_g, tensors, t, 4 * k);
#pragma unroll
    for (int j = 0; j < 4; j++) update(&of_p[j], times < 1 ? of_g[j] * times : of_g[j], &of_m[j], &of_v[j], r, speed, falls);
    write<4>(p + 4 * k, of_p), write<4>(m + 4 * k, of_m), write<4>(v + 4 * k, of_v);
    if (narrow) narrow[2 * k] = (int)bf16_pair(of_p[0], of_p[1]), narrow[2 * k + 1] = (int)bf16_pair(of_p[2], of_p[3]);
  }
}
