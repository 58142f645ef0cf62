// Pairs of channels turned by an angle, and the gradient of the angles.
//
//     y_a = x_a cos - x_b sin        y_b = x_a sin + x_b cos        (cos and sin already multiplied by the gain)
//
// The pair (a, b) is (n, n + half) or, paired, (2n, 2n + 1); channels from 2 half on pass. A thread has N pairs, or N channels that pass, N as many
// as a pack has, or 1 where arrays do not lie so. Bound by memory: x is read once, y written once, cos and sin are made by a kernel of their own and
// stay in the cache. x has strides for batch, head and token; y is [B,T,H,D], tokens `yt` apart. Tables are [.,G,T,half], one for H / G heads next to
// one another: those of two sequences lie `by_b` numbers apart, 0 where they are one, those of two heads `by_h`.

#include "common.cuh"

// cos and sin of angles and, where they are there, times the gains, made in double and cast once
KERNEL tables(float *cosine, float *sine, const double *angle, const double *MAYBE gain, i64 n) {
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) {
    double g = gain ? gain[k] : 1;
    cosine[k] = (float)(cos(angle[k]) * g);
    sine[k] = (float)(sin(angle[k]) * g);
  }
}

template <int N, bool PAIRED>
__device__ inline void turned(real *y, const real *x, const float *cosine, const float *sine, int B, int T, int H, int D, int G, int half, i64 yt,
                              i64 xb, i64 xh, i64 xt, i64 by_b, i64 by_h, float sign) {
  int pairs = half / N, units = pairs + (D - 2 * half) / N, each = H * units;               // of a token
  int tokens = max(1, (int)blockDim.x / each), token = tokens > 1 ? threadIdx.x / each : 0;  // of a block
  if (token >= tokens) return;
  for (unsigned row = blockIdx.x * tokens + token; row < (unsigned)B * T; row += gridDim.x * tokens) {
    unsigned b = row / T, t = row - b * T;
    for (int item = threadIdx.x - token * each; item < each; item += blockDim.x) {
      int h = item / units, unit = item - h * units;
      const real *from = x + b * xb + h * xh + t * xt;
      real *to = y + row * yt + h * D;
      float p[N], q[N], co[N], si[N];
      if (unit >= pairs) {
        int c = 2 * half + (unit - pairs) * N;
        read<N>(p, from + c);
        write<N>(to + c, p);
        continue;
      }
      int here = PAIRED ? 2 * N * unit : N * unit, there = PAIRED ? here + N : here + half;
      i64 place = b * by_b + (G > 1 ? h / (H / G) * by_h : 0) + (i64)t * half + unit * N;
      read<N>(p, from + here), read<N>(q, from + there);
      read<N>(co, cosine + place), read<N>(si, sine + place);
#pragma unroll
      for (int j = 0; j < N; j++) {
        int k = 2 * j, l = k + 1;  // where paired ones are in p and q
        float &first = PAIRED ? (k < N ? p[k % N] : q[k % N]) : p[j], &second = PAIRED ? (l < N ? p[l % N] : q[l % N]) : q[j];
        float a = first, s = sign * si[j];
        first = a * co[j] - second * s;
        second = a * s + second * co[j];
      }
      write<N>(to + here, p), write<N>(to + there, q);
    }
  }
}

// q, k and v, those that are there, of which blockIdx.y has one each; v is not turned. k and v begin at places of y. sign -1 turns back
KERNEL turn(real *y, const real *q, const real *MAYBE k, const real *MAYBE v, const float *q_cosine, const float *q_sine, const float *MAYBE k_cosine,
            const float *MAYBE k_sine, int B, int T, int D, int half, int paired, float sign, i64 k_at, i64 v_at, int q_heads, int q_tables, i64 qt,
            i64 qxb, i64 qxh, i64 qxt, i64 q_by_b, i64 q_by_h, int k_heads, int k_tables, i64 kt, i64 kxb, i64 kxh, i64 kxt, i64 k_by_b, i64 k_by_h,
            int v_heads, i64 vxb, i64 vxh, i64 vxt) {
#define MINE(q, k, v) (blockIdx.y == 0 ? q : blockIdx.y == 1 ? k : v)
  const real *x = MINE(q, k, v);
  const float *cosine = MINE(q_cosine, k_cosine, nullptr), *sine = MINE(q_sine, k_sine, nullptr);
  int H = MINE(q_heads, k_heads, v_heads), G = MINE(q_tables, k_tables, 1);
  i64 yt = MINE(qt, kt, kt), xb = MINE(qxb, kxb, vxb), xh = MINE(qxh, kxh, vxh), xt = MINE(qxt, kxt, vxt);
  i64 by_b = MINE(q_by_b, k_by_b, 0), by_h = MINE(q_by_h, k_by_h, 0);
  if (blockIdx.y == 2) half = 0;
  y += MINE(0, k_at, v_at);
  constexpr int N = MANY<real>;
  bool packs = D % N == 0 && half % N == 0 && xb % N == 0 && xh % N == 0 && xt % N == 0 && yt % N == 0 && at_packs(y, x, cosine, sine);
  if (packs && paired)
    turned<N, true>(y, x, cosine, sine, B, T, H, D, G, half, yt, xb, xh, xt, by_b, by_h, sign);
  else if (packs)
    turned<N, false>(y, x, cosine, sine, B, T, H, D, G, half, yt, xb, xh, xt, by_b, by_h, sign);
  else if (paired)
    turned<1, true>(y, x, cosine, sine, B, T, H, D, G, half, yt, xb, xh, xt, by_b, by_h, sign);
  else
    turned<1, false>(y, x, cosine, sine, B, T, H, D, G, half, yt, xb, xh, xt, by_b, by_h, sign);
}

// dangle and dgain [B,G,T,half]: <dy, y turned by a right angle> and <dy, y> of each pair, y turned without the gain, summed in order over the heads
// that have one table. gain as the tables, null for 1
KERNEL turn_angles(double *dangle, double *dgain, const real *dy, const real *x, const float *cosine, const float *sine,
                   const double *MAYBE gain, int B, int T, int H, int G, int half, i64 yb, i64 yh, i64 yt, i64 xb, i64 xh, i64 xt, i64 by_b, i64 by_h,
                   int paired) {
  i64 n = (i64)B * G * T * half;
  for (i64 k = thread_of_grid(); k < n; k += threads_in_grid()) {
    i64 row = k / half, line = row / T, b = line / G;
    int c = (int)(k - row * half), t = (int)(row - line * T), g = (int)(line - b * G);
    i64 place = b * by_b + g * by_h + (i64)t * half + c;
    int first = paired ? 2 * c : c, second = paired ? 2 * c + 1 : c + half;
    float co = cosine[place], si = sine[place];
    double of_angle = 0, of_gain = 0;
    for (int h = g * (H / G); h < (g + 1) * (H / G); h++) {
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
