"""Which cases there are above one operation, and which for a GPU: of the core the traces, all others of the full set.

Every encoding has a block and a model in both shapes, the gradient of logits, ten steps of training and traces, from the registry alone (one that is
added to the embedding has no block of its own: it is in the model); what is more has a reason of its own here. The aligned cases are op and attn at
sizes that kernels are made for.
"""

from collections.abc import Iterator
from typing import Any

from peref.config import SHAPES
from peref.encodings import get, names
from peref.golden.cases import Case, sized
from peref.golden.whole import RECIPE, Whole
from recipes import module

Facts = dict[str, Any]
PACKED = ((0, 0, 1, 1, 1, 2, 2), (1, 1, 1, 2, 2, 2, 0))  # documents, 0 is padding
CHUNKS = ((0, 4), (4, 5), (5, 8), (8, 9))  # uneven: a prefill, a token, a chunk, a token
SHAPE_FLAGS = {
    "llama": ("block.post_norm", "block.parallel", "norm.mean", "block.swiglu_swapped"),
    "gpt2": ("block.post_norm", "block.parallel", "norm.mean"),
}
OF_LENGTH: dict[str, Facts] = {  # a low base, so that frequencies matter within a few tokens
    "dynamic_ntk": {"base": 100.0, "factor": 4.0},
    "longrope": {"base": 100.0, "long_factor": (4.0, 3.0, 2.0, 6.0)},
}
CACHED = {"llama": ("rope", "t5", "forgetting", "retnet"), "gpt2": ("learned", "alibi", "shaw", "mamba")}
FEW = {name: module(name).FEW for name in ("dape", "dynamic_bias", "fire", "mamba", "rwkv6", "rwkv7", "s4d")} | {"path": {"rank": 4}}
SHARP: dict[tuple[str, str], Facts] = {  # what makes a trap show in 16 bits too, where what is kept in them on the way is off by more than it does
    ("fire", "trace"): {"threshold": 4.0},  # distances that are shares of 512 are all alike
    ("s4d", "trace"): {"dt_min": 0.1, "dt_max": 1.0},  # steps of which the state is more than a trace beside the direct path
    ("dynamic_bias", "trace"): {"norm": "layer"},  # a bias that does not grow on, beside which a key more or less counts
    ("retnet", "model"): {"eps": 1.0},  # a norm of heads that are nearly 0 divides what is off by what is nearly 0
    ("retnet", "step"): {"eps": 1.0},
    ("rwkv6", "block"): {"eps": 1.0},
    ("rwkv7", "model"): {"eps": 0.1},
    ("rwkv6", "tiny"): {"eps": 0.1},
    ("rwkv7", "tiny"): {"eps": 0.1},
    ("alibi", "cached"): {"max_bias": 2.0},  # slopes that are steep within nine tokens
}
LOGITS = {"rope": ("llama", "model"), "retnet": ("llama", "model"), "learned": ("gpt2", "model"), "t5": ("gpt2", "model")}
TRAINED = {"llama": ("rope", "t5", "kerple_log", "forgetting", "retnet"), "gpt2": ("learned", "alibi", "shaw", "mamba")}


def of_full_set() -> list[Case]:
    """Every case of the full set."""
    return [*aligned(), *blocks(), *models(), *steps()]


def widths(name: str, level: str) -> Facts:
    """Sizes that suit the hook, distinct from one another, and options that keep the parameters few."""
    return sizes_of(name, level) | options_of(name, level)


def options_of(name: str, level: str) -> Facts:
    """Options, where there are any."""
    options = FEW.get(name, {}) | SHARP.get((name, level), {})
    return {"options": options} if options else {}


def sizes_of(name: str, level: str) -> Facts:
    e = get(name)
    if level == "tiny":
        return {"layers": 1, "H": 2, "D": 4, "C": 6, "F": 5, "V": 7, "T": 5} | ({"G": 1} if e.hook != "mix" else {})
    if level in ("model", "step"):
        sizes: Facts = {"layers": 2, "H": 4, "G": 2, "D": 8, "C": 18, "F": 22} if e.hook != "mix" else {"layers": 2, "H": 3, "D": 4, "C": 10, "F": 18}
        return sizes | ({"n": 20} if e.hook == "rotate" else {})
    return {"H": 3, "D": 4, "C": 5} if e.hook == "mix" else {}


# ---------------------------------------------------------------- block, model, step


