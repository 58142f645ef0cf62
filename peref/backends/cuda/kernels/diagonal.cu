// The scan of S4D (Gu, Gupta, Goel, Re 2022, arXiv:2206.11893, sections 3 and 4), forward and backward; state.cuh says who does what.
//
//     s_t = a s_(t-1) + u_t        y_t = Re sum of w s_t + skip u_t        M complex numbers for each of C channels, a and w fixed
//
// With D the gradient of s_t, to which conj(w) g is added first, and g that of y_t:
//     du = skip g + sum of Re D        da = sum of conj(s_(t-1)) D        dw = sum of conj(s_t) g        D <- conj(a) D
//
// What a factor that is applied at every token is off by grows with the distance: factors, states and sums are double here. States are rounded where
// they are handed on and where backward looks back. A block for 16 channels and 32 modes of a sequence; modes beyond have blocks of their own
// (blockIdx.z), and what is a sum over modes is in shares. Bound by the multiplier of doubles: 6 for each mode, channel and token, and 20 backward.

#define WIDTH 32
#include "common.cuh"
#include "parts.cuh"
#include "runs.cuh"
#include "state.cuh"

struct Complex {
  double re, im;
};
struct Rounded {
  float re, im;
};

// re and im of a thread's modes, from modes [4,C,M] at `which` and the one behind it; 0 where there is none
__device__ inline void load_modes(Complex *to, const double *modes, int which, int rows, int j, int C, int M) {
  for (int m = 0; m < ROWS; m++) {
    int i = rows + part() + 8 * m;
    i64 at = ((i64)which * C + j) * M + i;
    to[m] = {i < M && j < C ? modes[at] : 0, i < M && j < C ? modes[at + (i64)C * M] : 0};
  }
}

// s a + u
__device__ inline Complex moved(Complex s, Complex a, double u) { return {a.re * s.re - a.im * s.im + u, a.re * s.im + a.im * s.re}; }

// y [blockIdx.z][B,T,C]; u [B,T,C], modes [4,C,M]: Re a, Im a, Re w, Im w; states [B,pieces + 1,C,2M], real parts first: before each piece, and
// the last
KERNEL diagonal_forward(float *y, float *states, const real *u, const double *modes, const real *skip, const float *MAYBE first,
                        const i64 *MAYBE runs, int T, int C, int M) {
  __shared__ float of_u[TOKENS * COLUMNS];
  int line = blockIdx.x, rows = blockIdx.z * WIDTH, from = blockIdx.y * COLUMNS, j = from + column(), count = (T + TOKENS - 1) / TOKENS;
  const i64 *run = runs ? runs + (i64)line * T : runs;
  Complex s[ROWS], a[ROWS], w[ROWS];
  double through = rows == 0 && j < C ? wide(skip[j]) : 0;
  load_modes(a, modes, 0, rows, j, C, M), load_modes(w, modes, 2, rows, j, C, M);
  for (int m = 0; m < ROWS; m++) {
    int i = rows + part() + 8 * m;
    i64 at = ((i64)line * C + j) * 2 * M + i;
    s[m] = {0, 0};
    if (first && i < M && j < C) s[m] = {first[at], first[at + M]};
  }
  auto keep = [&](int piece) {
    for (int m = 0; m < ROWS; m++) {
      int i = rows + part() + 8 * m;
      i64 at = (((i64)line * (count + 1) + piece) * C + j) * 2 * M + i;
      if (i < M && j < C) states[at] = (float)s[m].re, states[at + M] = (float)s[m].im;
    }
  };
  auto bring = [&](int start, int n) { load<COLUMNS>(of_u, u + ((i64)line * T + start) * C + from, C, n, C - from); };
  pieces<false>(T, bring, [&](int start, int n) {
    keep(start / TOKENS);
    for (int t = 0; t < n; t++) {
      bool on = follows(run, start + t), here = alive(run, start + t);
      double x = of_u[t * COLUMNS + column()], sum = 0;
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        s[m] = here ? moved(on ? s[m] : Complex{0, 0}, a[m], x) : Complex{0, 0};
        sum += w[m].re * s[m].re - w[m].im * s[m].im;
      }
      sum = over_rows(sum) + (here ? through * x : 0);
      if (part() == 0 && j < C) y[(((i64)blockIdx.z * gridDim.x + line) * T + start + t) * C + j] = (float)sum;
    }
  });
  keep(count);
}

