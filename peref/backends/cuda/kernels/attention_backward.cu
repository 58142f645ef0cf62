// Attention backward, in two passes that compute the probabilities again: one for the queries, one for the keys, so that nobody adds to another's
// numbers (FlashAttention-2's backward with its atomic sum taken apart). Both are in one launch, and one text: "own" rows and the other side.
//
//     p = exp(logit - lse)        delta = <dy, o>        ds = p (dy v - delta)
//     dq = scale ds k        dtable[d] = sum of ds along diagonal d        drow = sum of ds over keys        dterm = ds
//     dk = scale ds' q        dv = p' dy        dcolumn = sum of ds over queries; over the heads that share a key one after another
//
// A block owns OWN rows, queries or keys, and goes through the other side LOOP by LOOP; the next tile is on its way while it computes. A warp
// computes WARP_ROWS x PART logits at a time, and none where nobody sees anybody.
// Of the table's gradient every block has a line of its own in `parts`, to which it adds tile by tile; sum_parts adds the lines.
// With `starts` and `stops` (reach.cu) both passes leave out the same tiles, those in which every p is below 2^-26 / S.
// Bound by the tensor cores: 7 products of tiles for 2 forward.

#include "common.cuh"
#include "parts.cuh"
#define BYTES 8192
#if defined(BF16) && WIDTH <= 64 && !defined(MORE)
#define WARP_ROWS 32
#else
#define WARP_ROWS 16
#endif
#include "tile.cuh"
#include "attention.cuh"

// RESIDENT blocks of a processor share its registers, PART columns of logits at a time fill a thread's. Of wide float32 heads a block makes SPAN
// columns of dk and dv, for a thread has no registers for more, and has room for one tile of the other side, not for STAGES.
constexpr bool NARROW = WIDTH == 32 && WARP_ROWS == 32, FULL = WIDTH * (int)sizeof(real) > 256;
constexpr int RESIDENT = NARROW ? 3 : 2, PART = NARROW || LOOP == 16 ? 16 : 32, SPAN = FULL ? WIDTH / 2 : WIDTH, STAGES = FULL ? 1 : 2;
constexpr int TILES = WARP_ROWS / 16, LINE = WARP_ROWS + LOOP;

struct Given {
  real *dq, *dterm, *dk, *dv;
  double *drow, *dcolumn;
  const real *dy, *q, *k, *v;
  const float *delta, *lse;
  int B, G, D, E;
  const int *starts, *stops;  // [B,H,pieces of 64 rows]
};

// f(number, tile of 16 rows, c, row, column) for each number of a lane's share of a warp's tiles, N columns wide
template <int N, class F> __device__ inline void each_of(float (*acc)[4], F f) {
#pragma unroll
  for (int m = 0; m < TILES; m++) each<N>(acc + m * N / 8, [&](float &x, int c, int r, int l) { f(x, m, c, 16 * m + r, l); });
}

// f(tile of 16 rows, half, row) for each row of a warp's of which a lane has numbers
template <class F> __device__ inline void each_row(F f) {
#pragma unroll
  for (int m = 0; m < TILES; m++)
#pragma unroll
    for (int i = 0; i < 2; i++) f(m, i, 16 * m + row_of(2 * i));
}

// what index, term, row and column add to the logit of query t and key s; the wide type sums the last two, for they cancel
__device__ inline float more(const Place &at, int b, int h, int t, int s) {
  i64 head = (i64)b * at.H + h;
  float x = at.index ? at.table[(i64)h * at.N + at.index[b * at.index_b + (i64)t * at.S + s]] : 0;
  if (at.term) x += wide(at.term[b * at.term_b + h * at.term_h + t * at.term_t + s * at.term_s]);
  if (at.row || at.column) x += (float)((at.row ? at.row[head * at.T + t] : 0) + (at.column ? at.column[head * at.S + s] : 0));
  return x;
}

