// Retention, chunk by chunk (Sun et al. 2023, arXiv:2307.08621, equation 7), forward and backward.
//
//     state after t    s_t = a s_(t-1) + k_t' v_t        y_t = scale q_t s_t        a = exp(log_decay)
//     in chunks        y = ((q k') within) v + (q s) into        s <- s over + (k out_of)' v
//
// For token m of a chunk of CHUNK: within [m,n] = scale a^(m-n), into [m] = scale a^(m+1), out_of [m] = a^(last-m), over = a^(last+1), each 0 where
// the run (ops/scan.py) is another one; the run that a chunk begins with is that of the token before it.
// `states` goes through the chunks in order and writes the state before each and after the last, or, from the last to the first, its gradient; the
// other kernels have a block for each chunk, `outputs` for each PART of v's columns. Powers are made in double. Arrays lie as [B,T,H,D], states as
// [B,H,chunks + 1,D,E]. Bound by the tensor cores and, for `states`, by how many blocks there are: B H (D / 64) (E / 64).

#include "common.cuh"
#include "tile.cuh"

constexpr int RESIDENT = sizeof(real) == 2 ? 3 : 2;  // blocks of a processor, which share its registers
constexpr int CHUNK = 64, SLICE = 64, WARP_ROWS = 16, LD = WIDTH + PAD, LDS = SLICE + PAD;
constexpr int PART = WIDTH * (int)sizeof(real) > 256 ? 32 : 64, LDP = PART + PAD;  // columns of v at a time; wide float32 fills 99 KiB with 32

struct Chunk {
  float *power;     // a^0 to a^CHUNK
  const i64 *run;   // of all tokens, or null
  int start, size;  // of the chunk
  i64 before, last; // the run it begins with, and ends with

  __device__ i64 of(int m) const { return run ? run[start + m] : 0; }
  __device__ float within(int m, int n) const { return m >= n && m < size && of(m) == of(n) && of(m) >= 0 ? power[m - n] : 0; }
  __device__ float into(int m) const { return m < size && of(m) == before && before >= 0 ? power[m + 1] : 0; }
  __device__ float out_of(int m) const { return m < size && of(m) == last && last >= 0 ? power[size - 1 - m] : 0; }
  __device__ float over() const { return last == before && last >= 0 ? power[size] : 0; }
};

__device__ inline Chunk chunk_of(float *power, const i64 *runs, int b, int T, int number) {
  const i64 *run = runs ? runs + (i64)b * T : runs;
  int start = number * CHUNK, size = min(CHUNK, T - start);
  return {power, run, start, size, run && start ? run[start - 1] : 0, run ? run[start + size - 1] : 0};
}

__device__ inline void load_powers(float *power, double log_decay) {
  for (int n = threadIdx.x; n <= CHUNK; n += blockDim.x) power[n] = (float)exp(log_decay * n);
}

// states [., chunks + 1, D, E]: s <- s over + (x factor)' y, in order with the factor out_of or, backward, against it with into and scale
KERNEL states(float *states, const real *x, const real *y, const float *MAYBE first, const double *log_decay, const i64 *MAYBE runs, int H, int T,
              int D, int E, int backward, float scale) {
  __shared__ float power[CHUNK + 1];
  __shared__ __align__(16) elem of_x[CHUNK * LDS], of_y[CHUNK * LDS];
  int d0 = blockIdx.y * SLICE, e0 = blockIdx.z * SLICE, b = blockIdx.x / H, h = blockIdx.x % H, mine = warp() * WARP_ROWS;
  int chunks = (T + CHUNK - 1) / CHUNK;
  states += (i64)blockIdx.x * (chunks + 1) * D * E;
  load_powers(power, log_decay[h]);
  float s[SLICE / 8][4];
  for (int step = 0; step <= chunks; step++) {
    int number = backward ? chunks - step : step;
    each<SLICE>(s, [&](float &x, int, int r, int l) {
      i64 d = d0 + mine + r, e = e0 + l;
      bool there = d < D && e < E;
      if (step == 0) x = first && there ? first[((i64)blockIdx.x * D + d) * E + e] : 0;
      if (there) states[((i64)number * D + d) * E + e] = x;
    });
    if (step == chunks) break;
    __syncthreads();
    Chunk at = chunk_of(power, runs, b, T, backward ? number - 1 : number);
    i64 row = ((i64)b * T + at.start) * H + h;
    for (int k = threadIdx.x; k < CHUNK * SLICE; k += blockDim.x) {
      int m = k / SLICE, c = k % SLICE;
      float factor = backward ? at.into(m) * scale : at.out_of(m);
      put(&of_x[m * LDS + c], m < at.size && d0 + c < D ? wide(x[(row + (i64)m * H) * D + d0 + c]) * factor : 0);
    }
    load<CHUNK, SLICE>(of_y, LDS, y + row * E + e0, (i64)H * E, at.size, E - e0);
    cp_async_wait();
    __syncthreads();
    float over = at.over();
    each<SLICE>(s, [&](float &x, int, int, int) { x *= over; });
    multiply<CHUNK, SLICE, true, true>(s, of_x + mine, LDS, of_y, LDS);
  }
}

// a state [D,E], columns from e0 on, as numbers that tiles are made of
__device__ inline void load_state(elem *to, const float *state, int D, int E, int e0) {
  for (int k = threadIdx.x; k < WIDTH * PART; k += blockDim.x) {
    int d = k / PART, e = e0 + k % PART;
    put(&to[d * LDP + k % PART], d < D && e < E ? state[(i64)d * E + e] : 0);
  }
}

