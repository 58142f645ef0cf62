// Sums that several blocks have shares of: the shares are written out and added here in the order of their numbers, so that the result has the
// same bits in every run. No kernel adds to memory that another block adds to.

// out [N] = sum over p of parts [p,n]: one thread for one n, added in double
KERNEL sum_parts(float *out, const float *parts, int P, i64 N) {
  i64 n = thread_of_grid();
  if (n >= N) return;
  double total = 0;
#pragma unroll 16
  for (int p = 0; p < P; p++) total += parts[p * N + n];
  out[n] = (float)total;
}
