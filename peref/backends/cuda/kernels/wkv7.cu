// The recurrence of RWKV-7 (Peng et al. 2025, arXiv:2503.14456, section 4.1), forward and backward; state.cuh says who does what.
//
//     S_t = (diag(w_t) - (a_t kappa_t) kappa_t') S_(t-1) + k_t v_t'        y_t = S_t' r_t        w = exp(log_w), S [K,V]
//     taken = kappa' S_(t-1), for each column a sum over rows: the one sum that the next token waits for
//
// With D the gradient of S_t, to which r_t g_t' is added first, and g that of y_t; sums over columns but those of dv and dtaken:
//     dr = sum of g S_t        dk = sum of v D        dlog_w = w sum of D S_(t-1)        dv = sum over rows of k D
//     dtaken = - sum over rows of a kappa D        away = - sum of D taken        da = kappa away        dkappa = a away + sum of S_(t-1) dtaken
//     D <- w D + kappa dtaken
//
// A block for 16 columns of a head; bound as wkv6.cu.

#include "common.cuh"
#include "parts.cuh"
#include "runs.cuh"
#include "state.cuh"

// arrays [B,T,H,K or V]; states [B,H,pieces + 1,K,V]: before each piece, and the last
KERNEL wkv7_forward(real *y, float *states, const real *r, const real *log_w, const real *k, const real *v, const real *kappa, const real *a,
                    const float *MAYBE first, const i64 *MAYBE runs, int H, int T, int K, int V) {
  constexpr int SIZE = TOKENS * WIDTH;
  __shared__ float of_r[SIZE], of_w[SIZE], of_k[SIZE], of_q[SIZE], of_a[SIZE], of_v[TOKENS * COLUMNS];
  int b = blockIdx.x / H, h = blockIdx.x % H, from = blockIdx.y * COLUMNS, j = from + column(), count = (T + TOKENS - 1) / TOKENS;
  const i64 *run = runs ? runs + (i64)b * T : runs;
  float s[ROWS];
  for (int m = 0; m < ROWS; m++) {
    int i = part() + 8 * m;
    s[m] = first && i < K && j < V ? first[((i64)blockIdx.x * K + i) * V + j] : 0;
  }
  auto keep = [&](int piece) {
    for (int m = 0; m < ROWS; m++) {
      int i = part() + 8 * m;
      if (i < K && j < V) states[(((i64)blockIdx.x * (count + 1) + piece) * K + i) * V + j] = s[m];
    }
  };
  auto bring = [&](int start, int n) {
    i64 row = ((i64)b * T + start) * H + h;
    load<WIDTH>(of_r, r + row * K, (i64)H * K, n, K);
    load<WIDTH>(of_w, log_w + row * K, (i64)H * K, n, K, [](float x, int) { return expf(x); });
    load<WIDTH>(of_k, k + row * K, (i64)H * K, n, K);
    load<WIDTH>(of_q, kappa + row * K, (i64)H * K, n, K);
    load<WIDTH>(of_a, a + row * K, (i64)H * K, n, K);
    load<COLUMNS>(of_v, v + row * V + from, (i64)H * V, n, V - from);
  };
  pieces<false>(T, bring, [&](int start, int n) {
    keep(start / TOKENS);
    for (int t = 0; t < n; t++) {
      bool on = follows(run, start + t), here = alive(run, start + t);
      float x = of_v[t * COLUMNS + column()], taken = 0, sum = 0;
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        s[m] = on ? s[m] : 0;
        taken += of_q[t * WIDTH + part() + 8 * m] * s[m];
      }
      taken = over_rows(taken);
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        int at = t * WIDTH + part() + 8 * m;
        s[m] = here ? of_w[at] * s[m] - of_a[at] * of_q[at] * taken + of_k[at] * x : 0;
        sum += of_r[at] * s[m];
      }
      sum = over_rows(sum);
      if (part() == 0 && j < V) put(&y[(((i64)b * T + start + t) * H + h) * V + j], sum);
    }
  });
  keep(count);
}

