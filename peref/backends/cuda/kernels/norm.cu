// RMSNorm and LayerNorm over the last axis, forward and backward.
//
//     u = (x - mean) r        r = 1 / sqrt(mean of (x - mean)^2 + eps)        y = u w + b
//     RMSNorm is the same with mean = 0, which a null `mean` says.
//
// A warp has a row, its lanes the channels in turn; a row is read again from the cache. Sums over rows (dw, db) take a block for COLUMNS
// channels and a share of the rows, and `sum_parts` adds the shares in order. Bound by memory: x is read and y written once; backward reads
// x and dy twice, for dx and for dw.

#include "common.cuh"
#include "parts.cuh"

#define COLUMNS 32

// rows [M,C]; mean, w and b may be null; mean and r [M] are written
KERNEL norm_forward(real *y, float *MAYBE mean, float *r, const real *x, const real *MAYBE w, const real *MAYBE b, int M, int C, float eps) {
  i64 m = (i64)blockIdx.x * (blockDim.x / 32) + warp();
  if (m >= M) return;
  x += m * C, y += m * C;
  float middle = 0, total = 0;
  if (mean) {
    for (int c = lane(); c < C; c += 32) total += wide(x[c]);
    middle = warp_sum(total) / C;
    total = 0;
  }
  for (int c = lane(); c < C; c += 32) {
    float d = wide(x[c]) - middle;
    total += d * d;
  }
  float scale = 1 / sqrtf(warp_sum(total) / C + eps);
  for (int c = lane(); c < C; c += 32) {
    float u = (wide(x[c]) - middle) * scale;
    put(&y[c], (w ? u * wide(w[c]) : u) + (b ? wide(b[c]) : 0));
  }
  if (lane() == 0) {
    r[m] = scale;
    if (mean) mean[m] = middle;
  }
}

// dx = r (du - mean of du - u mean of (du u)), du = dy w; without `mean` the second term is not there
KERNEL norm_backward(real *dx, const real *dy, const real *x, const float *MAYBE mean, const float *r, const real *MAYBE w, int M, int C) {
  i64 m = (i64)blockIdx.x * (blockDim.x / 32) + warp();
  if (m >= M) return;
  x += m * C, dy += m * C, dx += m * C;
  float middle = mean ? mean[m] : 0, scale = r[m], sum = 0, along = 0;
  for (int c = lane(); c < C; c += 32) {
    float du = wide(dy[c]) * (w ? wide(w[c]) : 1);
    sum += du;
    along += du * (wide(x[c]) - middle) * scale;
  }
  sum = mean ? warp_sum(sum) / C : 0;
  along = warp_sum(along) / C;
  for (int c = lane(); c < C; c += 32) {
    float du = wide(dy[c]) * (w ? wide(w[c]) : 1);
    put(&dx[c], scale * (du - sum - (wide(x[c]) - middle) * scale * along));
  }
}

// dw, db [P,C]: the shares of P pieces of the rows; a block is COLUMNS channels wide and its warps take the rows of its piece in turn
KERNEL norm_columns(float *dw, float *MAYBE db, const real *dy, const real *x, const float *MAYBE mean, const float *r, int M, int C, int P) {
  __shared__ float of_w[32][COLUMNS], of_b[32][COLUMNS];
  int c = blockIdx.x * COLUMNS + lane(), warps = blockDim.x / 32;
  i64 first = (i64)M * blockIdx.y / P, stop = (i64)M * (blockIdx.y + 1) / P;
  float sum_w = 0, sum_b = 0;
  if (c < C)
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
