"""Golden cases of the settings of a layer, and of several encodings in one: they belong to no encoding and
stand with those of none.

Where a layer is one of none, its settings are among the options; else the fact `cycle` says what each layer
has.
"""

import math
from dataclasses import replace

import numpy as np
from mutants import Mutant
from mutants.ways import patched

from peref.golden.compute import operation
from peref.golden.compute.reference import expected
from peref.golden.spec.cases import Case
from peref.member import encodings_of
from peref.tape import value
from recipes.families import PACKED, SMALLER, SPREAD, case
from recipes.traps import trap
from recipes.wholes import FEW_HEADS

LINE = SMALLER | {"D": 4}
HOT = {"temperature_length": 3, "temperature_slope": 0.5}
FEW = {"H": 2, "G": 1, "D": 4, "C": 6, "F": 5, "V": 7}


def attn(slug, why, *flags, **given):
    return case("none", "attn", slug, why, *flags, **LINE | given)


SHARPER = ("temperature.ignored", "position.off_by_one", "position.counted")

CASES = [
    attn(
        "softcap",
        "Every product of q and k goes through 1.5 tanh(z / 1.5) after it is scaled and before the mask.",
        "softcap.ignored",
        "softcap.before_scale",
        "softcap.after_mask",
        options={"softcap": 1.5},
    ),
    attn(
        "softcap-bias",
        "The cap is on the products alone: a bias is added to what was capped.",
        "softcap.over_bias",
        cycle=(("alibi", {"softcap": 1.5}),),
    ),
    attn(
        "sinks",
        "Each head has a learned logit beside those of the keys, whose weight goes nowhere.",
        "sinks.ignored",
        "sinks.scaled",
        "sinks.value",
        "sinks.shared",
        options={"sinks": True},
    ),
    attn(
        "sinks-in-the-maximum",
        "Logits so large that exp of a sink overflows where all keys are far below it: it is in the maximum.",
        "sinks.overflow",
        options={"sinks": True, "scale": 1024.0},
        T=3,
    ),
    attn(
        "cosine",
        "Logits are the cosine of q and k times exp of a number that each head learns, and no D^-0.5.",
        "cosine.ignored",
        "cosine.factor",
        "attn.scale",
        options={"cosine": True},
        D=3,
    ),
    attn(
        "cosine-rope-alibi",
        "Vectors get their length first, before all that a layer may do; one head is beyond ln 100.",
        "cosine.ignored",
        "cosine.factor",
        "cosine.limit",
        "cosine.over_bias",
        cycle=(("rope+alibi", {"cosine": True, "softcap": 50.0, "scale": 0.75}),),
        H=2,
        T=4,
        D=2,
        off=2.3,
    ),
    attn(
        "cosine-window",
        "Swin v2's attention, whole: cosines and the continuous bias in a window of 2 rows and 3 columns.",
        "cosine.over_bias",
        cycle=(("log_cpb", {"cosine": True, "columns": 3, "width": 4}),),
        positions=(0, 1, 2, 5, 6, 7),
        causal=False,
        T=6,
    ),
    attn(
        "chunk",
        "A query sees the keys of its own chunk of 3 tokens.",
        "chunk.ignored",
        "chunk.window",
        "chunk.off_by_one",
        options={"chunk": 3},
        T=7,
    ),
    attn(
        "chunk-packed",
        "Chunks of 2 are counted from the first token of each document.",
        "chunk.slots",
        options={"chunk": 2},
        seg=PACKED,
        B=2,
        T=7,
    ),
    attn(
        "global-tokens",
        "The first token sees all and is seen by all, others see their window: 1 key on each side.",
        "global.ignored",
        "global.seen_alone",
        "global.seeing_alone",
        options={"window": 2, "global_tokens": 1},
        causal=False,
        T=6,
    ),
    attn(
        "global-packed",
        "The first token of each document is global, and of no other.",
        "global.slots",
        "mask.documents",
        options={"chunk": 2, "global_tokens": 1},
        seg=PACKED,
        B=2,
        T=7,
    ),
    *(
        attn(
            f"temperature-{kind}",
            f"Queries are multiplied by a factor of their position: {kind}.",
            *flags,
            options={"temperature": kind} | given,
            positions=SPREAD,
            T=7,
        )
        for kind, given, flags in (
            ("llama4", HOT, SHARPER),
            ("ministral3", HOT, SHARPER),
            ("logn", {"temperature_length": 3}, (*SHARPER, "temperature.below_1")),
            ("ssmax", {}, (*SHARPER, "temperature.shared")),
        )
    ),
    attn(
        "temperature-bias",
        "The factor is on queries: a bias is added to what they gave.",
        "temperature.over_bias",
        cycle=(("alibi", {"temperature": "ministral3"} | HOT),),
        T=7,
    ),
    attn(
        "temperature-softcap",
        "The factor is on queries, so the cap comes after it.",
        "temperature.over_bias",
        options={"temperature": "ministral3", "softcap": 1.5} | HOT,
        T=7,
    ),
    attn("scale", "q k is multiplied by 1.25.", "attn.scale", options={"scale": 1.25}),
    attn(
        "rope-alibi",
        "Two encodings in one layer: queries and keys turn, and the bias is added to their products.",
        "combination.left_out",
        cycle=(("rope+alibi", {"layout": "interleaved"}),),
    ),
    attn(
        "together",
        "Everything that a layer may have at once, in its order.",
        "combination.left_out",
        "softcap.ignored",
        "softcap.over_bias",
        "sinks.ignored",
        "chunk.ignored",
        "temperature.ignored",
        "temperature.over_bias",
        cycle=(
            (
                "rope+alibi",
                {"softcap": 1.5, "sinks": True, "temperature": "llama4", "chunk": 4, "window": 3}
                | {"scale": 0.75, "rotary_dim": 2, "layout": "interleaved"}
                | HOT,
            ),
        ),
        positions=SPREAD,
        T=7,
    ),
]

