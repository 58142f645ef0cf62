// Attention backward, in two passes that compute the probabilities again: one for the queries, one for the keys, so that nobody adds to another's
// numbers (FlashAttention-2's backward with its atomic sum taken apart).
//
//     p = exp(logit - lse)        delta = <dy, o>        ds = p (dy v - delta)
//     dq = scale ds k        dtable[d] = sum of ds along diagonal d        drow = sum of ds over keys        dterm = ds
//     dk = scale ds' q        dv = p' dy        dcolumn = sum of ds over queries; over the heads that share a key one after another
//
// Of the table's gradient every block has a line of its own in `parts`, to which it adds tile by tile; sum_parts adds the lines.
// With `starts` and `stops` (reach.cu) both passes leave out the same tiles, those in which every p is below 2^-26 / S.
// Bound by the tensor cores: 7 products of tiles for 2 forward.

#include "common.cuh"
#include "parts.cuh"
#define BYTES 8192
#define WARP_ROWS 16
#include "tile.cuh"
#include "attention.cuh"

// blocks of a processor, which share its registers
#if __CUDA_ARCH__ == 900 && (defined(BF16) || defined(TF32))
constexpr int RESIDENT = WIDTH == 32 || sizeof(real) == 4 ? 3 : 2;
#else
constexpr int RESIDENT = 2;
#endif

// delta [B,H,T], a warp for each row of o and dy [B,T,H,E]
KERNEL inner(float *delta, const real *dy, const real *o, i64 M, int H, int T, int E) {
  i64 m = (i64)blockIdx.x * (blockDim.x / 32) + warp();
  if (m >= M) return;
  float sum = 0;
  for (int e = lane(); e < E; e += 32) sum += wide(dy[m * E + e]) * wide(o[m * E + e]);
  sum = warp_sum(sum);
  i64 b = m / H / T, t = m / H % T, h = m % H;
  if (lane() == 0) delta[(b * H + h) * T + t] = sum;
}

