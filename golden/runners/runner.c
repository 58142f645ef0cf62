/* A runner in C: RoPE in both layouts, YaRN, ALiBi and T5, tables and operations with their gradients, and refusals. No JSON library.
 *
 *     cc -O2 -o runner runner.c -lm
 *     peref check --cmd ./runner --dtype f32
 *
 * It is asked in lines of JSON on stdin, of which it needs one number each: the same words stand in case-SEQ.txt, a line each, and say where in
 * in-SEQ.safetensors every input begins. It computes in double, writes out-SEQ.safetensors and answers. For a little-endian machine.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 256, WORDS = 96, TENSORS = 16, AXES = 8 };
static const double TURN = 6.283185307179586;

typedef struct { char name[TEXT], dtype[8]; int rank; long dims[AXES], count; double *x; } Tensor;
typedef struct { char key[2 * TEXT], value[TEXT]; } Word;
typedef struct { Word words[WORDS]; Tensor in[TENSORS], out[TENSORS]; int n_words, n_in, n_out; } Case;

/* ---------------------------------------------------------------- words and tensors of a case */

static const char *word(const Case *c, const char *key) {
    for (int n = 0; n < c->n_words; n++)
        if (!strcmp(c->words[n].key, key)) return c->words[n].value;
    return "none";
}

static int is(const Case *c, const char *key, const char *value) { return !strcmp(word(c, key), value); }
static double number(const Case *c, const char *key) { return strtod(word(c, key), NULL); }

static const Tensor *input(const Case *c, const char *name) {
    for (int n = 0; n < c->n_in; n++)
        if (!strcmp(c->in[n].name, name)) return &c->in[n];
    return NULL;
}

/* A new output of this shape, filled with zeros; what nobody wants is computed and not written. */
static Tensor *output(Case *c, const char *name, int rank, const long *dims) {
    Tensor *t = &c->out[c->n_out++];
    snprintf(t->name, TEXT, "%s", name);
    t->rank = rank, t->count = 1;
    for (int n = 0; n < rank; n++) t->count *= t->dims[n] = dims[n];
    t->x = calloc(t->count, sizeof *t->x);
    return t;
}

/* "input NAME DTYPE BYTES OFFSET RANK DIMS..." */
static int load(Case *c, char *line, FILE *data) {
    long bytes, offset;
    int used;
    Tensor *t = &c->in[c->n_in++];
    if (sscanf(line, "input %255s %7s %ld %ld %d%n", t->name, t->dtype, &bytes, &offset, &t->rank, &used) != 5 || t->rank > AXES) return 0;
    t->count = 1;
    line += used;
    for (int n = 0; n < t->rank; n++) t->count *= t->dims[n] = strtol(line, &line, 10);
    t->x = calloc(t->count, sizeof *t->x);
    if (fseek(data, offset, SEEK_SET)) return 0;
    for (long n = 0; n < t->count; n++) {
        union { double f64; float f32; long long i64; } u;
        if (fread(&u, bytes / t->count, 1, data) != 1) return 0;
        t->x[n] = !strcmp(t->dtype, "F64") ? u.f64 : !strcmp(t->dtype, "F32") ? u.f32 : (double)u.i64;
    }
    return 1;
}

static int read_case(Case *c, const char *folder, long seq) {
    char path[4096], line[4096], first[TEXT], second[TEXT];
    memset(c, 0, sizeof *c);
    snprintf(path, sizeof path, "%s/case-%ld.txt", folder, seq);
    FILE *text = fopen(path, "r");
    snprintf(path, sizeof path, "%s/in-%ld.safetensors", folder, seq);
    FILE *data = fopen(path, "rb");
    int good = text && data;
    while (good && fgets(line, sizeof line, text) && strcmp(line, "end\n")) {
        Word *w = &c->words[c->n_words];
        if (!strncmp(line, "input ", 6)) good = c->n_in < TENSORS && load(c, line, data);
        else if (sscanf(line, "%255s %255s %255[^\n]", first, second, w->value) == 3) snprintf(w->key, sizeof w->key, "%s %s", first, second), c->n_words++;
        else snprintf(w->key, sizeof w->key, "%s", first), snprintf(w->value, TEXT, "%s", second), c->n_words++;
        good = good && c->n_words < WORDS;
    }
    if (text) fclose(text);
    if (data) fclose(data);
    return good;
}

