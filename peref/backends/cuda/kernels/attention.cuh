// What the passes of attention share: who sees whom, what is added to a logit, how large the tiles are.
//
// A block owns OWN rows, WARP_ROWS for each of its 4 warps, and goes through the other side LOOP by LOOP, which are at most OWN and at most BYTES large;
// under WGMMA 64 for each of its warpgroups that multiply.
// Heads are D wide, padded with 0 to WIDTH, one of 32, 64, 128, which the kernel is compiled for. Arrays lie as [B,T,heads,D].

// LD numbers from a row of a tile to the next, ROOM numbers for a row in all
#ifdef WGMMA
constexpr int OWN = 64 * WARPGROUPS, LOOP = WIDTH == 32 ? 64 : 128, LD = WIDTH < 64 ? WIDTH : 64, ROOM = WIDTH;
#else
constexpr int OWN = 4 * WARP_ROWS, AREA = BYTES / (int)sizeof(real) / WIDTH, LOOP = AREA < OWN ? AREA : OWN, LD = WIDTH + PAD;
[[maybe_unused]] constexpr int ROOM = LD;
#endif
constexpr int BAND = OWN + LOOP;  // distances in a tile, and one

struct Place {
  const float *table;   // [H,N] or null
  const int *index;     // [T,S] or [B,T,S] into a row of the table; null: read by diagonal
  const real *term;     // or null, with the strides below
  const double *row;    // [B,H,T] or null
  const double *column; // [B,H,S] or null
  const i64 *seg;       // [B,S] or null
  int H, T, S, N, nearest, causal, window;  // the table's first distance; window 0: none
  i64 index_b, term_b, term_h, term_t, term_s;
  float scale;
};

// The slots [first, stop) that some query in [t, t + n) can see, or the queries that can see a key in [s, s + n), segments aside.
__device__ inline void keys_of(const Place &at, int t, int n, int &first, int &stop) {
  int here = at.S - at.T + t;
  first = at.window ? max(0, here - at.window + 1) : 0;
  stop = at.causal ? here + n : at.window ? here + n - 1 + at.window : at.S;
  stop = min(stop, at.S);
}
__device__ inline void queries_of(const Place &at, int s, int n, int &first, int &stop) {
  int before = at.S - at.T;
  first = at.causal ? s - before : at.window ? s - at.window + 1 - before : 0;
  stop = at.window ? s + n - 1 + at.window - before : at.T;
  first = max(first, 0), stop = min(stop, at.T);
}

// whether query t and key s are of one document, and no padding
__device__ inline bool together(const Place &at, int b, int t, int s) {
  const i64 *seg = at.seg + (i64)b * at.S;
  return seg[at.S - at.T + t] == seg[s] && seg[s] != 0;
}

// band [BAND] = what the table says of the distances between query t and keys from s - n on: entry k is that of slots k - n apart, from t and s
__device__ inline void load_band(float *band, const Place &at, int h, int t, int s, int n) {
  if (!at.table || at.index) return;
  const float *line = at.table + (i64)h * at.N;
  int least = at.S - at.T + t - s - at.nearest - n;
#pragma unroll
  for (int m = 0; m < BAND; m += THREADS) {
    int k = m + loader();
    if (BAND % THREADS == 0 || k < BAND) cp_async_word(in_shared(&band[k]), &line[min(max(least + k, 0), at.N - 1)]);
  }
}

// whether every query of a tile sees every key of it, as far as both are there
__device__ inline bool all_see(const Place &at, int t, int queries, int s, int keys) {
  int nearest = at.S - at.T + t - (s + keys - 1), furthest = at.S - at.T + t + queries - 1 - s;
  if (at.seg || s + keys > at.S || (at.causal && nearest < 0)) return false;
  return !at.window || (furthest < at.window && -nearest < at.window);
}

// whether every key of a tile lies in another document than all its queries: before the first query's, or behind the last one's
__device__ inline bool apart(const Place &at, int b, int t, int queries, int s, int keys) {
  if (!at.seg) return false;
  const i64 *seg = at.seg + (i64)b * at.S;
  int before = at.S - at.T, first = before + t, last = before + min(t + queries, at.T) - 1, end = min(s + keys, at.S) - 1;
  return (end < first && seg[end] != seg[first]) || (s > last && seg[s] != seg[last]);
}

// Products p of a tile, of queries from t and keys from s on, become logits, -infinity where a query does not see a key.
__device__ inline void logits(float (*p)[4], const Place &at, const float *band, int b, int h, int t, int s, int mine) {
  const float *near = band + LOOP - 1;
  i64 head = (i64)b * at.H + h;
  auto query = [&](int r) { return t + mine + r; };
  auto there = [&](int r, int l) { return query(r) < at.T && s + l < at.S; };
  if (at.table && !at.index)
    each<LOOP>(p, [&](float &x, int, int r, int l) { x = x * at.scale + near[mine + r - l]; });
  else if (at.scale != 1)
    each<LOOP>(p, [&](float &x, int, int, int) { x *= at.scale; });
  if (at.index)
    each<LOOP>(p, [&](float &x, int, int r, int l) {
      if (there(r, l)) x += at.table[(i64)h * at.N + at.index[b * at.index_b + (i64)query(r) * at.S + s + l]];
    });
  if (at.term)
    each<LOOP>(p, [&](float &x, int, int r, int l) {
      if (there(r, l)) x += wide(at.term[b * at.term_b + h * at.term_h + query(r) * at.term_t + (s + l) * at.term_s]);
    });
  if (at.row || at.column)  // the wide type sums them, for they cancel
    each<LOOP>(p, [&](float &x, int, int r, int l) {
      if (there(r, l)) x += (float)((at.row ? at.row[head * at.T + query(r)] : 0) + (at.column ? at.column[head * at.S + s + l] : 0));
    });
  if (all_see(at, t + mine, 16, s, LOOP)) return;
  int first[2], stop[2];
  for (int i = 0; i < 2; i++) {
    int q = query(row_of(2 * i));
    keys_of(at, q, 1, first[i], stop[i]);
    if (q >= at.T) stop[i] = 0;
    first[i] -= s, stop[i] -= s;
  }
  each<LOOP>(p, [&](float &x, int c, int, int l) {
    if (l < first[c / 2] || l >= stop[c / 2]) x = -infinity();
  });
  if (at.seg)
    each<LOOP>(p, [&](float &x, int, int r, int l) {
      if (there(r, l) && !together(at, b, query(r), s + l)) x = -infinity();
    });
}
