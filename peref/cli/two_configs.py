"""What `show --config A --config B` says: in what two public models differ, and from which layer on.

Not here: whether a difference matters, what is stored (weights), one config alone (meant.py).
"""

from collections.abc import Iterator
from typing import Any

from peref.cli import text
from peref.config import AROUND, OF_FIELDS, Config
from peref.errors import Misuse, counted, in_runs
from peref.hooks import softmax_scale
from peref.huggingface import Found
from peref.member import SHARPER, settings_of

# fields of Config that are not of each layer, beside AROUND
SIZES_OF_A_MODEL = ("L", "V", "C", "layers", "H", "G", "D", "F")
BY_LAYER = {"window", "layout", "R", "experts"}  # a layer has its own, or the model's

Read = tuple[str, Found, Config | None, str]  # path, rotations, the model, what is missing where that is none


def of_both(first: tuple[str, Found, Any, str], second: tuple[str, Found, Any, str]) -> dict[str, Any]:
    """The differences of two models; of encoders with decoders those of both halves, by their names. Raises
    Misuse where one alone is of that kind.
    """
    both = (first, second)
    if (kinds := {bool(cfg and cfg.encoder) for _, _, cfg, _ in both}) == {False}:
        return differences(first, second)
    if len(kinds) > 1:
        path = next(path for path, _, cfg, _ in both if cfg and cfg.encoder)
        raise Misuse(f"{path} is of an encoder and a decoder; it can be compared with another such pair")
    of = lambda half: [(path, found, getattr(cfg, half), missing) for path, found, cfg, missing in both]
    return {half: differences(*of(half)) for half in ("encoder", "decoder")}


def differences(first: Read, second: Read) -> dict[str, Any]:
    """All of it as data. Where one of them is read in part, encodings alone are compared."""
    both = (first, second)
    complete = None not in (first[2], second[2])
    of_model = [model_facts(cfg) if complete and cfg else {} for _, _, cfg, _ in both]
    of_layer = layer_facts if complete else encoding_facts
    layers = [
        [of_layer(cfg, n) for n in range(cfg.layers)] if cfg else rotation_facts(found)
        for _, found, cfg, _ in both
    ]
    apart = [unlike(a, b) for a, b in zip(*layers, strict=False)]
    groups: dict[str, dict[str, Any]] = {}
    for n, pairs in enumerate(apart):
        if pairs:
            alike = groups.setdefault(str(sorted(pairs.items())), {"layers": [], "differ": pairs})
            alike["layers"].append(n)
    numbers = [len(one) for one in layers]
    beside = unlike(*({k: facts.get(k) for k in AROUND} for facts in of_model))
    sizes = [{k: facts.get(k) for k in SIZES_OF_A_MODEL} for facts in of_model]
    if not complete:
        sizes = [{"L": found.longest, "layers": found.layers} for _, found, _, _ in both]
    first_apart = next((group["layers"][0] for group in groups.values()), None)
    return {
        "paths": [path for path, *_ in both],
        "model_types": [found.model_type for _, found, _, _ in both],
        "from_layer": min(numbers) if first_apart is None and numbers[0] != numbers[1] else first_apart,
        "layers": numbers,
        "compared": len(apart),
        "differ": [*groups.values()],
        "around": beside,
        "sizes": unlike(*sizes),
        "not_compared": {path: f"all but the rotations: {missing}" for path, *_, missing in both if missing},
    }


def model_facts(cfg: Config) -> dict[str, Any]:
    """What is the same in all layers, or stands around them."""
    return {name: getattr(cfg, name) for name in OF_FIELDS if name not in BY_LAYER}


def encoding_facts(cfg: Config, n: int) -> dict[str, Any]:
    """The encoding of a layer, its options, and the channels that turn."""
    (name, given), known = cfg.pe[n % len(cfg.pe)], settings_of(cfg.pe[n % len(cfg.pe)][0])
    own = {"encoding": name, **{option: x for option, x in given.items() if option not in known}}
    turns = {"rotary_dim": given.get("rotary_dim", cfg.R), "layout": cfg.layer(n).layout}
    return own | (turns if "layout" in known else {})


def layer_facts(cfg: Config, n: int) -> dict[str, Any]:
    """Everything that decides what a layer computes, but for sizes."""
    shared = {k: x for k, x in model_facts(cfg).items() if k not in (*SIZES_OF_A_MODEL, *AROUND)}
    layer, known = cfg.layer(n), settings_of(cfg.pe[n % len(cfg.pe)][0])
    own = {k: getattr(layer, k) for k in known if hasattr(layer, k) and k not in SIZES_OF_A_MODEL}
    own |= {"F": layer.F} if layer.F != cfg.F else {}
    own |= {"scale": softmax_scale(layer.pe, cfg.D)} if "scale" in known else {}
    if layer.temperature == "none":
        own = {k: x for k, x in own.items() if k not in SHARPER - {"temperature"}}
    return encoding_facts(cfg, n) | own | shared


def rotation_facts(found: Found) -> list[dict[str, Any]]:
    """The encodings alone, as far as the rotations say."""
    each = found.by_layer(found.layers or 1)
    return [{"encoding": "none"} if r is None else encoding_facts(r.cfg, 0) for r in each]


def unlike(a: dict[str, Any], b: dict[str, Any]) -> dict[str, list[Any]]:
    """What differs; None and False both stand for what one of them does not have, or has switched off."""
    off = lambda x: None if x is False else x
    return {k: [a.get(k), b.get(k)] for k in {**a, **b} if off(a.get(k)) != off(b.get(k))}


def difference_text(data: dict[str, Any]) -> Iterator[str]:
    """The same for people."""
    if "encoder" in data:
        for half, found in data.items():
            yield from (f"\n{half}", *difference_text(found))
        return
    for letter, path, kind in zip("AB", data["paths"], data["model_types"], strict=True):
        yield text.labelled(letter, f"{path}: model_type {kind}")
    n = data["from_layer"]
    what = "encodings are the same" if data["not_compared"] else "the same"
    alike = f"{what} in {counted(data['compared'], 'layer')}"
    yield text.labelled("layers", alike if n is None else f"they differ from layer {n} on")
    for group in data["differ"]:
        yield ""
        yield text.labelled("in layers", in_a_row(group["layers"], data["compared"]))
        yield from pair_lines(group["differ"])
    few, many = sorted(data["layers"])
    if few < many:
        longer = "AB"[data["layers"].index(many)]
        yield text.labelled("only one has", f"layers {few} to {many - 1}: {longer}")
    for label, key in (("around them", "around"), ("sizes", "sizes")):
        if data[key]:
            yield f"\n{label}"
            yield from pair_lines(data[key])
    for path, words in data["not_compared"].items():
        yield text.labelled("not compared", f"{path}: {words}")


def pair_lines(pairs: dict[str, list[Any]]) -> Iterator[str]:
    wide = max(map(len, pairs))
    for name, (a, b) in pairs.items():
        yield f"  {name.ljust(wide)}  A {text.shown(a)}   B {text.shown(b)}"


def in_a_row(numbers: list[int], all_of: int) -> str:
    """Numbers of layers, where they stand in a row both ends."""
    count = len(numbers)
    return f"all {all_of}" if count == all_of else f"{in_runs(numbers, count)} ({count} of {all_of})"
