// How far a logit of a row can go, and where it is too little: |q| |scale|, the longest keys so far, `span` to a number, the table's largest beyond.
struct Bound {
  const float *reach, *ahead, *far;  // [B,H,T], [B,G,tiles], [H,N]; null: no tile is left out
  float limit;
  int span;

  // of keys before slot `stop` of key-value head g of sequence b, from query t on
  __device__ float key(const Place &at, int b, int g, int G, int stop) const {
    return ahead[((i64)b * G + g) * ((at.S + span - 1) / span) + min(stop - 1, at.S - 1) / span];
  }
  __device__ float table(const Place &at, int h, int t, int stop) const {
    return far[(i64)h * at.N + min(max(at.S - at.T + t - (stop - 1) - at.nearest, 0), at.N - 1)];
  }
  __device__ bool little(float reach, float key, float table, float lse, float delta) const {
    return delta - delta == 0 && reach * key + table < lse + limit;
  }
};
