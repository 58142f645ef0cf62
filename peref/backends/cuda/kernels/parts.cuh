// Sums that several blocks have shares of: the shares are written out and added here in the order of their numbers, so that the result has the
// same bits in every run. No kernel adds to memory that another block adds to.

// out [N], in either type, = sum over p of parts [p,n], added in double: a lane for one n, and a warp for every eighth p
KERNEL sum_parts(float *MAYBE out, real *MAYBE narrow, const float *parts, int P, i64 N) {
  __shared__ double sums[8][32];
  i64 n = (i64)blockIdx.x * 32 + lane();
  double total = 0;
  if (n < N)
#pragma unroll 8
    for (int p = warp(); p < P; p += 8) total += parts[p * N + n];
  sums[warp()][lane()] = total;
  __syncthreads();
  if (warp() || n >= N) return;
  for (int k = 1; k < 8; k++) total += sums[k][lane()];
  if (out) out[n] = (float)total;
  if (narrow) put(&narrow[n], (float)total);
}