// A block has head blockIdx.y and, of all pieces of 64 queries of all sequences, every gridDim.x-th. dterm [B,H,T,S] holds 0 before.
KERNEL_OF(RESIDENT) queries(real *MAYBE dq, real *MAYBE dterm, double *MAYBE drow, float *MAYBE parts, const real *dy, const float *delta,
          const float *lse, const real *q, const real *k, const real *v, const float *MAYBE table, const int *MAYBE index, const real *MAYBE term,
          const double *MAYBE row, const double *MAYBE column, const i64 *MAYBE seg, int B, int H, int G, int T, int S, int D, int E, int N,
          int nearest, int causal, int window, i64 index_b, i64 term_b, i64 term_h, i64 term_t, i64 term_s, float scale, const int *MAYBE starts) {
  constexpr int LDS = LOOP + 1;
  DYNAMIC_SHARED(memory);
  __shared__ float band[BAND];
  elem *of_q = (elem *)memory, *of_y = of_q + OWN * LD, *of_k = of_y + OWN * LD, *of_v = of_k + LOOP * LD;
  float *of_s = (float *)(of_v + LOOP * LD);
  Place at = {table, index, term, row, column, seg, H, T, S, N, nearest, causal, window, index_b, term_b, term_h, term_t, term_s, scale};
  int h = blockIdx.y, g = h / (H / G), mine = warp() * WARP_ROWS, tiles = (T + OWN - 1) / OWN;
  if (parts) {
    parts += ((i64)blockIdx.x * H + h) * N;
    for (int n = threadIdx.x; n < N; n += blockDim.x) parts[n] = 0;
  }
  for (i64 work = blockIdx.x; work < (i64)B * tiles; work += gridDim.x) {
    int b = (int)(work / tiles), tile = (int)(work % tiles) * OWN, first, stop;
    i64 head = ((i64)b * H + h) * T;
    keys_of(at, tile, OWN, first, stop);
    if (starts) first = max(first, starts[((i64)b * H + h) * tiles + tile / OWN]);
    cp_async_wait();  // of a piece of which nothing was looked at
    load<OWN, WIDTH>(of_q, LD, q + (((i64)b * T + tile) * H + h) * D, (i64)H * D, T - tile, D);
    load<OWN, WIDTH>(of_y, LD, dy + (((i64)b * T + tile) * H + h) * E, (i64)H * E, T - tile, E);
    float acc[WIDTH / 8][4], line[2], inside[2];
    double total[2] = {0, 0};
    clear<WIDTH>(acc);
    for (int i = 0; i < 2; i++) {
      int t = tile + mine + row_of(2 * i);
      line[i] = t < T ? lse[head + t] : infinity(), inside[i] = t < T ? delta[head + t] : 0;
    }
    for (int s = first / LOOP * LOOP; s < stop; s += LOOP) {
      if (apart(at, b, tile, OWN, s, LOOP)) continue;
      load<LOOP, WIDTH>(of_k, LD, k + (((i64)b * S + s) * G + g) * D, (i64)G * D, S - s, D);
      load<LOOP, WIDTH>(of_v, LD, v + (((i64)b * S + s) * G + g) * E, (i64)G * E, S - s, E);
      load_band(band, at, h, tile, s, LOOP - 1);
      cp_async_wait();
      __syncthreads();
      float p[LOOP / 8][4], ds[LOOP / 8][4], sum[2] = {0, 0};
      clear<LOOP>(p), clear<LOOP>(ds);
      multiply<WIDTH, LOOP, false, false>(p, of_q + mine * LD, LD, of_k, LD);
      multiply<WIDTH, LOOP, false, false>(ds, of_y + mine * LD, LD, of_v, LD);
      logits<false>(p, at, band, b, h, tile, s, mine);
      each<LOOP>(p, [&](float &x, int c, int, int) { x = exp_approx(x - line[c / 2]); });
#pragma unroll
      for (int n = 0; n < LOOP / 8; n++)
        for (int c = 0; c < 4; c++) sum[c / 2] += ds[n][c] = p[n][c] * (ds[n][c] - inside[c / 2]);
      if (dterm)
        each<LOOP>(ds, [&](float &x, int, int r, int l) {
          int t = tile + mine + r;
          if (t < T && s + l < S) put(&dterm[(head + t) * S + s + l], x);
        });
      if (parts) each<LOOP>(ds, [&](float &x, int, int r, int l) { of_s[(mine + r) * LDS + l] = x; });
      for (int i = 0; i < 2; i++) total[i] += row_sum(sum[i]);
      if (dq) multiply_own<LOOP, WIDTH, true>(acc, ds, of_k, LD);
      __syncthreads();
      int n = S - T + tile - s - nearest + (int)threadIdx.x - (LOOP - 1);  // the thread's diagonal, as the table counts
      if (parts && threadIdx.x < BAND - 1 && n >= 0 && n < N) {
        float along = 0;
        for (int r = 0; r < OWN; r++) {
          int l = r - (int)threadIdx.x + LOOP - 1;
          if (l >= 0 && l < LOOP) along += of_s[r * LDS + l];
        }
        parts[n] += along;
      }
    }
    for (int i = 0; i < 2; i++) {
      int t = tile + mine + row_of(2 * i);
      if (drow && t < T && lane() % 4 == 0) drow[head + t] = total[i];
    }
    if (!dq) continue;
    each<WIDTH>(acc, [&](float &x, int, int r, int d) {
      i64 t = tile + mine + r;
      if (t < T && d < D) put(&dq[((b * (i64)T + t) * H + h) * D + d], x * scale);
    });
  }
}

// A block has 64 keys of key-value head blockIdx.y, and goes through the heads that read it and the queries that see them. Of wide float32 heads it
// makes SPAN columns of dk and dv, those from SPAN blockIdx.z on: a thread has no registers for more.
constexpr int SPAN = WIDTH * (int)sizeof(real) > 256 ? WIDTH / 2 : WIDTH;