def blocks() -> Iterator[Whole]:
    for name in names():
        if get(name).embed:
            continue
        for shape in SHAPES:
            why = f"One pre-norm layer of a model of the shape {shape}, the encoding inside, every gradient."
            more = ("block.gelu_exact",) if shape == "gpt2" and name in ("rope", "shaw", "fire") else ()
            yield Whole(name, "block", shape, why, (*SHAPE_FLAGS[shape], *more), shape=shape, **widths(name, "block"))
    why = "q and k are normed over each head, with weights, before they turn."
    yield Whole("rope", "block", "qk-norm", why, ("block.qk_norm_order",), qk_norm=True)
    why = "The inputs are small, so that the epsilon of the norms is a part of what is under the root."
    for shape in SHAPES:
        yield Whole("alibi", "block", f"small-{shape}", why, ("norm.eps",), shape=shape, shrink=2.0**-10)
    why = "Two packed documents and padding through a whole layer: nothing crosses, and padding is 0."
    for name in ("rope", "alibi", "forgetting", "retnet"):
        yield Whole(name, "block", "packed", why, ("mask.documents",), seg=PACKED, **widths(name, "block"))
    why = "A window, adjacent pairs and a partial rotation in one layer."
    yield Whole("rope", "block", "window-partial", why, ("mask.window", "rope.layout.half"), T=9, R=4, layout="interleaved", window=3)


def models() -> Iterator[Whole]:
    for name in names():
        for shape in SHAPES:
            flags = ("loss.ignored_targets", *(("model.tied_gradient",) if shape == "llama" else ("model.final_norm",)))
            more = ("model.shared_gradient",) if name == "t5" else ()
            why = f"Two layers of the shape {shape} from tokens to the loss, and the gradient of every parameter."
            yield Whole(name, "model", shape, why, (*flags, *more), shape=shape, **widths(name, "model"))
    why = "Two packed documents and padding from tokens to the loss; targets at padding are not asked."
    yield Whole("rope", "model", "packed", why, ("mask.documents", "loss.ignored_targets"), seg=PACKED, **widths("rope", "model"))

    for shape, of in CACHED.items():
        why = f"A prefill, a token, a chunk and a token through the cache of a model of the shape {shape}: the logits of one call with all tokens."
        for name in of:
            flag = {"retnet": "cache.state_dropped", "mamba": "cache.state_dropped", "forgetting": "mask.top_left"}.get(
                name, "cache.position_restarts"
            )
            yield Whole(
                name,
                "model",
                f"cached-{shape}",
                why,
                (flag,),
                shape=shape,
                T=9,
                calls=in_calls(CHUNKS),
                **sizes_of(name, "model"),
                **options_of(name, "cached"),
            )
    for name in names():
        shape, sizes = LOGITS.get(name, (shape_of(name), "tiny"))
        why = f"The gradient of every parameter for a random cotangent of the logits, every row of them, of the shape {shape}."
        flags = ("model.tied_gradient",) if shape == "llama" else ("model.final_norm",)
        yield Whole(name, "model", f"logits-{shape}", why, flags, shape=shape, judged="logits", **widths(name, sizes))


def shape_of(name: str) -> str:
    """The shape in which models have had it."""
    return "llama" if get(name).hook in ("rotate", "mix") else "gpt2"


def steps() -> Iterator[Whole]:
    flags = ("adamw.decay_everywhere", "adamw.decay_coupled", "adamw.bias_correction", "schedule.counted_from_0", "clip.missing")
    for name in names():
        shape, sizes = next(((shape, "step") for shape, trained in TRAINED.items() if name in trained), (shape_of(name), "tiny"))
        why = f"Ten steps of AdamW of the shape {shape}: warm-up, cosine, clipping, decay of matrices alone."
        clip = {"recipe": RECIPE | {"clip": 0.5}} if sizes == "tiny" else {}
        yield Whole(name, "step", shape, why, flags, shape=shape, **clip, **widths(name, sizes))


# ---------------------------------------------------------------- trace


def in_calls(chunks: Any, n: int = 16, fresh: int = 0) -> tuple[tuple[int, int, bool, int], ...]:
    """Calls of these rows, the cache empty before row `fresh` of them and before row 0."""
    return tuple((first, stop, first in (0, fresh), n) for first, stop in chunks)


def traces() -> Iterator[Whole]:
    few: Facts = {"B": 1, "H": 3, "G": 1, "D": 4, "C": 5}
    for name in names():
        e, flags = get(name), of_positions(name)
        sizes = few | ({"H": 2} if e.hook == "mix" else {}) | options_of(name, "trace")
        why = "A prefill, a token, a chunk and a token through the cache give the rows of one call with all."
        yield Whole(name, "trace", "chunks", why, (*of_chunks(name), *flags), T=9, calls=in_calls(CHUNKS), **sizes)
        if "window" in e.claims and e.hook not in ("embed", "attend", "mix"):  # the loops of attend take no window
            why = "A window of 3 keys rolls on over a prefill longer than itself, tokens and a chunk; positions are not places in a ring."
            calls = in_calls(((0, 4), (4, 5), (5, 6), (6, 10), (10, 11)))
            ring = ("cache.ring_positions",) if flags else ()
            yield Whole(name, "trace", "window-rolls", why, ("cache.window_late", "mask.window", *ring), window=3, T=11, calls=calls, **sizes)
        if e.hook != "embed":
            why = "A long text, then a short one from an empty cache: nothing of the first is left."
            calls = in_calls(((0, 3), (3, 4), (4, 6), (6, 7)), fresh=4)
            again = (*range(4), *range(3))
            kept = ("cache.not_cleared",) if name != "learned_bias" else ()  # it has no row for what is then before the past
            yield Whole(name, "trace", "long-then-short", why, kept, positions=again, T=7, calls=calls, **sizes)
    yield from of_lengths(few)


