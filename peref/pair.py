"""Pair: an encoder, which reads a sequence both ways, and a decoder, which writes another and attends to what
the encoder made of the first. Two Configs that share their embedding; a combination that cannot work is
refused here, in words.

Not here: what they compute (encoder_decoder.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peref.config import Config, Cycle
from peref.errors import Misuse


@dataclass(frozen=True)
class Pair:
    """encoder: causal=False; decoder: cross=True. Both have the same width C and vocabulary V; the encoder's
    head is not used.
    """

    encoder: Config
    decoder: Config

    def __post_init__(self) -> None:
        if self.encoder.causal or self.encoder.cross:
            raise Misuse("an encoder reads both ways and itself alone; set causal=False and cross=False")
        if not (self.decoder.causal and self.decoder.cross):
            raise Misuse("a decoder reads the past and its encoder; set causal=True and cross=True")
        for name in "CV":
            theirs, ours = getattr(self.encoder, name), getattr(self.decoder, name)
            if theirs != ours:
                what = f"{name} is {theirs} in the encoder and {ours} in the decoder"
                raise Misuse(f"{what}; expected the same")

    @property
    def L(self) -> int:
        """The length that the decoder was trained for, in tokens."""
        return self.decoder.L

    @property
    def V(self) -> int:
        """The size of the vocabulary, which both halves share."""
        return self.decoder.V

    @property
    def pe(self) -> Cycle:
        """The members of both cycles."""
        return (*self.encoder.pe, *self.decoder.pe)

    @property
    def tied(self) -> bool:
        """Whether the decoder's head is the embedding itself."""
        return self.decoder.tied

    @property
    def layers(self) -> int:
        """How many layers both halves have together."""
        return self.encoder.layers + self.decoder.layers

    @property
    def encodings(self) -> list[str]:
        """The names of all encodings in both, each once."""
        return list(dict.fromkeys(self.encoder.encodings + self.decoder.encodings))

    @property
    def named(self) -> str:
        """The names of both cycles."""
        return f"{self.encoder.named} before {self.decoder.named}"

    def ends(self, dtype: Any) -> tuple[float, str]:
        """As Config.ends, of the one that ends first."""
        return min(self.encoder.ends(dtype), self.decoder.ends(dtype))

    def to_json(self) -> dict[str, Any]:
        """As plain data; `from_json` reads it back."""
        return self.decoder.to_json() | {"encoder": self.encoder.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Pair":
        """Raises Misuse for unknown fields and for values that do not fit."""
        rest = {name: value for name, value in data.items() if name != "encoder"}
        return cls(Config.from_json(data["encoder"]), Config.from_json(rest))


Model = Config | Pair


def model_from_json(data: Mapping[str, Any]) -> Model:
    """What to_json of a Pair, or of a Config, gave. Raises Misuse as from_json of both."""
    return Pair.from_json(data) if "encoder" in data else Config.from_json(data)
