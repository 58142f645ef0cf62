"""Which cases there are above one operation, and which for a GPU: of the core the traces, all others of the
full set.

Every encoding has a block and a model in both shapes, the gradient of logits, ten steps of training and
traces, from the registry alone (one that is added to the embedding has no block of its own: it is in the
model). A recipe says what is otherwise with its encoding:

    FEW         options that keep the parameters few
    SHARP       level -> options that make a trap show in 16 bits too, where what is kept in them on the way
                is off
    CACHED      the shape of a model that has calls through a cache, and the flag of that case
    LOGITS      the shape of a model of full size whose logits have a gradient; others have a tiny one
    TRAINED     the shape of a model of full size that is trained; others train a tiny one
    MORE_FLAGS  "block-gpt2", "model", "chunks" or "positions" -> flags that those cases of it have besides
    KEPT        what the x of the trace `kept-state` are multiplied with, in its first call and in later ones;
                None: another trace shows it
    NOT_FLAGS   flags that its traces do not have
    CORE_ONLY   whether the full set has nothing of it but WHOLES
    WHOLES      cases of its own, made by the functions at the end of this file or written out

The aligned cases are op and attn at sizes that kernels are made for.
"""

from collections.abc import Iterator
from typing import Any

from peref.config import SHAPES
from peref.encodings import claims_of, get, names
from peref.golden.spec.cases import RECIPE, Case, sized
from recipes import module
from recipes.families import has_rows

Facts = dict[str, Any]
PACKED = ((0, 0, 1, 1, 1, 2, 2), (1, 1, 1, 2, 2, 2, 0))  # documents, 0 is padding
CHUNKS = ((0, 4), (4, 5), (5, 8), (8, 9))  # uneven: a prefill, a token, a chunk, a token
MOVED = (3, 9, 9, 2, 7)
SHAPE_FLAGS = {
    "llama": ("block.post_norm", "block.parallel", "norm.mean", "block.swiglu_swapped"),
    "gpt2": ("block.post_norm", "block.parallel", "norm.mean"),
}
FEW_HEADS: Facts = {"B": 1, "H": 3, "G": 1, "D": 4, "C": 5}


def said(name: str, what: str, otherwise: Any) -> Any:
    """What the recipe of an encoding says of it."""
    return getattr(module(name), what, otherwise)


def more_flags(name: str, where: str) -> tuple[str, ...]:
    return said(name, "MORE_FLAGS", {}).get(where, ())


def of_full_set() -> list[Case]:
    """Every case of the full set."""
    return [*every_aligned(), *others(), *blocks(), *models(), *steps()]


def own(*levels: str) -> Iterator[Any]:
    """The cases that recipes have of their own."""
    for name in names():
        yield from (case for case in said(name, "WHOLES", ()) if case.level in levels)


def widths(name: str, level: str) -> Facts:
    """Sizes that suit the hook, distinct from one another, and options that keep the parameters few."""
    return sizes_of(name, level) | options_of(name, level)


def options_of(name: str, level: str) -> Facts:
    """Options, where there are any."""
    options = said(name, "FEW", {}) | said(name, "SHARP", {}).get(level, {})
    return {"options": options} if options else {}


def sizes_of(name: str, level: str) -> Facts:
    e = get(name)
    if level == "tiny":
        return {"layers": 1, "H": 2, "D": 4, "C": 6, "F": 5, "V": 7, "T": 5} | (
            {"G": 1} if e.hook != "mix" else {}
        )
    if level in ("model", "step"):
        sizes: Facts = (
            {"layers": 2, "H": 4, "G": 2, "D": 8, "C": 18, "F": 22}
            if e.hook != "mix"
            else {"layers": 2, "H": 3, "D": 4, "C": 10, "F": 18}
        )
        return sizes | ({"n": 20} if e.hook == "rotate" else {})
    return {"H": 3, "D": 4, "C": 5} if e.hook == "mix" else {}


