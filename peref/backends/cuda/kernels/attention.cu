// Attention forward, after FlashAttention-2 (Dao 2023, arXiv:2307.08691, algorithm 1), on Hopper FlashAttention-3 (Shah et al. 2024, arXiv:2407.08608).
//
//     o = softmax(scale q k + table[distance] + term + row + column) v        lse = log of the softmax's denominator, infinity where nothing is seen
//
// A block has OWN queries of a head and goes through the keys they can see. Values are on their way while logits are multiplied, the next keys while
// probabilities are made and multiplied. Wide heads of bfloat16 have 32 rows in a warp: what is read of keys and values in shared memory serves both
// tiles of 16. Each warp keeps a reference `top` and the sum for each of its rows, and scales what it has when a logit is 2^8 times beyond that:
// any reference gives the same result, and the largest logit rarely grows by so much. Probabilities stay in the registers that they are made in.
// Without MORE only a table by distance is added, and there are no documents.
//
// Under WGMMA one warpgroup loads, a tile of keys ahead, and gives its registers to the others, which have 64 queries each and go their own ways.
// Each sends a tile's logits and the values of the tile before to the tensor cores at once; while it makes probabilities, others multiply.
//
// Bound by the tensor cores, for D = 32 by exponentials; memory: q, k, v, o once.
//
// With `ahead` and `far` (reach.cu; causal, a table and nothing else that is added) the block goes from its own keys back, and stops where all that
// is left is out of reach: a logit there is at most |scale| |q| ahead + far, and where that is below what each row has by limit = -ln(2^26 S), all of
// it together adds less than a quarter unit in the last place to the row's sum.

#if defined(BF16) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA
#if WIDTH == 64 && !defined(MORE)
#define WARPGROUPS 3
#else
#define WARPGROUPS 2
#endif
#define BLOCK (128 * WARPGROUPS + 128)
#endif
#include "common.cuh"
#if defined(BF16) && !defined(MORE) && !defined(WGMMA) && WIDTH >= 64
#define WARP_ROWS 32
#else
#define WARP_ROWS 16
#endif
#define BYTES 16384
#include "tile.cuh"
#include "attention.cuh"
#ifdef WGMMA
#include "wgmma.cuh"
#endif

// blocks of a processor, which share its registers; stages of keys and values
#ifdef WGMMA
#if WIDTH == 32 && !defined(MORE)
constexpr int RESIDENT = 2, STAGES = 2, REGISTERS_TO_LOAD = 32, REGISTERS_TO_MULTIPLY = 104;  // of a thread
#else
constexpr int RESIDENT = 1, STAGES = 2, REGISTERS_TO_LOAD = WARPGROUPS == 3 ? 32 : 40, REGISTERS_TO_MULTIPLY = WARPGROUPS == 3 ? 160 : 232;
#endif
// barriers: two for each stage, of which FULL is each warpgroup's own; one at which all threads vote
enum { EMPTY = 1, FULL = EMPTY + STAGES, VOTE = FULL + STAGES * WARPGROUPS };
#elif __CUDA_ARCH__ == 900 && !defined(MORE) && (defined(BF16) || defined(TF32))
constexpr int RESIDENT = WIDTH == 32 ? 4 : 2, STAGES = 1;
#else
constexpr int RESIDENT = 2, STAGES = 1;
#endif
constexpr int TILES = WARP_ROWS / 16;  // of 16 rows, of a warp

