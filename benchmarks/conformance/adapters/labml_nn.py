"""labml's annotated implementations: RotaryPositionalEmbeddings (halves), ALiBi's slopes and biases,
sinusoids. Positions count from 0 there.
"""

import torch
from labml_nn.transformers.alibi import get_alibi_biases, get_slopes
from labml_nn.transformers.positional_encoding import get_positional_encoding
from labml_nn.transformers.rope import RotaryPositionalEmbeddings
from through_torch import adapter, counts, plain_attention, rotated, rows

PACKAGES = ("labml-nn", "torch")
DTYPES = ("f32", "bf16")


def compute(case, a):
    o, facts = case["options"], case["facts"]
    match case["encoding"]:
        case "rope" if (
            counts(case, a) and not o["learned"] and facts["layout"] == "half" and case["level"] != "table"
        ):
            made = RotaryPositionalEmbeddings(facts["R"], o["base"])
            return rotated(case, a, lambda x, role: made(x.permute(2, 0, 1, 3)).permute(1, 2, 0, 3))
        case "alibi" if (o["slopes"], o["directions"], o["max_bias"]) == ("fixed", "both", 8.0):
            if case["level"] == "table":
                # slopes are theirs, distances ours
                return {"bias": -get_slopes(facts["H"])[:, None] * a["distances"].abs()}
            if case["level"] == "op" or not counts(case, a) or "seg" in a or not facts["causal"]:
                return None  # a row's constant is left out
            bias = get_alibi_biases(facts["H"], torch.tril(torch.ones(facts["T"], facts["T"])))
            found = plain_attention(case, a, a["q"], a["k"], a["v"], bias.permute(2, 0, 1))
            # its scores are ours plus a number for each row
            return {name: found[name] for name in ("probabilities", "out")}
        case "sinusoidal" if (o["layout"], o["ladder"], o["base"], o["learned"]) == (
            "interleaved",
            "paper",
            10000.0,
            False,
        ) and facts["C"] % 2 == 0:
            if not rows(a):
                return None
            i = a["positions"]
            found = get_positional_encoding(facts["C"], int(i.max()) + 1)[i, 0]
            return {"rows": found} if case["level"] == "table" else {"y": a["x"] + found}
    return None


run = adapter(compute)