# ---------------------------------------------------------------- block, model, step


def in_full_set() -> list[str]:
    return [name for name in names() if not said(name, "CORE_ONLY", False)]


def blocks() -> Iterator[Case]:
    for name in in_full_set():
        if get(name).embed:
            continue
        for shape in SHAPES:
            why = f"One pre-norm layer of a model of the shape {shape}, the encoding inside, every gradient."
            more = more_flags(name, f"block-{shape}")
            yield Case(
                name, "block", shape, why, (*SHAPE_FLAGS[shape], *more), shape=shape, **widths(name, "block")
            )
    yield from own("block")


def models() -> Iterator[Case]:
    for name in in_full_set():
        for shape in SHAPES:
            flags = (
                "loss.ignored_targets",
                *(("model.tied_gradient",) if shape == "llama" else ("model.final_norm",)),
            )
            more = more_flags(name, "model")
            why = (
                f"Two layers of the shape {shape} from tokens to the loss, and the gradient of every "
                "parameter."
            )
            yield Case(name, "model", shape, why, (*flags, *more), shape=shape, **widths(name, "model"))
    for name in in_full_set():
        if cached := said(name, "CACHED", None):
            shape, flag = cached
            why = (
                f"A prefill, a token, a chunk and a token through the cache of a model of the shape {shape}: "
                "the logits of one call with all tokens."
            )
            given = {"T": 9, "calls": in_calls(CHUNKS)} | sizes_of(name, "model") | options_of(name, "cached")
            yield Case(name, "model", f"cached-{shape}", why, (flag,), shape=shape, **given)
    for name in in_full_set():
        shape, sizes = full_size(name, "LOGITS", "model")
        why = (
            "The gradient of every parameter for a random cotangent of the logits, every row of them, of "
            f"the shape {shape}."
        )
        flags = ("model.tied_gradient",) if shape == "llama" else ("model.final_norm",)
        yield Case(
            name, "model", f"logits-{shape}", why, flags, shape=shape, judged="logits", **widths(name, sizes)
        )
    yield from own("model")


def shape_of(name: str) -> str:
    """The shape in which models have had it."""
    return "llama" if get(name).hook in ("rotate", "mix") else "gpt2"


def full_size(name: str, what: str, sizes: str) -> tuple[str, str]:
    """Shape and sizes: those that the recipe asks for, else a tiny model of the usual shape."""
    shape = said(name, what, None)
    return (shape, sizes) if shape else (shape_of(name), "tiny")


def steps() -> Iterator[Case]:
    flags = (
        "adamw.decay_everywhere",
        "adamw.decay_coupled",
        "adamw.bias_correction",
        "schedule.counted_from_0",
        "clip.missing",
    )
    for name in in_full_set():
        shape, sizes = full_size(name, "TRAINED", "step")
        why = f"Ten steps of AdamW of the shape {shape}: warm-up, cosine, clipping, decay of matrices alone."
        clip = {"recipe": RECIPE | {"clip": 0.5}} if sizes == "tiny" else {}
        yield Case(name, "step", shape, why, flags, shape=shape, **clip, **widths(name, sizes))


# ---------------------------------------------------------------- trace


def in_calls(chunks: Any, n: int = 16, fresh: int = 0) -> tuple[tuple[int, int, bool, int], ...]:
    """Calls of these rows, the cache empty before row `fresh` of them and before row 0."""
    return tuple((first, stop, first in (0, fresh), n) for first, stop in chunks)