KERNEL_OF(RESIDENT) keys(real *dk, real *dv, double *MAYBE dcolumn, const real *dy, const float *delta, const float *lse, const real *q,
          const real *k, const real *v, const float *MAYBE table, const int *MAYBE index, const real *MAYBE term, const double *MAYBE row,
          const double *MAYBE column, const i64 *MAYBE seg, int H, int G, int T, int S, int D, int E, int N, int nearest, int causal, int window,
          i64 index_b, i64 term_b, i64 term_h, i64 term_t, i64 term_s, float scale, const int *MAYBE stops) {
  DYNAMIC_SHARED(memory);
  __shared__ float band[BAND], line[LOOP], inside[LOOP];
  __shared__ double total[OWN];
  elem *of_k = (elem *)memory, *of_v = of_k + OWN * LD, *of_q = of_v + OWN * LD, *of_y = of_q + LOOP * LD;
  Place at = {table, index, term, row, column, seg, H, T, S, N, nearest, causal, window, index_b, term_b, term_h, term_t, term_s, scale};
  int tiles = (S + OWN - 1) / OWN, b = blockIdx.x / tiles, tile = blockIdx.x % tiles * OWN;
  int g = blockIdx.y, from = SPAN * blockIdx.z, mine = warp() * WARP_ROWS, first, stop;
  queries_of(at, tile, OWN, first, stop);
  load<OWN, WIDTH>(of_k, LD, k + (((i64)b * S + tile) * G + g) * D, (i64)G * D, S - tile, D);
  load<OWN, WIDTH>(of_v, LD, v + (((i64)b * S + tile) * G + g) * E, (i64)G * E, S - tile, E);
  float of_dk[SPAN / 8][4], of_dv[SPAN / 8][4];
  clear<SPAN>(of_dk), clear<SPAN>(of_dv);
  for (int h = g * (H / G); h < (g + 1) * (H / G); h++) {
    i64 head = ((i64)b * H + h) * T;
    if (dcolumn && threadIdx.x < OWN) total[threadIdx.x] = 0;
    int last = stops ? min(stop, stops[((i64)b * H + h) * tiles + tile / OWN]) : stop;
    for (int t = first / LOOP * LOOP; t < last; t += LOOP) {
      if (apart(at, b, t, LOOP, tile, OWN)) continue;
      load<LOOP, WIDTH>(of_q, LD, q + (((i64)b * T + t) * H + h) * D, (i64)H * D, T - t, D);
      load<LOOP, WIDTH>(of_y, LD, dy + (((i64)b * T + t) * H + h) * E, (i64)H * E, T - t, E);
      load_band(band, at, h, t, tile, OWN - 1);
      for (int c = threadIdx.x; c < LOOP; c += blockDim.x) {
        line[c] = t + c < T ? lse[head + t + c] : infinity();
        inside[c] = t + c < T ? delta[head + t + c] : 0;
      }
      cp_async_wait();
      __syncthreads();
      float p[LOOP / 8][4], ds[LOOP / 8][4], sum[2] = {0, 0};
      clear<LOOP>(p);
      multiply<WIDTH, LOOP, false, false>(p, of_k + mine * LD, LD, of_q, LD);
      logits<true>(p, at, band, b, h, t, tile, mine);
      each<LOOP>(p, [&](float &x, int, int, int l) { x = exp_approx(x - line[l]); });
      multiply_own<LOOP, SPAN, true>(of_dv, p, of_y + from, LD);
      clear<LOOP>(ds);
      multiply<WIDTH, LOOP, false, false>(ds, of_v + mine * LD, LD, of_y, LD);
#pragma unroll
      for (int n = 0; n < LOOP / 8; n++)
        for (int c = 0; c < 4; c++) sum[c / 2] += ds[n][c] = p[n][c] * (ds[n][c] - inside[column_of(n, c)]);
      for (int i = 0; i < 2; i++) {
        sum[i] = row_sum(sum[i]);
        if (dcolumn && lane() % 4 == 0) total[mine + row_of(2 * i)] += sum[i];
      }
      multiply_own<LOOP, SPAN, true>(of_dk, ds, of_q + from, LD);
      __syncthreads();
    }
    if (dcolumn && from == 0 && threadIdx.x < OWN && tile + threadIdx.x < S) dcolumn[((i64)b * H + h) * S + tile + threadIdx.x] = total[threadIdx.x];
  }
  each<SPAN>(of_dk, [&](float &x, int, int r, int d) {
    i64 s = tile + mine + r;
    if (s < S && from + d < D) put(&dk[((b * (i64)S + s) * G + g) * D + from + d], x * scale);
  });
  each<SPAN>(of_dv, [&](float &x, int, int r, int e) {
    i64 s = tile + mine + r;
    if (s < S && from + e < E) put(&dv[((b * (i64)S + s) * G + g) * E + from + e], x);
  });
}
