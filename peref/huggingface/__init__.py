"""The rotations that a public config.json means: which encoding here, which options, and what in it is not
read alike by everybody.

    found = read(json.load(open("config.json")))
    for r in found.rotations:
        r.name, r.options, r.cfg.R, r.cfg.layout, r.notes
        w, a = frequencies(r.cfg, n)                               # as the encoding itself computes them

Hugging Face's rope_parameters, or rope_scaling as it was before, with `rope_type` or `type`; rope_theta
inside or beside; one dict for all layers or one for each type of layer. What is read is what Hugging Face's
classes compute (but for the softmax scale of DeepSeek V2, which is that of its own code); other readings are
named in the notes:

    ignored        the key is there and changes nothing
    contradictory  two keys say different things; which one counts is said
    differs        public implementations compute different things from it
    assumed        the key is not there; what stands for it is said
    beyond         it changes what is computed, and is no rotation, or one that no encoding here has
    unknown        no rotation that is known here has such a key

Not here: formulas (the encodings have them), what is no rotation, weights (porting).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from peref.config import Config
from peref.errors import Misuse, did_you_mean
from peref.huggingface import facts
from peref.huggingface.facts import BASES, LENGTH, SAVED
from peref.huggingface.keys import Keys, Note, load_json, text_of
from peref.huggingface.layer import Layer
from peref.huggingface.rotation import Found, Rotation, all_layers, frequencies, unscaled
from peref.huggingface.scalings import READERS

__all__ = ["Found", "Note", "Rotation", "all_layers", "frequencies", "load_json", "read", "unscaled"]
MOST, WIDEST = 100_000, 65_536  # layers, and channels of a head: more is a mistake

Layers = tuple[int, ...]


def read(public: Mapping[str, Any]) -> Found:
    """What a config.json says of positions. Raises Misuse, naming key and value, for what cannot be read
    as rotations.
    """
    top = text_of(public)
    top.kind = kind = str(top.get("model_type", str) or public.get("model_type") or "unknown")
    check_turns(public, top)
    longest = top.first(LENGTH, "size")[1]
    layers = top.first(("num_hidden_layers", "n_layer", "num_layers"), "size")[1]
    if (n := layers or 1) > MOST:
        raise Misuse(f"num_hidden_layers is {n}; expected the number of layers of a model")
    groups = layer_types(top, layers)
    still = without_positions(top, groups, layers)
    found = []
    for label, keys, base, which in dictionaries(top, groups):
        turning = which if label else tuple(range(layers or 0)) if still else ()
        turning = tuple(n for n in turning if n not in set(still))
        own = replace(top, notes=list(top.notes))  # beside those on the model
        layer = Layer(own, replace(keys, notes=own.notes), kind, longest, label, base, turning)
        found.append(rotation(layer))
    return Found(kind, longest or max(r.cfg.L for r in found), layers, tuple(found), still)


def check_turns(public: Mapping[str, Any], top: Keys) -> None:
    """Raises Misuse for a model that does not turn q and k, by what its file or its class says, and where
    neither says anything of it.
    """
    said = top.get("position_embedding_type", str) or ""
    alibi = top.get("alibi", bool) or top.get("use_alibi", bool)
    rotary = bool(facts.TURNS.search(said.lower()))
    turns = rotary or any(facts.TURNS.search(key) for key in (*public, *top.values))
    if said == "absolute" and turns and top.kind not in facts.NO_ROTATION:
        says = "'absolute', which classes with BERT's settings write whatever they compute"
        top.note("ignored", "position_embedding_type", f"{says}; the keys of a rotation count")
    elif said and not rotary:
        no_rotation(f"position_embedding_type {said!r}", facts.TYPES.get(said.lower()))
    if top.kind in facts.PLANES and top.get("position_encoding_2d", bool):
        what = f"position_encoding_2d of a {top.kind}: half of the channels turn by the place in the answer"
        raise Misuse(f"{what}; no encoding here does that")
    if alibi or (top.kind in facts.NO_ROTATION and not rotary):
        no_rotation(f"model_type {top.kind}", "alibi" if alibi else facts.NO_ROTATION[top.kind])
    if not turns and top.kind not in facts.LAYOUT:
        what = f"model_type {top.kind} is not known here, and nothing in the config says that it turns"
        raise Misuse(f"{what} q and k; expected rope_theta or the like; {SAVED}")


def no_rotation(what: str, other: str | None) -> NoReturn:
    said = f"its positions are those of the encoding {other}" if other else "no encoding here is that"
    raise Misuse(f"{what} turns nothing: {said}; expected a model with rotations")


def layer_types(top: Keys, layers: int | None) -> dict[str, Layers]:
    """Type of layer -> its layers, from layer_types, sliding_window_pattern or global_attn_every_n_layers,
    or as the class has it.
    """
    types, pattern = top.get("layer_types", list), top.values.get("sliding_window_pattern")
    if types is None and layers is not None:
        asked = isinstance(pattern, int) or (pattern is None and not windowless(top))
        every = top.own("sliding_window_pattern", "size") if asked else None
        wide = every and every - 1  # the first layer of each pattern that has no window
        if every is None:
            every, wide = top.own("global_attn_every_n_layers", "size"), 0
        if every:
            types = ["full_attention" if n % every == wide else "sliding_attention" for n in range(layers)]
            types[-1:] = ["full_attention"] if top.kind in facts.LAST else types[-1:]
    groups: dict[str, list[int]] = {}
    for n, kind in enumerate(types or []):
        groups.setdefault(str(kind), []).append(n)
    return {kind: tuple(group) for kind, group in groups.items()}


def without_positions(top: Keys, groups: dict[str, Layers], layers: int | None) -> Layers:
    """Layers that turn nothing: those with 0 in no_rope_layers, every so many, or those of one type."""
    turns, every = top.get("no_rope_layers", list), top.size("no_rope_layer_interval")
    if turns:
        return tuple(n for n, on in enumerate(turns) if not on)
    if (every := every or top.own("no_rope_layer_interval", "size")) and layers:
        return tuple(range(every - 1, layers, every))
    return () if windowless(top) else groups.get(facts.STILL.get(top.kind, ""), ())


def windowless(top: Keys) -> bool:
    """Whether no layer has a window, and this class asks for that."""
    return top.kind in facts.WINDOWED and top.values.get("sliding_window", ...) is None


def dictionaries(top: Keys, groups: dict[str, Layers]) -> list[tuple[str, Keys, float | None, Layers]]:
    """(type of layer, its dict, a base of its own, its layers) for every rotation of the file."""
    new, old = (top.get(key, dict) or {} for key in ("rope_parameters", "rope_scaling"))
    if new and old and new != old:
        says = "rope_parameters says something else; Hugging Face takes rope_scaling where both are there"
        top.note("contradictory", "rope_scaling", says)
    if not new and not old and (new := facts.OWN["rope_parameters"].get(top.kind, {})):
        top.note("assumed", "rope_parameters", f"absent; {new}, as the class has it")
    here = Keys(old or new, top.at("rope_scaling" if old else "rope_parameters"), top.notes)
    if nested := {key: inner for key, inner in here.values.items() if isinstance(inner, dict)}:
        for key in (key for key, value in here.values.items() if key not in nested and value is not None):
            here.note("ignored", key, "it stands beside types of layers, and each of them says its own")
        return [(key, Keys(nested[key], here.at(key)), None, groups.get(key, ())) for key in nested]
    wide, local = top.number("global_rope_theta"), top.own("rope_local_base_freq")
    if local is None and top.values.get("local_rope_theta", ...) is not None:  # null: as the others
        local = top.own("local_rope_theta")
    local = wide if local is None else local
    scaled = here.values.get("rope_type", here.values.get("type", "default")) != "default"
    if local is None and top.kind in facts.UNSCALED and scaled:
        own = facts.OWN["rope_theta"][top.kind]
        local = replace(here, asked=set()).number("rope_theta") or top.first(BASES)[1] or own
        top.notes.append(Note("differs", here.where, facts.DIFFERS["unscaled"]))
    if local is None:
        return [("", here, None, ())]
    slides = groups.get("sliding_attention", ())
    rest = tuple(sorted({n for group in groups.values() for n in group} - set(slides)))
    return [("full_attention", here, wide, rest), ("sliding_attention", Keys({}, here.where), local, slides)]


def rotation(layer: Layer) -> Rotation:
    """The rotation of the layers of one type."""
    kind = layer.rope_type
    if kind not in READERS:
        near = did_you_mean(kind, READERS, f"known are: {', '.join(READERS)}")
        raise Misuse(f"{layer.keys.at('rope_type')} is {kind!r}{near}")
    base, D = layer.base(), layer.head()
    if D > WIDEST:
        raise Misuse(f"a head is {D:,} channels wide; expected at most {WIDEST:,}")
    R, layout = layer.width(D), layer.layout()
    name, given = READERS[kind](layer, R)
    given = {key: value for key, value in ({"base": base} | given).items() if value is not None}
    layer.notice()
    L = layer.longest or int(given.get("original") or 0)
    if not L:
        raise Misuse(f"the config has no {LENGTH[0]}; {SAVED}")
    cfg = Config(pe=((name, given),), L=L, C=D, H=1, D=D, R=R, layout=layout)
    lengths, options = layer.lengths or (L,), {key: cfg.pe[0][1][key] for key in given}
    for n in lengths:
        frequencies(cfg, n)  # refuses, in the encoding's words, numbers that make no sense
    return Rotation(layer.label, layer.which, cfg, options, lengths, tuple(layer.top.notes))
