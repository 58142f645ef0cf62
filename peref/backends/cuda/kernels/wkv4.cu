// The running means of RWKV-4 (Peng et al. 2023, arXiv:2305.13048, section 3.1), forward and backward.
//
//     A_t = w A_(t-1) + e^(k_t) v_t    B_t = w B_(t-1) + e^(k_t)    y_t = (A_(t-1) + e^(u + k_t) v_t) / (B_(t-1) + e^(u + k_t))
//
// A thread has a channel of a sequence and goes over its tokens. The sums are kept as a e^p and b e^p with p the largest exponent so far, so that no
// exponential is above 1; forward writes them out before every token. What is a sum over sequences is in shares.
// Bound by the time that one token takes after another: two exponentials.

#include "common.cuh"
#include "parts.cuh"
#include "runs.cuh"

// What the sums so far, with exponent p, and a token, with exponent x, are multiplied by to have the larger of both.
struct Shares {
  float old, young;
};

__device__ inline Shares shares_of(float p, float x) {
  float less = expf(-fabsf(p - x));
  return p >= x ? Shares{1, less} : Shares{less, 1};
}

// y, k, v [B,T,C], log_w, u [C]; states [B,T+1,3,C]: a, b, p before each token, the first as given, and the last
KERNEL wkv4_forward(real *y, float *states, const real *k, const real *v, const real *log_w, const real *u, const float *MAYBE first,
                    const i64 *MAYBE runs, int B, int T, int C) {
  i64 unit = thread_of_grid();
  if (unit >= (i64)B * C) return;
  int line = (int)(unit / C), c = (int)(unit % C);
  const i64 *run = runs ? runs + (i64)line * T : runs;
  float a = 0, b = 0, p = -infinity(), w = wide(log_w[c]), bonus = wide(u[c]);
  if (first) a = first[(i64)line * 3 * C + c], b = first[((i64)line * 3 + 1) * C + c], p = first[((i64)line * 3 + 2) * C + c];
  for (int t = 0; t <= T; t++) {
    if (t < T && !follows(run, t)) a = b = 0, p = -infinity();
    i64 at = ((i64)line * (T + 1) + t) * 3 * C + c;
    states[at] = a, states[at + C] = b, states[at + 2 * C] = p;
    if (t == T) return;
    i64 here = ((i64)line * T + t) * C + c;
    if (!alive(run, t)) {
      put(&y[here], 0);
      continue;
    }
    float x = wide(k[here]), z = wide(v[here]);
    Shares read = shares_of(p, bonus + x), write = shares_of(p + w, x);
    put(&y[here], (read.old * a + read.young * z) / (read.old * b + read.young));
    a = write.old * a + write.young * z, b = write.old * b + write.young, p = fmaxf(p + w, x);
  }
}

// dk, dv [B,T,C]; dfirst [B,3,C] of the state handed in; parts [B,2,C] of log_w and u. Nothing depends on p: it only is the unit of a and b.
KERNEL wkv4_backward(real *dk, real *dv, float *dfirst, float *parts, const real *dy, const float *states, const real *k, const real *v,
                     const real *log_w, const real *u, const i64 *MAYBE runs, int B, int T, int C) {
  i64 unit = thread_of_grid();
  if (unit >= (i64)B * C) return;
  int line = (int)(unit / C), c = (int)(unit % C);
  const i64 *run = runs ? runs + (i64)line * T : runs;
  float da = 0, db = 0, dw = 0, du = 0, w = wide(log_w[c]), bonus = wide(u[c]), a = 0, b = 0;
  for (int t = T - 1; t >= 0; t--) {
    i64 here = ((i64)line * T + t) * C + c, at = ((i64)line * (T + 1) + t) * 3 * C + c;
    a = states[at], b = states[at + C];
    if (!alive(run, t)) {
      put(&dk[here], 0), put(&dv[here], 0);
      da = db = 0;
      continue;
    }
    float p = states[at + 2 * C], x = wide(k[here]), z = wide(v[here]);
    Shares read = shares_of(p, bonus + x), write = shares_of(p + w, x);
    float below = read.old * b + read.young, each = wide(dy[here]) / below, mean = (read.old * a + read.young * z) / below;
    float now = read.young * each * (z - mean);
    dw += write.old * (a * da + b * db), du += now;
    put(&dk[here], write.young * (z * da + db) + now);
    put(&dv[here], write.young * da + read.young * each);
    da = write.old * da + read.old * each, db = write.old * db - read.old * each * mean;  // 0 where nothing was before
  }
  i64 at = (i64)line * 3 * C + c;
  dfirst[at] = da, dfirst[at + C] = db, dfirst[at + 2 * C] = a * da + b * db;
  parts[(i64)line * 2 * C + c] = dw, parts[((i64)line * 2 + 1) * C + c] = du;
}