// parts [blockIdx.y][5: dr, dlog_w, dk, dkappa, da][B,T,H,K], dv [B,T,H,V], ds [B,H,K,V] of the state handed in
KERNEL wkv7_backward(float *parts, real *dv, float *ds, const real *dy, const float *states, const real *r, const real *log_w, const real *k,
                     const real *v, const real *kappa, const real *a, const i64 *MAYBE runs, int H, int T, int K, int V) {
  constexpr int SIZE = TOKENS * WIDTH;
  DYNAMIC_SHARED(memory);
  float *kept = (float *)memory, *sums = kept + TOKENS * ROWS * THREADS;
  __shared__ float of_r[SIZE], of_w[SIZE], of_k[SIZE], of_q[SIZE], of_a[SIZE], of_v[TOKENS * COLUMNS], of_y[TOKENS * COLUMNS];
  int b = blockIdx.x / H, h = blockIdx.x % H, from = blockIdx.y * COLUMNS, j = from + column(), count = (T + TOKENS - 1) / TOKENS;
  i64 all = (i64)gridDim.x * T * K;
  const i64 *run = runs ? runs + (i64)b * T : runs;
  float s[ROWS], d[ROWS];
  for (int m = 0; m < ROWS; m++) d[m] = 0;
  auto bring = [&](int start, int n) {
    i64 row = ((i64)b * T + start) * H + h;
    load<WIDTH>(of_r, r + row * K, (i64)H * K, n, K);
    load<WIDTH>(of_w, log_w + row * K, (i64)H * K, n, K, [](float x, int) { return expf(x); });
    load<WIDTH>(of_k, k + row * K, (i64)H * K, n, K);
    load<WIDTH>(of_q, kappa + row * K, (i64)H * K, n, K);
    load<WIDTH>(of_a, a + row * K, (i64)H * K, n, K);
    load<COLUMNS>(of_v, v + row * V + from, (i64)H * V, n, V - from);
    load<COLUMNS>(of_y, dy + row * V + from, (i64)H * V, n, V - from);
  };
  auto taken_of = [&](int t, const float *s) {
    float taken = 0;
#pragma unroll
    for (int m = 0; m < ROWS; m++) taken += of_q[t * WIDTH + part() + 8 * m] * s[m];
    return over_rows(taken);
  };
  pieces<true>(T, bring, [&](int start, int n) {
    for (int m = 0; m < ROWS; m++) {
      int i = part() + 8 * m;
      s[m] = i < K && j < V ? states[(((i64)blockIdx.x * (count + 1) + start / TOKENS) * K + i) * V + j] : 0;
    }
    for (int t = 0; t < n; t++) {
      bool on = follows(run, start + t), here = alive(run, start + t);
      for (int m = 0; m < ROWS; m++) kept[(t * ROWS + m) * THREADS + threadIdx.x] = s[m] = on ? s[m] : 0;
      float taken = taken_of(t, s), x = of_v[t * COLUMNS + column()];
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        int at = t * WIDTH + part() + 8 * m;
        s[m] = here ? of_w[at] * s[m] - of_a[at] * of_q[at] * taken + of_k[at] * x : 0;
      }
    }
    for (int t = n - 1; t >= 0; t--) {
      bool on = follows(run, start + t), here = alive(run, start + t);
      float x = of_v[t * COLUMNS + column()], g = here ? of_y[t * COLUMNS + column()] : 0, out = 0, dtaken = 0;
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        int at = t * WIDTH + part() + 8 * m;
        s[m] = kept[(t * ROWS + m) * THREADS + threadIdx.x];
        d[m] = here ? d[m] + of_r[at] * g : 0;
        out += of_k[at] * d[m];
        dtaken -= of_a[at] * of_q[at] * d[m];
      }
      float taken = taken_of(t, s);
      out = over_rows(out), dtaken = over_rows(dtaken);
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        int i = part() + 8 * m, at = t * WIDTH + i;
        float w = of_w[at], k = of_k[at], q = of_q[at], a = of_a[at], away = -d[m] * taken;
        share(sums, 0, t, i, g * (w * s[m] - a * q * taken + k * x));
        share(sums, 1, t, i, w * d[m] * s[m]);
        share(sums, 2, t, i, x * d[m]);
        share(sums, 3, t, i, a * away + s[m] * dtaken);
        share(sums, 4, t, i, q * away);
        d[m] = on ? w * d[m] + q * dtaken : 0;
      }
      if (part() == 0 && j < V) put(&dv[(((i64)b * T + start + t) * H + h) * V + j], out);
    }
    shared_out<5>(sums, n, K, [&](int quantity, int t, int i, float x) {
      parts[((i64)blockIdx.y * 5 + quantity) * all + (((i64)b * T + start + t) * H + h) * K + i] = x;
    });
  });
  for (int m = 0; m < ROWS; m++) {
    int i = part() + 8 * m;
    if (i < K && j < V) ds[((i64)blockIdx.x * K + i) * V + j] = d[m];
  }
}