def traces() -> Iterator[Case]:
    for name in names():
        e, flags = get(name), of_positions(name)
        sizes = FEW_HEADS | ({"H": 2} if e.hook == "mix" else {}) | options_of(name, "trace")
        why = "A prefill, a token, a chunk and a token through the cache give the rows of one call with all."
        yield Case(
            name, "trace", "chunks", why, (*of_chunks(name), *flags), T=9, calls=in_calls(CHUNKS), **sizes
        )
        if e.axes is not None and e.hook != "mix":
            yield moved(name)
        if "window" in claims_of(e) and e.hook not in ("embed", "mix"):
            why = (
                "A window of 3 keys rolls on over a prefill longer than itself, tokens and a chunk; "
                "positions are not places in a ring."
            )
            calls = in_calls(((0, 4), (4, 5), (5, 6), (6, 10), (10, 11)))
            ring = ("cache.ring_positions",) if flags else ()
            yield Case(
                name,
                "trace",
                "window-rolls",
                why,
                ("cache.window_late", "mask.window", *ring),
                window=3,
                T=11,
                calls=calls,
                **sizes,
            )
        if e.hook != "embed":
            why = "A long text, then a short one from an empty cache: nothing of the first is left."
            calls = in_calls(((0, 3), (3, 4), (4, 6), (6, 7)), fresh=4)
            again = (*range(4), *range(3))
            kept = without(name, ("cache.not_cleared",))
            yield Case(
                name, "trace", "long-then-short", why, kept, positions=again, T=7, calls=calls, **sizes
            )
        if e.hook not in ("embed", "mix"):
            why = "Four query heads share two key-value heads, two neighbours one, in a token by itself too."
            two = {"H": 4, "G": 2, "T": 5, "calls": in_calls(((0, 3), (3, 4), (4, 5)))}
            yield Case(name, "trace", "grouped-heads", why, ("gqa.order",), **sizes | two)
        if e.hook == "mix" and (scales := said(name, "KEPT", (2.0**8, 2.0**-8))):
            yield kept_state(name, sizes | {"scales": scales})
    yield from own("trace")


def kept_state(name: str, sizes: Facts) -> Case:
    """Two tokens and four calls of one, at sizes of x that float16 holds and a state of them not."""
    why = (
        "The state is too large or too small for float16: kept in 16 bits between calls, it is wrong in "
        "float32 too."
    )
    calls = in_calls(((0, 2), (2, 3), (3, 4), (4, 5), (5, 6)))
    flags = ("cache.state_dropped",)
    return Case(name, "trace", "kept-state", why, flags, T=6, calls=calls, **sizes)


def of_positions(name: str) -> tuple[str, ...]:
    """What catches positions that begin anew with a call: where positions count and none is beyond a
    table.
    """
    e = get(name)
    placed = e.hook in ("embed", "rotate") or (e.hook == "bias" and "any_length" in claims_of(e))
    both = ("cache.position_restarts", "cache.position_offset")
    return without(name, both) if placed else more_flags(name, "positions")


def of_chunks(name: str) -> tuple[str, ...]:
    """What else a call after others catches."""
    e = get(name)
    flags: tuple[str, ...] = {"embed": (), "mix": ("cache.state_dropped",)}.get(e.hook, ("mask.top_left",))
    flags += ("cache.features_dropped",) if e.features else ()
    flags += ("cache.ignored", "cache.keys_lost") if e.hook not in ("embed", "mix") else ()
    flags += {"": (), "rotate": ("cache.keys_turned_again",), "bias": ("cache.bias_dropped",)}.get(e.hook, ())
    flags += ("mask.chunk_open",) if e.hook in ("", "rotate") else ()
    return without(name, flags + more_flags(name, "chunks"))


def without(name: str, flags: tuple[str, ...]) -> tuple[str, ...]:
    """Those that the recipe does not take away."""
    return tuple(flag for flag in flags if flag not in said(name, "NOT_FLAGS", ()))


# ---------------------------------------------------------------- what recipes make their own cases with


def packed(name: str, level: str = "block") -> Case:
    if level == "block":
        why = "Two packed documents and padding through a whole layer: nothing crosses, and padding is 0."
        return Case(name, "block", "packed", why, ("mask.documents",), seg=PACKED, **widths(name, "block"))
    why = "Two packed documents and padding from tokens to the loss; targets at padding are not asked."
    return Case(
        name,
        "model",
        "packed",
        why,
        ("mask.documents", "loss.ignored_targets"),
        seg=PACKED,
        **widths(name, "model"),
    )


