// Attention forward, after FlashAttention-2 (Dao 2023, arXiv:2307.08691, algorithm 1).
//
//     o = softmax(scale q k + table[distance] + term + row + column) v        lse = log of the softmax's denominator, infinity where nothing is seen
//
// A block has 64 queries of a head and goes through the keys they can see; each warp keeps the largest logit and the sum for its 16 rows and scales
// what it has when a larger one comes. Probabilities stay in the registers that they are made in.
// Bound by the tensor cores, for D = 32 by exponentials; memory: q, k, v, o once.
//
// With `ahead` and `far` (reach.cu; causal, a table and nothing else that is added) the block goes from its own keys back, and stops where all that
// is left is out of reach: a logit there is at most |scale| |q| ahead + far, and where that is below what each row has by limit = -ln(2^26 S), all of
// it together adds less than a quarter unit in the last place to the row's sum.

#include "common.cuh"
#define BYTES 16384
#include "tile.cuh"
#include "attention.cuh"

// blocks of a processor, which share its registers
#if defined(BF16) && __CUDA_ARCH__ == 900
constexpr int RESIDENT = WIDTH == 128 ? 3 : 4;
#else
constexpr int RESIDENT = 2;
#endif

KERNEL_OF(RESIDENT) forward(real *o, float *lse, const real *q, const real *k, const real *v, const float *MAYBE table, const int *MAYBE index,
          const real *MAYBE term, const double *MAYBE row, const double *MAYBE column, const i64 *MAYBE seg, int H, int G, int T, int S, int D,
          int E, int N, int nearest, int causal, int window, i64 index_b, i64 term_b, i64 term_h, i64 term_t, i64 term_s, float scale,
          const float *MAYBE ahead, const float *MAYBE far, float limit) {
  DYNAMIC_SHARED(memory);
  __shared__ float band[BAND];
  elem *of_q = (elem *)memory, *of_k = of_q + OWN * LD, *of_v = of_k + LOOP * LD;
  Place at = {table, index, term, row, column, seg, H, T, S, N, nearest, causal, window, index_b, term_b, term_h, term_t, term_s, scale};
  int tiles = (T + OWN - 1) / OWN, b = blockIdx.x / tiles, tile = (tiles - 1 - blockIdx.x % tiles) * OWN;  // the last ones see most: they begin
  int h = blockIdx.y, g = h / (H / G), mine = warp() * WARP_ROWS, first, stop;
  keys_of(at, tile, OWN, first, stop);
  load<OWN, WIDTH>(of_q, LD, q + (((i64)b * T + tile) * H + h) * D, (i64)H * D, T - tile, D);

  float acc[WIDTH / 8][4], top[2] = {-infinity(), -infinity()}, sum[2] = {0, 0}, reach[2] = {0, 0};
  clear<WIDTH>(acc);
  for (int i = 0; ahead && i < 2; i++) {
    int t = tile + mine + row_of(2 * i);
    for (int d = lane() % 4; d < D && t < T; d += 4) {
      float x = wide(q[(((i64)b * T + t) * H + h) * D + d]);
      reach[i] += x * x;
    }
    reach[i] = fabsf(scale) * sqrtf(row_sum(reach[i])) * 1.0001f;  // what rounding takes away comes back
  }
  int low = first / LOOP, count = max((stop + LOOP - 1) / LOOP - low, 0);
  auto key = [&](int step) { return (ahead ? low + count - 1 - step : low + step) * LOOP; };
  auto next = [&](int step) {  // the first from `step` on of which something is in a query's document
    while (step < count && apart(at, b, tile, OWN, key(step), LOOP)) step++;
    return step;
  };
  auto load_keys = [&](int step) {
    int s = key(step);
    if (step < count) load<LOOP, WIDTH>(of_k, LD, k + (((i64)b * S + s) * G + g) * D, (i64)G * D, S - s, D);
  };
  int step = next(0), then;
  load_keys(step);
  for (; step < count; step = then) {
    int s = key(step);
    if (ahead) {
      float size = ahead[((i64)b * G + g) * ((S + LOOP - 1) / LOOP) + s / LOOP];
      float most = far[(i64)h * N + min(max(S - T + tile - (s + LOOP - 1) - nearest, 0), N - 1)];
      bool done = true;
      for (int i = 0; i < 2; i++) done = done && (tile + mine + row_of(2 * i) >= T || reach[i] * size + most < top[i] + limit);
      if (__syncthreads_and(done)) break;
    }
    cp_async_wait();
    __syncthreads();  // the keys are there, and nobody reads the values before
    load<LOOP, WIDTH>(of_v, LD, v + (((i64)b * S + s) * G + g) * E, (i64)G * E, S - s, E);
    load_band(band, at, h, tile, s, LOOP - 1);
    float p[LOOP / 8][4], scaled[2], most[2] = {-infinity(), -infinity()};
    clear<LOOP>(p);
    multiply<WIDTH, LOOP, false, false>(p, of_q + mine * LD, LD, of_k, LD);
    cp_async_wait();
    __syncthreads();  // the values are there, and nobody reads the keys any more
    load_keys(then = next(step + 1));
    logits<false>(p, at, band, b, h, tile, s, mine);
    each<LOOP>(p, [&](float &x, int c, int, int) { most[c / 2] = fmaxf(most[c / 2], x); });
    for (int i = 0; i < 2; i++) {
      most[i] = fmaxf(top[i], row_max(most[i]));
      float from = most[i] == -infinity() ? 0 : most[i];
      scaled[i] = exp_approx(top[i] - from);
      top[i] = most[i], most[i] = from;
      sum[i] *= scaled[i];
    }
    each<LOOP>(p, [&](float &x, int c, int, int) { sum[c / 2] += x = exp_approx(x - most[c / 2]); });
    each<WIDTH>(acc, [&](float &x, int c, int, int) { x *= scaled[c / 2]; });
    multiply_own<LOOP, WIDTH, true>(acc, p, of_v, LD);
  }
  cp_async_wait();

  for (int i = 0; i < 2; i++) {
    sum[i] = row_sum(sum[i]);
    int t = tile + mine + row_of(2 * i);
    if (t < T && lane() % 4 == 0) lse[((i64)b * H + h) * T + t] = sum[i] == 0 ? infinity() : top[i] + logf(sum[i]);
  }
  each<WIDTH>(acc, [&](float &x, int c, int r, int e) {
    i64 t = tile + mine + r;
    if (t < T && e < E) put(&o[((b * (i64)T + t) * H + h) * E + e], sum[c / 2] == 0 ? 0 : x / sum[c / 2]);
  });
}