def of_positions(name: str) -> tuple[str, ...]:
    """What catches positions that begin anew with a call: where positions count and none is beyond a table."""
    e = get(name)
    placed = e.hook == "rotate" or (e.hook == "bias" and "any_length" in e.claims) or name in ("transformer_xl", "fire", "dape", "shaw", "retnet")
    return ("cache.position_restarts",) if placed or e.hook == "embed" else ()


def of_chunks(name: str) -> tuple[str, ...]:
    """What else a call after others catches."""
    e = get(name)
    flags: tuple[str, ...] = {"embed": (), "mix": ("cache.state_dropped",)}.get(e.hook, ("mask.top_left",) if name != "pyramid" else ())
    if name == "t5":
        flags = (*flags, "t5.bias.dropped_on_decode")
    if e.features and name not in ("pyramid", "cope"):
        flags = (*flags, "cache.features_dropped")
    return (*flags, "cache.tail_dropped") if name in ("mamba", "rwkv4", "rwkv6", "rwkv7", "path") else flags


def of_lengths(few: Facts) -> Iterator[Whole]:
    """Dynamic NTK and LongRoPE, whose frequencies depend on a length."""
    far = tuple(range(9))
    why = "The length is fixed when the cache is made, beyond the length trained for: every key and every query meets the same frequencies."
    for name, flag in (("dynamic_ntk", "rope.ntk.cache_mixed_bases"), ("longrope", "rope.longrope.cache_mixed")):
        yield Whole(name, "trace", "length-fixed", why, (flag,), OF_LENGTH[name], L=5, T=9, calls=in_calls(CHUNKS, 9), **few | {"D": 8})
    why = (
        "What Hugging Face keeps as a state: the length grows with the text, keys stay as they turned when they came; a new text shorter than "
        "the length trained for sets it back, one of exactly that length does not."
    )
    lengths = ((0, 4, True, 5), (4, 6, False, 6), (6, 9, False, 9), (9, 14, True, 9), (14, 18, True, 5), (18, 19, False, 5))
    again = (*far, *range(5), *range(5))
    flags = ("rope.ntk.long_then_short", "rope.ntk.static_as_dynamic")
    given: Facts = {"positions": again, "L": 5, "T": 19, "calls": lengths, **few, "D": 8}
    yield Whole("dynamic_ntk", "trace", "length-as-hugging-face", why, flags, OF_LENGTH["dynamic_ntk"], **given)


# ---------------------------------------------------------------- aligned


class Aligned(Case):
    """A case at sizes of a kernel, in a group of its own."""

    @property
    def group(self) -> str:
        return f"{super().group}_aligned"


def of_aligned(name: str, level: str, slug: str, why: str, **given: Any) -> Aligned:
    sizes: Facts = {"B": 1, "H": 8, "G": 2, "T": 16, "D": 64, "C": 64}
    case = sized(name, level, f"aligned-{slug}", why, **(sizes | given))
    return Aligned(**{key: getattr(case, key) for key in case.__dataclass_fields__})


def aligned() -> Iterator[Aligned]:
    """Heads of 64 and 128 channels, 8 over 2 of them, tokens by sixteens."""
    why = "Sizes that a GPU kernel takes: 8 query heads over 2, 64 channels, 16 tokens."
    for name in names():
        if get(name).hook in ("", "rotate", "bias") or name == "forgetting":
            yield of_aligned(name, "attn", "64", why)
    why = "As on a GPU, with heads of 128 channels."
    for name in ("none", "rope", "alibi", "forgetting"):
        yield of_aligned(name, "attn", "128", why, D=128, C=128)
    why = "48 tokens: one tile of 32 and a half, or three of 16."
    for name in ("rope", "forgetting"):
        yield of_aligned(name, "attn", "48-tokens", why, T=48, L=48)
    why = "A rotation alone at the sizes of a kernel."
    yield of_aligned("rope", "op", "64", why, H=8)
    yield of_aligned("rope", "op", "interleaved", why, layout="interleaved")
    yield of_aligned("rope", "op", "partial", why, R=32)
    yield of_aligned("rope", "op", "128", why, D=128)
    yield of_aligned("yarn", "op", "64", why)