def in_layers(name: str, **options: Any) -> Case:
    """Options that say what layers have in common, and change no number of one alone."""
    shape, why = (
        shape_of(name),
        "Two layers whose parameters are not those of the default: own or shared, or others.",
    )
    flag = "model.tied_gradient" if shape == "llama" else "model.final_norm"
    sizes = sizes_of(name, "tiny") | {"layers": 2}
    few = said(name, "FEW", {}) | options
    return Case(name, "model", "layers", why, (flag,), options=few, shape=shape, **sizes)


def moved(name: str, slug: str = "moved", **options: Any) -> Case:
    """Positions that are not their slots."""
    why = "Positions repeat, leave gaps and go back, within a call and from one call to the next."
    given = {"positions": tuple(sorted(MOVED)) if has_rows(name) else MOVED, "T": 5}
    given |= FEW_HEADS | options_of(name, "trace") | ({"options": options} if options else {})
    calls = in_calls(((0, 2), (2, 3), (3, 5)), 37)
    # a chunk of two tokens shows too little of its future in 16 bits
    caught = (flag for flag in of_chunks(name) if flag != "mask.chunk_open")
    caught = (*caught, *of_positions(name))
    return Case(name, "trace", slug, why, caught, calls=calls, **given)


def small(name: str) -> Iterator[Case]:
    why = "The inputs are small, so that the epsilon of the norms is a part of what is under the root."
    for shape in SHAPES:
        yield Case(name, "block", f"small-{shape}", why, ("norm.eps",), shape=shape, shrink=2.0**-10)


def length_fixed(name: str, flag: str, options: Facts) -> Case:
    """Frequencies depend on a length."""
    why = (
        "The length is fixed when the cache is made, beyond the length trained for: every key and every "
        "query meets the same frequencies."
    )
    given = {"L": 5, "T": 9, "calls": in_calls(CHUNKS, 9)} | FEW_HEADS | {"D": 8}
    return Case(name, "trace", "length-fixed", why, (flag,), options, **given)


# ---------------------------------------------------------------- aligned


def of_aligned(name: str, level: str, slug: str, why: str, **given: Any) -> Case:
    sizes: Facts = {"B": 1, "H": 8, "G": 2, "T": 16, "D": 64, "C": 64}
    return sized(name, level, f"aligned-{slug}", why, **(sizes | given))


def every_aligned() -> Iterator[Case]:
    """Heads of 64 and 128 channels, 8 over 2 of them, tokens by sixteens. Of rotations those that ask for it:
    most are one kernel with other frequencies.
    """
    for name in in_full_set():
        if get(name).hook in ("", "bias"):
            yield from aligned(name, "64")
    yield from (case for case in own("attn", "op") if case.slug.startswith("aligned-"))


def others() -> Iterator[Case]:
    """Operations of the full set at other sizes."""
    yield from (case for case in own("attn", "op") if not case.slug.startswith("aligned-"))


def aligned(name: str, *slugs: str) -> Iterator[Case]:
    """Attention at sizes of a kernel."""
    for slug in slugs:
        why, sizes = {
            "64": ("Sizes that a GPU kernel takes: 8 query heads over 2, 64 channels, 16 tokens.", {}),
            "128": ("As on a GPU, with heads of 128 channels.", {"D": 128, "C": 128}),
            "48-tokens": ("48 tokens: one tile of 32 and a half, or three of 16.", {"T": 48, "L": 48}),
        }[slug]
        yield of_aligned(name, "attn", slug, why, **sizes)


def aligned_op(name: str, slug: str, **sizes: Any) -> Case:
    return of_aligned(name, "op", slug, "A rotation alone at the sizes of a kernel.", **sizes)
