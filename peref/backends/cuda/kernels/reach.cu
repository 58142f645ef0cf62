// How far attention has to look: what lets a block of queries stop where no weight further on can matter (attention.cu).
//
//     ahead [B,G,tiles]    the largest length of a key in a tile and in all before it; infinity where a number of k or v there is not finite
//     far [H,N]            the largest number of the table at a distance and at all beyond it; infinity where one is NaN
//
// Bound by memory: k and v are read once.

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
