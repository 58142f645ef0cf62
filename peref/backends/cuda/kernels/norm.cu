// RMSNorm and LayerNorm over the last axis, forward and backward.
//
//     u = (x - mean) r        r = 1 / sqrt(mean of (x - mean)^2 + eps)        y = u w + b
//     RMSNorm is the same with mean = 0, which a null `mean` says. `more` is added to x first, and in backward to dx last.
//
// W warps have a row, and a lane keeps what it has of it, so that it is read once; rows that are longer, or not in packs, are taken number by number
// and read again from the cache. Backward has a run of rows for each block, which keeps its share of dw and db, and `sum_parts` adds the shares in
// order. Bound by memory: x is read and y written once; backward reads x and dy and writes dx once.

#include "common.cuh"
#include "parts.cuh"
#include "rows.cuh"

#define MOST 512               // threads of a block
#define HELD (8 / MANY<real>)  // packs that a lane keeps in backward, beside its share of dw and db

template <int N, int H, bool KEPT>
__device__ inline void forward(real *y, real *sum, float *mean, float *r, const real *x, const real *more, const real *w, const real *b, i64 m,
                               bool there, int C, int W, float eps, float *shares) {
  Piece<N> row[H];
  float middle = 0, total = 0;
  auto fetch = [&](int k, int c) {
    row[k] = piece<N>(x + m * C + c);
    if (more) {
      float a[N], d[N];
      unpack(a, row[k]), unpack(d, piece<N>(more + m * C + c));
#pragma unroll
      for (int j = 0; j < N; j++) a[j] += d[j];
      row[k] = in_piece(a, row[k]);
    }
  };
  auto each = [&](auto f) {  // f(k, channel, the numbers of the piece)
    pieces<N, H, KEPT>(C, W, [&](int k, int c) {
      float a[N];
      if (!KEPT) fetch(k, c);
      unpack(a, row[k]);
      f(k, c, a);
    });
  };
  if (KEPT) pieces<N, H, true>(C, W, fetch);
  if (mean) {
    each([&](int, int, float *a) {
#pragma unroll
      for (int j = 0; j < N; j++) total += a[j];
    });
    middle = row_sum(total, shares, W) / C;
    total = 0;
  }
  each([&](int, int, float *a) {
#pragma unroll
    for (int j = 0; j < N; j++) total += (a[j] - middle) * (a[j] - middle);
  });
  float scale = 1 / sqrtf(row_sum(total, shares, W) / C + eps);
  if (!there) return;
  each([&](int k, int c, float *a) {
    float of_w[N], of_b[N];
    if (w) unpack(of_w, piece<N>(w + c));
    if (b) unpack(of_b, piece<N>(b + c));
    if (sum) *(Piece<N> *)(sum + m * C + c) = row[k];
#pragma unroll
    for (int j = 0; j < N; j++) {
      float u = (a[j] - middle) * scale;
      a[j] = (w ? u * of_w[j] : u) + (b ? of_b[j] : 0);
    }
    *(Piece<N> *)(y + m * C + c) = in_piece(a, row[k]);
  });
  if (place_in_row(W) == 0) {
    r[m] = scale;
    if (mean) mean[m] = middle;
  }
}

template <int H>
__device__ inline void rows(real *y, real *sum, float *mean, float *r, const real *x, const real *more, const real *w, const real *b, int M, int C,
                            int W, float eps) {
  __shared__ float shares[32];
  i64 m = (i64)blockIdx.x * (blockDim.x / 32 / W) + row_of_block(W);
  bool there = m < M;
  if (!there) m = M - 1;  // computed once more, not written
  if (fits<H>(C, W) && at_packs(y, sum, x, more, w, b))
    forward<MANY<real>, H, true>(y, sum, mean, r, x, more, w, b, m, there, C, W, eps, shares);
  else
    forward<1, H, false>(y, sum, mean, r, x, more, w, b, m, there, C, W, eps, shares);
}

// rows [M,C]; mean, w and b may be null; mean and r [M] are written, and where `more` [M,C] is given x + more as `sum`; a lane keeps 2 packs, or 8
KERNEL norm_forward_2(real *y, real *MAYBE sum, float *MAYBE mean, float *r, const real *x, const real *MAYBE more, const real *MAYBE w,
                      const real *MAYBE b, int M, int C, int W, float eps) {
  rows<2>(y, sum, mean, r, x, more, w, b, M, C, W, eps);
}

KERNEL norm_forward_8(real *y, real *MAYBE sum, float *MAYBE mean, float *r, const real *x, const real *MAYBE more, const real *MAYBE w,
                      const real *MAYBE b, int M, int C, int W, float eps) {
  rows<8>(y, sum, mean, r, x, more, w, b, M, C, W, eps);
}