// du [blockIdx.z][B,T,C]; dmodes [B,4,C,M], dskip [B,C]; ds [B,C,2M] of the state handed in
KERNEL diagonal_backward(float *du, float *dmodes, float *dskip, float *ds, const real *dy, const float *states, const real *u,
                         const double *modes, const real *skip, const i64 *MAYBE runs, int T, int C, int M) {
  DYNAMIC_SHARED(memory);
  Rounded *kept = (Rounded *)memory;
  __shared__ float of_u[TOKENS * COLUMNS], of_y[TOKENS * COLUMNS];
  int line = blockIdx.x, rows = blockIdx.z * WIDTH, from = blockIdx.y * COLUMNS, j = from + column(), count = (T + TOKENS - 1) / TOKENS;
  const i64 *run = runs ? runs + (i64)line * T : runs;
  Complex s[ROWS], d[ROWS], a[ROWS], w[ROWS], da[ROWS], dw[ROWS];
  double through = rows == 0 && j < C ? wide(skip[j]) : 0, of_skip = 0;
  load_modes(a, modes, 0, rows, j, C, M), load_modes(w, modes, 2, rows, j, C, M);
  for (int m = 0; m < ROWS; m++) d[m] = da[m] = dw[m] = {0, 0};
  auto bring = [&](int start, int n) {
    i64 row = (i64)line * T + start;
    load<COLUMNS>(of_u, u + row * C + from, C, n, C - from);
    load<COLUMNS>(of_y, dy + row * C + from, C, n, C - from, [&](float x, int t) { return alive(run, start + t) ? x : 0; });
  };
  pieces<true>(T, bring, [&](int start, int n) {
    for (int m = 0; m < ROWS; m++) {
      int i = rows + part() + 8 * m;
      i64 at = (((i64)line * (count + 1) + start / TOKENS) * C + j) * 2 * M + i;
      s[m] = {0, 0};
      if (i < M && j < C) s[m] = {states[at], states[at + M]};
    }
    for (int t = 0; t < n; t++) {
      bool on = follows(run, start + t), here = alive(run, start + t);
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        if (!on) s[m] = {0, 0};
        kept[(t * ROWS + m) * THREADS + threadIdx.x] = {(float)s[m].re, (float)s[m].im};
        s[m] = here ? moved(s[m], a[m], of_u[t * COLUMNS + column()]) : Complex{0, 0};
      }
    }
    for (int t = n - 1; t >= 0; t--) {
      bool on = follows(run, start + t), here = alive(run, start + t);
      double g = of_y[t * COLUMNS + column()], x = here ? of_u[t * COLUMNS + column()] : 0, sum = 0;
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        Rounded was = kept[(t * ROWS + m) * THREADS + threadIdx.x];
        Complex before = {was.re, was.im}, after = moved(before, a[m], x), grad = {d[m].re + w[m].re * g, d[m].im - w[m].im * g};
        sum += grad.re;
        da[m].re += before.re * grad.re + before.im * grad.im, da[m].im += before.re * grad.im - before.im * grad.re;
        dw[m].re += after.re * g, dw[m].im -= after.im * g;
        d[m] = {0, 0};
        if (on) d[m] = {a[m].re * grad.re + a[m].im * grad.im, a[m].re * grad.im - a[m].im * grad.re};
      }
      sum = over_rows(sum) + through * g;
      of_skip += g * x;
      if (part() == 0 && j < C) du[(((i64)blockIdx.z * gridDim.x + line) * T + start + t) * C + j] = here ? (float)sum : 0;
    }
  });
  for (int m = 0; m < ROWS; m++) {
    int i = rows + part() + 8 * m;
    if (i >= M || j >= C) continue;
    i64 at = ((i64)line * C + j) * 2 * M + i, to = ((i64)line * 4 * C + j) * M + i, apart = (i64)C * M;
    ds[at] = (float)d[m].re, ds[at + M] = (float)d[m].im;
    dmodes[to] = (float)da[m].re, dmodes[to + apart] = (float)da[m].im;
    dmodes[to + 2 * apart] = (float)dw[m].re, dmodes[to + 3 * apart] = (float)dw[m].im;
  }
  if (rows == 0 && part() == 0 && j < C) dskip[(i64)line * C + j] = (float)of_skip;
}