FULL = ("attn/cosine", "attn/cosine-window", "trace/grouped-heads")
CYCLE = (
    ("rope", {"window": 3, "rotary_dim": 2, "layout": "interleaved"}),
    ("rope+alibi", {"softcap": 0.5, "sinks": True, "alibi.max_bias": 2.0}),
    ("none", {"temperature": "llama4", "chunk": 4, "scale": 1.5} | HOT),
)
CALLS = ((0, 4, True, 16), (4, 5, False, 16), (5, 8, False, 16), (8, 9, False, 16))
OF_LAYERS = ("layer.settings_ignored", "layer.settings_elsewhere")


def of_layers(slug, why, *flags, **given):
    return Case("none", "model", slug, why, flags, cycle=CYCLE, layers=3, **FEW | {"T": 9} | given)


def in_chunks(slug, why, *flags, **given):
    same = ("cache.ignored", "cache.keys_lost", "mask.top_left")
    return Case("none", "trace", slug, why, (*same, *flags), calls=CALLS, T=9, **FEW_HEADS | given)


WHOLES = [
    of_layers(
        f"cycle-{shape}",
        "Three layers with settings of their own, from tokens to the loss: a window, two encodings with a "
        "softcap and sinks, chunks with a temperature.",
        *OF_LAYERS,
        shape=shape,
    )
    for shape in ("llama", "gpt2")
] + [
    of_layers(
        "cycle-cached",
        "The same through a cache: a window rolls on, a chunk begins, positions go on.",
        *OF_LAYERS,
        "cache.position_restarts",
        "cache.ignored",
        calls=CALLS,
    ),
    in_chunks(
        "settings",
        "A temperature, a softcap and sinks go on through a cache.",
        "mask.chunk_open",
        options={"softcap": 1.5, "sinks": True, "temperature": "llama4"} | HOT,
    ),
    in_chunks(
        "chunk",
        "Chunks of 3 tokens begin where they do in the whole text, whichever call they come in.",
        "cache.chunk_restarts",
        options={"chunk": 3},
    ),
    in_chunks(
        "global-tokens",
        "A window of 2 keys rolls on over the calls, and the first token is seen by all.",
        "cache.global_dropped",
        options={"window": 2, "global_tokens": 1},
    ),
    in_chunks(
        "rope-alibi",
        "Two encodings in one layer: cached keys stay as they turned, and biases are over all keys.",
        "cache.bias_dropped",
        "cache.keys_turned_again",
        cycle=(("rope+alibi", {}),),
    ),
]

