// RMSNorm and LayerNorm over the last axis, forward and backward.
//
//     u = (x - mean) r        r = 1 / sqrt(mean of (x - mean)^2 + eps)        y = u w + b
//     RMSNorm is the same with mean = 0, which a null `mean` says.
//
// W warps have a row, and each lane keeps HELD packs of it, so that it is read once. Rows that are longer, or not in packs, are taken number by number
// and read again from the cache. Sums over rows (dw, db) take a block for COLUMNS channels and a share of the rows, and `sum_parts` adds the shares in
// order. Bound by memory: x is read and y written once; backward reads x and dy twice, for dx and for dw.

#include "common.cuh"
#include "parts.cuh"

#define COLUMNS 32
#define HELD 2

// f(piece, channel) for each piece of N channels of a row that is this thread's; packs are at most HELD, single numbers go on with piece 0
template <int N, class F> __device__ inline void pieces(int C, int W, F f) {
  int place = place_in_row(W);
  if constexpr (N == 1) {
    for (int c = place; c < C; c += 32 * W) f(0, c);
  } else {
#pragma unroll
    for (int k = 0; k < HELD; k++)
      if (N * (place + k * 32 * W) < C) f(k, N * (place + k * 32 * W));
  }
}

__device__ inline bool fits(int C, int W) { return C % MANY<real> == 0 && C <= HELD * 32 * W * MANY<real>; }

template <int N>
__device__ inline void forward(real *y, float *mean, float *r, const real *x, const real *w, const real *b, i64 m, bool there, int C, int W,
                               float eps, float *shares) {
  float row[HELD][N], middle = 0, total = 0;
  auto fetch = [&](int k, int c) { read<N>(row[k], x + m * C + c); };
  auto again = [&](int k, int c) {
    if (N == 1) fetch(k, c);
  };
  if (N > 1) pieces<N>(C, W, fetch);
  if (mean) {
    pieces<N>(C, W, [&](int k, int c) {
      again(k, c);
#pragma unroll
      for (int j = 0; j < N; j++) total += row[k][j];
    });
    middle = row_sum(total, shares, W) / C;
    total = 0;
  }
  pieces<N>(C, W, [&](int k, int c) {
    again(k, c);
#pragma unroll
    for (int j = 0; j < N; j++) {
      float d = row[k][j] - middle;
      total += d * d;
    }
  });
  float scale = 1 / sqrtf(row_sum(total, shares, W) / C + eps);
  if (!there) return;
  pieces<N>(C, W, [&](int k, int c) {
    float of_w[N], of_b[N];
    if (w) read<N>(of_w, w + c);
    if (b) read<N>(of_b, b + c);
    again(k, c);
#pragma unroll
    for (int j = 0; j < N; j++) {
      float u = (row[k][j] - middle) * scale;
      row[k][j] = (w ? u * of_w[j] : u) + (b ? of_b[j] : 0);
    }
    write<N>(y + m * C + c, row[k]);
  });
  if (place_in_row(W) == 0) {
    r[m] = scale;
    if (mean) mean[m] = middle;
  }
}

// rows [M,C]; mean, w and b may be null; mean and r [M] are written
KERNEL norm_forward(real *y, float *MAYBE mean, float *r, const real *x, const real *MAYBE w, const real *MAYBE b, int M, int C, int W, float eps) {
  __shared__ float shares[32];
  i64 m = (i64)blockIdx.x * (blockDim.x / 32 / W) + row_of_block(W);
  bool there = m < M;
  if (!there) m = M - 1;  // computed once more, not written
  if (fits(C, W) && at_packs(y, x, w, b))
    forward<MANY<real>>(y, mean, r, x, w, b, m, there, C, W, eps, shares);
  else
    forward<1>(y, mean, r, x, w, b, m, there, C, W, eps, shares);
}

template <int N>
__device__ inline void backward(real *dx, const real *dy, const real *x, const real *w, float middle, float scale, bool centred, i64 m, bool there,
                                int C, int W, float *shares) {
  float u[HELD][N], du[HELD][N], sum = 0, along = 0;
  auto fetch = [&](int k, int c) {
    float of_w[N];
    read<N>(u[k], x + m * C + c);
    read<N>(du[k], dy + m * C + c);
    if (w) read<N>(of_w, w + c);
#pragma unroll
    for (int j = 0; j < N; j++) {
      u[k][j] = (u[k][j] - middle) * scale;
      if (w) du[k][j] *= of_w[j];
    }
  };
  pieces<N>(C, W, [&](int k, int c) {
    fetch(k, c);
#pragma unroll
    for (int j = 0; j < N; j++) {
      sum += du[k][j];
      along += du[k][j] * u[k][j];
    }
  });
  sum = centred ? row_sum(sum, shares, W) / C : 0;
  along = row_sum(along, shares, W) / C;
  if (!there) return;
  pieces<N>(C, W, [&](int k, int c) {
    if (N == 1) fetch(k, c);
#pragma unroll
    for (int j = 0; j < N; j++) du[k][j] = scale * (du[k][j] - sum - u[k][j] * along);
    write<N>(dx + m * C + c, du[k]);
  });
}

// dx = r (du - mean of du - u mean of (du u)), du = dy w; without `mean` the second term is not there
KERNEL norm_backward(real *dx, const real *dy, const real *x, const float *MAYBE mean, const float *r, const real *MAYBE w, int M, int C, int W) {
  __shared__ float shares[32];
  i64 m = (i64)blockIdx.x * (blockDim.x / 32 / W) + row_of_block(W);
  bool there = m < M;
  if (!there) m = M - 1;
  float middle = mean ? mean[m] : 0, scale = r[m];
  if (fits(C, W) && at_packs(dx, dy, x, w))
    backward<MANY<real>>(dx, dy, x, w, middle, scale, mean, m, there, C, W, shares);
  else
    backward<1>(dx, dy, x, w, middle, scale, mean, m, there, C, W, shares);
}

// dw, db [P,C]: the shares of P pieces of the rows; a block is COLUMNS channels wide and its warps take the rows of its piece in turn
KERNEL norm_columns(float *dw, float *MAYBE db, const real *dy, const real *x, const float *MAYBE mean, const float *r, int M, int C, int P) {
  __shared__ float of_w[32][COLUMNS], of_b[32][COLUMNS];
  int c = blockIdx.x * COLUMNS + lane(), warps = blockDim.x / 32;
  i64 first = (i64)M * blockIdx.y / P, stop = (i64)M * (blockIdx.y + 1) / P;
  float sum_w = 0, sum_b = 0;
  if (c < C)
#pragma unroll 4
    for (i64 m = first + warp(); m < stop; m += warps) {
      float d = wide(dy[m * C + c]);
      sum_w += d * (wide(x[m * C + c]) - (mean ? mean[m] : 0)) * r[m];
      sum_b += d;
    }
  of_w[warp()][lane()] = sum_w;
  of_b[warp()][lane()] = sum_b;
  __syncthreads();
  if (warp() || c >= C) return;
  for (int k = 1; k < warps; k++) sum_w += of_w[k][lane()], sum_b += of_b[k][lane()];
  dw[(i64)blockIdx.y * C + c] = sum_w;
  if (db) db[(i64)blockIdx.y * C + c] = sum_b;
}
