// The recurrence of RWKV-6 (Peng et al. 2024, arXiv:2404.05892, section 4.2), forward and backward; state.cuh says who does what.
//
//     S_t = diag(w_t) S_(t-1) + k_t v_t'        y_t = S_(t-1)' r_t + (r_t u k_t) v_t        w = exp(log_w), S [K,V]
//
// With D the gradient of S_t and g that of y_t, all sums over columns but dv's:
//     dr = sum of g (S_(t-1) + u k v)        dk = sum of v (D + u r g)        dlog_w = w sum of D S_(t-1)        du = sum of r k g v
//     dv = sum over rows of k (D + u r g)        D <- w D + r g
//
// A block for 16 columns of a head; bound by the time that one token takes after another, and by how many blocks there are: B H (V / 16).

#include "common.cuh"
#include "parts.cuh"
#include "runs.cuh"
#include "state.cuh"

// arrays [B,T,H,K or V], u [H,K]; states [B,H,pieces + 1,K,V]: before each piece, and the last
KERNEL wkv6_forward(real *y, float *states, const real *r, const real *log_w, const real *k, const real *v, const real *u, const float *MAYBE first,
                    const i64 *MAYBE runs, int H, int T, int K, int V) {
  __shared__ float of_r[TOKENS * WIDTH], of_w[TOKENS * WIDTH], of_k[TOKENS * WIDTH], of_v[TOKENS * COLUMNS];
  int b = blockIdx.x / H, h = blockIdx.x % H, from = blockIdx.y * COLUMNS, j = from + column(), count = (T + TOKENS - 1) / TOKENS;
  const i64 *run = runs ? runs + (i64)b * T : runs;
  float s[ROWS], bonus[ROWS];
  for (int m = 0; m < ROWS; m++) {
    int i = part() + 8 * m;
    bonus[m] = i < K ? wide(u[h * K + i]) : 0;
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
    load<COLUMNS>(of_v, v + row * V + from, (i64)H * V, n, V - from);
  };
  pieces<false>(T, bring, [&](int start, int n) {
    keep(start / TOKENS);
    for (int t = 0; t < n; t++) {
      bool on = follows(run, start + t), here = alive(run, start + t);
      float x = of_v[t * COLUMNS + column()], sum = 0;
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        int at = t * WIDTH + part() + 8 * m;
        float before = on ? s[m] : 0;
        if (here) sum += of_r[at] * (before + bonus[m] * of_k[at] * x);
        s[m] = here ? of_w[at] * before + of_k[at] * x : 0;
      }
      sum = over_rows(sum);
      if (part() == 0 && j < V) put(&y[(((i64)b * T + start + t) * H + h) * V + j], sum);
    }
  });
  keep(count);
}

// parts [blockIdx.y][3: dr, dlog_w, dk][B,T,H,K], dv [B,T,H,V], du [blockIdx.y][B,H,K], ds [B,H,K,V] of the state handed in
KERNEL wkv6_backward(float *parts, real *dv, float *du, float *ds, const real *dy, const float *states, const real *r, const real *log_w,
                     const real *k, const real *v, const real *u, const i64 *MAYBE runs, int H, int T, int K, int V) {
  DYNAMIC_SHARED(memory);
  float *kept = (float *)memory, *sums = kept + TOKENS * ROWS * THREADS;
  __shared__ float of_r[TOKENS * WIDTH], of_w[TOKENS * WIDTH], of_k[TOKENS * WIDTH], of_v[TOKENS * COLUMNS], of_y[TOKENS * COLUMNS];
  int b = blockIdx.x / H, h = blockIdx.x % H, from = blockIdx.y * COLUMNS, j = from + column(), count = (T + TOKENS - 1) / TOKENS;
  i64 heads = gridDim.x, all = heads * T * K;
  const i64 *run = runs ? runs + (i64)b * T : runs;
  float s[ROWS], d[ROWS], bonus[ROWS], of_u[ROWS];
  for (int m = 0; m < ROWS; m++) {
    int i = part() + 8 * m;
    bonus[m] = i < K ? wide(u[h * K + i]) : 0;
    d[m] = of_u[m] = 0;
  }
  auto bring = [&](int start, int n) {
    i64 row = ((i64)b * T + start) * H + h;
    load<WIDTH>(of_r, r + row * K, (i64)H * K, n, K);
    load<WIDTH>(of_w, log_w + row * K, (i64)H * K, n, K, [](float x, int) { return expf(x); });
    load<WIDTH>(of_k, k + row * K, (i64)H * K, n, K);
    load<COLUMNS>(of_v, v + row * V + from, (i64)H * V, n, V - from);
    load<COLUMNS>(of_y, dy + row * V + from, (i64)H * V, n, V - from);
  };
  pieces<true>(T, bring, [&](int start, int n) {
    for (int m = 0; m < ROWS; m++) {
      int i = part() + 8 * m;
      s[m] = i < K && j < V ? states[(((i64)blockIdx.x * (count + 1) + start / TOKENS) * K + i) * V + j] : 0;
    }
    for (int t = 0; t < n; t++) {
      bool on = follows(run, start + t), here = alive(run, start + t);
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        int at = t * WIDTH + part() + 8 * m;
        kept[(t * ROWS + m) * THREADS + threadIdx.x] = s[m] = on ? s[m] : 0;
        s[m] = here ? of_w[at] * s[m] + of_k[at] * of_v[t * COLUMNS + column()] : 0;
      }
    }
    for (int t = n - 1; t >= 0; t--) {
      bool on = follows(run, start + t), here = alive(run, start + t);
      float x = of_v[t * COLUMNS + column()], g = here ? of_y[t * COLUMNS + column()] : 0, out = 0;
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        int i = part() + 8 * m, at = t * WIDTH + i;
        float before = kept[(t * ROWS + m) * THREADS + threadIdx.x], r = of_r[at], k = of_k[at], w = of_w[at], after = here ? d[m] : 0;
        float both = after + bonus[m] * r * g;
        share(sums, 0, t, i, g * (before + bonus[m] * k * x));
        share(sums, 1, t, i, w * after * before);
        share(sums, 2, t, i, x * both);
        out += k * both;
        of_u[m] += r * k * g * x;
        d[m] = on ? w * after + r * g : 0;
      }
      out = over_rows(out);
      if (part() == 0 && j < V) put(&dv[(((i64)b * T + start + t) * H + h) * V + j], out);
    }
    shared_out<3>(sums, n, K, [&](int quantity, int t, int i, float x) {
      parts[((i64)blockIdx.y * 3 + quantity) * all + (((i64)b * T + start + t) * H + h) * K + i] = x;
    });
  });
  __syncthreads();
  for (int m = 0; m < ROWS; m++) {
    int i = part() + 8 * m;
    if (i < K && j < V) ds[((i64)blockIdx.x * K + i) * V + j] = d[m];
    share(sums, 0, 0, i, of_u[m]);
  }
  shared_out<1>(sums, 1, K, [&](int, int, int i, float x) { du[((i64)blockIdx.y * heads + blockIdx.x) * K + i] = x; });
}
