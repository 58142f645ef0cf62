// The scan of Mamba (Gu, Dao 2023, arXiv:2312.00752, algorithm 2), forward and backward; state.cuh says who does what.
//
//     h_t = exp(z_t) h_(t-1) + G_t b_t x_t        y_t = c_t h_t + skip x_t        z = step A, A = -exp(a_log), step = softplus(delta)
//     G = step    or, `zoh`, G = (exp(z) - 1) / A        h [N,E]: a row for each number of the state, a column for each channel
//
// With D the gradient of h_t, to which c g is added first, and g that of y_t:
//     dz = D h_(t-1) exp(z)        dx = skip g + sum over rows of b G D        db = sum over channels of x G D        dc = sum over channels of g h_t
//     dstep = sum over rows of A dz + b x D    dA = sum of step dz, or of `zoh` dG = D b x / A, dz += dG exp(z), dA -= dG G        D <- exp(z) D
//
// A block for 16 channels and WIDTH rows of a sequence; rows beyond have blocks of their own (blockIdx.z), and what is a sum over rows is in shares.
// Bound by the time that one token takes after another, and by exponentials: one for each number of the state, and two backward.

#define WIDTH 16
#include "common.cuh"
#include "parts.cuh"
#include "runs.cuh"
#include "state.cuh"

struct Step {
  float decay, gain;
};

__device__ inline Step step_of(float step, float a, bool zoh) {
  float z = step * a;
  return {expf(z), zoh ? expm1f(z) / a : step};
}

__device__ inline float softplus(float x) { return fmaxf(x, 0) + log1pf(expf(-fabsf(x))); }

// A of a thread's rows; of rows and channels that are not there a number that nothing divides by 0 with
__device__ inline void load_a(float *a, const real *a_log, int from, int j, int N, int E) {
  for (int m = 0; m < ROWS; m++) {
    int i = from + part() + 8 * m;
    a[m] = i < N && j < E ? -expf(wide(a_log[(i64)j * N + i])) : -1;
  }
}

// y [blockIdx.z][B,T,E]; x, delta [B,T,E], a_log [E,N], b, c [B,T,N], skip [E]; states [B,pieces + 1,N,E]: before each piece, and the last
KERNEL selective_forward(float *y, float *states, const real *x, const real *delta, const real *a_log, const real *b, const real *c,
                         const real *skip, const float *MAYBE first, const i64 *MAYBE runs, int T, int E, int N, int zoh) {
  __shared__ float of_b[TOKENS * WIDTH], of_c[TOKENS * WIDTH], of_x[TOKENS * COLUMNS], of_step[TOKENS * COLUMNS];
  int line = blockIdx.x, rows = blockIdx.z * WIDTH, from = blockIdx.y * COLUMNS, j = from + column(), count = (T + TOKENS - 1) / TOKENS;
  const i64 *run = runs ? runs + (i64)line * T : runs;
  float h[ROWS], a[ROWS], through = rows == 0 && j < E ? wide(skip[j]) : 0;
  load_a(a, a_log, rows, j, N, E);
  for (int m = 0; m < ROWS; m++) {
    int i = rows + part() + 8 * m;
    h[m] = first && i < N && j < E ? first[((i64)line * N + i) * E + j] : 0;
  }
  auto keep = [&](int piece) {
    for (int m = 0; m < ROWS; m++) {
      int i = rows + part() + 8 * m;
      if (i < N && j < E) states[(((i64)line * (count + 1) + piece) * N + i) * E + j] = h[m];
    }
  };
  auto bring = [&](int start, int n) {
    i64 row = (i64)line * T + start;
    load<WIDTH>(of_b, b + row * N + rows, N, n, N - rows);
    load<WIDTH>(of_c, c + row * N + rows, N, n, N - rows);
    load<COLUMNS>(of_x, x + row * E + from, E, n, E - from, [&](float x, int t) { return alive(run, start + t) ? x : 0; });
    load<COLUMNS>(of_step, delta + row * E + from, E, n, E - from, [](float x, int) { return softplus(x); });
  };
  pieces<false>(T, bring, [&](int start, int n) {
    keep(start / TOKENS);
    for (int t = 0; t < n; t++) {
      bool on = follows(run, start + t);
      float u = of_x[t * COLUMNS + column()], step = of_step[t * COLUMNS + column()], sum = 0;
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        int at = t * WIDTH + part() + 8 * m;
        Step s = step_of(step, a[m], zoh);
        h[m] = (on ? s.decay * h[m] : 0) + s.gain * of_b[at] * u;
        sum += of_c[at] * h[m];
      }
      sum = over_rows(sum) + through * u;
      if (part() == 0 && j < E) y[(((i64)blockIdx.z * gridDim.x + line) * T + start + t) * E + j] = sum;
    }
  });
  keep(count);
}

