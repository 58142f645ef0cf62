// How far attention has to look: what lets a block of queries stop where no weight further on can matter (attention.cu, attention_backward.cu).
//
//     ahead [B,G,tiles]        the largest length of a key in a tile and in all before it; infinity where a number of k or v there is not finite
//     far [H,N]                the largest number of the table at a distance and at all beyond it; infinity where one is NaN
//     starts [B,H,T / 64]      backward: the first slot that 64 queries have to look at; before it every weight is below e^limit = 2^-26 / S, for
//                              |scale| |q| ahead + far < lse + limit, and what a row leaves out weighs less than what its delta is rounded by
//     stops [B,H,S / 64]       the query behind the last of those that have to look at one of 64 slots
//
// Bound by memory: k and v are read once, q once more for backward.

#include "common.cuh"

// size [B,G,tiles], tiles of `keys` keys: the largest length of one. No length is below 1e-15, so that no product with it vanishes.
KERNEL lengths(float *size, const real *k, const real *v, int G, int S, int D, int E, int keys) {
  __shared__ float shares[32];
  int tiles = (S + keys - 1) / keys, b = blockIdx.x / tiles, tile = blockIdx.x % tiles, warps = blockDim.x / 32;
  float most = 1e-30f;
  for (int s = tile * keys + warp(); s < S && s < (tile + 1) * keys; s += warps) {
    i64 row = ((i64)b * S + s) * G + blockIdx.y;
    float square = 0;
    for (int d = lane(); d < D; d += 32) square += wide(k[row * D + d]) * wide(k[row * D + d]);
    for (int e = lane(); e < E; e += 32) square += wide(v[row * E + e]) - wide(v[row * E + e]);  // 0, or NaN
    square = warp_sum(square);
    most = square < infinity() ? fmaxf(most, square) : infinity();
  }
  if (lane() == 0) shares[warp()] = most;
  __syncthreads();
  if (threadIdx.x) return;
  for (int w = 1; w < warps; w++) most = fmaxf(most, shares[w]);
  size[((i64)b * G + blockIdx.y) * tiles + tile] = sqrtf(most);
}

// Each line [n] of `to` is the largest of `from` up to there or, turned, from there on. A block has a line, a thread a stretch of it.
KERNEL running(float *to, const float *from, int n, int turned) {
  __shared__ float shares[1024];
  to += (i64)blockIdx.x * n, from += (i64)blockIdx.x * n;
  int begin = (int)((i64)n * threadIdx.x / blockDim.x), stop = (int)((i64)n * (threadIdx.x + 1) / blockDim.x);
  auto place = [&](int k) { return turned ? n - 1 - k : k; };
  auto larger = [&](float most, int k) {
    float x = from[place(k)];
    return x < infinity() ? fmaxf(most, x) : infinity();
  };
  float most = -infinity();
  for (int k = begin; k < stop; k++) most = larger(most, k);
  shares[threadIdx.x] = most;
  __syncthreads();
  most = -infinity();
  for (int t = 0; t < (int)threadIdx.x; t++) most = fmaxf(most, shares[t]);
  for (int k = begin; k < stop; k++) to[place(k)] = most = larger(most, k);
}

// A row whose delta is not finite looks at everything: what is wrong in dy is seen. The bound falls with the distance, so a row halves its way.
KERNEL starting(int *starts, const real *q, const float *lse, const float *delta, const float *ahead, const float *far, int H, int G, int T, int S,
                int D, int N, int nearest, int keys, float scale, float limit) {
  __shared__ int shares[32];
  int tiles = (T + 63) / 64, b = blockIdx.x / tiles, tile = blockIdx.x % tiles, h = blockIdx.y, warps = blockDim.x / 32, first = S;
  ahead += ((i64)b * G + h / (H / G)) * ((S + keys - 1) / keys), far += (i64)h * N;
  for (int t = tile * 64 + warp(); t < T && t < (tile + 1) * 64; t += warps) {
    i64 row = ((i64)b * T + t) * H + h, place = ((i64)b * H + h) * T + t;
    float square = 0, length;
    for (int d = lane(); d < D; d += 32) square += wide(q[row * D + d]) * wide(q[row * D + d]);
    length = fabsf(scale) * sqrtf(warp_sum(square)) * 1.0001f;  // what rounding takes away comes back
    bool finite = delta[place] - delta[place] == 0;
    int here = S - T + t, low = 0, high = here / keys + 1;
    while (low < high) {
      int n = (low + high) / 2, distance = min(max(here - (n * keys + keys - 1) - nearest, 0), N - 1);
      if (finite && length * ahead[n] + far[distance] < lse[place] + limit)
        low = n + 1;
      else
        high = n;
    }
    first = min(first, low * keys);
  }
  if (lane() == 0) shares[warp()] = first;
  __syncthreads();
  if (threadIdx.x) return;
  for (int w = 1; w < warps; w++) first = min(first, shares[w]);
  starts[((i64)b * H + h) * tiles + tile] = first;
}

// A warp for each 64 slots
KERNEL stopping(int *stops, const int *starts, int T, int S) {
  int tiles = (S + 63) / 64, queries = (T + 63) / 64, last = 0;
  int tile = blockIdx.x % tiles, line = blockIdx.x / tiles;
  starts += (i64)line * queries;
  for (int n = lane(); n < queries; n += 32)
    if (starts[n] < (tile + 1) * 64) last = (n + 1) * 64;
  for (int m = 16; m; m >>= 1) last = max(last, __shfl_xor_sync(ALL, last, m));
  if (lane() == 0) stops[blockIdx.x] = last;
}
