// Pairs of channels turned by an angle, and the gradient of the angles.
//
//     y_a = x_a cos - x_b sin        y_b = x_a sin + x_b cos        (cos and sin already multiplied by the gain)
//
// The pair (a, b) is (n, n + half) or, paired, (2n, 2n + 1); channels from 2 half on pass. One thread for one pair or one channel that passes.
// Bound by memory: x is read once, y written once, cos and sin [.,T,half] are made by a kernel of their own and stay in the cache. x has strides
// for batch, head and token; y is [B,T,H,D].

#include "common.cuh"

__device__ inline int first_of(int n, int paired) { return paired ? 2 * n : n; }
__device__ inline int second_of(int n, int half, int paired) { return paired ? 2 * n + 1 : n + half; }

// cos and sin of angles and, where they are there, times the gains, made in double and cast once
KERNEL tables(float *cosine, float *sine, const double *angle, const double *MAYBE gain, i64 n) {
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) {
    double g = gain ? gain[k] : 1;
    cosine[k] = (float)(cos(angle[k]) * g);
    sine[k] = (float)(sin(angle[k]) * g);
  }
}

// sign -1 turns back; cos and sin are [1,T,half] with table 0, [B,T,half] with table T half
KERNEL turn(real *y, const real *x, const float *cosine, const float *sine, int B, int T, int H, int D, int half, i64 xb, i64 xh, i64 xt,
            i64 table, int paired, float sign) {
  int each = D - half;
  i64 n = (i64)B * T * H * each;
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) {
    int c = (int)(k % each), h = (int)(k / each % H), t = (int)(k / each / H % T);
    i64 b = k / each / H / T;
    const real *from = x + b * xb + h * xh + t * xt;
    real *to = y + (k / each) * D;
    if (c >= half) {
      to[half + c] = from[half + c];
      continue;
    }
    int first = first_of(c, paired), second = second_of(c, half, paired);
    i64 place = b * table + (i64)t * half + c;
    float co = cosine[place], si = sign * sine[place], p = wide(from[first]), q = wide(from[second]);
    put(&to[first], p * co - q * si);
    put(&to[second], p * si + q * co);
  }
}

// dangle and dgain [B,T,half]: <dy, y turned by a right angle> and <dy, y> of each pair, y turned without the gain, summed over the heads in order.
// gain as the tables, null for 1
KERNEL turn_angles(double *dangle, double *dgain, const real *dy, const real *x, const float *cosine, const float *sine,
                   const double *MAYBE gain, int B, int T, int H, int half, i64 yb, i64 yh, i64 yt, i64 xb, i64 xh, i64 xt, i64 table, int paired) {
  i64 n = (i64)B * T * half;
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) {
    int c = (int)(k % half), t = (int)(k / half % T);
    i64 b = k / half / T, place = b * table + (i64)t * half + c;
    int first = first_of(c, paired), second = second_of(c, half, paired);
    float co = cosine[place], si = sine[place];
    double of_angle = 0, of_gain = 0;
    for (int h = 0; h < H; h++) {
      const real *from = x + b * xb + h * xh + t * xt, *down = dy + b * yb + h * yh + t * yt;
      float p = wide(from[first]), q = wide(from[second]), dp = wide(down[first]), dq = wide(down[second]);
      float u = p * co - q * si, v = p * si + q * co;
      of_angle += (double)(dq * u - dp * v);
      of_gain += (double)(dp * u + dq * v);
    }
    dangle[k] = gain ? of_angle * gain[place] : of_angle;
    dgain[k] = of_gain;
  }
}
