"""Bugs in biases of distance."""

import math

import numpy as np

from mutants import Mutant
from mutants.ways import backend, bfloat16, distances, expected, float16, hooked, patched, results, table, with_options
from peref.encodings.bias import t5
from peref.ops import activation
from peref.ops import bias as ops
from peref.ops.embedding import take
from peref.tape import Op

ALL = hooked("bias")
BUCKET, SLOPES = t5.bucket, ops.slopes  # as they are before they are replaced
SIDED = ("t5", "learned_bias", "dynamic_bias")
FALLING = ("alibi", "kerple_log", "kerple_power")
ALIBI = ("alibi", "dape")

EXP = Op(lambda x: (np.exp(x), np.exp(x)), lambda y, dy: (dy * y,))


def slopes(of):
    """Other slopes for ALiBi."""

    def run(case, a):
        if case.encoding == "dape":
            return patched("ops.bias", slopes=of)(case, a)
        return patched("encodings.bias.alibi", fixed=of)(case, a) if case.config.pe[0][1]["slopes"] == "fixed" else None

    return run


def exact(H, most, first=1):
    return [2.0 ** (-most * (h + first) / H) for h in range(H)]


def of_next(H, most=8.0):
    whole = 1 << (H.bit_length() - 1)
    return exact(whole, most) + exact(2 * whole, most)[: H - whole]


def of_smaller(H, most=8.0):
    whole = 1 << (H.bit_length() - 1)
    return [*exact(whole, most), *exact(whole, most)][:H]


def bucketed(change):
    """Buckets are change(bucket, d, m, two-sided)."""

    def wrong(d, *, causal, buckets, max_distance, place=None):
        return np.clip(
            change(
                BUCKET(d, causal=causal, buckets=buckets, max_distance=max_distance), d, buckets if causal else buckets // 2, causal, max_distance
            ),
            0,
            buckets - 1,
        )

    return patched("encodings.bias.t5", bucket=wrong)


def by_log(round_, most=None):
    def change(right, d, m, causal, max_distance):
        e, n = m // 2, np.maximum(d, 0) if causal else abs(d)
        far = e + round_(np.log(np.maximum(n, 1) / e) / math.log((most or max_distance) / e) * (m - e))
        row = np.where(n < e, n, np.minimum(far, m - 1)).astype(int)
        return row if causal else row + np.where(d < 0, m, 0)

    return bucketed(change)


