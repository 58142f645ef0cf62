// CUDA's words for g++: a kernel file compiled behind this text runs on the CPU, block after block, each thread of a block a fiber.
//
// A fiber runs until a barrier: it counts its own arrival and gives way until every member of its group (block or warp) has counted as many;
// until then it is not resumed. A member that has ended without arriving, and fibers of which none can go on, are errors. A fiber that has
// ended goes on with the next block on the same stack, and so do those of the next launch. The order of blocks, of warps, each of
// which runs as far as it can alone, and of fibers in a warp is drawn anew again and again from a seed: what was read too early or overwritten too
// soon is then another fiber's number, or the NaN that shared memory starts with. Warp collectives go through slots, with a barrier between writing
// and reading.
//
// Not here: banks, memory order, time.

#include <csetjmp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <utility>

#define EMULATED
#define __global__
#define __device__
#define __launch_bounds__(...)
#define __restrict__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((section("shared")))
extern "C" char __start_shared[] __attribute__((weak, visibility("hidden"))), __stop_shared[] __attribute__((weak, visibility("hidden")));

struct Dim { int x, y, z; };
static Dim threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {
constexpr int MOST = 1024, STACK = 1 << 16, GUARD = 1 << 18, WORDS = 8;
constexpr int MOST_SENT = 128, MOST_PRODUCTS = 64;
enum Failure { NONE, DIVERGENT, STUCK, BEYOND, MISALIGNED, CROSSED };

struct Group { int members, arrivals, ended; };
struct Product { float (*d)[4]; unsigned own[4]; unsigned long long a, b; int N, group; bool is_own, add, turned; };
struct Way { char *to; const char *from; int bytes; };
struct State { int arrived[2]; bool ended; int collectives, sent, products, groups; Group *group; int goal; };  // of a fiber in one block
struct Fiber { jmp_buf at; bool begun; State now; };
static Fiber fibers[MOST];
static Way ways[MOST][MOST_SENT];
static Product products[MOST][MOST_PRODUCTS];
static Group block, warps[MOST / 32], named[16];
static unsigned slots[2][MOST][WORDS];
static char *stacks, *dynamic;
static int room = -1;  // bytes of dynamic shared memory there are
static jmp_buf scheduler;
static int me, threads;
static Failure failure;
static void (*kernel)(void **);
static void **arguments;
static unsigned long long state;

static unsigned below(unsigned n) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (unsigned)((state >> 32) * n >> 32);
}

static void shuffle(int *order, int n) {
  for (int k = 0; k < n; k++) order[k] = k;
  for (int k = n - 1; k > 0; k--) std::swap(order[k], order[below(k + 1)]);
}

static void give_way() {
  if (!_setjmp(fibers[me].at)) _longjmp(scheduler, 1);
}

// Nobody is two barriers ahead, so all have arrived when together they have as often.
static bool may_go_on(const State &one) { return one.group->arrivals >= one.goal; }

static void wait(int kind, Group &group) {
  State &mine = fibers[me].now;
  mine.group = &group, mine.goal = ++mine.arrived[kind] * group.members, group.arrivals++;
  while (!may_go_on(mine)) {
    if (group.ended) failure = DIVERGENT;
    give_way();
  }
}

static int warp_begin() { return me & ~31; }
static int warp_end() { return warp_begin() + warps[me / 32].members; }
static void warp_barrier() { wait(1, warps[me / 32]); }

// Puts `words` numbers where the warp sees them; the row of the other lanes' numbers. Two rows take turns, so that nobody writes what is still read.
static unsigned (*exchange(const unsigned *given, int words))[WORDS] {
  unsigned(*row)[WORDS] = slots[fibers[me].now.collectives++ & 1];
  std::memcpy(row[me], given, words * sizeof(unsigned));
  warp_barrier();
  return row + warp_begin();
}

static void body() {
  for (;;) {
    kernel(arguments);
    fibers[me].now.ended = true, block.ended++, warps[me / 32].ended++;
    give_way();
  }
}

static void resume(int k) {
  me = k;
  threadIdx = {k % blockDim.x, k / blockDim.x % blockDim.y, k / blockDim.x / blockDim.y};
  if (_setjmp(scheduler)) return;
  if (fibers[k].begun) _longjmp(fibers[k].at, 1);
  fibers[k].begun = true;
  ucontext_t fresh;
  getcontext(&fresh);
  fresh.uc_stack.ss_sp = stacks + (long)k * STACK;
  fresh.uc_stack.ss_size = STACK;
  fresh.uc_link = nullptr;
  makecontext(&fresh, body, 0);
  setcontext(&fresh);
}

// Whether it comes further, if only to a failure.
static bool ready(const State &one) { return !one.ended && (may_go_on(one) || one.group->ended); }

