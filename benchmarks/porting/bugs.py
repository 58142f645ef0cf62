"""Twenty mistakes of ports: ten that were named beforehand, and ten chosen from public trackers. For each is
fixed, without looking at what `diff` says: the family, the first tensor that is wrong, and the words of which
a right diagnosis must have one.

Not here: M-RoPE's sections swapped. Text alone cannot show it, for all axes of its positions are equal, and a
trace has no others; the last channels turned in place of the first stand for it.
"""

from typing import NamedTuple


class Bug(NamedTuple):
    """name is the switch of engine.Port; `first`: tensors, any of which is right, where an engine that leaves
    one out may be told by the next; `words`: a regular expression.
    """

    name: str
    family: str
    first: tuple[str, ...]
    words: str
    source: str = ""


NAMED = [
    Bug("window on the wrong layers", "gemma3_text", ("layers.0.probabilities",), r"window"),
    Bug("base of the other kind of layer", "gemma3_text", ("layers.0.q_turned",), r"\bbase\b|theta"),
    Bug("sinks left out", "gpt_oss", ("layers.0.probabilities",), r"sink"),
    Bug("temperature off by one", "llama4_text", ("layers.3.q_turned",), r"temperature"),
    Bug(
        "halves for neighbours",
        "cohere2",
        ("layers.0.q_turned",),
        r"layout|half|halves|neighbou?r|interleaved",
    ),
    Bug("tied head missing", "qwen3", ("logits",), r"\btied\b|embed|\bhead\.weight|\bthe head\b"),
    Bug(
        "the last channels turn, not the first",
        "gpt_neox",
        ("layers.0.q_turned",),
        r"channels|rotary|partial",
    ),
    Bug("softcap after the mask", "gemma2", ("layers.0.probabilities",), r"(?s)(?=.*cap)(?=.*mask)"),
    Bug("QK-norm after the rotation", "qwen3", ("layers.0.q",), r"(?s)(?=.*norm)(?=.*(rotat|turn))"),
    Bug(
        *("layers without positions inverted", "smollm3", ("layers.0.q_turned", "layers.0.scores")),
        r"(not|no|never|without|should|does).{0,40}(turn|rotat|position)",
    ),
]
OTHERS = [
    Bug(
        *("norm weights are not counted from one", "gemma2", ("layers.0.normed",)),
        r"from one|from_one|1 ?\+|\bone\b.*weight|weight.*\bone\b",
        "https://github.com/NeuraLegion/shainet/pull/176",
    ),
    Bug(
        *("residual in sequence, not in parallel", "gpt_neox", ("layers.0.ffn_normed",)),
        r"parallel|sequen",
        "https://github.com/TransformerLensOrg/TransformerLens/issues/1644",
    ),
    Bug(
        *("scale of the head width", "gemma3_text", ("layers.0.scores",)),
        r"\bscale",
        "https://github.com/ggml-org/llama.cpp/pull/8444",
    ),
    Bug(
        *("window wider by one", "mistral", ("layers.0.probabilities",)),
        r"window",
        "https://github.com/huggingface/transformers/issues/39408",
    ),
    Bug(
        *("all channels turn", "gpt_neox", ("layers.0.q_turned",)),
        r"channels|rotary|partial",
        "https://github.com/ml-explore/mlx-lm/pull/1698",
    ),
    Bug(
        *("scaling of Llama 3 left out", "llama", ("layers.0.q_turned",)),
        r"llama3|llama 3|scaling|unscaled|frequenc",
        "https://github.com/ggml-org/llama.cpp/pull/8676",
    ),
    Bug(
        *("slopes as if heads were a power of two", "bloom", ("layers.0.bias",)),
        r"slope",
        "https://github.com/ml-explore/mlx/issues/343",
    ),
    Bug(
        *("factor of YaRN on q and k left out", "gpt_oss", ("layers.0.q_turned",)),
        r"\bgain|factor|mscale",
        "https://github.com/turboderp-org/exllamav3/issues/259",
    ),
    Bug(
        *("biases of q, k and v left out", "qwen2", ("layers.0.q",)),
        r"\bbias(es)?\b",
        "https://github.com/sbryngelson/ANEForge/pull/253",
    ),
    Bug(
        *("key-value heads tiled", "llama", ("layers.0.scores",)),
        r"group|tile|repeat|key-value head|\bGQA\b",
        "https://github.com/ekzhang/jax-js/pull/180",
    ),
]