MUTANTS = [
    Mutant(
        "bias-one-side",
        "bias.sign",
        "keys of the future count as distance 0",
        ALL,
        lambda case, a: None if case.causal else distances(lambda d: np.maximum(d, 0))(case, a),
    ),
    Mutant(
        "bias-future",
        "bias.sign",
        "your distances are j - i",
        SIDED,
        lambda case, a: None if case.causal and case.encoding == "learned_bias" else distances(lambda d: -d)(case, a),
        ("huggingface/transformers#8518",),
    ),
    Mutant(
        "bias-absolute",
        "bias.sign",
        "past and future are alike",
        SIDED,
        lambda case, a: None if case.causal else distances(abs)(case, a),
        held_out=True,
    ),
    Mutant(
        "bias-transposed",
        "bias.transposed",
        "keys go down and queries across",
        ALL,
        lambda case, a: results(lambda x: x.swapaxes(1, 2), "bias")(case, a) if case.level == "op" else None,
    ),
    Mutant("bias-negated", "bias.negated", "you add where you should subtract", ALL, table(lambda b, d: -b)),
    Mutant("bias-growing", "bias.negated", "you reward distance", FALLING, table(lambda b, d: abs(b)), held_out=True),
    Mutant(
        "bias-one-more",
        "bias.off_by_one",
        "your distances are one too large",
        ALL,
        lambda case, a: None if case.encoding == "learned_bias" else distances(lambda d: d + (d >= 0))(case, a),
        ("vllm-project/vllm#945",),
    ),
    Mutant("bias-one-less", "bias.off_by_one", "your distances are one too small", ALL, distances(lambda d: np.maximum(d - 1, np.minimum(d, 0)))),
    Mutant(
        "bias-from-last",
        "bias.off_by_one",
        "distances count from the last key",
        FALLING,
        distances(lambda d: d.max() - d + 1 if len(d) else d),
        held_out=True,
    ),
    Mutant("bias-heads-reversed", "bias.heads", "your heads are in reverse order", ALL, table(lambda b, d: b[::-1])),
    Mutant("bias-first-head", "bias.heads", "every head has the bias of the first", ALL, table(lambda b, d: np.broadcast_to(b[:1], b.shape) * 1.0)),
    Mutant("bias-heads-rolled", "bias.heads", "your heads are off by one", ALL, table(lambda b, d: np.roll(b, 1, 0)), held_out=True),
    Mutant(
        "bias-scaled", "bias.scale", "the bias is inside the softmax scale", ALL, table(lambda b, d: b * 8**-0.5), ("lucidrains/x-transformers#10",)
    ),
    Mutant("bias-log2", "bias.scale", "the bias is in units of log 2", ALL, table(lambda b, d: b / math.log(2)), held_out=True),
    Mutant(
        "slopes-from-0",
        "alibi.slopes.exponent",
        "your first slope is 1",
        ALIBI,
        slopes(lambda H, most=8.0: exact(H, most, 0) if not H & (H - 1) else [2 * s for s in SLOPES(H, most)]),
        ("aprender#2143",),
    ),
    Mutant(
        "slopes-of-8",
        "alibi.slopes.exponent",
        "your slopes are 1/2 to the h whatever the number of heads",
        ALIBI,
        slopes(lambda H, most=8.0: exact(8, most)[:H] if H <= 8 else [2.0 ** -(h + 1) for h in range(H)]),
    ),
    Mutant(
        "slopes-base",
        "alibi.slopes.exponent",
        "your max_bias is another",
        ALIBI,
        slopes(lambda H, most=8.0: SLOPES(H, most * 0.75)),
        held_out=True,
    ),
    Mutant(
        "slopes-straight",
        "alibi.slopes.non_pow2",
        "you use the formula where H is no power of two",
        ALIBI,
        slopes(lambda H, most=8.0: exact(H, most)),
        ("ml-explore/mlx#343", "NVIDIA/TensorRT-LLM#1611"),
    ),
    Mutant(
        "slopes-sorted",
        "alibi.slopes.non_pow2",
        "your slopes are sorted",
        ALIBI,
        slopes(lambda H, most=8.0: sorted(SLOPES(H, most), reverse=True)),
        ("Baichuan2#225",),
    ),
    Mutant(
        "slopes-next",
        "alibi.slopes.non_pow2",
        "you take the first slopes of the next power of two, not every other",
        ALIBI,
        slopes(of_next),
        held_out=True,
    ),
    Mutant("slopes-again", "alibi.slopes.non_pow2", "your slopes begin anew", ALIBI, slopes(of_smaller), held_out=True),
    Mutant("bucket-rounded", "bias.bucket.border", "your logarithm is rounded, not cut off", ("t5",), by_log(np.rint), ("huggingface/candle#727",)),
    Mutant("bucket-up", "bias.bucket.border", "your logarithm is rounded up", ("t5",), by_log(np.ceil)),
    Mutant("bucket-half-float", "bias.bucket.border", "your logarithm is float16", ("t5",), by_log(lambda x: np.floor(float16(x))), ("mindone#670",)),
    Mutant(
        "bucket-next",
        "bias.bucket.border",
        "your exact buckets end one too early",
        ("t5",),
        bucketed(lambda b, d, m, causal, most: b + ((b % m) == m // 2 - 1)),
        held_out=True,
    ),
    Mutant(
        "bucket-wraps",
        "bias.bucket.clamp",
        "far distances wrap round",
        ("t5",),
        bucketed(lambda b, d, m, causal, most: np.where(abs(d) >= most, b - m // 2, b)),
        ("huggingface/candle#1312",),
    ),
    Mutant(
        "bucket-short",
        "bias.bucket.clamp",
        "your last distance is 64",
        ("t5",),
        lambda case, a: with_options(max_distance=64)(case, a) if case.config.pe[0][1]["max_distance"] > 64 else None,
    ),
    Mutant(
        "bucket-not-last",
        "bias.bucket.clamp",
        "the last bucket is never used",
        ("t5",),
        bucketed(lambda b, d, m, causal, most: np.where(b % m == m - 1, b - 1, b)),
        held_out=True,
    ),
    Mutant(
        "bucket-one-sided",
        "t5.bidirectional",
        "two-sided, all buckets are for one side",
        ("t5",),
        lambda case, a: None if case.causal else bucketed(lambda b, d, m, causal, most: b % m)(case, a),
        ("gluon-nlp#1470",),
    ),
    Mutant(
        "bucket-halved",
        "t5.bidirectional",
        "causal, half of the buckets are kept for the future",
        ("t5",),
        lambda case, a: patched("encodings.bias.t5", bucket=lambda d, *, causal, **o: BUCKET(d, causal=False, **o))(case, a) if case.causal else None,
    ),
    Mutant(
        "bucket-other-side",
        "t5.bidirectional",
        "the past has the buckets of the future",
        ("t5",),
        lambda case, a: None if case.causal else bucketed(lambda b, d, m, causal, most: (b + m) % (2 * m))(case, a),
        held_out=True,
    ),
    Mutant(
        "table-first",
        "bias.rows",
        "the table of learned biases is read from its end",
        ("learned_bias",),
        backend(take=lambda t, d: take(t, t.shape[0] - 1 - d)),
    ),
    Mutant(
        "table-clamped",
        "bias.rows",
        "far distances share a row",
        ("learned_bias",),
        backend(take=lambda t, d: take(t, np.minimum(d, 3))),
    ),
    Mutant("slopes-halved", "alibi.slopes.exponent", "your slopes are halved", ("alibi",), results(lambda b: b / 2, "bias"), held_out=True),
    Mutant(
        "table-short",
        "bias.bucket.clamp",
        "the farthest distance has the entry of the one before",
        ("learned_bias",),
        distances(lambda d: np.minimum(d, 14)),
    ),
    Mutant(
        "table-cut-early",
        "bias.bucket.clamp",
        "the last entry for far distances is never used",
        ("learned_bias",),
        lambda case, a: distances(lambda d: np.clip(d, 1 - m, m - 1))(case, a) if (m := case.config.pe[0][1]["max_distance"]) else None,
    ),
    Mutant(
        "kerple-no-exponent",
        "kerple.formula",
        "your distances are not raised to their power",
        ("kerple_log",),
        with_options(lambda c: c.config.pe[0][1]["exponent"] == "learned", exponent="one"),
    ),
    Mutant(
        "sandwich-bfloat16",
        "rope.phase.low_precision",
        "your distances were bfloat16",
        ("sandwich",),
        distances(bfloat16),
    ),
    Mutant(
        "table-rolled",
        "bias.rows",
        "you read the row beside",
        ("learned_bias",),
        backend(take=lambda t, d: take(t, (d + 1) % t.shape[0])),
        held_out=True,
    ),
    Mutant(
        "kerple-raw",
        "kerple.parameters",
        "your parameters are not made positive",
        ("kerple_log", "kerple_power", "dape"),
        lambda case, a: raw(case, a),
    ),
    Mutant(
        "kerple-exp",
        "kerple.parameters",
        "you take exp where softplus is meant",
        ("kerple_log", "kerple_power", "dape"),
        lambda case, a: raw(case, a, EXP),
        held_out=True,
    ),
    Mutant(
        "kerple-swapped",
        "kerple.parameters",
        "r1 and r2 have changed places",
        ("kerple_log", "kerple_power", "dape"),
        lambda case, a: swapped(case, a),
    ),
    Mutant("kerple-log2", "kerple.formula", "your logarithm is to base 2", ("kerple_log",), table(lambda b, d: b / math.log(2))),
    Mutant(
        "kerple-no-1",
        "kerple.formula",
        "the 1 in the logarithm is missing",
        ("kerple_log",),
        distances(lambda d: np.maximum(abs(d) - 0.5, 0)),
        held_out=True,
    ),
    Mutant("kerple-squared", "kerple.formula", "your distances are squared", ("kerple_log", "kerple_power"), distances(lambda d: d * abs(d))),
    Mutant(
        "sandwich-heads",
        "sandwich.formula",
        "your head 1 has the weakest bias",
        ("sandwich",),
        table(lambda b, d: b * (np.arange(1, len(b) + 1) ** 2 / len(b))[:, None]),
    ),
    Mutant("sandwich-sines", "sandwich.formula", "you sum sines", ("sandwich",), distances(lambda d: d - 0.5)),
    Mutant("sandwich-mean", "sandwich.formula", "you take the mean of the waves", ("sandwich",), table(lambda b, d: b / 64)),
    Mutant(
        "sandwich-width",
        "sandwich.formula",
        "your width is another",
        ("sandwich",),
        with_options(width=lambda case: case.config.pe[0][1]["width"] + 32),
        held_out=True,
    ),
    Mutant(
        "network-relu",
        "dynamic_bias.network",
        "your network has relu",
        ("dynamic_bias",),
        patched("encodings.bias.dynamic_bias", silu=activation.relu),
    ),
    Mutant(
        "network-gelu",
        "dynamic_bias.network",
        "your network has gelu",
        ("dynamic_bias",),
        patched("encodings.bias.dynamic_bias", silu=activation.gelu),
        held_out=True,
    ),
    Mutant(
        "network-log",
        "dynamic_bias.network",
        "your distances are logarithms, or are not",
        ("dynamic_bias",),
        with_options(distance=lambda case: "log" if case.config.pe[0][1]["distance"] == "linear" else "linear"),
    ),
    Mutant(
        "network-normed",
        "dynamic_bias.network",
        "there is no norm in it",
        ("dynamic_bias",),
        lambda case, a: (
            with_options(norm="none")(case, {n: x for n, x in a.items() if "norm" not in n}) if case.config.pe[0][1]["norm"] == "layer" else None
        ),
    ),
]


def raw(case, a, function=None):
    as_is = (lambda x: x) if function is None else function
    module = "encodings.bias.kerple_power" if case.encoding == "kerple_power" else "ops.bias"
    if case.encoding == "dape" and case.config.pe[0][1]["over"] != "kerple_log":
        return None
    return patched(module, softplus=as_is)(case, a)


def swapped(case, a):
    if "param.r1" not in a:
        return None
    return expected(case, {**a, "param.r1": a["param.r2"], "param.r2": a["param.r1"]})