// Sums of ds [WARP_ROWS,PART] along its diagonals, added to line [LINE,4], of which entry e is that of row - column = e - LOOP; columns from l0 on.
// Row g of an 8 x 8 square is turned to where its column puts it: a lane's numbers lie on one diagonal, which goes on in the next square. Four lanes
// have shares of a diagonal, and entries of their own.
__device__ inline void add_diagonals(float *line, const float (*ds)[4], int l0) {
  constexpr int N = PART / 8, M = 2 * TILES;
  int g = lane() / 4, t = lane() % 4;
  float turned[2] = {0, 0};
#pragma unroll
  for (int q = M - 1; q >= -N; q--) {  // the squares whose row is q more than their column
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float x = 0, before = turned[j];
#pragma unroll
      for (int i = 0; i < M; i++)
        if (i - q >= 0 && i - q < N) x += ds[i / 2 * N + i - q][i % 2 * 2 + j];
      turned[j] = __shfl_sync(ALL, x, (g + 2 * t + j) % 8 * 4 + t);
      sum += g + 2 * t + j < 8 ? turned[j] : before;
    }
    line[(8 * q + g - l0 + LOOP) * 4 + t] += sum;
  }
}

// The rows of head `own` from `tile` on, queries or KEYS.
template <bool KEYS> static __device__ inline void pass(const Given &x, const Place &at, char *memory, int b, int own, int tile, int from, float *parts,
                          float *lines) {
  __shared__ float band[STAGES][BAND], line_of[STAGES][LOOP], inside_of[STAGES][LOOP];
  __shared__ double total[OWN];
  constexpr int ACC = KEYS ? SPAN : WIDTH;
  int H = at.H, G = x.G, T = at.T, S = at.S, R = H / G, before = S - T, mine = warp() * WARP_ROWS;
  int end = KEYS ? (own + 1) * R : own + 1, rows = KEYS ? S : T, heads = KEYS ? G : H, others = KEYS ? T : S, their_heads = KEYS ? H : G;
  double *sums = KEYS ? x.dcolumn : x.drow;
  const int *limits = KEYS ? x.stops : x.starts;
  elem *of_x = (elem *)memory, *of_y = of_x + OWN * LD, *loop = of_y + OWN * LD;
  auto bounds = [&](int h, int &s, int &to) {  // the other side's rows of head h, from s on
    KEYS ? queries_of(at, tile, OWN, s, to) : keys_of(at, tile, OWN, s, to);
    int pieces = (rows + 63) / 64, found = KEYS ? 0 : S;
    for (int n = tile / 64; limits && n < min(pieces, (tile + OWN) / 64); n++) {
      int limit = limits[((i64)b * H + h) * pieces + n];
      found = KEYS ? max(found, limit) : min(found, limit);
    }
    if (limits) KEYS ? to = min(to, found) : s = max(s, found);
    s = s / LOOP * LOOP;
  };
  auto settle = [&](int &h, int &s, int &to) {  // the next tile of which something is in an own row's document; h is `end` behind the last
    while (h < end) {
      for (; s < to; s += LOOP)
        if (!(KEYS ? apart(at, b, s, LOOP, tile, OWN) : apart(at, b, tile, OWN, s, LOOP))) return;
      if (++h < end) bounds(h, s, to);
    }
  };
  auto send = [&](int stage, int h, int s) {
    elem *to = loop + stage * 2 * LOOP * LD;
    i64 row = ((i64)b * others + s) * their_heads + (KEYS ? h : own / R);
    load<LOOP, WIDTH>(to, LD, (KEYS ? x.q : x.k) + row * x.D, (i64)their_heads * x.D, others - s, x.D);
    load<LOOP, WIDTH>(to + LOOP * LD, LD, (KEYS ? x.dy : x.v) + row * x.E, (i64)their_heads * x.E, others - s, x.E);
    load_band(band[stage], at, h, KEYS ? s : tile, KEYS ? tile : s, (KEYS ? OWN : LOOP) - 1);
    for (int c = threadIdx.x; KEYS && c < LOOP; c += THREADS) {
      i64 t = ((i64)b * H + h) * T + min(s + c, T - 1);
      cp_async_word(in_shared(&line_of[stage][c]), &x.lse[t]), cp_async_word(in_shared(&inside_of[stage][c]), &x.delta[t]);
    }
  };
  auto put_sums = [&](int &h, int next) {  // those over the other side of heads before `next` go out, and begin at 0 again
    for (; sums && h < next; h++)
      each_row([&](int, int, int r) {
        if (lane() % 4 == 0 && tile + mine + r < rows && from == 0) sums[((i64)b * H + h) * rows + tile + mine + r] = total[mine + r];
        if (lane() % 4 == 0) total[mine + r] = 0;
      });
  };
  auto put_lines = [&](int stage, int s) {  // what the warps have of the diagonals between this tile and that from s on
    for (int c = threadIdx.x; c < BAND; c += THREADS) {
      int n = before - at.nearest + tile - s + c - LOOP;
      float sum = 0;
      for (int w = 0; w < 4; w++) {
        int e = c - WARP_ROWS * w;
        if (e < 0 || e >= LINE) continue;
        float *four = lines + ((stage * 4 + w) * LINE + e) * 4;
        for (int i = 0; i < 4; i++) sum += four[i], four[i] = 0;
      }
      if (n >= 0 && n < at.N) parts[n] += sum;
    }
  };

  int h = KEYS ? own * R : own, s, to, summed = h, past = 0, turn = 0;
  bounds(h, s, to), settle(h, s, to);
  i64 row = ((i64)b * rows + tile) * heads + own;
  load<OWN, WIDTH>(of_x, LD, (KEYS ? x.k : x.q) + row * x.D, (i64)heads * x.D, rows - tile, x.D);
  load<OWN, WIDTH>(of_y, LD, (KEYS ? x.v : x.dy) + row * x.E, (i64)heads * x.E, rows - tile, x.E);
  if (h < end) send(0, h, s);
  float acc[TILES * ACC / 8][4], acc_v[KEYS ? TILES * ACC / 8 : 1][4], line[TILES][2], inside[TILES][2];
  clear<TILES * ACC>(acc);
  if (KEYS) clear<TILES * ACC>(acc_v);
  each_row([&](int m, int i, int r) {
    i64 t = ((i64)b * H + own) * T + tile + mine + r;
    bool there = !KEYS && tile + mine + r < T;
    line[m][i] = there ? x.lse[t] : infinity(), inside[m][i] = there ? x.delta[t] : 0;
    if (sums && lane() % 4 == 0) total[mine + r] = 0;
  });
  for (; h < end; turn++) {
    int stage = turn % STAGES, next_h = h, next_s = s + LOOP;
    put_sums(summed, h);
    cp_async_wait();
    __syncthreads();  // the tile is there, and nobody reads the one before
    settle(next_h, next_s, to);
    if (STAGES > 1 && next_h < end) send(1 - stage, next_h, next_s);
    if (parts && turn) put_lines((turn - 1) % 2, past);
    const elem *loop_x = loop + stage * 2 * LOOP * LD, *loop_y = loop_x + LOOP * LD;
    const float *near = band[stage] + (KEYS ? OWN : LOOP) - 1;
#pragma unroll 1
    for (int l0 = 0; l0 < LOOP; l0 += PART) {
      int t = KEYS ? s + l0 : tile + mine, k = KEYS ? tile + mine : s + l0;
      int nearest = before + t - k - (KEYS ? WARP_ROWS : PART) + 1, furthest = before + t - k + (KEYS ? PART : WARP_ROWS) - 1;
      if (t >= T || k >= S || (at.causal && furthest < 0) || (at.window && (nearest >= at.window || -furthest >= at.window))) continue;
      float p[TILES * PART / 8][4], ds[TILES * PART / 8][4];
      clear<TILES * PART>(p);
      multiply<WIDTH, PART, false, false, TILES>(p, of_x + mine * LD, LD, loop_x + l0 * LD, LD);
      if (at.table && !at.index)
        each_of<PART>(p, [&](float &x, int, int, int r, int l) { x = x * at.scale + near[KEYS ? l0 + l - mine - r : mine + r - l0 - l]; });
      else
        each_of<PART>(p, [&](float &x, int, int, int, int) { x *= at.scale; });
      if (at.index || at.term || at.row || at.column)
        each_of<PART>(p, [&](float &x, int, int, int r, int l) {
          int query = t + (KEYS ? l : r), key = k + (KEYS ? r : l);
          if (query < T && key < S) x += more(at, b, h, query, key);
        });
      each_of<PART>(p, [&](float &x, int m, int c, int, int l) { x -= KEYS ? line_of[stage][l0 + l] : line[m][c / 2]; });
      bool all = t + (KEYS ? PART : WARP_ROWS) <= T && k + (KEYS ? WARP_ROWS : PART) <= S && !(at.causal && nearest < 0);
      if (!all || (at.window && (furthest >= at.window || -nearest >= at.window))) {
        int begins[TILES][2], ends[TILES][2];  // what a row is seen by, or sees
        each_row([&](int m, int i, int r) {
          KEYS ? queries_of(at, k + r, 1, begins[m][i], ends[m][i]) : keys_of(at, t + r, 1, begins[m][i], ends[m][i]);
          if (tile + mine + r >= rows) ends[m][i] = 0;
        });
        each_of<PART>(p, [&](float &x, int m, int c, int, int l) {
          if (s + l0 + l < begins[m][c / 2] || s + l0 + l >= ends[m][c / 2]) x = -infinity();
        });
      }
      if (at.seg)
        each_of<PART>(p, [&](float &x, int, int, int r, int l) {
          int query = t + (KEYS ? l : r), key = k + (KEYS ? r : l);
          if (query < T && key < S && !together(at, b, query, key)) x = -infinity();
        });
      each_of<PART>(p, [&](float &x, int, int, int, int) { x = exp_approx(x); });
      if constexpr (KEYS) multiply_own<PART, ACC, true, TILES>(acc_v, p, loop_y + l0 * LD + from, LD);
      each_of<PART>(ds, [&](float &x, int m, int c, int, int l) { x = -(KEYS ? inside_of[stage][l0 + l] : inside[m][c / 2]); });
      multiply<WIDTH, PART, false, false, TILES>(ds, of_y + mine * LD, LD, loop_y + l0 * LD, LD);
#pragma unroll
      for (int n = 0; n < TILES * PART / 8; n++)
        for (int c = 0; c < 4; c++) ds[n][c] *= p[n][c];
      if (sums) {
        float sum[TILES][2] = {};
        each_of<PART>(ds, [&](float &x, int m, int c, int, int) { sum[m][c / 2] += x; });
        each_row([&](int m, int i, int r) {
          sum[m][i] = row_sum(sum[m][i]);
          if (lane() % 4 == 0) total[mine + r] += sum[m][i];
        });
      }
      if (!KEYS && x.dterm)
        each_of<PART>(ds, [&](float &y, int, int, int r, int l) {
          if (t + r < T && k + l < S) put(&x.dterm[(((i64)b * H + h) * T + t + r) * S + k + l], y);
        });
      if (parts) add_diagonals(lines + (turn % 2 * 4 + warp()) * LINE * 4, ds, l0);
      multiply_own<PART, ACC, true, TILES>(acc, ds, loop_x + l0 * LD + from, LD);
    }
    if (STAGES == 1) {
      __syncthreads();  // nobody reads the tile any more
      if (next_h < end) send(0, next_h, next_s);
    }
    past = s, h = next_h, s = next_s;
  }
  put_sums(summed, end);
  cp_async_wait();  // of rows that nothing was looked at for
  __syncthreads();
  if (parts && turn) put_lines((turn - 1) % 2, past);
  auto put_rows = [&](real *to, float (*acc)[4], int width, float by) {
    each_row([&](int m, int i, int r) {
      real *place = to + (row + (i64)(mine + r) * heads) * width;
#pragma unroll
      for (int d = 0; d < ACC && tile + mine + r < rows; d += 8) {
        float *two = acc[(m * ACC + d) / 8] + 2 * i;
        put_two(place, from + column_of(d / 8, 0), width, two[0] * by, two[1] * by);
      }
    });
  };
  if (KEYS || x.dq) put_rows(KEYS ? x.dk : x.dq, acc, x.D, at.scale);
  if (KEYS) put_rows(x.dv, acc_v, x.E, 1);
}

