// Rows that W warps of a block have in pieces of N numbers, a pack or one. A lane keeps H of them as they lie in memory.

template <int N> struct Piece {
  Pack pack;
};
template <> struct Piece<1> {
  real one;
};

template <int N> __device__ inline Piece<N> piece(const real *p) { return *(const Piece<N> *)p; }
__device__ inline void unpack(float *x, const Piece<1> &p) { *x = wide(p.one); }
__device__ inline void unpack(float *x, const Piece<MANY<real>> &p) { unpack(x, p.pack, (const real *)0); }
__device__ inline Piece<1> in_piece(const float *x, const Piece<1> &) {
  Piece<1> p;
  put(&p.one, *x);
  return p;
}
__device__ inline Piece<MANY<real>> in_piece(const float *x, const Piece<MANY<real>> &) { return {packed(x, (const real *)0)}; }

// f(k, c) for each piece of a row of C that is this thread's, at channel c: H of them, and unless the row is KEPT as many again, up to its end
template <int N, int H, bool KEPT, class F> __device__ inline void pieces(int C, int W, F f) {
  const int step = N * 32 * W;
  for (int start = N * place_in_row(W); start < C; start += H * step) {
#pragma unroll
    for (int k = 0; k < H; k++)
      if (start + k * step < C) f(k, start + k * step);
    if (KEPT) break;
  }
}

// whether a lane keeps all that it has of a row of C numbers that begins at a pack, as do all others
template <int H> __device__ inline bool fits(int C, int W) { return C % MANY<real> == 0 && C <= H * 32 * W * MANY<real>; }
