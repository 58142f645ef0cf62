// Where a state over tokens is forgotten: `run` [T], or null for one run throughout, as ops/scan.py says.

__device__ inline bool alive(const i64 *run, int t) { return !run || run[t] >= 0; }

// whether token t goes on with the state of the one before it, the first with the one handed in
__device__ inline bool follows(const i64 *run, int t) { return !run || (run[t] >= 0 && run[t] == (t ? run[t - 1] : 0)); }

// whether token t sees slot s, the slots below 0 being those handed in, of run 0
__device__ inline bool reaches(const i64 *run, int t, int s) { return !run || (run[t] >= 0 && run[t] == (s >= 0 ? run[s] : 0)); }