BLOCKS = {  # settings of the model, and facts beside them
    "after": ({"norm_place": "after", "qk_norm_over": "width", "activation": "relu"}, {"qk_norm": True}),
    "both": (
        {"norm_place": "both", "norm_from_one": True, "activation": "geglu", "embed_factor": 2.5}
        | {"logit_softcap": 1.5, "residual_factor": 0.75, "ff_bias": "gate"},
        {},
    ),
    "parallel": (
        {"residual": "parallel", "activation": "gelu_exact", "head_bias": True, "qkv_bias": "qv"},
        {"shape": "gpt2"},
    ),
    "shared": ({"residual": "shared", "activation": "relu2", "logit_factor": 0.25}, {"shape": "gpt2"}),
    "factors": (
        {"embed_factor": 3.0, "residual_factor": 0.5, "logit_factor": 0.25, "logit_softcap": 0.5}
        | {"embed_norm": True, "head_bias": True},
        {"cycle": (("learned", {}),)},
    ),
    "experts": (
        {"experts": 4, "experts_chosen": 2, "router_bias": True, "ff_bias": True}
        | {"activation": "swiglu_clamped", "activation_limit": 0.5},
        {},
    ),
    "experts-input": (
        {"experts_chosen": 1, "router": "sigmoid", "router_normed": False, "router_scales": "input"}
        | {"shared_expert": True, "unit_heads": True},
        {"cycle": (("rope", {"experts": 3}), ("none", {"F": 6}))},
    ),
    "channel-mix": ({"activation": "channel_mix"}, {}),
    "no-feed-forward": ({"activation": "none", "F": None}, {}),
}
WHOLES += [
    Case(
        "none",
        "model",
        f"block-{slug}",
        f"Two layers with these settings of the model: {', '.join(block)}.",
        ("loss.ignored_targets",) if block.get("activation") == "none" else ("block.settings_ignored",),
        block=block,
        **FEW | {"T": 5, "layers": 2} | given,
    )
    for slug, (block, given) in BLOCKS.items()
]
WHOLES += [
    Case(
        "none",
        "model",
        "cycle-cosine",
        "One layer has cosines, then a temperature, and turns, also through a cache; the other has products.",
        (*OF_LAYERS, "cache.ignored"),
        cycle=(("rope", {"cosine": True, "temperature": "ministral3"} | HOT), ("none", {})),
        calls=((0, 3, True, 16), (3, 5, False, 16)),
        **FEW | {"T": 5, "layers": 2},
    )
]
WHOLES += [
    Case(
        "none",
        "model",
        "cycle-global",
        "One layer has a window and a global token, the other a learned temperature, behind the norm of its "
        "queries; their layouts differ.",
        OF_LAYERS,
        cycle=(
            ("rope", {"window": 2, "global_tokens": 1, "layout": "interleaved"}),
            ("rope+alibi", {"temperature": "ssmax"}),
        ),
        qk_norm=True,
        **FEW | {"T": 6, "layers": 2},
    )
]