KERNEL_OF(RESIDENT) forward(real *o, float *lse, const real *q, const real *k, const real *v, const float *MAYBE table, const int *MAYBE index,
          const real *MAYBE term, const double *MAYBE row, const double *MAYBE column, const i64 *MAYBE seg, int H, int G, int T, int S, int D,
          int E, int N, int nearest, int causal, int window, i64 index_b, i64 term_b, i64 term_h, i64 term_t, i64 term_s, float scale,
          const float *MAYBE ahead, const float *MAYBE far, float limit) {
#ifndef MORE
  index = nullptr, term = nullptr, row = column = nullptr, seg = nullptr;
#endif
  DYNAMIC_SHARED(memory);
  __shared__ float band[STAGES][BAND], reach[OWN];
  elem *of_q = (elem *)memory, *of_k = of_q + OWN * ROOM, *of_v = of_k + STAGES * LOOP * ROOM;
  bool bare = !table && !term && !row && !column && scale > 0;  // logits stay as they are multiplied
  float factor = 1.44269504f * (bare ? scale : 1);                // of a logit, to base 2
  float slack = fminf(8 / factor, 1e30f);                         // by so much a logit may be beyond `top`
  Place at = {table, index, term, row, column, seg, H, T, S, N, nearest, causal, window, index_b, term_b, term_h, term_t, term_s, bare ? 1 : scale};
  int tiles = (T + OWN - 1) / OWN, b = blockIdx.x / tiles, tile = (tiles - 1 - blockIdx.x % tiles) * OWN;  // the last ones see most: they begin
  int h = blockIdx.y, g = h / (H / G), mine = warp() * WARP_ROWS, first, stop;
  keys_of(at, tile, OWN, first, stop);
  for (int r = mine; ahead && r < min(mine + WARP_ROWS, OWN); r++) {  // a warp for each of its rows
    float square = 0;
    for (int d = lane(); d < D && tile + r < T; d += 32) {
      float x = wide(q[(((i64)b * T + tile + r) * H + h) * D + d]);
      square += x * x;
    }
    square = warp_sum(square);
    if (lane() == 0) reach[r] = fabsf(scale) * sqrtf(square) * 1.0001f;  // what rounding takes away comes back
  }
  __syncwarp();
  int low = first / LOOP, count = max((stop + LOOP - 1) / LOOP - low, 0);
  auto key = [&](int step) { return (ahead ? low + count - 1 - step : low + step) * LOOP; };
  auto next = [&](int step) {  // the first from `step` on of which something is in a query's document
    while (step < count && apart(at, b, tile, OWN, key(step), LOOP)) step++;
    return step;
  };
  auto load_keys = [&](int step, int stage) {
    int s = key(step);
    if (step < count) load<LOOP, WIDTH>(of_k + stage * LOOP * ROOM, LD, k + (((i64)b * S + s) * G + g) * D, (i64)G * D, S - s, D);
  };
  auto load_values = [&](int step, int stage) {
    int s = key(step);
    if (step < count) load<LOOP, WIDTH>(of_v + stage * LOOP * ROOM, LD, v + (((i64)b * S + s) * G + g) * E, (i64)G * E, S - s, E);
  };
  int step = next(0), then;
#ifdef WGMMA
  int stage = 0;
  mine = __shfl_sync(ALL, mine, 0);  // one for a warp, which the compiler then knows
  if (mine >= OWN) {  // the last warpgroup loads: for each step its keys, and the values of the one before
    give_registers<REGISTERS_TO_LOAD>();
    load<OWN, WIDTH>(of_q, LD, q + (((i64)b * T + tile) * H + h) * D, (i64)H * D, T - tile, D);
    for (int last = count, n = 0;; n++, stage ^= 1) {
      if (n >= STAGES) meet(EMPTY + stage, BLOCK);
      load_keys(step, stage), load_values(last, stage);
      if (step < count) load_band(band[stage], at, h, tile, key(step), LOOP - 1);
      cp_async_wait();
      seen_by_wgmma();
      for (int w = 0; w < WARPGROUPS; w++) arrive(FULL + STAGES * w + stage, 256);
      if (step >= count || (ahead && all_agree(VOTE, BLOCK, true))) return;
      last = step, step = next(step + 1);
    }
  }
  take_registers<REGISTERS_TO_MULTIPLY>();
#else
  load<OWN, WIDTH>(of_q, LD, q + (((i64)b * T + tile) * H + h) * D, (i64)H * D, T - tile, D);
  load_keys(step, 0);
#endif

  float acc[TILES * WIDTH / 8][4], top[TILES][2], sum[TILES][2];
  clear<TILES * WIDTH>(acc);
  for (int n = 0; n < TILES; n++)
    for (int i = 0; i < 2; i++) top[n][i] = -infinity(), sum[n][i] = 0;
  auto out_of_reach = [&](int s) {  // all keys from tile s on, for all queries of the block
    float size = ahead[((i64)b * G + g) * ((S + LOOP - 1) / LOOP) + s / LOOP];
    float most = far[(i64)h * N + min(max(S - T + tile - (s + LOOP - 1) - nearest, 0), N - 1)];
    bool done = true;
    for (int n = 0; n < 2 * TILES; n++) {
      int r = mine + n / 2 * 16 + row_of(n % 2 * 2);
      done = done && (tile + r >= T || reach[r] * size + most < top[n / 2][n % 2] + limit);
    }
#ifdef WGMMA
    return all_agree(VOTE, BLOCK, done);
#else
    return __syncthreads_and(done);
#endif
  };
  // Products p of 16 rows become logits; `most` the largest of each row, as far as this lane knows, and whether one is beyond `top`.
  auto look = [&](float(*p)[4], int n, const float *band, int s, float *most) {
    logits(p, at, band, b, h, tile, s, mine + 16 * n);
    most[0] = most[1] = -infinity();
    each<LOOP>(p, [&](float &x, int c, int, int) { most[c / 2] = fmaxf(most[c / 2], x); });
    return most[0] > top[n][0] + slack || most[1] > top[n][1] + slack;
  };
  auto lift = [&](int n, const float *most, float *scaled) {  // `top`; what a row had before has to be `scaled`
    for (int i = 0; i < 2; i++) {
      float larger = row_max(most[i]);
      bool beyond = larger > top[n][i] + slack;  // other rows keep theirs, and their bits
      scaled[i] = beyond ? exp2_approx((top[n][i] - larger) * factor) : 1;
      if (beyond) top[n][i] = larger;
      sum[n][i] *= scaled[i];
    }
  };
  auto soften = [&](float(*p)[4], int n) {  // logits become probabilities
    float from[2];
    for (int i = 0; i < 2; i++) from[i] = top[n][i] == -infinity() ? 0 : top[n][i];
    each<LOOP>(p, [&](float &x, int c, int, int) { sum[n][c / 2] += x = exp2_approx((x - from[c / 2]) * factor); });
  };
#ifdef WGMMA
  u64 q_at = tile_at(of_q, OWN) + mine / 64 * 64 * LD / 8, k_at = tile_at(of_k, LOOP), v_at = tile_at(of_v, LOOP);
  float p[LOOP / 8][4], most[2], scaled[2];
  unsigned words[LOOP / DEPTH][4];
  bool begun = false;
  auto send_values = [&] {
    wgmma_begin();
    send_own<LOOP, WIDTH>(acc, words, v_at + stage * LOOP * WIDTH / 8);
    wgmma_sent();
  };
  for (;; step = then, stage ^= 1, begun = true) {
    meet(FULL + STAGES * (mine / 64) + stage, 256);  // this step's keys and the last one's values are there
    if (step >= count || (ahead && out_of_reach(key(step)))) break;
    then = next(step + 1);
    wgmma_begin();
    send<WIDTH, LOOP, OWN>(p, q_at, k_at + stage * LOOP * WIDTH / 8);
    wgmma_sent();
    if (begun) {
      send_values();
      wgmma_wait<1>();
    } else
      wgmma_wait<0>();
    settle<LOOP>(p);
    bool grown = __ballot_sync(ALL, look(p, 0, band[stage], key(step), most));
    if (grown) lift(0, most, scaled);
    soften(p, 0);
    settle<LOOP>(p);
    wgmma_wait<0>();
    arrive(EMPTY + stage, BLOCK);
    settle<WIDTH>(acc);
    if (grown) each<WIDTH>(acc, [&](float &x, int c, int, int) { x *= scaled[c / 2]; });
#pragma unroll
    for (int k = 0; k < LOOP; k += DEPTH) take_own(words[k / DEPTH], p, k);
  }
  if (begun) {
    send_values();
    wgmma_wait<0>();
    settle<WIDTH>(acc);
  }
#else
  for (; step < count; step = then) {
    int s = key(step);
    cp_async_wait();
    __syncthreads();  // the keys are there, and nobody reads the values before
    if (ahead && out_of_reach(s)) break;
    load_values(step, 0);
    load_band(band[0], at, h, tile, s, LOOP - 1);
    float p[TILES * LOOP / 8][4];
    clear<TILES * LOOP>(p);
    multiply<WIDTH, LOOP, false, false, TILES>(p, of_q + mine * LD, LD, of_k, LD);
    cp_async_wait();
    __syncthreads();  // the values are there, and nobody reads the keys any more
    load_keys(then = next(step + 1), 0);
    float most[TILES][2], scaled[2];
    bool grown = false;
#pragma unroll
    for (int n = 0; n < TILES; n++) grown = look(p + n * LOOP / 8, n, band[0], s, most[n]) || grown;
    if (__ballot_sync(ALL, grown)) {
#pragma unroll
      for (int n = 0; n < TILES; n++) {
        lift(n, most[n], scaled);
        each<WIDTH>(acc + n * WIDTH / 8, [&](float &x, int c, int, int) { x *= scaled[c / 2]; });
      }
    }
#pragma unroll
    for (int n = 0; n < TILES; n++) soften(p + n * LOOP / 8, n);
    multiply_own<LOOP, WIDTH, true, TILES>(acc, p, of_v, LD);
  }
#endif
  cp_async_wait();

#pragma unroll
  for (int n = 0; n < TILES; n++)
    for (int i = 0; i < 2; i++) {
      float all = row_sum(sum[n][i]), part = 1 / all;
      int t = tile + mine + 16 * n + row_of(2 * i);
      if (t >= T) continue;
      if (lane() % 4 == 0) lse[((i64)b * H + h) * T + t] = all == 0 ? infinity() : top[n][i] * (bare ? scale : 1) + logf(all);
      real *to = o + (((i64)b * T + t) * H + h) * E;
#pragma unroll
      for (int m = 0; m < WIDTH / 8; m++) {
        const float *x = acc[n * WIDTH / 8 + m] + 2 * i;
        put_two(to, column_of(m, 0), E, all == 0 ? 0 : x[0] * part, all == 0 ? 0 : x[1] * part);
      }
    }
}
