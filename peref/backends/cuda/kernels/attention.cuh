// What the passes of attention share: who sees whom, what is added to a logit, how large the tiles are.
//
// A block owns 64 rows, 16 for each of its 4 warps, and goes through the other side LOOP by LOOP, which are at most 64 and at most BYTES large. Heads are D wide, padded with 0 to WIDTH, one of
// 32, 64, 128, which the kernel is compiled for. Arrays lie as [B,T,heads,D].

constexpr int OWN = 64, WARP_ROWS = 16;
constexpr int AREA = BYTES / (int)sizeof(real) / WIDTH, LOOP = AREA < 64 ? AREA : 64;
constexpr int LD = WIDTH + PAD, BAND = OWN + LOOP;  // between the rows of a tile; distances in a tile, and one

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

// whether query t sees key s
__device__ inline bool sees(const Place &at, int b, int t, int s) {
  int here = at.S - at.T + t, ahead = here - s;
  if (t >= at.T || s >= at.S || (at.causal && ahead < 0)) return false;
  if (at.window && (ahead >= at.window || -ahead >= at.window)) return false;
  if (!at.seg) return true;
  const i64 *seg = at.seg + (i64)b * at.S;
  return seg[here] == seg[s] && seg[here] != 0;
}

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

// band [BAND] = what the table says of the distances between query t and keys from s - n on: entry k is that of slots k - n apart, from t and s
__device__ inline void load_band(float *band, const Place &at, int h, int t, int s, int n) {
  if (!at.table || at.index) return;
  int least = at.S - at.T + t - s - at.nearest - n;
  for (int k = threadIdx.x; k < BAND; k += blockDim.x) band[k] = at.table[(i64)h * at.N + min(max(least + k, 0), at.N - 1)];
}

// the logit of query t and key s; `near` is its entry in the band
__device__ inline float logit(const Place &at, float product, int b, int h, int t, int s, float near) {
  float x = product * at.scale;
  if (at.index)
    x += at.table[(i64)h * at.N + at.index[b * at.index_b + (i64)t * at.S + s]];
  else if (at.table)
    x += near;
  if (at.term) x += wide(at.term[b * at.term_b + h * at.term_h + t * at.term_t + s * at.term_s]);
  if (at.row || at.column) {  // the wide type sums them, for they cancel
    i64 head = (i64)b * at.H + h;
    x += (float)((at.row ? at.row[head * at.T + t] : 0) + (at.column ? at.column[head * at.S + s] : 0));
  }
  return x;
}