TRAPS = {
    "block.settings_ignored": trap(
        "OPTION",
        "a setting of the block is ignored",
        "every layer adds something else to the stream",
        "read norms, residual, activation, factors, biases and experts from the config; SPEC.md, section 3, "
        "says what each does",
    ),
    "softcap.ignored": trap(
        "OPTION",
        "logits have no softcap",
        "attention is sharper than what was trained",
        "put c tanh(z / c) in place of z = scale q k; a fused kernel must be told, or must not be used",
        "huggingface/transformers#32877",
    ),
    "softcap.before_scale": trap(
        "MISSING_STEP",
        "the softcap is on q k before the scale",
        "the cap is reached too early, the more the wider the head",
        "scale first, then c tanh(z / c)",
    ),
    "softcap.after_mask": trap(
        "MASK",
        "the softcap comes after the mask",
        "hidden keys have the logit -c and leak into every row",
        "cap the products, then hide what is not seen",
    ),
    "softcap.over_bias": trap(
        "MISSING_STEP",
        "the softcap is on the logits with the bias in them",
        "far keys are never hidden by their distance",
        "cap scale q k, then add the bias",
    ),
    "sinks.ignored": trap(
        "OPTION",
        "the learned logits beside the keys are left out",
        "every row has weights that add up to 1, and attention is too strong",
        "add exp(sink of the head) to the sum that weights are divided by",
    ),
    "sinks.scaled": trap(
        "SCALING",
        "the sink is multiplied by the softmax scale",
        "too much or too little goes nowhere",
        "the sink is a logit as it is: no scale, no softcap, no temperature",
    ),
    "sinks.overflow": trap(
        "RANGE",
        "the sink is not in the maximum that is subtracted before exp",
        "a row whose keys are all far below the sink has an infinite sum, and its gradients are NaN",
        "subtract the larger of the sink and the largest logit of the row",
    ),
    "sinks.value": trap(
        "MISSING_STEP",
        "the sink's weight is given to a value",
        "the first token is in every output",
        "the sink has no value: its weight goes nowhere",
    ),
    "sinks.shared": trap(
        "SHAPE",
        "all heads have the sink of the first",
        "heads attend too much or too little",
        "sinks are [H], one for each query head",
    ),
    "cosine.ignored": trap(
        "OPTION",
        "q and k, or one of them, are not unit vectors",
        "logits grow with the vectors",
        "divide each head of q and of k by the root of the sum of its squares",
        "ChristophReich1996/Swin-Transformer-V2#1",
    ),
    "cosine.factor": trap(
        "SCALING",
        "cosines are not multiplied by exp of what their head learned",
        "heads are too sharp or too flat",
        "learned is s_h, which begins at ln 10; the factor is exp(s_h)",
    ),
    "cosine.limit": trap(
        "RANGE",
        "the factor of cosines has no limit of 100, or another",
        "a head that learned more attends to one key alone",
        "exp(min(s, ln 100)); beyond it the derivative of s is 0",
    ),
    "cosine.over_bias": trap(
        "MISSING_STEP",
        "the learned factor multiplies the bias too",
        "distance counts ten times and more",
        "multiply the cosines, then add the bias",
    ),
    "chunk.ignored": trap(
        "OPTION",
        "chunks of tokens are ignored",
        "queries see keys that they never saw in training",
        "a query sees key j where j and i are in the same chunk: the whole parts of i / chunk and j / chunk",
    ),
    "chunk.window": trap(
        "MASK",
        "a chunk is taken for a sliding window",
        "the first query of a chunk sees keys of the one before",
        "the first token of a chunk sees itself alone, the last sees all of the chunk",
    ),
    "chunk.off_by_one": trap(
        "OFF_BY_ONE",
        "chunks begin a token early or late",
        "a token at an edge sees the keys of its neighbours",
        "the first chunk is the tokens 0 to chunk - 1 of a document",
    ),
    "cache.chunk_restarts": trap(
        "CACHE",
        "the chunk of a query is counted from the first token of its call",
        "right in the prefill; afterwards a query sees another chunk than its own, or none",
        "count chunks from the first token of the document, in every call",
    ),
    "cache.global_dropped": trap(
        "CACHE",
        "a rolling cache has dropped the keys of the global tokens",
        "right until the window has rolled past them",
        "keep the keys of the first tokens of the document beside those of the window",
    ),
    "chunk.slots": trap(
        "MASK",
        "chunks are counted from the first slot of a row, padding and other documents included",
        "padded or packed text is cut at other tokens than the same text alone",
        "count from the first token of each document",
    ),
    "global.ignored": trap(
        "OPTION",
        "no token is global",
        "what the first tokens gather reaches nobody far away",
        "the first tokens of a document see and are seen whatever the window and the chunk say",
    ),
    "global.seen_alone": trap(
        "MASK",
        "global tokens are seen by all, and see their window",
        "they cannot gather the text",
        "both their rows and their columns of the mask are open, within the document",
    ),
    "global.seeing_alone": trap(
        "MASK",
        "global tokens see all, and are seen within the window",
        "what they gather reaches nobody far away",
        "both their rows and their columns of the mask are open, within the document",
    ),
    "global.slots": trap(
        "MASK",
        "the first slots of a row are global, not those of each document",
        "padding is global, or documents behind the first have no global token",
        "count from the first token of each document",
    ),
    "temperature.ignored": trap(
        "OPTION",
        "queries are not multiplied by the factor of their position",
        "attention over many keys is too flat",
        "multiply q by the factor before it meets k; llama4 counts positions from 1, ministral3 from 0",
        "ggml-org/llama.cpp#17239",
    ),
    "temperature.below_1": trap(
        "MISSING_STEP",
        "the factor of logn may be less than 1",
        "short text is flatter than what was trained",
        "take 1 where ln(i + 1) / ln L is less",
    ),
    "temperature.shared": trap(
        "SHAPE",
        "all heads have the learned factor of the first",
        "heads are too sharp or too flat",
        "the learned factor of ssmax is [H], one for each query head",
    ),
    "temperature.over_bias": trap(
        "MISSING_STEP",
        "the factor is on finished logits",
        "biases grow with the position, or a softcap is exceeded",
        "multiply q by the factor; softcap and bias come after",
    ),
    "combination.left_out": trap(
        "MISSING_STEP",
        "one of several encodings of a layer is left out",
        "distances count less than in training",
        "do what each of them says, in the order of the hooks: turn q and k, then add biases and terms",
    ),
    "layer.settings_ignored": trap(
        "OPTION",
        "all layers are alike",
        "windows, temperatures or rotations of single layers are lost",
        "read the settings of each layer from the config, not those of the model alone",
        "huggingface/candle#3698",
    ),
    "layer.settings_elsewhere": trap(
        "OFF_BY_ONE",
        "the settings of layers are on the wrong layers",
        "logits differ from the first layer that has another's settings",
        "layer l has those of member l modulo the length of the cycle",
        "huggingface/transformers#43756",
        "huggingface/transformers#45945",
    ),
}