// p [16,CHUNK] <- p within; where turned its rows are the later side's columns
__device__ inline void decay(float (*p)[4], const Chunk &at, int mine, float scale, bool turned) {
  each<CHUNK>(p, [&](float &x, int, int r, int l) { x *= scale * (turned ? at.within(l, mine + r) : at.within(mine + r, l)); });
}

// to [B,T,H,E] = (x z' within) w + (x state) factor: y of q, k, v, states; or, turned, dv of k, q, dy, dstates
KERNEL outputs(real *to, const real *x, const real *z, const real *w, const float *states, const double *log_decay, const i64 *MAYBE runs, int H,
               int T, int D, int E, int turned, float scale) {
  DYNAMIC_SHARED(memory);
  __shared__ float power[CHUNK + 1];
  elem *of_x = (elem *)memory, *of_z = of_x + CHUNK * LD, *of_w = of_z + CHUNK * LD, *of_s = of_w + CHUNK * LDP;
  int chunks = (T + CHUNK - 1) / CHUNK, number = blockIdx.x % chunks, line = blockIdx.x / chunks, b = line / H, h = line % H;
  int e0 = blockIdx.y * PART, mine = warp() * WARP_ROWS;
  Chunk at = chunk_of(power, runs, b, T, number);
  i64 row = ((i64)b * T + at.start) * H + h;
  load_powers(power, log_decay[h]);
  load<CHUNK, WIDTH>(of_x, LD, x + row * D, (i64)H * D, at.size, D);
  load<CHUNK, WIDTH>(of_z, LD, z + row * D, (i64)H * D, at.size, D);
  load<CHUNK, PART>(of_w, LDP, w + row * E + e0, (i64)H * E, at.size, E - e0);
  load_state(of_s, states + ((i64)line * (chunks + 1) + number + turned) * D * E, D, E, e0);
  cp_async_wait();
  __syncthreads();
  float p[CHUNK / 8][4], acc[PART / 8][4];
  clear<PART>(acc), clear<CHUNK>(p);
  multiply<WIDTH, PART, false, true>(acc, of_x + mine * LD, LD, of_s, LDP);
  each<PART>(acc, [&](float &x, int, int r, int) { x *= turned ? at.out_of(mine + r) : scale * at.into(mine + r); });
  multiply<WIDTH, CHUNK, false, false>(p, of_x + mine * LD, LD, of_z, LD);
  decay(p, at, mine, scale, turned);
  multiply_own<CHUNK, PART, true>(acc, p, of_w, LDP);
  each<PART>(acc, [&](float &x, int, int r, int l) {
    int m = mine + r, e = e0 + l;
    if (m < at.size && e < E) put(&to[(row + (i64)m * H) * E + e], x);
  });
}

// to [B,T,H,D] = (x w' within) z + (x states') factor: dq of dy, v, k, states; or, turned, dk of v, dy, q, dstates; summed over slices of E in order
KERNEL_OF(RESIDENT) gradients(real *to, const real *x, const real *w, const real *z, const float *states, const double *log_decay, const i64 *MAYBE runs, int H,
                 int T, int D, int E, int turned, float scale) {
  DYNAMIC_SHARED(memory);
  __shared__ float power[CHUNK + 1];
  elem *of_z = (elem *)memory, *of_x = of_z + CHUNK * LD, *of_w = of_x + CHUNK * LDP, *of_s = of_w + CHUNK * LDP;
  int chunks = (T + CHUNK - 1) / CHUNK, number = blockIdx.x % chunks, line = blockIdx.x / chunks, b = line / H, h = line % H;
  int mine = warp() * WARP_ROWS;
  Chunk at = chunk_of(power, runs, b, T, number);
  i64 row = ((i64)b * T + at.start) * H + h;
  load_powers(power, log_decay[h]);
  load<CHUNK, WIDTH>(of_z, LD, z + row * D, (i64)H * D, at.size, D);
  float p[CHUNK / 8][4], acc[WIDTH / 8][4];
  clear<WIDTH>(acc), clear<CHUNK>(p);
  for (int e0 = 0; e0 < E; e0 += PART) {
    load<CHUNK, PART>(of_x, LDP, x + row * E + e0, (i64)H * E, at.size, E - e0);
    load<CHUNK, PART>(of_w, LDP, w + row * E + e0, (i64)H * E, at.size, E - e0);
    load_state(of_s, states + ((i64)line * (chunks + 1) + number + turned) * D * E, D, E, e0);
    cp_async_wait();
    __syncthreads();
    multiply<PART, CHUNK, false, false>(p, of_x + mine * LDP, LDP, of_w, LDP);
    multiply<PART, WIDTH, false, false>(acc, of_x + mine * LDP, LDP, of_s, LDP);
    __syncthreads();
  }
  each<WIDTH>(acc, [&](float &x, int, int r, int) { x *= turned ? at.out_of(mine + r) : scale * at.into(mine + r); });
  decay(p, at, mine, scale, turned);
  multiply_own<CHUNK, WIDTH, true>(acc, p, of_z, LD);
  each<WIDTH>(acc, [&](float &x, int, int r, int d) {
    int m = mine + r;
    if (m < at.size && d < D) put(&to[(row + (i64)m * H) * D + d], x);
  });
}