// As far as a warp comes alone; whether it came further.
static bool run_warp(int first) {
  int order[32], lanes = warps[first / 32].members;
  for (bool ran = false;; ran = true) {
    int k = 0;
    while (k < lanes && !ready(fibers[first + k].now)) k++;
    if (k == lanes || failure) return ran;
    shuffle(order, lanes);
    for (k = 0; k < lanes && !failure; k++)
      if (ready(fibers[first + order[k]].now)) resume(first + order[k]);
  }
}

static void run_block() {
  int order[MOST / 32], count = (threads + 31) / 32;
  block = {threads, 0, 0};
  for (int k = 0; k < count; k++) warps[k] = {threads - 32 * k < 32 ? threads - 32 * k : 32, 0, 0};
  for (Group &one : named) one = {};
  for (int k = 0; k < threads; k++) fibers[k].now = {{0, 0}, false, 0, 0, 0, 0, &block, 0};
  for (bool ran = true; ran && !failure;) {
    ran = false;
    shuffle(order, count);
    for (int k = 0; k < count && !failure; k++) ran |= run_warp(32 * order[k]);
  }
  if (block.ended < threads && !failure) failure = STUCK;
  for (int k = 0; k < threads && failure; k++) fibers[k].begun = false;  // where it stopped nobody goes on
}

template <class... A, std::size_t... K> void spread(void (*f)(A...), void **a, std::index_sequence<K...>) { f(*(A *)a[K]...); }
template <class... A> void invoke(void (*f)(A...), void **a) { spread(f, a, std::index_sequence_for<A...>{}); }
}  // namespace emulated

// 0, or why it did not end: 1 a barrier that not all reach, 2 threads that wait for one another, 3 writing beyond the dynamic shared memory,
// 4 an address that is no multiple of 16, 5 two copies on their way to one place.
extern "C" int run(void (*call)(void **), void **a, const int *grid, const int *block, int shared, unsigned long long seed) {
  using namespace emulated;
  kernel = call, arguments = a, failure = NONE, state = seed * 2654435769u + 88172645463325252u;
  gridDim = {grid[0], grid[1], grid[2]}, blockDim = {block[0], block[1], block[2]}, threads = block[0] * block[1] * block[2];
  if (!stacks) stacks = (char *)std::malloc((long)MOST * STACK);
  if (shared > room) {
    std::free(dynamic);
    dynamic = (char *)std::aligned_alloc(16, (shared + GUARD + 15) / 16 * 16), room = shared;
  }
  char *guard = dynamic + shared;
  std::memset(guard, 0xff, GUARD);
  int blocks = grid[0] * grid[1] * grid[2], *order = (int *)std::malloc(blocks * sizeof(int));
  shuffle(order, blocks);
  for (int k = 0; k < blocks && !failure; k++) {
    int n = order[k];
    blockIdx = {n % gridDim.x, n / gridDim.x % gridDim.y, n / gridDim.x / gridDim.y};
    std::memset(dynamic, 0xff, shared);
    if (__start_shared) std::memset(__start_shared, 0xff, __stop_shared - __start_shared);
    run_block();
  }
  if (!failure && (guard[0] != (char)0xff || std::memcmp(guard, guard + 1, GUARD - 1))) failure = BEYOND;
  std::free(order);
  return failure;
}

#define DYNAMIC_SHARED(name) char *name = emulated::dynamic

static inline void __syncthreads() { emulated::wait(0, emulated::block); }
static inline int __syncthreads_and(int yes) {
  static int votes[emulated::MOST];
  votes[emulated::me] = yes;
  __syncthreads();
  int all = 1;
  for (int k = 0; k < emulated::threads; k++) all = all && votes[k];
  __syncthreads();
  return all;
}
static inline void arrive(int which, int) { emulated::named[which].arrivals++; }
static inline void meet(int which, int threads) {  // every so many arrivals are one meeting
  emulated::Group &group = emulated::named[which];
  emulated::State &mine = emulated::fibers[emulated::me].now;
  mine.group = &group, mine.goal = (group.arrivals++ / threads + 1) * threads;
  while (!emulated::may_go_on(mine)) emulated::give_way();
}
static inline bool all_agree(int which, int threads, bool yes) {
  static bool votes[emulated::MOST];
  votes[emulated::me] = yes;
  meet(which, threads);
  bool all = true;
  for (int k = 0; k < emulated::threads; k++) all = all && votes[k];
  meet(which, threads);
  return all;
}
static inline void __syncwarp() { emulated::warp_barrier(); }

template <class T> static T __shfl_xor_sync(unsigned, T x, int mask) {
  unsigned words[2];
  std::memcpy(words, &x, sizeof x);
  unsigned(*all)[emulated::WORDS] = emulated::exchange(words, sizeof x / 4);
  std::memcpy(&x, all[(emulated::me & 31) ^ mask], sizeof x);
  return x;
}