# ---------------------------------------------------------------- mutants


def given(case):
    """The settings and options of its layer."""
    return dict(case.members[0][1])


def with_member(case, name, new):
    return replace(case, cycle=((name, new),)) if case.cycle else replace(case, options=new)


def settings(only, **changes):
    """Settings of the layer are others; what is callable is asked with the case, "" takes one away."""

    def run(case, a):
        name, mine = case.members[0]
        if case.level != "attn" or only not in mine:
            return None
        new = mine | {key: x(case) if callable(x) else x for key, x in changes.items()}
        return expected(with_member(case, name, {key: x for key, x in new.items() if x != ""}), a)

    return run


COOL = {"temperature": "", "temperature_slope": "", "temperature_length": ""}


def cold(case):
    """The case without a temperature."""
    name, mine = case.members[0]
    return with_member(case, name, {key: x for key, x in mine.items() if key not in COOL})


def factor(case):
    return case.layer.factor(case.at.i)[:, None]


def having(setting, run):
    return lambda case, a: run(case, a) if case.level == "attn" and setting in given(case) else None


def over_bias(case, a):
    """tanh of the logits with the bias in them."""
    if not any("alibi" in name for name, _ in case.members):
        return None
    usual = operation.scores
    capped = lambda *arrays, softcap, **how: softcap * np.tanh(value(usual(*arrays, **how)) / softcap)
    return patched("golden.compute.operation", scores=capped)(case, a)


