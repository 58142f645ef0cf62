// SwiGLU and GELU, forward and backward.
//
//     swiglu   y = gate s(gate) up                        s(x) = 1 / (1 + exp(-x))
//     gelu     y = x s(2 outer x (1 + cubic x^2))         which is x (1 + tanh(outer x (1 + cubic x^2))) / 2
//
// One thread for one pack of numbers, in strides of the grid; one for one number where arrays are not in packs, and of what is left at the end.
// Bound by memory: 3 numbers move for each that is made (gelu 2), backward 5 (3).

#include "common.cuh"

// f(y [OUT], x [IN]) of N numbers side by side of each array, from place k on
template <int N, int OUT, int IN, class F> __device__ inline void some(real *const (&to)[OUT], const real *const (&from)[IN], i64 k, F f) {
  float x[IN][N], y[OUT][N];
#pragma unroll
  for (int i = 0; i < IN; i++) read<N>(x[i], from[i] + k);
#pragma unroll
  for (int j = 0; j < N; j++) {
    float in[IN], out[OUT];
#pragma unroll
    for (int i = 0; i < IN; i++) in[i] = x[i][j];
    f(out, in);
#pragma unroll
    for (int o = 0; o < OUT; o++) y[o][j] = out[o];
  }
#pragma unroll
  for (int o = 0; o < OUT; o++) write<N>(to[o] + k, y[o]);
}

template <int OUT, int IN, class F> __device__ inline void each_of(real *const (&to)[OUT], const real *const (&from)[IN], i64 n, F f) {
  bool whole = true;
#pragma unroll
  for (int i = 0; i < IN; i++) whole = whole && at_packs(from[i]);
#pragma unroll
  for (int o = 0; o < OUT; o++) whole = whole && at_packs(to[o]);
  i64 packs = whole ? n / MANY<real> : 0;
  for (i64 k = thread_of_grid(); k < packs; k += threads_in_grid()) some<MANY<real>>(to, from, k * MANY<real>, f);
  for (i64 k = packs * MANY<real> + thread_of_grid(); k < n; k += threads_in_grid()) some<1>(to, from, k, f);
}

__device__ inline float logistic(float x) { return inverse_approx(1 + exp_approx(-x)); }

KERNEL swiglu_forward(real *y, const real *gate, const real *up, i64 n) {
  each_of({y}, {gate, up}, n, [](float *out, const float *x) { out[0] = x[0] * logistic(x[0]) * x[1]; });
}

KERNEL swiglu_backward(real *dgate, real *dup, const real *dy, const real *gate, const real *up, i64 n) {
  each_of({dgate, dup}, {dy, gate, up}, n, [](float *out, const float *x) {
    float d = x[0], g = x[1], s = logistic(g);
    out[0] = d * x[2] * s * (1 + g * (1 - s));
    out[1] = d * g * s;
  });
}

KERNEL gelu_forward(real *y, const real *x, i64 n, float outer, float cubic) {
  const float first = 2 * outer, third = first * cubic;
  each_of({y}, {x}, n, [=](float *out, const float *x) { out[0] = x[0] * logistic(x[0] * (first + third * x[0] * x[0])); });
}

KERNEL gelu_backward(real *dx, const real *dy, const real *x, i64 n, float outer, float cubic) {
  const float first = 2 * outer, third = first * cubic;
  each_of({dx}, {dy, x}, n, [=](float *out, const float *x) {
    float a = x[1], square = a * a, s = logistic(a * (first + third * square)), bent = s * (1 - s);
    out[0] = x[0] * (s + (bent == 0 ? 0 : a * bent * (first + 3 * third * square)));  // the square may be infinite
  });
}
