"""Each rope_type as an encoding here and its options. The formulas are the encodings'."""

from collections.abc import Callable, Mapping
from typing import Any

from peref.config import Config
from peref.errors import Misuse, counted
from peref.huggingface import facts
from peref.huggingface.facts import LENGTH, ORIGINAL, SAVED, SHARES
from peref.huggingface.keys import brief, digits
from peref.huggingface.layer import Layer
from peref.huggingface.rotation import frequencies

Meaning = tuple[str, dict[str, Any]]


def default(layer: Layer, R: int) -> Meaning:
    if layer.kind in facts.STEPS and layer.top.get("use_dynamic_ntk", bool):
        return by_prompt(layer)
    return mrope(layer, R) if layer.keys.get("mrope_section", list) else ("rope", {})


def mrope(layer: Layer, R: int) -> Meaning:
    what = "whole numbers, the pairs of time, height and width, which rope_type mrope needs"
    given = layer.keys.numbers("mrope_section", what)
    sections = tuple(int(s) for s in given if s >= 0 and s == int(s))
    if len(sections) != len(given):
        said = brief(layer.keys.values["mrope_section"])
        raise Misuse(f"{layer.keys.at('mrope_section')} is {said}; expected {what}")
    if layer.kind in facts.ALTERNATE and len(sections) == 3:
        sections = (sections[2], *sections[:2])
        here = ",".join(map(str, sections))
        says = f"height, width and time; others list time first, here sections={here}"
        layer.keys.note("differs", "mrope_section", says)
        return "mrope", {"order": "alternate", "sections": sections}
    woven = layer.keys.get("mrope_interleaved", bool)
    return "mrope", {"order": "interleaved" if woven else "chunked", "sections": sections}


def by_prompt(layer: Layer) -> Meaning:
    """Qwen's first generation, with use_dynamic_ntk."""
    original = layer.top.size("seq_length") or layer.longest
    if original is None:
        raise Misuse(f"the config has no seq_length, from which the base grows; {SAVED}")
    says = f"the base grows with the prompt beyond seq_length, {original}, and stays while generating"
    layer.top.note("differs", "use_dynamic_ntk", f"{says}, in its own code; vLLM's does not read it")
    layer.lengths = (original, max(layer.longest or 0, 2 * original))
    return "dynamic_ntk", {"original": original, "form": "steps"}


def linear(layer: Layer, R: int) -> Meaning:
    factor = layer.keys.needed("factor", "linear")
    layer.stretched(factor)
    return "pi", {"factor": factor}


def dynamic(layer: Layer, R: int) -> Meaning:
    if alpha := layer.keys.number("alpha"):
        layer.keys.number("factor")
        says = "read by HunYuan's classes and vLLM, a base fixed by alpha; others read factor and follow the"
        layer.keys.note("differs", "alpha", f"{says} length")
        return "ntk", {"factor": alpha}
    factor = layer.keys.needed("factor", "dynamic")
    original = layer.keys.size(ORIGINAL) or layer.top.size(ORIGINAL)
    if (longest := layer.longest) is None:
        raise Misuse(f"the config has no {LENGTH[0]}, from which rope_type dynamic begins; {SAVED}")
    if original is not None:
        says = f"{original}; Hugging Face takes {LENGTH[0]}, {longest}, from which on frequencies change"
        layer.top.note("ignored" if original == longest else "differs", ORIGINAL, says)
    layer.keys.differs("rope_type", "dynamic")
    layer.stretched(factor)
    layer.lengths = (longest, int(longest * max(factor, 2)))
    return "dynamic_ntk", {"factor": factor, "original": longest}


def yarn(layer: Layer, R: int) -> Meaning:
    original = layer.original()
    who = "the factor counts, but Hugging Face took the ratio in versions of 2025 (its issue 38224)"
    factor = layer.factor(original, who)
    given: dict[str, Any] = {"factor": factor, "original": original}
    for key in ("beta_fast", "beta_slow"):
        given[key] = layer.keys.number(key) or None  # 0 is absent, as theirs
    if (truncate := layer.keys.get("truncate", bool)) is not None:
        given["truncate"] = truncate
        if layer.label and not truncate:
            says = "Hugging Face looks for it beside the types of layers, not in them, and truncates"
            layer.keys.note("differs", "truncate", says)
    return "yarn", given | attention(layer, factor)


