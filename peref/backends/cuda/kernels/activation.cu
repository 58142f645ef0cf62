// SwiGLU and GELU, forward and backward.
//
//     swiglu   y = gate s(gate) up                        s(x) = 1 / (1 + exp(-x))
//     gelu     y = x (1 + t) / 2                          t = tanh(outer x (1 + cubic x^2))
//
// One thread for one number, in strides of the grid. Bound by memory: 3 numbers move for each that is made (gelu 2), backward 5 (3).

#include "common.cuh"

__device__ inline float logistic(float x) {
  float e = expf(-fabsf(x)), r = 1 / (1 + e);
  return x >= 0 ? r : e * r;
}

KERNEL swiglu_forward(real *y, const real *gate, const real *up, i64 n) {
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) {
    float g = wide(gate[k]);
    put(&y[k], g * logistic(g) * wide(up[k]));
  }
}

KERNEL swiglu_backward(real *dgate, real *dup, const real *dy, const real *gate, const real *up, i64 n) {
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) {
    float g = wide(gate[k]), d = wide(dy[k]), s = logistic(g);
    put(&dgate[k], d * wide(up[k]) * s * (1 + g * (1 - s)));
    put(&dup[k], d * g * s);
  }
}

__device__ inline float bent(float x, float outer, float cubic) { return tanhf(outer * x * (1 + cubic * x * x)); }

KERNEL gelu_forward(real *y, const real *x, i64 n, float outer, float cubic) {
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) {
    float a = wide(x[k]);
    put(&y[k], 0.5f * a * (1 + bent(a, outer, cubic)));
  }
}

KERNEL gelu_backward(real *dx, const real *dy, const real *x, i64 n, float outer, float cubic) {
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) {
    float a = wide(x[k]), t = bent(a, outer, cubic);
    put(&dx[k], 0.5f * wide(dy[k]) * (1 + t + a * (1 - t * t) * outer * (1 + 3 * cubic * a * a)));
  }
}