// dx, ddelta [blockIdx.z][B,T,E]; parts [blockIdx.y][2: db, dc][B,T,N]; da_log [B,E,N], dskip [B,E]; dh [B,N,E] of the state handed in
KERNEL selective_backward(float *dx, float *ddelta, float *parts, float *da_log, float *dskip, float *dh, const real *dy, const float *states,
                          const real *x, const real *delta, const real *a_log, const real *b, const real *c, const real *skip,
                          const i64 *MAYBE runs, int T, int E, int N, int zoh) {
  DYNAMIC_SHARED(memory);
  float *kept = (float *)memory, *sums = kept + TOKENS * ROWS * THREADS;
  __shared__ float of_b[TOKENS * WIDTH], of_c[TOKENS * WIDTH];
  __shared__ float of_x[TOKENS * COLUMNS], of_delta[TOKENS * COLUMNS], of_y[TOKENS * COLUMNS];
  int line = blockIdx.x, rows = blockIdx.z * WIDTH, from = blockIdx.y * COLUMNS, j = from + column(), count = (T + TOKENS - 1) / TOKENS;
  const i64 *run = runs ? runs + (i64)line * T : runs;
  float h[ROWS], d[ROWS], a[ROWS], of_a[ROWS], through = rows == 0 && j < E ? wide(skip[j]) : 0, of_skip = 0;
  load_a(a, a_log, rows, j, N, E);
  for (int m = 0; m < ROWS; m++) d[m] = of_a[m] = 0;
  auto bring = [&](int start, int n) {
    i64 row = (i64)line * T + start;
    load<WIDTH>(of_b, b + row * N + rows, N, n, N - rows);
    load<WIDTH>(of_c, c + row * N + rows, N, n, N - rows);
    load<COLUMNS>(of_x, x + row * E + from, E, n, E - from, [&](float x, int t) { return alive(run, start + t) ? x : 0; });
    load<COLUMNS>(of_delta, delta + row * E + from, E, n, E - from);
    load<COLUMNS>(of_y, dy + row * E + from, E, n, E - from);
  };
  pieces<true>(T, bring, [&](int start, int n) {
    for (int m = 0; m < ROWS; m++) {
      int i = rows + part() + 8 * m;
      h[m] = i < N && j < E ? states[(((i64)line * (count + 1) + start / TOKENS) * N + i) * E + j] : 0;
    }
    for (int t = 0; t < n; t++) {
      bool on = follows(run, start + t);
      float u = of_x[t * COLUMNS + column()], step = softplus(of_delta[t * COLUMNS + column()]);
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        Step s = step_of(step, a[m], zoh);
        kept[(t * ROWS + m) * THREADS + threadIdx.x] = h[m] = on ? h[m] : 0;
        h[m] = s.decay * h[m] + s.gain * of_b[t * WIDTH + part() + 8 * m] * u;
      }
    }
    for (int t = n - 1; t >= 0; t--) {
      bool on = follows(run, start + t);
      int place = t * COLUMNS + column();
      float u = of_x[place], delta = of_delta[place], step = softplus(delta), g = of_y[place], of_u = 0, of_step = 0;
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        int i = part() + 8 * m, at = t * WIDTH + i;
        Step s = step_of(step, a[m], zoh);
        float before = kept[(t * ROWS + m) * THREADS + threadIdx.x], b = of_b[at], grad = d[m] + of_c[at] * g;
        share(sums, 0, t, i, u * s.gain * grad);
        share(sums, 1, t, i, g * (s.decay * before + s.gain * b * u));
        float dz = grad * before * s.decay, dgain = grad * b * u;
        of_u += b * s.gain * grad;
        if (zoh) {
          dgain /= a[m];
          dz += dgain * s.decay;
          of_a[m] -= dgain * s.gain;
        } else {
          of_step += dgain;
        }
        of_a[m] += dz * step;
        of_step += dz * a[m];
        d[m] = on ? s.decay * grad : 0;
      }
      of_u = over_rows(of_u) + through * g;
      of_step = over_rows(of_step) * expf(delta - step);  // times the derivative of softplus
      of_skip += g * u;
      i64 to = (((i64)blockIdx.z * gridDim.x + line) * T + start + t) * E + j;
      if (part() == 0 && j < E) dx[to] = alive(run, start + t) ? of_u : 0, ddelta[to] = of_step;
    }
    shared_out<2>(sums, n, N - rows, [&](int quantity, int t, int i, float x) {
      parts[((((i64)blockIdx.y * 2 + quantity) * gridDim.x + line) * T + start + t) * N + rows + i] = x;
    });
  });
  for (int m = 0; m < ROWS; m++) {
    int i = rows + part() + 8 * m;
    if (i >= N || j >= E) continue;
    da_log[((i64)line * E + j) * N + i] = of_a[m] * a[m];
    dh[((i64)line * N + i) * E + j] = d[m];
  }
  if (rows == 0 && part() == 0 && j < E) dskip[(i64)line * E + j] = of_skip;
}