def attention(layer: Layer, factor: float) -> dict[str, Any]:
    """The options of YaRN that decide the gain and the softmax scale."""
    a, m, M = (layer.keys.number(key) for key in ("attention_factor", "mscale", "mscale_all_dim"))
    given = {"attention_factor": a, "mscale": m, "mscale_all_dim": M}
    if a is not None and (m or M):
        layer.keys.differs("attention_factor", "outranks")
    if a is None and bool(m) != bool(M):
        other = gain(factor, given | {"reading": "deepseek"})
        key, value = ("mscale_all_dim", M) if m else ("mscale", m)
        said = "absent" if value is None else digits(value)
        layer.keys.differs(key, "one mscale", value=said, gain=gain(factor, given), other=other)
    if M and layer.kind in facts.SHARPENED:
        out = f"; Hugging Face's class of a {layer.kind} leaves it out" if layer.kind in facts.PLAIN else ""
        layer.keys.differs("mscale_all_dim", "sharpened", out=out)
    elif M:
        layer.keys.differs("mscale_all_dim", "scale stays", kind=layer.kind, value=digits(M))
        return {"attention_factor": gain(factor, given)}
    return given


def gain(factor: float, given: Mapping[str, Any]) -> float:
    """What q and k are multiplied with, as the encoding computes it."""
    return frequencies(Config(pe=(("yarn", {"factor": factor, **given}),), L=4096, C=4, H=1), 4096)[1]


def longrope(layer: Layer, R: int) -> Meaning:
    original = layer.original()
    what = "numbers, one for each pair of channels"
    lists = {key: layer.keys.numbers(key, what) for key in ("short_factor", "long_factor")}
    for key, divisors in lists.items():
        if len(divisors) != R // 2:
            has = f"{layer.keys.at(key)} has {counted(len(divisors), 'number')}"
            raise Misuse(f"{has}; expected {R // 2}, one for each pair of {R} channels that turn")
    who = "Hugging Face takes the factor now, vLLM and older versions the ratio"
    given: dict[str, Any] = {"factor": layer.factor(original, who), "original": original, **lists}
    given["attention_factor"] = layer.keys.number("attention_factor")
    for key in ("short_mscale", "long_mscale"):
        value = layer.keys.number(key)
        if value is not None and layer.kind in facts.LISTED:
            given[key] = value
        elif value is not None:
            says = f"{digits(value)}; read by Phi-3.5-MoE's class and by vLLM, not by that of a {layer.kind}"
            layer.keys.note("differs", key, f"{says}: not taken here")
    layer.keys.differs("long_factor", "long_factor", original=original)
    layer.lengths = (original, max(layer.longest or 0, original + 1))
    return "longrope", given


def llama3(layer: Layer, R: int) -> Meaning:
    needed = ("factor", "low_freq_factor", "high_freq_factor")
    given = {key: layer.keys.needed(key, "llama3") for key in needed}
    original = layer.original()
    if layer.longest is not None and original >= layer.longest:
        says = f"{original}, which is not below {LENGTH[0]}, {layer.longest}: nothing was lengthened"
        layer.top.note("contradictory", ORIGINAL, f"{says}, but pairs are still divided")
    return "llama3", given | {"original": original}


def proportional(layer: Layer, R: int) -> Meaning:
    inside, (_, outside) = layer.keys.number(SHARES[0]), layer.top.first(SHARES)
    share = inside if inside is not None else 1.0 if outside is None else outside
    says = f"{digits(share)}: here a part of the pairs of the whole head, n with n + {R // 2}"
    layer.keys.note("differs", SHARES[0], f"{says}; others cut a narrower head")
    return "p_rope", {"fraction": share, "factor": layer.keys.number("factor")}


READERS: dict[str, Callable[[Layer, int], Meaning]] = {
    **{"default": default, "linear": linear, "dynamic": dynamic, "yarn": yarn, "longrope": longrope},
    **{"su": longrope, "llama3": llama3, "proportional": proportional, "mrope": mrope},
}
