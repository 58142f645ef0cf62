// The gradient of a table that was read through an index: what lies at places of equal index, added.
//
//     out [h,n] = sum of x [b,h,m] over all b and m with index [m], or [b,m], = n
//
// A block has a piece of a sequence, a head and ROOM rows of the table, its warps each a share of the places and a line of sums in shared memory. Of
// 32 places those with one index are added in their order by the first of them, then all different ones to the line at once. The lines of a block
// and then those of the blocks are added in order. No atomics. Bound by memory: x is read once, where the table has more rows than ROOM more often.

#include "common.cuh"
#include "parts.cuh"

constexpr int ROOM = 1024, WARPS = 8;

// parts [B P,H,N], P pieces of each sequence; x [B,H,M]
KERNEL shares(float *parts, const real *x, const int *index, int H, int N, i64 M, i64 by_sequence, int P) {
  __shared__ float sums[WARPS][ROOM];
  int b = blockIdx.x / P, piece = blockIdx.x % P * WARPS + warp(), h = blockIdx.y, first = blockIdx.z * ROOM;
  i64 stop = M * (piece + 1) / (P * WARPS);
  x += ((i64)b * H + h) * M, index += b * by_sequence;
  float *mine = sums[warp()];
  for (int n = lane(); n < ROOM; n += 32) mine[n] = 0;
  __syncwarp();
  for (i64 m = M * piece / (P * WARPS); m < stop; m += 32) {
    bool there = m + lane() < stop;
    int n = there ? index[m + lane()] - first : -1;
    there = n >= 0 && n < ROOM;
    float one = there ? wide(x[m + lane()]) : 0, sum = one;
    unsigned same = __match_any_sync(ALL, there ? n : -1 - lane());
    bool leads = __ffs(same) - 1 == lane();
    unsigned rest = leads ? same & (same - 1) : 0;
    while (__ballot_sync(ALL, rest != 0)) {
      float next = __shfl_sync(ALL, one, rest ? __ffs(rest) - 1 : 0);
      if (rest) sum += next;
      rest &= rest - 1;
    }
    if (there && leads) mine[n] += sum;
    __syncwarp();
  }
  __syncthreads();
  for (int n = threadIdx.x; n < ROOM && first + n < N; n += blockDim.x) {
    float sum = 0;
    for (int w = 0; w < WARPS; w++) sum += sums[w][n];
    parts[((i64)blockIdx.x * H + h) * N + first + n] = sum;
  }
}