static int wanted(const Case *c, const char *name) {
    for (int n = 0; n < c->n_words; n++)
        if (!strcmp(c->words[n].key, "want") && !strcmp(c->words[n].value, name)) return 1;
    return 0;
}

static int write_outputs(const Case *c, const char *folder, long seq) {
    char path[4096], header[8192] = "{";
    int single = is(c, "dtype", "f32");
    long long at = 0, used = 1;
    for (int n = 0; n < c->n_out; n++) {
        const Tensor *t = &c->out[n];
        if (!wanted(c, t->name)) continue;
        used += sprintf(header + used, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", used > 1 ? "," : "", t->name, single ? "F32" : "F64");
        for (int k = 0; k < t->rank; k++) used += sprintf(header + used, "%s%ld", k ? "," : "", t->dims[k]);
        used += sprintf(header + used, "],\"data_offsets\":[%lld,%lld]}", at, at + t->count * (single ? 4 : 8));
        at += t->count * (single ? 4 : 8);
    }
    header[used++] = '}';
    snprintf(path, sizeof path, "%s/out-%ld.safetensors", folder, seq);
    FILE *f = fopen(path, "wb");
    if (!f) return 0;
    fwrite(&used, 8, 1, f);
    fwrite(header, 1, used, f);
    for (int n = 0; n < c->n_out; n++)
        for (long k = 0; k < c->out[n].count && wanted(c, c->out[n].name); k++) {
            float low = (float)c->out[n].x[k];
            fwrite(single ? (void *)&low : (void *)&c->out[n].x[k], single ? 4 : 8, 1, f);
        }
    return !fclose(f);
}

/* ---------------------------------------------------------------- calls without meaning */

static int real(const Tensor *t) { return t->dtype[0] == 'F'; }

static int has_shape(const Tensor *t, int rank, const long *dims) {
    int same = t->rank == rank;
    for (int n = 0; same && n < rank; n++) same = t->dims[n] == dims[n];
    return same;
}

#define NEED(good, what, words) do { if (!(good)) { *kind = what; return words; } } while (0)

/* Why the call must be refused, and the kind of that; NULL where it has a meaning. */
static const char *wrong(const Case *c, const char **kind) {
    const Tensor *i = input(c, "positions"), *table = input(c, "param.table");
    long B = (long)number(c, "fact B"), H = (long)number(c, "fact H"), G = (long)number(c, "fact G"), T = (long)number(c, "fact T");
    long D = (long)number(c, "fact D"), R = (long)number(c, "fact R");
    int yarn = is(c, "encoding", "yarn"), t5 = is(c, "encoding", "t5");
    for (long n = 0; n < i->count; n++) NEED(isfinite(i->x[n]), "position", "a position is no number");
    NEED(i->rank && i->dims[i->rank - 1] == T, "shape", "positions are not one for each token");
    NEED(H > 0, "heads", "there are no heads");
    for (int n = 0; n < 2; n++) {
        const Tensor *t = input(c, n ? "k" : "q");
        NEED(!t || real(t), "dtype", "q and k are real numbers");
        NEED(!t || has_shape(t, 4, (long[]){B, n ? G : H, T, D}), "shape", "q is [B,H,T,D] and k [B,G,T,D]");
    }
    if (yarn || is(c, "encoding", "rope")) {
        double base = number(c, "option base");
        NEED(R >= 2 && R % 2 == 0 && R <= D, "width", "the rotary width is even, from 2 to the head's");
        NEED(is(c, "fact layout", "half") || is(c, "fact layout", "interleaved"), "setting", "layouts are half and interleaved");
        NEED(base > (yarn ? 1 : 0), "setting", "the base is above 0, of YaRN above 1");
    }
    if (yarn) {
        double slow = number(c, "option beta_slow"), L = number(c, is(c, "option original", "none") ? "fact L" : "option original");
        NEED(number(c, "option factor") > 0 && L > 0, "setting", "the factor and the length trained for are above 0");
        NEED(slow > 0 && number(c, "option beta_fast") > slow, "setting", "beta_fast is above beta_slow, and that above 0");
    }
    if (t5) {
        long buckets = (long)number(c, "option buckets"), parts = is(c, "fact causal", "true") ? 2 : 4;
        NEED(!real(i), "position", "positions are whole numbers");
        NEED(buckets > 0 && buckets % parts == 0, "setting", "buckets come in halves, two-sided in quarters");
        NEED(number(c, "option max_distance") > buckets / parts, "setting", "max_distance is beyond the exact buckets");
        NEED(has_shape(table, 2, (long[]){buckets, H}), "shape", "the table is [buckets,H]");
    }
    return NULL;
}

/* ---------------------------------------------------------------- rotation: RoPE and YaRN */

/* The pair that turns so many times within the length trained for, counted in pairs and not rounded. */
static double pair_that_turns(double times, double R, double L, double base) { return R * log(L / (times * TURN)) / (2 * log(base)); }

/* w [R/2], the angle of each pair at position 1; returns the gain of q and k. */
static double frequencies(const Case *c, double *w, long R) {
    double base = number(c, "option base"), gain = 1;
    for (long n = 0; n < R / 2; n++) w[n] = pow(base, -2.0 * n / R);
    if (is(c, "encoding", "yarn")) {
        double factor = number(c, "option factor"), L = number(c, is(c, "option original", "none") ? "fact L" : "option original");
        double low = pair_that_turns(number(c, "option beta_fast"), R, L, base), high = pair_that_turns(number(c, "option beta_slow"), R, L, base);
        if (is(c, "option truncate", "true")) low = floor(low), high = ceil(high);
        low = fmax(low, 0), high = fmin(high, R - 1);
        for (long n = 0; n < R / 2; n++) {
            double slow = fmin(fmax((n - low) / (high == low ? 0.001 : high - low), 0), 1);
            w[n] = slow * w[n] / factor + (1 - slow) * w[n];
        }
        if (factor > 1) gain = 0.1 * log(factor) + 1;
    }
    return gain;
}

/* Turn the first R channels of x [B,H,T,D]; backward the other way. The others pass as they are, without the gain. */
static void turn(Case *c, const char *from, const char *to, const double *w, double gain, int forward) {
    const Tensor *x = input(c, from), *place = input(c, "positions");
    if (!x) return; /* a case without cotangents */
    long H = x->dims[1], T = x->dims[2], D = x->dims[3], R = (long)number(c, "fact R");
    int half = is(c, "fact layout", "half");
    double *y = output(c, to, 4, x->dims)->x;
    memcpy(y, x->x, x->count * sizeof *y);
    for (long row = 0; row < x->count / D; row++)
        for (long n = 0; n < R / 2; n++) {
            long t = row % T, b = place->rank == 2 ? row / (H * T) : 0;
            long i = row * D + (half ? n : 2 * n), j = row * D + (half ? n + R / 2 : 2 * n + 1);
            double angle = place->x[b * T + t] * w[n], cosine = cos(angle), sine = forward ? sin(angle) : -sin(angle);
            y[i] = gain * (x->x[i] * cosine - x->x[j] * sine);
            y[j] = gain * (x->x[i] * sine + x->x[j] * cosine);
        }
}

static const char *rotation(Case *c) {
    const Tensor *place = input(c, "positions");
    long R = (long)number(c, "fact R"), dims[AXES] = {0};
    if (is(c, "option learned", "true")) return "learned frequencies";
    if (is(c, "encoding", "yarn") && !(is(c, "option ramp", "code") && is(c, "option attention_factor", "none") && is(c, "option mscale", "none") &&
                                       is(c, "option mscale_all_dim", "none") && is(c, "option form", "static") &&
                                       number(c, "option extrapolation_factor") == 1)) return "YaRN with other options than ramp=code";
    double *w = malloc((R / 2 + 1) * sizeof *w), gain = frequencies(c, w, R);
    if (is(c, "level", "op")) {
        turn(c, "q", "q_rotated", w, gain, 1), turn(c, "k", "k_rotated", w, gain, 1);
        turn(c, "cotangent.q_rotated", "vjp.q", w, gain, 0), turn(c, "cotangent.k_rotated", "vjp.k", w, gain, 0);
    } else {
        memcpy(dims, place->dims, place->rank * sizeof *dims);
        dims[place->rank] = R / 2;
        const char *names[] = {"angle", "cos", "sin", "gain_q", "gain_k"};
        for (int k = 0; k < 5; k++) {
            double *y = output(c, names[k], place->rank + 1, dims)->x;
            for (long n = 0; n < place->count * (R / 2); n++) {
                double angle = place->x[n / (R / 2)] * w[n % (R / 2)];
                y[n] = k == 0 ? angle : k == 1 ? cos(angle) : k == 2 ? sin(angle) : gain;
            }
        }
    }
    free(w);
    return NULL;
}

/* ---------------------------------------------------------------- bias by distance: ALiBi and T5 */

/* Slope of head h of H: a power of two below, then every second of twice as many. */
static double slope(long h, long H, double max_bias) {
    long most = 1;
    while (2 * most <= H) most *= 2;
    return h < most ? pow(2, -max_bias * (h + 1) / most) : pow(2, -max_bias * (2 * (h - most) + 1) / (2 * most));
}

/* The hair keeps a distance that lies on a border, where the logarithm is whole, from falling below it. */
static long bucket(const Case *c, double d) {
    int causal = is(c, "fact causal", "true");
    double buckets = number(c, "option buckets"), most = number(c, "option max_distance");
    double m = causal ? buckets : buckets / 2, e = m / 2, n = causal ? fmax(d, 0) : fabs(d);
    double far = n < e ? 0 : fmin(e + floor(log(n / e) / log(most / e) * (m - e) + 1e-9), m - 1);
    return (long)((n < e ? n : far) + (!causal && d < 0 ? m : 0));
}

static const char *bias(Case *c) {
    const Tensor *i = input(c, "positions"), *table = input(c, "param.table"), *dy = input(c, "cotangent.bias");
    int op = is(c, "level", "op"), causal = is(c, "fact causal", "true"), t5 = is(c, "encoding", "t5");
    if (!t5 && !(is(c, "option slopes", "fixed") && is(c, "option directions", "both"))) return "ALiBi with other slopes";
    if (i->rank != 1 || input(c, "seg") || !is(c, "fact window", "none")) return "masks other than causal";
    const Tensor *d = op ? i : input(c, "distances");
    long H = (long)number(c, "fact H"), T = i->count, N = op ? T * T : d->count;
    double *y = output(c, "bias", op ? 3 : 2, op ? (long[]){H, T, T} : (long[]){H, N})->x;
    double *back = table ? output(c, "vjp.param.table", 2, table->dims)->x : NULL;
    for (long n = 0; n < N; n++) {
        if (op && causal && n % T > n / T) continue; /* a key that is not there yet: by its slot, not by its position */
        double far = op ? i->x[n / T] - i->x[n % T] : d->x[n];
        for (long h = 0; h < H; h++) {
            y[h * N + n] = t5 ? table->x[bucket(c, far) * H + h] : -slope(h, H, number(c, "option max_bias")) * fabs(far);
            if (dy) back[bucket(c, far) * H + h] += dy->x[h * N + n];
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------- questions and answers */

int main(void) {
    static char line[1 << 20], folder[2048];
    static Case c;
    long seq;
    while (fgets(line, sizeof line, stdin) && strncmp(line, "{\"cmd\":\"bye\"", 12)) {
        if (sscanf(line, "{\"cmd\":\"case\",\"seq\":%ld", &seq) != 1) {
            char *at = strstr(line, "\"dir\":\"");
            if (!at || sscanf(at, "\"dir\":\"%2047[^\"]", folder) != 1) return 1;
            puts("{\"ok\":true,\"implementation\":{\"name\":\"example in C\",\"language\":\"c\"},\"supports\":{\"ops\":[\"rope.table\",\"rope.op\","
                 "\"yarn.table\",\"yarn.op\",\"alibi.table\",\"alibi.op\",\"t5.table\",\"t5.op\"],\"dtypes\":[\"f64\",\"f32\"],\"vjp\":true,\"refusals\":true}}");
        } else if (!read_case(&c, folder, seq)) {
            printf("{\"seq\":%ld,\"status\":\"error\",\"message\":\"its files cannot be read\"}\n", seq);
        } else {
            const char *kind, *refused = wrong(&c, &kind), *left_out = NULL;
            if (!refused) left_out = is(&c, "encoding", "rope") || is(&c, "encoding", "yarn") ? rotation(&c) : bias(&c);
            if (refused) printf("{\"seq\":%ld,\"status\":\"refused\",\"kind\":\"%s\",\"message\":\"%s\"}\n", seq, kind, refused);
            else if (left_out) printf("{\"seq\":%ld,\"status\":\"skip\",\"reason\":\"%s\"}\n", seq, left_out);
            else if (write_outputs(&c, folder, seq)) printf("{\"seq\":%ld,\"status\":\"ok\"}\n", seq);
            else printf("{\"seq\":%ld,\"status\":\"error\",\"message\":\"the output cannot be written\"}\n", seq);
            for (int n = 0; n < c.n_in; n++) free(c.in[n].x);
            for (int n = 0; n < c.n_out; n++) free(c.out[n].x);
        }
        fflush(stdout);
    }
    return 0;
}
