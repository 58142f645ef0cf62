"""Base, widths, layout and lengths of the layers of one type: what every rope_type has."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from peref.errors import Misuse
from peref.huggingface import facts
from peref.huggingface.facts import BASES, LENGTH, ORIGINAL, SAVED, SHARES
from peref.huggingface.keys import Keys, brief, digits
from peref.huggingface.rotation import Note


@dataclass
class Layer:
    """What layers of one type have, and the notes on it. `keys` is the dict of their rotation, `top` that
    of the model.
    """

    top: Keys
    kind: str  # model_type
    longest: int | None
    label: str
    keys: Keys
    base_of_type: float | None
    which: tuple[int, ...]
    notes: list[Note]
    lengths: tuple[int, ...] = ()

    def note(self, kind: str, key: str, says: str) -> None:
        self.notes.append(Note(kind, key, says))

    @cached_property
    def rope_type(self) -> str:
        new, old = self.keys.get("rope_type", str), self.keys.get("type", str)
        if new and old and new != old and {new, old} not in ({"longrope", "su"}, {"default", "mrope"}):
            self.note(
                "contradictory",
                self.keys.at("type"),
                f"it is {old!r} and rope_type is {new!r}; rope_type counts",
            )
        given = {key for key, value in self.keys.values.items() if value is not None}
        if not new and not old and given - {*BASES, *SHARES, "mrope_section"}:
            self.note(
                "assumed",
                self.keys.at("rope_type"),
                "absent, which is 'default': the other keys beside it do nothing",
            )
        return new or old or "default"

    def base(self) -> float:
        inside, (key, outside) = self.keys.number("rope_theta"), self.top.first(BASES)
        if self.base_of_type is not None:
            return self.base_of_type
        if inside is not None and outside is not None and inside != outside:
            says = f"{key} is {digits(outside)} and rope_theta of {self.keys.where} is {digits(inside)}"
            self.note(
                "contradictory",
                key,
                f"{says}; Hugging Face takes the inner one now, and took the outer one before "
                "rope_parameters",
            )
        found = inside if inside is not None else outside
        if found is None:
            found = facts.BASE.get(self.kind, 10000.0)
            self.note(
                "assumed",
                "rope_theta",
                f"absent; {digits(found)}, "
                f"{'as the class has it' if self.kind in facts.BASE else 'as most classes have it'}",
            )
        times = self.top.number(facts.TIMES[self.kind]) if self.kind in facts.TIMES else None
        if times is not None and times != 1:
            says = (
                "the base is multiplied by it in the code of ChatGLM3 and GLM-4 and in engines; that of "
                "ChatGLM2 divides positions by it"
            )
            self.note(
                "differs",
                self.top.at(facts.TIMES[self.kind]),
                f"{digits(times)}: {says} (pi with factor={digits(times)})",
            )
        return found if times is None else found * times

    def head(self) -> int:
        """The width of a head."""
        turning = self.top.size("qk_rope_head_dim")
        if turning is not None:
            whole = (self.top.size("qk_nope_head_dim") or 0) + turning
            says = (
                f"theirs turn the last {turning} of {whole} channels, which is one key for all heads; here "
                f"it is the first {turning}"
            )
            self.note(
                "differs",
                "qk_rope_head_dim",
                f"{says}: move the columns of the weights, the numbers are the same",
            )
            return whole
        keys = ("global_head_dim", "head_dim") if self.label == "full_attention" else ("head_dim",)
        given = self.top.first((*keys, "attention_head_dim", "kv_channels"), "size")[1]
        C, H = (
            self.top.first(names, "size")[1]
            for names in (("hidden_size", "n_embd", "d_model"), ("num_attention_heads", "n_head"))
        )
        if given is None and (C is None or H is None):
            raise Misuse(f"the config has no head_dim, and no hidden_size with num_attention_heads; {SAVED}")
        if given is None and C % H:
            raise Misuse(
                f"hidden_size {C} does not divide by num_attention_heads {H}, and the config has no head_dim"
            )
        return C // H if given is None else given

    def width(self, kind: str, D: int) -> int:
        """How many channels of a head turn."""
        inside, (key, outside) = self.keys.number(SHARES[0]), self.top.first(SHARES)
        if (turning := self.top.size("qk_rope_head_dim")) is not None:
            return turning
        if inside is not None and outside is not None and inside != outside:
            self.note(
                "contradictory",
                key,
                f"{digits(outside)}, and {digits(inside)} in {self.keys.where}, which counts",
            )
        if kind == "proportional":
            return D
        key, share = (SHARES[0], inside) if inside is not None else (key or SHARES[0], outside)
        wide = self.top.size("rotary_dim")
        if share is None and wide is None and self.kind in facts.SHARE:
            share = facts.SHARE[self.kind]
            self.note("assumed", SHARES[0], f"absent; {digits(share)}, as the class has it")
        if wide is not None and share is not None and wide != int(D * share):
            self.note(
                "contradictory",
                "rotary_dim",
                f"it is {wide}, and {key} {digits(share)} means {int(D * share)}; rotary_dim counts",
            )
        R = wide if wide is not None else int(D * (1 if share is None else share))
        if R % 2 or not 0 < R <= D:
            said = (
                f"rotary_dim is {wide}"
                if wide is not None
                else f"{key} {1 if share is None else digits(share)} of {D} channels is {R}"
            )
            raise Misuse(f"{said}; expected an even number from 2 to {D}, channels turn in pairs")
        return R

    def layout(self) -> Any:
        if (said := self.top.get("rope_interleave", bool)) is not None:
            return "interleaved" if said else "half"
        for layout, kinds in facts.LAYOUTS.items():
            if self.kind in kinds.split():
                return layout
        self.note(
            "assumed",
            "layout",
            f"half, that of most of Hugging Face's classes; model_type {self.kind} is not known here",
        )
        return "half"

    def original(self) -> int:
        """The length trained for before scaling: the outer key outranks the inner one, and
        max_position_embeddings stands for both.
        """
        inside, outside = self.keys.size(ORIGINAL), self.top.size(ORIGINAL)
        if inside is not None and outside is not None and inside != outside:
            self.note(
                "contradictory",
                ORIGINAL,
                f"{outside}, and {inside} in {self.keys.where}; Hugging Face takes the outer one",
            )
        found = outside if outside is not None else inside
        if found is not None:
            return found
        if self.longest is None:
            raise Misuse(f"{self.keys.where} has no {ORIGINAL}, and the config no {LENGTH[0]}; {SAVED}")
        self.note(
            "assumed",
            self.keys.at(ORIGINAL),
            f"absent; {LENGTH[0]}, {self.longest}, stands for it",
        )
        return self.longest

    def ratio(self, original: int) -> float | None:
        return None if self.longest is None else self.longest / original

    def stretched(self, factor: float) -> None:
        """vLLM's longest text where it is another than theirs."""
        if factor != 1 and self.longest is not None:
            says = (
                f"vLLM takes it for the length before scaling and serves {digits(self.longest * factor)} "
                "tokens"
            )
            self.note("differs", LENGTH[0], f"{self.longest}; {says}, Hugging Face has no such limit")

    def notice_rest(self) -> None:
        """Keys that nobody asked for."""
        for key, value in self.keys.values.items():
            if key in self.keys.read or value is None or value is False:
                continue
            at = self.keys.at(key)
            if key in facts.BEYOND:
                self.note("beyond", at, f"{brief(value)}: {facts.BEYOND[key]}")
            elif key in facts.IGNORED:
                self.note("ignored", at, f"rope_type {self.rope_type} does not read it{facts.IGNORED[key]}")
            else:
                self.note(
                    "unknown", at, f"{brief(value)}: no rope_type {self.rope_type} that is known here has it"
                )
        for key, value in self.top.values.items():
            if key in self.top.read or value is None or value is False or not facts.DECIDES.search(key):
                continue
            if key in facts.STORED:
                self.note("ignored", self.top.at(key), f"{brief(value)}: {facts.STORED[key]}")
                continue
            self.note(
                "unknown",
                self.top.at(key),
                f"{brief(value)}: it may decide how a {self.kind} turns, and what is said here does not "
                "have it",
            )

    def notice_scale(self) -> None:
        """What else decides the logits."""
        if self.top.get("dual_chunk_attention_config", dict):
            says = (
                "vLLM folds positions that are further apart than a chunk; Hugging Face does not read it, "
                "and turns by the plain positions"
            )
            self.note("differs", "dual_chunk_attention_config", says)
        if self.kind in facts.STEPS and self.top.get("use_logn_attn", bool):
            says = (
                "a query at position t, from seq_length on, is multiplied by ln(t + 1) / ln(seq_length); "
                "vLLM leaves it out (its issue 36880)"
            )
            self.note("beyond", self.top.at("use_logn_attn"), says)
        if self.top.values.get("attn_temperature_tuning"):
            says = (
                "queries of layers without positions are multiplied by 1 + attn_scale ln(1 + floor((t + 1) "
                "/ floor_scale)), t their position"
            )
            self.note("beyond", self.top.at("attn_temperature_tuning"), says)
        if self.kind in facts.SCALE_ONE:
            self.note(
                "beyond",
                "the softmax scale",
                f"1 in a {self.kind}, whose q and k are normed, in place of the one below",
            )
        for key, says in facts.SCALES.items():
            if (value := self.top.number(key)) is None:
                continue
            if self.kind in facts.SCALE_ONE:
                self.note(
                    "ignored",
                    self.top.at(key),
                    f"{digits(value)}: the class of a {self.kind} does not read it",
                )
            else:
                self.note("beyond", key, f"{digits(value)}: {says}, which outranks the softmax scale below")