// out [C] = the sum over the rows of a block that W warps have at a time of what each lane added up, `box` in shared memory
template <int N> __device__ inline void share_out(float *out, const float (&added)[HELD][N], float *box, int C, int W) {
  const int row = 32 * W * N;
  for (int k = 0; k < HELD && k * row < C; k++) {
    __syncthreads();  // what was there before has been read
#pragma unroll
    for (int j = 0; j < N; j++) {
#pragma unroll
      for (int i = 0; i < HELD; i++)
        if (i == k) box[threadIdx.x * N + j] = added[i][j];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < row && k * row + i < C; i += blockDim.x) {
      float total = box[i];
      for (int n = i + row; n < (int)blockDim.x * N; n += row) total += box[n];
      out[k * row + i] = total;
    }
  }
}

template <int N, bool KEPT>
__device__ inline void backward(real *dx, float *dw, float *db, const real *dy, const real *x, const float *mean, const float *r, const real *w,
                                const real *more, i64 first, i64 stop, int C, int W, float *shares, float *box) {
  float of_w[HELD][N] = {}, of_b[HELD][N] = {};
  struct {
    Piece<N> x[HELD], dy[HELD], more[HELD];
    float middle, scale;
  } row, next;
  auto fetch = [&](auto &row, i64 m, int k, int c) {
    row.x[k] = piece<N>(x + m * C + c), row.dy[k] = piece<N>(dy + m * C + c);
    if (more) row.more[k] = piece<N>(more + m * C + c);
  };
  auto begin = [&](i64 m) {  // the next row is under way while one is computed
    if (m >= stop) m = stop - 1;
    next.middle = mean ? mean[m] : 0, next.scale = r[m];
    if (KEPT) pieces<N, HELD, true>(C, W, [&](int k, int c) { fetch(next, m, k, c); });
  };
  const int step = blockDim.x / 32 / W;
  if (first < stop) begin(first + row_of_block(W));
  for (i64 start = first; start < stop; start += step) {
    i64 m = start + row_of_block(W);
    bool there = m < stop;
    row = next;
    if (start + step < stop) begin(m + step);
    if (!there) m = stop - 1;
    float sum = 0, along = 0;
    auto each = [&](auto f) {  // f(k, channel, u, dy, du)
      pieces<N, HELD, KEPT>(C, W, [&](int k, int c) {
        float u[N], d[N], du[N];
        if (!KEPT) fetch(row, m, k, c);
        unpack(u, row.x[k]), unpack(d, row.dy[k]);
        if (w) unpack(du, piece<N>(w + c));
#pragma unroll
        for (int j = 0; j < N; j++) u[j] = (u[j] - row.middle) * row.scale, du[j] = w ? d[j] * du[j] : d[j];
        f(k, c, u, d, du);
      });
    };
    each([&](int k, int, float *u, float *d, float *du) {
#pragma unroll
      for (int j = 0; j < N; j++) {
        sum += du[j];
        along += du[j] * u[j];
        if (KEPT && there) of_w[k][j] += d[j] * u[j], of_b[k][j] += d[j];
      }
    });
    sum = mean ? row_sum(sum, shares, W) / C : 0;
    along = row_sum(along, shares, W) / C;
    if (there)
      each([&](int k, int c, float *u, float *, float *du) {
        float rest[N] = {};
        if (more) unpack(rest, row.more[k]);
#pragma unroll
        for (int j = 0; j < N; j++) du[j] = row.scale * (du[j] - sum - u[j] * along) + rest[j];
        *(Piece<N> *)(dx + m * C + c) = in_piece(du, row.x[k]);
      });
  }
  if (KEPT) {
    if (dw) share_out(dw, of_w, box, C, W);
    if (db) share_out(db, of_b, box, C, W);
  } else if (dw || db) {
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
      float sum_w = 0, sum_b = 0;
#pragma unroll 4
      for (i64 m = first; m < stop; m++) {
        float d = wide(dy[m * C + c]);
        sum_w += d * (wide(x[m * C + c]) - (mean ? mean[m] : 0)) * r[m], sum_b += d;
      }
      if (dw) dw[c] = sum_w;
      if (db) db[c] = sum_b;
    }
  }
}

// dx = r (du - mean of du - u mean of (du u)) + more, du = dy w; without `mean` the second term is not there. dw, db [blocks,C]: the shares of each
// block's rows
KERNEL norm_backward(real *dx, float *MAYBE dw, float *MAYBE db, const real *dy, const real *x, const float *MAYBE mean, const float *r,
                     const real *MAYBE w, const real *MAYBE more, int M, int C, int W) {
  __shared__ float shares[32], box[MOST * MANY<real>];
  i64 n = blockIdx.x, first = M * n / gridDim.x, stop = M * (n + 1) / gridDim.x;
  if (dw) dw += n * C;
  if (db) db += n * C;
  if (fits<HELD>(C, W) && at_packs(dx, dy, x, w, more))
    backward<MANY<real>, true>(dx, dw, db, dy, x, mean, r, w, more, first, stop, C, W, shares, box);
  else
    backward<1, false>(dx, dw, db, dy, x, mean, r, w, more, first, stop, C, W, shares, box);
}
