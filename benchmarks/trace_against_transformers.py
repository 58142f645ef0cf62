"""Traces of public models against what transformers dumps, tensor by tensor, with gradients.

    pip install -e . torch transformers          # peref and its tests need neither of the two
    python benchmarks/trace_against_transformers.py [NAME ...]

Each line is a model of against_transformers.py: its tiny random weights are saved by transformers, dumped by
docs/dump_transformers.py, imported from the folder, and traced in float64. Told are how many tensors and
of their gradients were compared, which the dump lacks, the largest deviation with its tensor, relative to the
largest number of that tensor, and the largest of the model as shipped, whose float32 steps (norms, angles)
explain it; otherwise these run in float64. Scores are compared where a query sees the key, for their engines
need not compute others. Exit code 1 if a deviation is beyond 1e-9 or not a number, or if a tensor has a name
that is none of ours.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from against_transformers import MODELS, deviation, in_double
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from peref.evaluate import weights_of
from peref.imported import import_run
from peref.porting import names_of, unload
from peref.trace import halves, noted_in, trace

sys.path.append(str(Path(__file__).resolve().parent.parent / "docs"))  # from where a porter copies it
from dump_transformers import dumped

TOLERANCE, TOKENS, SOURCE = 1e-9, 13, 17
MUST = (
    *("llama", "mistral", "ministral3", "qwen2", "qwen3", "smollm3", "granite", "glm", "phi3-longrope"),
    *("gemma2", "gemma3", "gemma3-scaled", "olmo2", "olmo3", "olmo3-types", "cohere", "cohere2"),
    *("mixtral", "qwen3-moe", "gpt-oss", "gpt-oss-scaled", "gpt2", "gpt-neox", "gpt-neox-sequential"),
    *("llama4", "phi", "gptj", "falcon", "falcon-new", "falcon-sequential", "bloom", "mpt", "mamba"),
    *("rwkv", "t5", "t5-gated-untied", "t5-gated-tied", "t5-untied"),
)
HEAD = ("model", "tensors", "gradients", "lacks", "largest", "of", "as shipped")


def arrays(found: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: x.double().numpy() for name, x in found.items()}


def measured(name: str, folder: Path) -> tuple[float, list[str]]:
    """The largest deviation, and a line of the table. Raises KeyError for a name that is none of ours."""
    made, config = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    net = made(config)
    with torch.no_grad():
        for p in net.parameters():  # none special: norms away from one, biases away from zero
            p.copy_(torch.randn_like(p) * (2 * p.shape[-1] ** -0.5 if p.ndim == 2 else 0.5) + (p.ndim == 1))
    net.save_pretrained(folder / "theirs")
    tokens = torch.randint(0, config.vocab_size, (1, TOKENS)).tolist()
    about = {"tokens": tokens, "n": TOKENS, "positions": list(range(TOKENS)), "seg": None}
    cfg, params, _ = weights_of(import_run(folder / "theirs", folder, [], name="mine", dtype="float64"))
    kind, source = AutoModelForCausalLM, None
    if cfg.encoder:
        kind, source = AutoModelForSeq2SeqLM, torch.randint(0, config.vocab_size, (1, SOURCE)).tolist()
        about["encoder_tokens"] = source
    net = kind.from_pretrained(folder / "theirs", dtype=torch.float64)
    shipped = arrays(dumped(net, about))
    with in_double():
        double = made(config).double()
        double.load_state_dict(net.state_dict())
        theirs = arrays(dumped(double, about, gradients=True))
    mine = trace(cfg, params, np.array(tokens), gradients=True, source=source)
    front = "gradient.parameter."  # by their names: some of ours in one of theirs have none but rounding
    own = {name: mine.pop(f"{front}{name}") for name in params}
    mine |= {f"{front}{name}": a for name, a in unload(own, cfg, names_of(config.to_dict())).items()}
    if lost := {name for name in mine if name.startswith(front)} - theirs.keys():
        raise KeyError(f"{name}: the dump has no {min(lost)}")
    if strange := theirs.keys() - mine.keys():
        raise KeyError(f"{name}: {sorted(strange)[:3]} of theirs are none of ours")

    def apart(name: str, a: np.ndarray) -> float:
        seen = mine[f"{name[:-6]}probabilities"] > 0 if name.endswith(".scores") else np.True_
        return deviation(np.where(seen, a, 0), np.where(seen, mine[name], 0))

    of_parameters = max(apart(n, a) for n, a in theirs.items() if n.startswith(front))
    theirs = {n: a for n, a in theirs.items() if not n.startswith(front)}
    worst, where = max((apart(n, a), n) for n, a in theirs.items())
    single = max(apart(n, a) for n, a in shipped.items())
    halves_of = halves(cfg).items()
    wanted = {
        f"{front}layers.{k}.{n}" for front, of in halves_of for k in range(of.layers) for n in noted_in(of, k)
    }
    lacking = sorted({n.rpartition(".")[2] for n in wanted - theirs.keys()})
    gradients = sum(n.startswith("gradient.") for n in theirs)
    counts = [str(len(theirs) - gradients), str(gradients), ", ".join(lacking) or "-"]
    return max(worst, of_parameters), [name, *counts, f"{worst:.1e}", where, f"{single:.1e}"]


if __name__ == "__main__":
    beyond = False
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    for name in sys.argv[1:] or MUST:
        with tempfile.TemporaryDirectory() as folder:
            worst, line = measured(name, Path(folder))
        print("| " + " | ".join(line) + " |", flush=True)
        beyond |= not worst <= TOLERANCE
    sys.exit(beyond)