// delta [B,H,T], eight lanes for each row of o and dy [B,T,H,E]; N numbers at a time
template <int N> __device__ inline void rows_inner(float *delta, const real *dy, const real *o, i64 M, int H, int T, int E) {
  i64 m = thread_of_grid() / 8;
  float sum = 0;
  for (int e = threadIdx.x % 8 * N; m < M && e < E; e += 8 * N) {
    float x[N], y[N];
    read<N>(x, dy + m * E + e), read<N>(y, o + m * E + e);
    for (int k = 0; k < N; k++) sum += x[k] * y[k];
  }
  for (int k = 1; k < 8; k *= 2) sum += __shfl_xor_sync(ALL, sum, k);
  i64 b = m / H / T, t = m / H % T, h = m % H;
  if (m < M && threadIdx.x % 8 == 0) delta[(b * H + h) * T + t] = sum;
}
KERNEL inner(float *delta, const real *dy, const real *o, i64 M, int H, int T, int E) {
  if (E % MANY<real> == 0 && at_packs(dy, o))
    rows_inner<MANY<real>>(delta, dy, o, M, H, T, E);
  else
    rows_inner<1>(delta, dy, o, M, H, T, E);
}

// The first `blocks` blocks have keys, the others queries: of a head every `lines`-th of all sequences' pieces, back and forth, so that long and
// short ones meet. Those with the most work come first. dterm [B,H,T,S] holds 0 before.
KERNEL_OF(RESIDENT) gradients(real *MAYBE dq, real *MAYBE dk, real *MAYBE dv, real *MAYBE dterm, double *MAYBE drow, double *MAYBE dcolumn,
          float *MAYBE parts, const real *dy, const float *delta, const float *lse, const real *q, const real *k, const real *v,
          const float *MAYBE table, const int *MAYBE index, const real *MAYBE term, const double *MAYBE row, const double *MAYBE column,
          const i64 *MAYBE seg, int H, int G, int T, int S, int D, int E, int N, int nearest, int causal, int window, i64 index_b, i64 term_b,
          i64 term_h, i64 term_t, i64 term_s, float scale, const int *MAYBE starts, const int *MAYBE stops, int B, int blocks, int lines) {
#ifndef MORE
  index = nullptr, dterm = nullptr, term = nullptr, row = column = drow = dcolumn = nullptr, seg = nullptr;
#endif
  DYNAMIC_SHARED(memory);
  Place at = {table, index, term, row, column, seg, H, T, S, N, nearest, causal, window, index_b, term_b, term_h, term_t, term_s, scale};
  Given x = {dq, dterm, dk, dv, drow, dcolumn, dy, q, k, v, delta, lse, B, G, D, E, starts, stops};
  int n = blockIdx.x, tiles = (T + OWN - 1) / OWN;
  constexpr int SPANS = WIDTH / SPAN;
  if (n < blocks) {
    pass<true>(x, at, memory, n / (G * SPANS) % B, n / SPANS % G, n / (B * G * SPANS) * OWN, n % SPANS * SPAN, nullptr, nullptr);
    return;
  }
  int h = (n - blocks) % H, line = (n - blocks) / H;
  float *sums = (float *)((elem *)memory + 2 * (OWN + STAGES * LOOP) * LD);  // of diagonals, [2,4 warps,LINE,4]
  if (parts) {
    parts += ((i64)line * H + h) * N;
    for (int c = threadIdx.x; c < N; c += THREADS) parts[c] = 0;
    for (int c = threadIdx.x; c < 2 * 4 * LINE * 4; c += THREADS) sums[c] = 0;
  }
  for (int turn = 0, piece = line; piece < B * tiles; turn++, piece = turn * lines + (turn % 2 ? lines - 1 - line : line))
    pass<false>(x, at, memory, piece % B, h, (tiles - 1 - piece / B) * OWN, 0, parts, sums);
}