static inline unsigned __ballot_sync(unsigned, bool yes) {
  unsigned word = yes, found = 0;
  unsigned(*all)[emulated::WORDS] = emulated::exchange(&word, 1);
  for (int k = 0; k < emulated::warp_end() - emulated::warp_begin(); k++) found |= all[k][0] << k;
  return found;
}

template <class T> static T __shfl_sync(unsigned, T x, int from) {
  unsigned word;
  std::memcpy(&word, &x, 4);
  std::memcpy(&x, emulated::exchange(&word, 1)[from & 31], 4);
  return x;
}

static inline unsigned __match_any_sync(unsigned, int x) {
  unsigned word = (unsigned)x, found = 0;
  unsigned(*all)[emulated::WORDS] = emulated::exchange(&word, 1);
  for (int k = 0; k < emulated::warp_end() - emulated::warp_begin(); k++) found |= (unsigned)(all[k][0] == word) << k;
  return found;
}

static inline int max(int a, int b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __float_as_uint(float x) { unsigned u; std::memcpy(&u, &x, 4); return u; }
static inline float __uint_as_float(unsigned u) { float x; std::memcpy(&x, &u, 4); return x; }

static inline unsigned bf16_pair(float low, float high) {  // to the nearest, of two the even one; every NaN is the same one
  float given[2] = {low, high};
  unsigned found = 0;
  for (int k = 0; k < 2; k++) {
    unsigned u = __float_as_uint(given[k]);
    found |= (given[k] == given[k] ? (u + 0x7fffu + (u >> 16 & 1)) >> 16 : 0x7fffu) << 16 * k;
  }
  return found;
}

static inline float exp2_approx(float x) { return std::exp2(x); }
static inline float inverse_approx(float x) { return 1 / x; }

typedef const char *Where;
static inline Where in_shared(const void *p) { return (Where)p; }
template <bool TURNED> static inline void ldmatrix(unsigned *to, Where row) {
  unsigned words[2];
  std::memcpy(words, &row, sizeof row);
  if ((unsigned long long)row % 16) emulated::failure = emulated::MISALIGNED;
  unsigned(*all)[emulated::WORDS] = emulated::exchange(words, 2);
  int g = (emulated::me & 31) / 4, t = emulated::me % 4;
  for (int m = 0; m < 4; m++) {
    const unsigned short *rows[8];
    for (int r = 0; r < 8; r++) std::memcpy(&rows[r], all[8 * m + r], sizeof rows[r]);
    to[m] = TURNED ? rows[2 * t][g] | (unsigned)rows[2 * t + 1][g] << 16 : rows[g][2 * t] | (unsigned)rows[g][2 * t + 1] << 16;
  }
  emulated::warp_barrier();  // what they point to is read before a lane goes on and overwrites it
}

// What is sent arrives when the thread waits for it, and until then nobody has it.
static inline void send(Where to, const void *from, int bytes) {
  emulated::State &mine = emulated::fibers[emulated::me].now;
  emulated::Way *ways = emulated::ways[emulated::me];
  if ((unsigned long long)to % bytes || (unsigned long long)from % bytes) emulated::failure = emulated::MISALIGNED;
  for (int k = 0; k < mine.sent; k++)
    if (ways[k].to == to) emulated::failure = emulated::CROSSED;
  if (mine.sent == emulated::MOST_SENT) emulated::failure = emulated::BEYOND;
  else ways[mine.sent++] = {(char *)to, (const char *)from, bytes};
}
static inline void cp_async(Where to, const void *from, bool there) {
  if ((unsigned long long)from % 16) emulated::failure = emulated::MISALIGNED;
  send(to, there ? from : nullptr, 16);
}
static inline void cp_async_word(Where to, const void *from) { send(to, from, 4); }
static inline void cp_async_wait() {
  emulated::State &mine = emulated::fibers[emulated::me].now;
  emulated::Way *ways = emulated::ways[emulated::me];
  for (int k = 0; k < mine.sent; k++)
    if (ways[k].from) std::memcpy(ways[k].to, ways[k].from, ways[k].bytes);
    else std::memset(ways[k].to, 0, ways[k].bytes);
  mine.sent = 0;
}

// d [16,8] += a [16,K] b [K,8] as the tensor cores take their numbers; lane = 4 g + t, d at rows g, g + 8 and columns 2t, 2t + 1.
static inline void mma_tf32(float *d, const unsigned *a, const unsigned *b) {
  unsigned mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  unsigned(*all)[emulated::WORDS] = emulated::exchange(mine, 6);
  int g = (emulated::me & 31) / 4, t = emulated::me % 4;
  for (int c = 0; c < 4; c++)
    for (int k = 0; k < 8; k++) {  // rows g and g + 8, columns t and t + 4 of a; rows t and t + 4, column g of b
      unsigned x = all[4 * g + k % 4][c / 2 + 2 * (k / 4)], y = all[4 * (2 * t + c % 2) + k % 4][4 + k / 4];
      d[c] += __uint_as_float(x & 0xffffe000u) * __uint_as_float(y & 0xffffe000u);
    }
}

static inline void mma_bf16(float *d, const unsigned *a, const unsigned *b) {
  unsigned mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  unsigned(*all)[emulated::WORDS] = emulated::exchange(mine, 6);
  int g = (emulated::me & 31) / 4, t = emulated::me % 4;
  for (int c = 0; c < 4; c++)
    for (int k = 0; k < 16; k++) {  // as above, with two numbers in each word
      unsigned x = all[4 * g + k % 8 / 2][c / 2 + 2 * (k / 8)], y = all[4 * (2 * t + c % 2) + k % 8 / 2][4 + k / 8];
      d[c] += __uint_as_float(k % 2 ? x & 0xffff0000u : x << 16) * __uint_as_float(k % 2 ? y & 0xffff0000u : y << 16);
    }
}

// Products of four warps: d [64,N] = or += a b when they are waited for; numbers of a and b in shared memory are read then, where the words that
// describe a tile say: address, bytes from 64 columns to the next, from 8 rows to the next, rows of 128 (1) or 64 (2) bytes, 16s of which change places.
static inline unsigned long long byte_of_shared(const void *p) { return (const char *)p - emulated::dynamic; }
static float in_tile(unsigned long long tile, bool turned, int n, int k) {
  int row = tile >> 62 == 1 ? 128 : 64, across = tile >> 16 & 0x3fff, down = tile >> 32 & 0x3fff, along = turned ? n : k, line = turned ? k : n;
  int at = (tile & 0x3fff) * 16 + (turned ? along / (row / 2) * across * 16 : 0) + line / 8 * down * 16 + line % 8 * row + along % (row / 2) * 2;
  unsigned short bits;
  std::memcpy(&bits, emulated::dynamic + (at ^ (at >> 3 & row - 16)), 2);
  return __uint_as_float((unsigned)bits << 16);
}
static inline void wgmma_sent() { emulated::fibers[emulated::me].now.groups++; }
template <int N, bool ADD, bool TURNED> static void wgmma_put(float (*d)[4], const unsigned *own, unsigned long long a, unsigned long long b) {
  emulated::Product one = {d, {}, a, b, N, emulated::fibers[emulated::me].now.groups, own != nullptr, ADD, TURNED};
  if (own) std::memcpy(one.own, own, sizeof one.own);
  emulated::State &mine = emulated::fibers[emulated::me].now;
  if (mine.products == emulated::MOST_PRODUCTS) emulated::failure = emulated::BEYOND;
  else emulated::products[emulated::me][mine.products++] = one;
}
template <int N, bool ADD> static inline void wgmma(float (*d)[4], unsigned long long a, unsigned long long b) { wgmma_put<N, ADD, false>(d, nullptr, a, b); }
template <int N, bool ADD> static inline void wgmma_own(float (*d)[4], const unsigned *a, unsigned long long b) { wgmma_put<N, ADD, true>(d, a, 0, b); }
static inline void wgmma_begin() {}
static inline void seen_by_wgmma() {}
template <int N> static inline void settle(float (*)[4]) {}
template <int N> static inline void give_registers() {}
template <int N> static inline void take_registers() {}
template <int LEFT> static void wgmma_wait() {
  int me = emulated::me, lane = me & 31, g = lane / 4, t = lane % 4, done = 0, count = emulated::fibers[me].now.products;
  for (; done < count && emulated::products[me][done].group < emulated::fibers[me].now.groups - LEFT; done++) {
    emulated::Product one = emulated::products[me][done];
    unsigned(*all)[emulated::WORDS] = emulated::exchange(one.own, 4);
    float a[2][16];
    for (int i = 0; i < 2; i++)
      for (int k = 0; k < 16; k++) {
        unsigned x = all[4 * g + k % 8 / 2][i + 2 * (k / 8)];
        a[i][k] = !one.is_own ? in_tile(one.a, false, me / 32 % 4 * 16 + g + 8 * i, k) : __uint_as_float(k % 2 ? x & 0xffff0000u : x << 16);
      }
    for (int n = 0; n < one.N / 8; n++)
      for (int c = 0; c < 4; c++) {
        if (!one.add) one.d[n][c] = 0;
        for (int k = 0; k < 16; k++) one.d[n][c] += a[c / 2][k] * in_tile(one.b, one.turned, 8 * n + 2 * t + c % 2, k);
      }
  }
  for (int k = done; k < count; k++) emulated::products[me][k - done] = emulated::products[me][k];
  emulated::fibers[me].now.products = count - done;
}