def after_mask(case, a):
    """What is hidden has the logit -c."""
    c = given(case)["softcap"]

    def share(s, *, at):
        s = np.where(at.see, value(s), -c)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return patched("golden.compute.operation", probabilities=share)(case, a)


def over_logits(case, a):
    """The factor is on logits that have their cap and their bias."""
    if not ({"softcap"} & given(case).keys() or any("alibi" in name for name, _ in case.members)):
        return None
    usual, by = operation.scores, factor(case)
    hot = lambda *arrays, **how: value(usual(*arrays, **how)) * by
    return patched("golden.compute.operation", scores=hot)(cold(case), a)


def longer_bias(case, a):
    """The factor of cosines multiplies finished logits."""
    if not case.cycle:
        return None
    usual, by = operation.scores, np.exp(np.minimum(a["param.cosine"], math.log(100)))[:, None, None]
    hot = lambda *arrays, **how: value(usual(*arrays, **how)) * by
    return patched("golden.compute.operation", scores=hot)(case, a | {"param.cosine": 0 * a["param.cosine"]})


def first_value(case, a):
    """The weight of the sink goes to the first value."""
    found = expected(case, a)
    rest = 1 - found["probabilities"].sum(-1, keepdims=True)
    return {"out": found["out"] + rest * np.repeat(a["v"][:, :, :1], case.H // case.G, 1)}


def below_keys(s, sinks, *, at):
    """The largest logit of the keys is subtracted, whatever the sink is."""
    seen, sink = np.where(at.see, s, -np.inf), sinks[:, None, None]
    top = seen.max(-1, keepdims=True)
    e, rest = np.exp(seen - top), np.exp(sink - top)
    total = e.sum(-1, keepdims=True) + rest
    return e / total, (e / total, rest / total, sinks.dtype)


def of_first_head(name):
    def run(case, a):
        key = f"param.{name}"
        return expected(case, a | {key: np.full_like(a[key], a[key][0])}) if key in a else None

    return run


def seen_by(change):
    """Other chunks: change(case) -> a number for each slot, [B or 1,S]."""

    def run(case, a):
        return expected(case, a, None, replace(case.at, parts=change(case)))

    return having("chunk", run)


def from_slots(case):
    seg = np.array(case.seg)
    return np.where(seg == 0, 0, seg * 100 + np.arange(case.T) // given(case)["chunk"] + 1)


def seeing(case, a, see):
    """Which cells are seen is another."""
    at = replace(case.at)
    vars(at)["see"] = see
    return expected(case, a, None, at)


def half_open(keep):
    """Of what global tokens open one half: keep(without them, slot of the query, of the key) -> cells."""

    def run(case, a):
        t, s = np.arange(case.T)[:, None], np.arange(case.T)
        near = replace(case.at, everywhere=None)
        return seeing(case, a, case.at.see & keep(near.see, t, s)) if case.seg is None else None

    return having("global_tokens", run)


def slots_global(case, a):
    first = np.arange(case.T)[None] < given(case)["global_tokens"]
    return expected(case, a, None, replace(case.at, everywhere=first & (np.array(case.seg) != 0)))


def across_documents(case, a):
    at, t = case.at, np.arange(case.T)
    there = np.array(case.seg) != 0
    anyone = at.everywhere[:, None, :, None] | at.everywhere[:, None, None, :]
    both = there[:, None, :, None] & there[:, None, None, :]
    return seeing(case, a, at.see | (anyone & both & (t[:, None] >= t)))


def at_places(change):
    """The factor of other positions, where nothing else counts them."""

    def run(case, a):
        if len(case.members[0][0].split("+")) > 1:
            return None
        i = change(case.at.i)
        return expected(case, a, None, replace(case.at, i=i, j=i))

    return having("temperature", run)


def without(which):
    """One of two encodings is left out."""

    def run(case, a):
        (name, mine), *_ = case.members
        if case.level != "attn" or "+" not in name:
            return None
        left = [one for one in encodings_of(name) if one != which]
        bare = {key.removeprefix(f"{left[0]}."): x for key, x in mine.items() if f"{which}." not in key}
        turning = {"rotary_dim", "layout"} if which == "rope" else set()
        return expected(
            replace(case, cycle=((left[0], {k: x for k, x in bare.items() if k not in turning}),)), a
        )

    return run


def below_1(case, a):
    if given(case)["temperature"] != "logn":
        return None
    by = np.log(case.at.i + 1) / math.log(given(case)["temperature_length"])
    return expected(cold(case), a | {"q": a["q"] * by[:, None]})


def mutant(name, flag, words, run, held_out=False):
    return Mutant(name, flag, words, ("none",), run, held_out=held_out)


MUTANTS = [
    mutant("no-softcap", "softcap.ignored", "your logits have no softcap", settings("softcap", softcap="")),
    mutant(
        "softcap-30",
        "softcap.ignored",
        "your softcap is 30, whatever the case asks for",
        settings("softcap", softcap=30.0),
        held_out=True,
    ),
    mutant(
        "softcap-before-scale",
        "softcap.before_scale",
        "your softcap is on q k before the scale",
        settings("softcap", softcap=lambda case: given(case)["softcap"] * case.layer.pe.scale(case.D)),
    ),
    mutant(
        "softcap-after-mask",
        "softcap.after_mask",
        "your softcap comes after the mask, and hidden keys have its lowest logit",
        lambda case, a: having("softcap", after_mask)(case, a) if not given(case).get("sinks") else None,
    ),
    mutant(
        "softcap-over-bias",
        "softcap.over_bias",
        "your softcap is on the logits with the bias in them",
        having("softcap", over_bias),
    ),
    mutant(
        "no-sinks",
        "sinks.ignored",
        "your heads have no sinks",
        having("sinks", lambda case, a: expected(case, {n: x for n, x in a.items() if n != "param.sinks"})),
    ),
    mutant(
        "scaled-sinks",
        "sinks.scaled",
        "your sinks are multiplied by the softmax scale",
        having(
            "sinks",
            lambda case, a: expected(
                case, a | {"param.sinks": a["param.sinks"] * case.layer.pe.scale(case.D)}
            ),
        ),
    ),
    mutant(
        "sinks-with-a-value",
        "sinks.value",
        "the weight of your sink goes to the first value",
        having("sinks", first_value),
    ),
    mutant(
        "sink-beyond-exp",
        "sinks.overflow",
        "your sink is not in the maximum that you subtract",
        having(
            "sinks", patched("golden.compute.operation", sunk=replace(operation.sunk, forward=below_keys))
        ),
    ),
    mutant("one-sink", "sinks.shared", "all your heads have the sink of the first", of_first_head("sinks")),
    mutant(
        "no-cosine",
        "cosine.ignored",
        "your logits are products of q and k, no cosines",
        lambda case, a: settings("cosine", cosine="")(
            case, {n: x for n, x in a.items() if n != "param.cosine"}
        ),
    ),
    mutant(
        "cosine-of-queries",
        "cosine.ignored",
        "your keys are no unit vectors",
        having("cosine", patched("hooks", unit=lambda x, *, eps: x)),
        held_out=True,
    ),
    mutant(
        "cosine-times-s",
        "cosine.factor",
        "your cosines are multiplied by the learned number itself",
        having(
            "cosine", lambda case, a: expected(case, a | {"param.cosine": np.log(abs(a["param.cosine"]))})
        ),
    ),
    mutant(
        "cosine-over-exp",
        "cosine.factor",
        "your cosines are divided by exp of the learned number",
        having("cosine", lambda case, a: expected(case, a | {"param.cosine": -a["param.cosine"]})),
        held_out=True,
    ),
    mutant(
        "one-cosine",
        "cosine.factor",
        "all your heads have the learned number of the first",
        of_first_head("cosine"),
    ),
    mutant(
        "cosine-without-limit",
        "cosine.limit",
        "your cosines are multiplied by more than 100",
        having("cosine", patched("ops.cosine", HUNDRED=math.inf)),
    ),
    mutant(
        "cosine-over-bias",
        "cosine.over_bias",
        "the factor of your cosines multiplies the bias too",
        having("cosine", longer_bias),
    ),
    mutant(
        "cosine-with-scale",
        "attn.scale",
        "your cosines are multiplied by D^-0.5 too",
        settings("cosine", scale=lambda case: case.D**-0.5),
    ),
    mutant("no-chunk", "chunk.ignored", "your queries see every chunk", settings("chunk", chunk=1000)),
    mutant(
        "chunk-as-window",
        "chunk.window",
        "your chunk is a sliding window",
        settings("chunk", chunk="", window=lambda case: given(case)["chunk"]),
    ),
    mutant(
        "chunk-plus-1",
        "chunk.off_by_one",
        "your chunks are one token longer",
        settings("chunk", chunk=lambda case: given(case)["chunk"] + 1),
    ),
    mutant(
        "chunk-minus-1",
        "chunk.off_by_one",
        "your chunks are one token shorter",
        settings("chunk", chunk=lambda case: given(case)["chunk"] - 1),
        held_out=True,
    ),
    mutant(
        "chunks-of-slots",
        "chunk.slots",
        "your chunks are counted from the first slot of the row",
        lambda case, a: seen_by(from_slots)(case, a) if case.seg else None,
    ),
    mutant(
        "no-global-tokens",
        "global.ignored",
        "your layer has no global tokens",
        settings("global_tokens", global_tokens=""),
    ),
    mutant(
        "global-tokens-plus-1",
        "global.ignored",
        "your layer has one global token more",
        settings("global_tokens", global_tokens=lambda case: given(case)["global_tokens"] + 1),
        held_out=True,
    ),
    mutant(
        "global-keys",
        "global.seen_alone",
        "your global tokens are seen by all, and see their window",
        half_open(lambda see, t, s: see | (s < t)),
    ),
    mutant(
        "global-queries",
        "global.seeing_alone",
        "your global tokens see all, and are seen within the window",
        half_open(lambda see, t, s: see | (s > t)),
    ),
    mutant(
        "global-slots",
        "global.slots",
        "the first slots of your rows are global",
        having("global_tokens", lambda case, a: slots_global(case, a) if case.seg else None),
    ),
    mutant(
        "global-across-documents",
        "mask.documents",
        "your global tokens see other documents",
        having("global_tokens", lambda case, a: across_documents(case, a) if case.seg else None),
    ),
    mutant(
        "no-temperature",
        "temperature.ignored",
        "your queries have no temperature",
        settings("temperature", **COOL),
    ),
    mutant(
        "temperature-from-1",
        "position.off_by_one",
        "the position of your temperature is one too large",
        at_places(lambda i: i + 1),
    ),
    mutant(
        "temperature-from-0",
        "position.off_by_one",
        "the position of your temperature is one too small",
        at_places(lambda i: np.maximum(i - 1, 0)),
        held_out=True,
    ),
    mutant(
        "temperature-of-slots",
        "position.counted",
        "your temperature is of the slot",
        at_places(lambda i: np.arange(len(i))),
    ),
    mutant(
        "logn-below-1",
        "temperature.below_1",
        "your factor of logn is less than 1 for short text",
        having("temperature", below_1),
    ),
    mutant(
        "one-temperature",
        "temperature.shared",
        "all your heads have the learned factor of the first",
        of_first_head("temperature"),
    ),
    mutant(
        "temperature-over-logits",
        "temperature.over_bias",
        "your temperature is on the finished logits",
        having("temperature", over_logits),
    ),
    mutant("no-scale", "attn.scale", "your q k is multiplied by D^-0.5", settings("scale", scale="")),
    mutant("alibi-left-out", "combination.left_out", "your layer has the rotation alone", without("alibi")),
    mutant(
        "rope-left-out",
        "combination.left_out",
        "your layer has the bias alone",
        without("rope"),
        held_out=True,
    ),
]
