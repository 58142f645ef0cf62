"""Base, widths, layout and lengths of the layers of one type: what every rope_type has."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from peref.errors import Misuse
from peref.huggingface import facts
from peref.huggingface.facts import BASES, LENGTH, ORIGINAL, SAVED, SHARES
from peref.huggingface.keys import Keys, Note, brief, digits


@dataclass
class Layer:
    """What layers of one type have. `keys` is the dict of their rotation, `top` that of the model; both
    write notes into one list.
    """

    top: Keys
    keys: Keys
    kind: str  # model_type
    longest: int | None
    label: str
    base_of_type: float | None
    which: tuple[int, ...]
    lengths: tuple[int, ...] = ()

    @cached_property
    def rope_type(self) -> str:
        new, old = self.keys.get("rope_type", str), self.keys.get("type", str)
        if new and old and new != old and {new, old} not in ({"longrope", "su"}, {"default", "mrope"}):
            says = f"it is {old!r} and rope_type is {new!r}; rope_type counts"
            self.keys.note("contradictory", "type", says)
        given = {key for key, value in self.keys.values.items() if value is not None}
        if not new and not old and given - {*BASES, *SHARES, "mrope_section"}:
            says = "absent, which is 'default': the other keys beside it do nothing"
            self.keys.note("assumed", "rope_type", says)
        return new or old or "default"

    def both(
        self, inner: str, outer: tuple[str, ...], who: str, what: str = "number"
    ) -> tuple[Any, str, Any]:
        """A value of the rotation, and the key and value of the model for the same; a note where they
        differ, which says `who` takes which.
        """
        inside, (key, outside) = getattr(self.keys, what)(inner), self.top.first(outer, what)
        if inside is not None and outside is not None and inside != outside:
            says = f"{digits(outside)}, and {inner} of {self.keys.where} is {digits(inside)}; {who}"
            self.top.note("contradictory", key, says)
        return inside, key, outside

    def base(self) -> float:
        if self.base_of_type is not None:
            self.keys.asked.add("rope_theta")
            self.top.asked.update(BASES)
            return self.base_of_type
        now = "Hugging Face takes the inner one now, and took the outer one before rope_parameters"
        inside, _, outside = self.both("rope_theta", BASES, now)
        found = inside if inside is not None else outside
        if found is None and (found := self.top.own("rope_theta")) is None:
            found = 10000.0
            self.top.note("assumed", "rope_theta", "absent; 10000, as most classes have it")
        key = facts.TIMES.get(self.kind, "")
        times = self.top.number(key) if key else None
        if times not in (None, 1):
            self.top.differs(key, key, times=digits(times))
        return found * (1 if times is None else times)

    @cached_property
    def latent(self) -> int | None:
        """How many channels of a head turn, where they have a key of their own."""
        return self.top.own("qk_rope_head_dim", "size")

    def head(self) -> int:
        """The width of a head."""
        if (turning := self.latent) is not None:
            width = (self.top.own("qk_nope_head_dim", "size") or 0) + turning
            self.top.differs("qk_rope_head_dim", "qk_rope_head_dim", turning=turning, whole=width)
            return width
        for key in ("global_head_dim",) * (self.label == "full_attention") + ("head_dim",):
            if (given := self.top.own(key, "size")) is not None:
                return given
        if (given := self.top.first(("attention_head_dim", "kv_channels"), "size")[1]) is not None:
            return given
        C = self.top.first(("hidden_size", "n_embd", "d_model"), "size")[1]
        H = self.top.first(("num_attention_heads", "n_head"), "size")[1]
        if C is None or H is None:
            raise Misuse(f"the config has no head_dim, and no hidden_size with num_attention_heads; {SAVED}")
        if C % H:
            what = f"hidden_size {C} does not divide by num_attention_heads {H}"
            raise Misuse(f"{what}, and the config has no head_dim")
        return C // H

    def width(self, D: int) -> int:
        """How many channels of a head turn."""
        inside, key, share = self.both(SHARES[0], SHARES, "the inner one counts")
        if self.latent is not None:
            return self.latent
        if self.rope_type == "proportional":
            return D
        key, share = (SHARES[0], inside) if inside is not None else (key or SHARES[0], share)
        wide = self.top.size("rotary_dim")
        if share is None and wide is None:
            wide, share = self.top.own("rotary_dim"), self.top.own(SHARES[0])
        R = int(D * (1 if share is None else share))
        said = f"{key} {1 if share is None else digits(share)} of {D} channels is {R}"
        if wide is not None:
            if share is not None and wide != R:
                says = f"it is {wide}, and {key} {digits(share)} means {R}; rotary_dim counts"
                self.top.note("contradictory", "rotary_dim", says)
            R, said = wide, f"rotary_dim is {wide}"
        if R % 2 or not 0 < R <= D:
            raise Misuse(f"{said}; expected an even number from 2 to {D}, channels turn in pairs")
        return R

    def layout(self) -> Any:
        if (said := self.top.get("rope_interleave", bool)) is not None:
            return "interleaved" if said else "half"
        if self.kind not in facts.LAYOUT:
            says = f"half, that of most of Hugging Face's classes; model_type {self.kind} is not known here"
            self.top.notes.append(Note("assumed", "layout", says))
        return facts.LAYOUT.get(self.kind, "half")

    def original(self) -> int:
        """The length trained for before scaling: the outer key outranks the inner one, and
        max_position_embeddings stands for both.
        """
        inside, _, outside = self.both(ORIGINAL, (ORIGINAL,), "Hugging Face takes the outer one", "size")
        if found := outside or inside:
            return found
        if self.longest is None:
            raise Misuse(f"{self.keys.where} has no {ORIGINAL}, and the config no {LENGTH[0]}; {SAVED}")
        self.keys.note("assumed", ORIGINAL, f"absent; {LENGTH[0]}, {self.longest}, stands for it")
        return self.longest

    def factor(self, original: int, who: str) -> float:
        """By how much texts become longer than `original`: what the rotation says, or the ratio of both
        lengths; a note where they differ, which says `who` takes which.
        """
        given, ratio = self.keys.number("factor"), self.longest and self.longest / original
        lengths = f"{LENGTH[0]} / {ORIGINAL}"
        if given is None:
            if ratio is None or ratio == 1:
                what = f"{self.keys.where} has no factor, and {lengths} gives none"
                raise Misuse(f"{what}; one of them must say it")
            self.keys.note("assumed", "factor", f"absent; {lengths}, {digits(ratio)}, stands for it")
            return ratio
        if ratio not in (None, given):
            self.keys.note("differs", "factor", f"{digits(given)}, and {lengths} is {digits(ratio)}; {who}")
        return given

    def stretched(self, factor: float) -> None:
        """vLLM's longest text where it is another than theirs."""
        if factor != 1 and self.longest is not None:
            served = digits(self.longest * factor)
            self.top.differs(LENGTH[0], "stretched", longest=self.longest, served=served)

    def notice(self) -> None:
        """Keys that nobody asked for, and what else decides the logits."""
        one = self.kind in facts.SCALE_ONE
        if one:
            says = f"1 in a {self.kind}, whose q and k are normed, in place of the one below"
            self.top.notes.append(Note("beyond", "the softmax scale", says))
        if self.kind in facts.STEPS and self.top.get("use_logn_attn", bool):
            says = "a query at position t, from seq_length on, is multiplied by ln(t + 1) / ln(seq_length)"
            self.top.note("beyond", "use_logn_attn", f"{says}; vLLM leaves it out (its issue 36880)")
        unknown = f"no rope_type {self.rope_type} that is known here has it"
        decides = f"it may decide how a {self.kind} turns, and what is said here does not have it"
        for keys, known, other in (
            (self.keys, facts.IN_ROTATION, unknown),
            (self.top, facts.OF_MODEL, decides),
        ):
            for key, value in keys.rest():
                kind = next((kind for kind, words in known.items() if key in words), "unknown")
                says = other if kind == "unknown" else known[kind][key].format(rope_type=self.rope_type)
                if one and key in facts.SCALES:
                    kind, says = "ignored", f"the class of a {self.kind} does not read it"
                if kind != "unknown" or keys is self.keys or facts.DECIDES.search(key):
                    keys.note(kind, key, f"{brief(value)}: {says}")
